"""
Staged parts: the connections that fill them, and their sizes.

A part is filled through *stages*, one for each of its topics.  A batch is checked as if
it were published, and then written to the part's file instead of the topic's log.  An
error of one batch ends the whole part, because a part is committed completely or not
at all.  After a lost connection, however, the writer opens the stage again, learns how
much is written, and continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Protocol

from pydanube.model.errors import (
    BrokerError,
    OutOfSequence,
    Overloaded,
    QuotaExceeded,
    StagedPartNotFound,
    StagingClosed,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.schemas import ProducerSchema
from pydanube.model.staging import PartKey
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.staging_format import FileHeader, PartEnd
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.broker.pure.limits import check_header, verify
from pydanube_broker.storage.config import StagingConfig
from pydanube_broker.storage.journal.staging import PartFile, RecoveredPart, StagedFiles

OPEN_PARTS_MAX = 1000
"""The most parts that are written at a time; each has an open file."""
TOPICS_MAX = 10_000
"""The most topics of one part."""


_PRODUCER_PREFIX = "staged/"


def producer_of(query: str) -> str:
    """Return the producer name of a query's messages; clients cannot use it."""
    return f"{_PRODUCER_PREFIX}{query}"


def is_staged_producer(name: str) -> bool:
    """Return whether *name* is the producer name of a query's messages."""
    return name.startswith(_PRODUCER_PREFIX)


class StagePort(Protocol):
    """The connection that fills a stage, implemented by a server."""

    def staged(self, next_sequence: int) -> None:
        """Report that the messages below *next_sequence* are written."""

    def close(self, reason: BrokerError) -> None:
        """Report that the stage was closed."""


class Stage:
    """A connection's access to one topic of a part."""

    def __init__(
        self,
        part: Part,
        content: _TopicContent,
        topic: ReliableTopic,
        schema: ProducerSchema | None,
        port: StagePort,
    ) -> None:
        self.producer = producer_of(part.key.query)
        self.schema = schema
        self._part = part
        self._content = content
        self._topic = topic
        self._port: StagePort | None = port

    @property
    def next_sequence(self) -> int:
        """The number of messages that the part accepted for the topic."""
        return self._content.accepted

    def take(self, frame: BatchFrame) -> None:
        """
        Stage the next batch; the port is told when it is written.

        An invalid batch ends the part, and the port is told the error.
        """
        if self._port is None:
            return
        part, content, header = self._part, self._content, frame.header
        part.touch()
        if header.base_sequence + header.count <= content.accepted:
            # Sent again after a lost connection.
            self._tell_written()
            return
        try:
            self._check(frame)
            # Before the validation, which may end after the next batch has come.
            content.accepted += header.count
            validation = self._topic.schema_validation
            if validation is None:
                self._store(frame)
            else:
                validation.admit(frame, self.schema, self._store, self._on_refused)
        except BrokerError as error:
            part.fail(error)

    def refuse(self, reason: BrokerError) -> None:
        """End the part, because a batch is invalid."""
        self._part.fail(reason)

    def leave(self) -> None:
        """Detach the connection, which was lost or replaced."""
        self._port = None
        self._part.leave(self)

    def close(self, reason: BrokerError) -> None:
        """Tell the port that the part accepts no more batches."""
        # Detached first: a batch that the port still passes on is ignored.
        port, self._port = self._port, None
        if port is not None:
            port.close(reason)

    def _check(self, frame: BatchFrame) -> None:
        header = frame.header
        if header.base_sequence != self._content.accepted:
            raise OutOfSequence(
                f"the batch begins with sequence {header.base_sequence}; "
                f"{self._content.accepted} was expected"
            )
        check_header(header, self.producer)
        verify(frame, self._topic.limits.max_message_size, self._topic.name)

    def _store(self, frame: BatchFrame) -> None:
        self._part.append(self._content.number, frame, partial(self._on_written, frame))

    def _on_written(self, frame: BatchFrame, error: BrokerError | None) -> None:
        if error is not None:
            self._part.fail(error)
            return
        header = frame.header
        self._content.written = header.base_sequence + header.count
        self._tell_written()

    def _on_refused(self, _: object, error: BrokerError | None) -> None:
        assert error is not None
        self._part.fail(error)

    def _tell_written(self) -> None:
        if self._port is not None:
            self._port.staged(self._content.written)


@dataclass(slots=True)
class _TopicContent:
    """The messages of a part for one topic, by number."""

    number: int
    topic_id: int
    accepted: int = 0
    written: int = 0


