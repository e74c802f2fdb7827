"""
Appending the messages of decided commits to their topics.

The messages of a commit are those of a producer with the commit's id, whose sequence
starts at 0.  The journal stores the sequence with each batch, so an attempt after a
crash, or by the next owner of a topic, appends exactly the missing messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from pydanube.model.errors import BrokerError, TopicFenced, TopicNotFound
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.wire.batches import BatchFrame, decode, restamp_producer
from pydanube.wire.files.journal_format import ProducerDeleted
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.broker.pure.producer_registrations import ProducerRegistration
from pydanube_broker.broker.staging.staged_parts import is_staged_producer, producer_of
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.metadata.records import StagedTopicRecord, StagingDecision
from pydanube_broker.storage.journal.staging import PartReader, StagedFiles
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)

PIECE_BYTES = 8 * 1024 * 1024
"""How much of a part is read and appended at a time."""
PRODUCER_EPOCH = 1
"""The epoch of a query's producer, which clients cannot open."""


@dataclass(slots=True)
class Target:
    """A topic to which a commit appends."""

    topic: ReliableTopic | None
    """None if the topic was deleted after the decision."""
    appended: int
    """The number of messages that an earlier attempt has appended."""
    sequence: int = 0
    """The sequence number of the next message that is read."""


class StagedAppender:
    """Appends the messages of parts to their topics."""

    def __init__(
        self,
        topics: Topics,
        storage: Storage,
        files: StagedFiles,
        *,
        final_errors: tuple[type[BrokerError], ...] = (TopicNotFound, TopicFenced),
        check_served: Callable[[ReliableTopic], object] = lambda _: None,
    ) -> None:
        """
        The remaining messages of a topic are dropped after one of *final_errors*.

        *check_served* raises ``NotOwner`` if another broker may append to a topic now.
        """
        self.dropped_count = 0
        """The number of messages whose topic was deleted after the decision."""
        self._topics = topics
        self._storage = storage
        self._files = files
        self._final_errors = final_errors
        self._check_served = check_served

    async def find_topic(self, record: StagedTopicRecord) -> ReliableTopic | None:
        """
        Return the topic of *record*; None if it was deleted.

        Raises:
            NotOwner: Another broker serves it.
        """
        try:
            topic = await self._topics.get_reliable(TopicName.parse(record.name))
        except TopicNotFound:
            topic = None
        if topic is None or topic.topic_id != record.topic_id:
            log.warning(
                "%s was deleted; dropping %d messages that were committed to it",
                record.name,
                record.message_count,
            )
            return None
        return topic

    def count_appended(
        self, query: str, decision: StagingDecision, record: StagedTopicRecord
    ) -> int:
        """Return how many messages of a decision a topic has already."""
        state = self._storage.find_state(TopicId(record.topic_id))
        known = None if state is None else state.producers.get(producer_of(query))
        if known is None or known.producer_id != decision.commit_id:
            return 0
        return known.next_sequence

    async def append(
        self,
        commit_id: int,
        targets: Mapping[int, Target],
        openings: Iterable[Callable[[], Awaitable[PartReader]]],
    ) -> None:
        """
        Append the missing messages of parts, which *openings* open one by one.

        *targets* has every topic of the parts by id.

        Durability: On return every message is in the journal.

        Cancellation: The method can be called again, also after an error.
        """
        appends = _Appends()
        try:
            for open_part in openings:
                reader = await open_part()
                work = partial(_read_frames, reader, commit_id, targets)
                await self._append_part(work, targets, appends)
        finally:
            await appends.wait()
        appends.check()

    def forget_producer(self, query: str, record: StagedTopicRecord) -> None:
        """Delete the producer of a commit that was carried out."""
        deleted = ProducerDeleted(TopicId(record.topic_id), producer_of(query))
        self._storage.save(deleted)

    def forget_producers(self, queries: Iterable[str]) -> None:
        """
        Delete the producers of commits, except those of *queries*.

        A crash may have lost the entries that did this.
        """
        pending = set(map(producer_of, queries))
        for topic_id, topic in self._storage.journal.state.topics.items():
            for name in topic.producers:
                if is_staged_producer(name) and name not in pending:
                    self._storage.save(ProducerDeleted(topic_id, name))

    async def _append_part(
        self,
        read: Callable[[], _Frames],
        targets: Mapping[int, Target],
        appends: _Appends,
    ) -> None:
        is_last = False
        while not is_last:
            frames, dropped, is_last = await self._files.do(read)
            self.dropped_count += dropped
            for topic_id, frame in frames:
                self._topics.check_not_draining()
                if not self._topics.has_room:
                    await self._topics.wait_for_room()
                appends.check()
                self._append(targets[topic_id], frame, appends)

    def _append(self, target: Target, frame: BatchFrame, appends: _Appends) -> None:
        topic = target.topic
        if topic is None:
            self.dropped_count += frame.count
            return
        try:
            self._check_served(topic)
            topic.append(frame, partial(self._on_appended, target, frame, appends))
        except self._final_errors as error:
            self._drop(target, frame, error)
        else:
            appends.begin()

    def _on_appended(
        self,
        target: Target,
        frame: BatchFrame,
        appends: _Appends,
        _: int,
        error: BrokerError | None,
    ) -> None:
        if isinstance(error, self._final_errors):
            self._drop(target, frame, error)
            error = None
        appends.end(error)

    def _drop(self, target: Target, frame: BatchFrame, error: BrokerError) -> None:
        if target.topic is not None:
            log.warning("dropping committed messages: %s", error)
            target.topic = None
        self.dropped_count += frame.count


