"""
What keeps the messages of one topic to the topic's subject.

Nearly every batch is judged at once, by the schema id and version in its header.
What takes longer is to find a version that was not seen before, and to look into the
payloads of a large batch; then the batch waits, and so does everything behind it, so
that the order stays that of the calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.model.errors import (
    BrokerError,
    InvalidPayload,
    InvalidSchema,
    SchemaMismatch,
    SchemaNotFound,
)
from pydanube.model.schemas import SchemaPolicy
from pydanube.schemas.language import BadPayload, invalid_payload
from pydanube.schemas.parsed_schema import Validator

if TYPE_CHECKING:
    from pydanube.broker.topic import Published
    from pydanube.model.names import TopicName
    from pydanube.model.schemas import ProducerSchema, TopicSchema
    from pydanube.schemas.registry import SchemaRegistry
    from pydanube.wire.batches import BatchFrame, BatchHeader

log = logging.getLogger(__name__)

VALIDATED_AT_ONCE_BYTES_MAX = 64 * 1024
"""The payloads of a larger batch are validated in a thread; this takes about 1 ms."""

SLOW_MAX = 2
"""The most batches in threads that may wait for another process."""

HELD_BYTES_MAX = 64 * 1024 * 1024
"""With so much waiting at the gates of all topics, servers take no more batches."""

VERSIONS_MAX = 100
"""So many versions of its subject are remembered by one gate."""

LOG_INTERVAL_S = 60.0
"""So often at most the log says that a topic's messages do not keep to its schema."""


Store = Callable[["BatchFrame"], None]
"""Stores a batch that was let through; raises as publishing does."""

Spare = Callable[[Sequence[BadPayload]], "BatchFrame | None"]
"""Refuses these messages of a batch alone; returns the rest of it, if there is any."""


class Hall:
    """How much waits at all gates of a broker."""

    def __init__(self) -> None:
        self.has_room = True
        self.slow = asyncio.Semaphore(SLOW_MAX)
        """Held while a batch is validated that might take long."""
        self._byte_count = 0
        self._emptied = asyncio.Event()
        self._emptied.set()

    async def room(self) -> None:
        """Wait until there is room for more batches."""
        await self._emptied.wait()

    def count(self, byte_count: int) -> None:
        """So many bytes more wait, or fewer if it is negative."""
        self._byte_count += byte_count
        self.has_room = self._byte_count < HELD_BYTES_MAX
        if self.has_room:
            self._emptied.set()
        else:
            self._emptied.clear()


@dataclass(slots=True)
class SchemaCounts:
    """What the gates of one topic, one after the other, have counted in messages."""

    judged: Counter[str]
    """By policy."""
    failed: Counter[str]
    """By what was wrong with them."""


@dataclass(slots=True, kw_only=True)
class _Waiting:
    frame: BatchFrame
    chosen: ProducerSchema | None
    store: Store
    done: Published
    spare: Spare | None


@dataclass(slots=True)
class _Fault:
    """What is wrong with a batch."""

    reason: str
    """For metrics."""
    error: BrokerError
    bad: Sequence[BadPayload] = ()
    """The messages that it is about, if it is not about all."""