class Part:
    """One part: its file and its stages."""

    def __init__(
        self, parts: StagedParts, key: PartKey, file: PartFile, now: float
    ) -> None:
        self.key = key
        self.file = file
        self.touched_at = now
        self.batch_count = 0
        self.message_count = 0
        self.byte_count = 0
        """The size of the file, including batches that are being written."""
        self.is_finished = False
        self.damage: str | None = None
        """The damage of the file when the broker started, if any."""
        self._parts = parts
        self._contents: dict[str, _TopicContent] = {}
        self._stages: dict[str, Stage] = {}
        self._finishing: asyncio.Future[None] | None = None

    @property
    def number(self) -> int:
        """The number of its file."""
        return self.file.header.number

    @property
    def is_open(self) -> bool:
        """Whether it accepts batches."""
        return self._finishing is None and not self.is_finished

    @property
    def topics(self) -> list[str]:
        """The topics that it has messages for."""
        return list(self._contents)

    def touch(self) -> None:
        """Note that the part is in use, so that it does not expire."""
        self.touched_at = self._parts.now()

    def restore(self, found: RecoveredPart) -> None:
        """Restore the state of the part from its file."""
        content = found.content
        self.batch_count = content.batch_count
        self.message_count = content.message_count
        self.byte_count = found.byte_count if content.is_finished else content.end
        self.is_finished = content.is_finished
        self.damage = content.damage
        for topic, count in zip(content.topics, content.message_counts, strict=True):
            self._contents[topic.name] = _TopicContent(
                topic.number, topic.topic_id, count, count
            )

    def stage(
        self, topic: ReliableTopic, schema: ProducerSchema | None, port: StagePort
    ) -> Stage:
        """
        Open a stage for *topic*, and close an earlier one.

        Raises:
            StagingClosed: The part is finished.
            StagedPartNotFound: The topic was deleted and created again meanwhile.
        """
        if not self.is_open:
            raise StagingClosed(f"the part {self.key.name} is finished")
        name = str(topic.name)
        content = self._contents.get(name)
        if content is None:
            content = self._add(name, topic)
        elif content.topic_id != topic.topic_id:
            raise StagedPartNotFound(
                f"{name} was deleted after messages were staged for it; stage the part "
                "again"
            )
        before = self._stages.get(name)
        if before is not None:
            before.close(StagingClosed("the part is written through another channel"))
        stage = Stage(self, content, topic, schema, port)
        self._stages[name] = stage
        # Writing to the file cuts off its damaged end.
        self.damage = None
        self.touch()
        return stage

    def append(
        self, number: int, frame: BatchFrame, done: Callable[[BrokerError | None], None]
    ) -> None:
        """
        Append a checked batch to the file.

        Raises:
            QuotaExceeded: Too much is staged already.
            StagingClosed: The part is finished or was dropped.
        """
        if not self.is_open or not self._parts.knows(self):
            raise StagingClosed(f"the part {self.key.name} accepts no more batches")
        self._parts.check_room_for(frame.byte_count)
        self.file.append_batch(number, frame, done)
        self.batch_count += 1
        self.message_count += frame.count
        self._measure()

    async def finish(self, batch_count: int, message_count: int) -> None:
        """
        Complete the part, which must have these counts.

        Durability: On return it is on disk.

        Raises:
            StagedPartNotFound: Its counts differ.
            DiskFull, Unavailable: It cannot be written, and is dropped.
        """
        if self.is_finished:
            return
        if self._finishing is None:
            self._check_complete(batch_count, message_count)
            self.damage = None
            # From here on is_open is false, so that no batch follows the end.
            self._finishing = asyncio.get_running_loop().create_future()
            assert not self.is_open
            self._parts.on_finished(self)
            self._close_stages(StagingClosed(f"the part {self.key.name} is finished"))
            self._parts.run(self._finish(self._finishing))
            self._measure()
        # Writers that repeat the request wait for the same end; one of them may go.
        await asyncio.shield(self._finishing)

    def fail(self, error: BrokerError) -> None:
        """Drop the part, and close its stages with the error."""
        self._close_stages(error)
        self._parts.drop(self)

    def leave(self, stage: Stage) -> None:
        """Remove a stage."""
        self._stages = {
            name: each for name, each in self._stages.items() if each is not stage
        }

    def _add(self, name: str, topic: ReliableTopic) -> _TopicContent:
        if len(self._contents) >= TOPICS_MAX:
            raise QuotaExceeded(
                f"a part can have messages for at most {TOPICS_MAX} topics"
            )
        content = _TopicContent(len(self._contents), topic.topic_id)
        self._contents[name] = content
        self.file.append_topic(content.number, topic.topic_id, name)
        self._measure()
        return content

    def _measure(self) -> None:
        before, self.byte_count = self.byte_count, self.file.byte_count
        self._parts.byte_count += self.byte_count - before

    def _check_complete(self, batch_count: int, message_count: int) -> None:
        if (batch_count, message_count) != (self.batch_count, self.message_count):
            raise StagedPartNotFound(
                f"the part {self.key.name} has {self.message_count} messages in "
                f"{self.batch_count} batches, its writer has staged {message_count} in "
                f"{batch_count}; stage the part again"
            )

    async def _finish(self, finishing: asyncio.Future[None]) -> None:
        try:
            await self.file.finish(PartEnd(self.batch_count, self.message_count))
        except BrokerError as error:
            # There may be no waiter left: mark the exception as retrieved.
            finishing.set_exception(error)
            finishing.exception()
            self.fail(error)
        else:
            self.is_finished = True
            self._measure()
            finishing.set_result(None)

    def _close_stages(self, reason: BrokerError) -> None:
        stages, self._stages = self._stages, {}
        for stage in stages.values():
            stage.close(reason)