class _Appends:
    """Batches that are being appended to the journal."""

    def __init__(self) -> None:
        self._count = 0
        self._error: BrokerError | None = None
        self._all_ended = asyncio.Event()
        self._all_ended.set()

    def begin(self) -> None:
        """Count a batch that is being appended."""
        self._count += 1
        self._all_ended.clear()

    def end(self, error: BrokerError | None) -> None:
        """Count a batch that was appended, or failed with *error*."""
        self._count -= 1
        self._error = self._error or error
        if not self._count:
            self._all_ended.set()

    def check(self) -> None:
        """Raise the first error: no batch may follow one that failed."""
        if self._error is not None:
            raise self._error.with_traceback(None)

    async def wait(self) -> None:
        """Wait until no batch is being appended."""
        await self._all_ended.wait()


def register_commit(
    topic: ReliableTopic, query: str, count_max: int = 0
) -> ProducerRegistration:
    """
    Register the producer of a query's commit with *topic*.

    Raises:
        ProducerBusy: Another producer has exclusive access.
        QuotaExceeded: The topic has *count_max* producers already (0: no limit).
    """
    request = ProducerRegistration(name=producer_of(query), is_joining=True)
    registration = topic.registrations.register(request, count_max)
    # Only exclusive producers may be queued.
    assert registration is not None
    return registration


_Frames = tuple[list[tuple[TopicId, "BatchFrame"]], int, bool]


def _read_frames(
    reader: PartReader, commit_id: int, targets: Mapping[int, Target]
) -> _Frames:
    """
    Return the next missing batches, ready to be appended; runs in a thread.

    Also returns the number of messages for deleted topics, and whether the part ends.
    """
    frames, dropped = [], 0
    read = reader.read(PIECE_BYTES)
    for topic_id, staged in read:
        target = targets[topic_id]
        sequence = target.sequence
        target.sequence = sequence + staged.count
        if sequence < target.appended:
            continue
        if target.topic is None:
            dropped += staged.count
            continue
        # A copy, because the file's buffer is read-only and will be unmapped.
        frame = decode(bytearray(staged.buffer))
        restamp_producer(frame, commit_id, PRODUCER_EPOCH, sequence)
        frames.append((topic_id, frame))
    return frames, dropped, not read