class SchemaGate:
    """
    Lets batches of one topic through, warns of them, or refuses them.

    Ordering: Batches come out in the order in which they went in.
    """

    def __init__(
        self,
        topic: TopicName,
        schema: TopicSchema,
        *,
        registry: SchemaRegistry,
        counts: SchemaCounts,
        hall: Hall,
        tasks: asyncio.TaskGroup,
        clock: Callable[[], float],
    ) -> None:
        self.schema = schema
        self._topic = topic
        self._registry = registry
        self._counts = counts
        self._hall = hall
        self._tasks = tasks
        self._clock = clock
        self._schema_id: int | None = None
        """The subject's; None until it is known, and while there is no subject."""
        self._validators: OrderedDict[int, Validator | None] = OrderedDict()
        """By version, of those that are known; None if payloads are not looked at."""
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        self._logged_at: float | None = None

    # What happened.

    def admit(
        self,
        frame: BatchFrame,
        chosen: ProducerSchema | None,
        store: Store,
        done: Published,
        spare: Spare | None = None,
    ) -> None:
        """
        Judge a batch, and *store* it if it may pass.

        That may be later; then *done* is told if it may not.  *chosen* is what its
        producer has promised.  With *spare*, messages are refused one by one.

        Raises:
            SchemaMismatch, InvalidPayload: It may not.
        """
        waiting = _Waiting(
            frame=frame, chosen=chosen, store=store, done=done, spare=spare
        )
        if self._waiting or self._takes_time(frame):
            self._hold(waiting)
        else:
            self._settle(waiting, self._find_fault(frame, chosen))

    def check_choice(
        self, chosen: ProducerSchema, schema_id: int, schema_version: int
    ) -> None:
        """
        Let a message pass that is what its producer has promised.

        Raises:
            SchemaMismatch: It is not, and the topic is strict.
        """
        if schema_id == chosen.schema_id:
            fault = _broken_promise(chosen, schema_version)
            if fault is not None:
                self._count(fault, 1)
                if self.schema.policy is SchemaPolicy.ENFORCE:
                    raise fault.error

    def forget(self, version: int | None = None) -> None:
        """The subject, or one version of it, is not what it was."""
        if version is None:
            self._schema_id = None
            self._validators.clear()
        else:
            self._validators.pop(version, None)

    def hand_over(self, to: SchemaGate | None) -> None:
        """Another gate is in this one's place, or none; what waits goes there."""
        waiting = self._take_all()
        for each in waiting:
            if to is None:
                self._try_settle(each, None)
            else:
                to._hold(each)  # noqa: SLF001  # It is one of us.

    def close(self, reason: BrokerError) -> None:
        """Nothing comes through any more."""
        for each in self._take_all():
            each.done(0, reason)

    # What follows.

    def _takes_time(self, frame: BatchFrame) -> bool:
        return self._is_unknown(frame.header) or (
            frame.plain_body_bytes > self._at_once_bytes_max(frame)
        )

    def _at_once_bytes_max(self, frame: BatchFrame) -> int:
        """How large *frame* may be to be judged at once; its version is known."""
        if not self.schema.validates_payload:
            return frame.plain_body_bytes
        return min(VALIDATED_AT_ONCE_BYTES_MAX, self._quick_bytes_max(frame))

    def _quick_bytes_max(self, frame: BatchFrame) -> int:
        """How large *frame* may be to be judged in this process."""
        validator = self._validators.get(frame.header.schema_version)
        return (
            frame.plain_body_bytes if validator is None else validator.quick_bytes_max
        )

    def _is_unknown(self, header: BatchHeader) -> bool:
        """Whether looking the batch's version up may help."""
        if not header.schema_id:
            return False
        return self._schema_id is None or (
            header.schema_id == self._schema_id
            and header.schema_version not in self._validators
        )

    def _hold(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._hall.count(waiting.frame.byte_count)
        if self._task is None:
            self._task = self._tasks.create_task(
                self._run(), name=f"schemas of {self._topic}"
            )

    def _take_all(self) -> list[_Waiting]:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        waiting = list(self._waiting)
        self._waiting.clear()
        for each in waiting:
            self._hall.count(-each.frame.byte_count)
        return waiting

    async def _run(self) -> None:
        while self._waiting:
            # Others have their turn, also where nothing takes long.
            await asyncio.sleep(0)
            waiting = self._waiting[0]
            try:
                fault = await self._find_fault_patiently(waiting)
            except Exception as error:
                # One batch may fail alone; those behind it must not wait for ever.
                log.exception("%s: a batch could not be judged", self._topic)
                reason = BrokerError(f"the broker failed: {error!r}")
                fault = _Fault("failed", reason)
            self._waiting.popleft()
            self._hall.count(-waiting.frame.byte_count)
            self._try_settle(waiting, fault)
        self._task = None

    async def _find_fault_patiently(self, waiting: _Waiting) -> _Fault | None:
        frame = waiting.frame
        if self._is_unknown(frame.header):
            try:
                await self._learn(frame.header)
            except InvalidSchema as error:
                return _Fault("unusable_schema", error)
            except BrokerError as error:
                return _Fault("not_looked_up", error)
        if frame.plain_body_bytes <= self._at_once_bytes_max(frame):
            return self._find_fault(frame, waiting.chosen)
        if frame.plain_body_bytes <= self._quick_bytes_max(frame):
            return await asyncio.to_thread(self._find_fault, frame, waiting.chosen)
        async with self._hall.slow:
            return await asyncio.to_thread(self._find_fault, frame, waiting.chosen)

    async def _learn(self, header: BatchHeader) -> None:
        """Find out what can be known of the batch's subject and version."""
        registry, schema = self._registry, self.schema
        try:
            if self._schema_id is None:
                self._schema_id = (await registry.describe(schema.subject)).schema_id
            if header.schema_id != self._schema_id:
                return
            version = header.schema_version
            found = await registry.version(schema.subject, version)
        except SchemaNotFound:
            return
        validator = None
        if schema.validates_payload:
            parsed = await registry.schema(found)
            validator = await asyncio.to_thread(parsed.validator)
        self._validators[version] = validator
        if len(self._validators) > VERSIONS_MAX:
            self._validators.popitem(last=False)

    def _find_fault(
        self, frame: BatchFrame, chosen: ProducerSchema | None
    ) -> _Fault | None:
        """What is wrong with a batch, as far as it is known; maybe in a thread."""
        header, subject = frame.header, self.schema.subject
        version = header.schema_version
        if not header.schema_id:
            return _mismatch(
                "missing",
                f"{self._topic} takes messages of the schema subject '{subject}', and "
                "this one names no schema",
            )
        if self._schema_id is None:
            return _mismatch(
                "unknown_subject",
                f"the schema subject '{subject}' of {self._topic} was not found",
            )
        if header.schema_id != self._schema_id:
            return _mismatch(
                "other_subject",
                f"{self._topic} takes messages of the schema subject '{subject}' (id "
                f"{self._schema_id}), and this one has the schema id "
                f"{header.schema_id}",
            )
        if version not in self._validators:
            return _mismatch(
                "unknown_version",
                f"the schema subject '{subject}' of {self._topic} has no version "
                f"{version}",
            )
        return self._find_wrong_version(version, chosen) or _find_bad(
            frame, self._validators[version]
        )

    def _find_wrong_version(
        self, version: int, chosen: ProducerSchema | None
    ) -> _Fault | None:
        schema = self.schema
        if schema.version not in {None, version} or (
            schema.version_min is not None and version < schema.version_min
        ):
            only = schema.version or f"{schema.version_min} and later ones"
            return _mismatch(
                "other_version",
                f"{self._topic} takes version {only} of the schema subject "
                f"'{schema.subject}', and not {version}",
            )
        return None if chosen is None else _broken_promise(chosen, version)

    def _settle(self, waiting: _Waiting, fault: _Fault | None) -> None:
        """Store the batch, or what may pass of it; raises if that is nothing."""
        frame: BatchFrame | None = waiting.frame
        count = waiting.frame.count
        self._counts.judged[self.schema.policy.value] += count
        if fault is not None:
            self._count(fault, len(fault.bad) or count)
            if self.schema.policy is SchemaPolicy.ENFORCE:
                if not fault.bad or waiting.spare is None:
                    raise fault.error
                frame = waiting.spare(fault.bad)
        if frame is not None:
            waiting.store(frame)

    def _try_settle(self, waiting: _Waiting, fault: _Fault | None) -> None:
        """The same for whoever is told later."""
        try:
            self._settle(waiting, fault)
        except BrokerError as error:
            waiting.done(0, error)
        except Exception as error:
            log.exception("%s: a batch could not be stored", self._topic)
            waiting.done(0, BrokerError(f"the broker failed: {error!r}"))

    def _count(self, fault: _Fault, count: int) -> None:
        self._counts.failed[fault.reason] += count
        if self.schema.policy is not SchemaPolicy.WARN:
            return
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            log.warning(
                "%s: a message was taken that does not keep to its schema: %s",
                self._topic,
                fault.error,
            )


def _mismatch(reason: str, text: str) -> _Fault:
    return _Fault(reason, SchemaMismatch(text))


def _broken_promise(chosen: ProducerSchema, version: int) -> _Fault | None:
    reference = chosen.reference
    if reference.version is not None:
        is_kept = version == reference.version
        promised = f"version {reference.version}"
    else:
        is_kept = reference.version_min is None or version >= reference.version_min
        promised = f"version {reference.version_min} or a later one"
    if is_kept:
        return None
    return _mismatch(
        "other_version",
        f"the producer was opened for {promised} of the schema subject "
        f"'{reference.subject}', and the message has version {version}",
    )


def _find_bad(frame: BatchFrame, validator: Validator | None) -> _Fault | None:
    if validator is None:
        return None
    small = frame.decode_small_batch()
    bad = validator(
        frame.arrow().column("payload").to_pylist()
        if small is None
        else small.payloads()
    )
    if not bad:
        return None
    index, why = bad[0]
    if frame.count == 1:
        error = InvalidPayload(f"the message does not keep to its schema: {why}")
    else:
        error = invalid_payload(index, why)
    return _Fault("payload", error, bad)