class StagedParts:
    """All staged parts, finished or not."""

    def __init__(
        self,
        files: StagedFiles,
        config: StagingConfig,
        tasks: asyncio.TaskGroup,
        *,
        clock: Callable[[], float],
        wall_clock_us: Callable[[], int],
        check_disk: Callable[[], None] = lambda: None,
    ) -> None:
        """*check_disk* raises ``DiskFull`` while nothing may be staged."""
        self.byte_count = 0
        """The size of all parts on disk, including those that are being committed."""
        self.expired_count = 0
        """The number of parts that have expired."""
        self.now = clock
        self._files = files
        self._config = config
        self._tasks = tasks
        self._wall_clock_us = wall_clock_us
        self._check_disk = check_disk
        self._parts: dict[PartKey, Part] = {}
        self._open: set[Part] = set()

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts.values())

    def __len__(self) -> int:
        """Return the number of parts, without those that are being committed."""
        return len(self._parts)

    def restore(self, found: RecoveredPart) -> Part:
        """Restore a part from the file that the broker found at startup."""
        header = found.content.header
        part = Part(self, header.key, self._files.reopen(found), self.now())
        part.restore(found)
        self.byte_count += part.byte_count
        self._add(part)
        return part

    def find(self, key: PartKey) -> Part | None:
        """Return the part that *key* names, if it exists."""
        return self._parts.get(key)

    def of_query(self, query: str, version: int | None = None) -> list[Part]:
        """Return all parts of a query (of *version*)."""
        return [
            part
            for part in self
            if part.key.query == query and version in {None, part.key.version}
        ]

    def knows(self, part: Part) -> bool:
        """Return whether the part was neither dropped nor taken."""
        return self.find(part.key) is part

    def find_or_create(self, key: PartKey) -> Part:
        """
        Return the part that *key* names; create it if it does not exist.

        Raises:
            Overloaded: ``OPEN_PARTS_MAX`` parts are being written.
        """
        part = self.find(key)
        if part is None:
            if len(self._open) >= OPEN_PARTS_MAX:
                raise Overloaded(f"{OPEN_PARTS_MAX} parts are being staged already")
            now = self._wall_clock_us()
            file = self._files.create(lambda number: FileHeader(number, key, now))
            part = Part(self, key, file, self.now())
            self._add(part)
        return part

    def check_room_for(self, byte_count: int) -> None:
        """
        Raise if *byte_count* more bytes cannot be staged.

        Raises:
            QuotaExceeded: The total would exceed ``staging.bytes_max``.
            DiskFull: The disk is full.
        """
        self._check_disk()
        if self.byte_count + byte_count > self._config.bytes_max:
            raise QuotaExceeded(
                f"staged batches take {self.byte_count} bytes, and staging.bytes_max "
                f"is {self._config.bytes_max}; commit smaller versions, drop versions "
                "that are not needed, or raise the setting"
            )

    def drop(self, part: Part) -> None:
        """Drop a part, and remove its file soon."""
        if self.knows(part):
            self.take(part)
            self.byte_count -= part.byte_count
            self.run(part.file.drop())

    def take(self, part: Part) -> None:
        """Hand a part to a commit; its size still counts."""
        self.on_finished(part)
        del self._parts[part.key]

    def give_back(self, part: Part) -> None:
        """Take back a part whose commit was refused."""
        part.touch()
        self._add(part)

    def on_finished(self, part: Part) -> None:
        """Note that the part accepts no more batches."""
        self._open.discard(part)

    def expire(self) -> None:
        """Drop parts that were not used for ``staging.expiry_s``."""
        begin = self.now() - self._config.expiry_s
        for part in [each for each in self if each.touched_at < begin]:
            self.expired_count += 1
            part.fail(StagedPartNotFound(f"the part {part.key.name} has expired"))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* in a task."""
        self._tasks.create_task(work)

    async def close(self) -> None:
        """Close all files without removing them."""
        for part in self:
            await part.file.close()

    def _add(self, part: Part) -> None:
        self._parts[part.key] = part
        if part.is_open:
            self._open.add(part)
