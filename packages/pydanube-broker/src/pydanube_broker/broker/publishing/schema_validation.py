"""
Validation of published batches against the topic's schema subject.

Most batches are validated at once, by the schema id and version in their header.
Looking up an unknown version and validating the payloads of a large batch take
longer.  Such a batch is queued, and so are all batches behind it, so that batches are
stored in the order of the calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence

from pydanube.model.errors import (
    BrokerError,
    InvalidPayload,
    InvalidSchema,
    SchemaMismatch,
    SchemaNotFound,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.schemas import ProducerSchema, SchemaPolicy, TopicSchema
from pydanube.schemas.language import BadPayload, invalid_payload
from pydanube.schemas.parsed_schema import Validator
from pydanube.wire.batches import BatchFrame, BatchHeader
from pydanube_broker.broker.publishing.schema_registry import SchemaRegistry
from pydanube_broker.broker.pure.producer_session import OnPublished

log = logging.getLogger(__name__)

INLINE_BYTES_MAX = 64 * 1024
"""Payloads of larger batches are validated in a thread; this many take about 1 ms."""

WORKER_VALIDATIONS_MAX = 2
"""The number of batches that may be validated in a worker process at a time."""

BACKLOG_BYTES_MAX = 64 * 1024 * 1024
"""Servers stop accepting batches while this much waits for validation."""

VERSIONS_MAX = 100
"""The number of schema versions that one topic caches."""

LOG_INTERVAL_S = 60.0
"""The least interval between warnings about invalid messages of one topic."""


StoreBatch = Callable[["BatchFrame"], None]
"""Stores an accepted batch; raises the errors of publishing."""

RejectMessages = Callable[[Sequence[BadPayload]], "BatchFrame | None"]
"""Rejects single messages of a batch; returns the others, or None if none are left."""


class ValidationBacklog:
    """The amount of data that waits for validation in all topics of a broker."""

    def __init__(self) -> None:
        self.has_room = True
        self.worker_slots = asyncio.Semaphore(WORKER_VALIDATIONS_MAX)
        """Held while a batch is validated that may take long."""
        self._byte_count = 0
        self._has_room_event = asyncio.Event()
        self._has_room_event.set()

    async def wait_for_room(self) -> None:
        """Wait until there is room for more batches."""
        await self._has_room_event.wait()

    def add(self, byte_count: int) -> None:
        """Add *byte_count* waiting bytes; a negative number removes them."""
        self._byte_count += byte_count
        self.has_room = self._byte_count < BACKLOG_BYTES_MAX
        if self.has_room:
            self._has_room_event.set()
        else:
            self._has_room_event.clear()


@dataclass(slots=True)
class SchemaCounts:
    """The number of validated and invalid messages of a topic since it was opened."""

    validated: Counter[str]
    """By policy."""
    failed: Counter[str]
    """By reason."""


@dataclass(slots=True, kw_only=True)
class _PendingBatch:
    frame: BatchFrame
    producer_schema: ProducerSchema | None
    store: StoreBatch
    done: OnPublished
    reject: RejectMessages | None


@dataclass(slots=True)
class _Failure:
    """The reason why a batch is invalid."""

    reason: str
    """The label of the metric."""
    error: BrokerError
    bad: Sequence[BadPayload] = ()
    """The invalid messages; empty if the whole batch is invalid."""


class SchemaValidation:
    """
    Accepts or rejects the batches of one topic, or logs a warning about them.

    Ordering: Batches are stored in the order of the calls of ``admit``.
    """

    def __init__(
        self,
        topic: TopicName,
        schema: TopicSchema,
        *,
        registry: SchemaRegistry,
        counts: SchemaCounts,
        backlog: ValidationBacklog,
        tasks: asyncio.TaskGroup,
        clock: Callable[[], float],
    ) -> None:
        self.schema = schema
        self._topic = topic
        self._registry = registry
        self._counts = counts
        self._backlog = backlog
        self._tasks = tasks
        self._clock = clock
        self._schema_id: int | None = None
        """The id of the subject; None while it is unknown or does not exist."""
        self._validators: OrderedDict[int, Validator | None] = OrderedDict()
        """By known version; None if payloads are not validated."""
        self._pending: deque[_PendingBatch] = deque()
        self._task: asyncio.Task[None] | None = None
        self._logged_at: float | None = None

    # Events.

    def admit(
        self,
        frame: BatchFrame,
        producer_schema: ProducerSchema | None,
        store: StoreBatch,
        done: OnPublished,
        reject: RejectMessages | None = None,
    ) -> None:
        """
        Validate a batch, and *store* it if it is accepted.

        If validation takes longer, the call returns at once, and *done* is called if
        the batch is rejected later.  *producer_schema* is the schema that the producer
        has declared.  With *reject*, single messages can be rejected.

        Raises:
            SchemaMismatch, InvalidPayload: The batch is rejected.
        """
        pending = _PendingBatch(
            frame=frame,
            producer_schema=producer_schema,
            store=store,
            done=done,
            reject=reject,
        )
        if self._pending or self._must_wait(frame):
            self._enqueue(pending)
        else:
            self._finish(pending, self._validate(frame, producer_schema))

    def check_producer_schema(
        self, producer_schema: ProducerSchema, schema_id: int, schema_version: int
    ) -> None:
        """
        Raise if a message does not have the version that its producer has declared.

        Raises:
            SchemaMismatch: It has another one, and the policy is to enforce schemas.
        """
        if schema_id == producer_schema.schema_id:
            failure = _check_declared_version(producer_schema, schema_version)
            if failure is not None:
                self._count(failure, 1)
                if self.schema.policy is SchemaPolicy.ENFORCE:
                    raise failure.error

    def invalidate(self, version: int | None = None) -> None:
        """Forget what is cached of the subject, or of one version of it."""
        if version is None:
            self._schema_id = None
            self._validators.clear()
        else:
            self._validators.pop(version, None)

    def move_pending(self, to: SchemaValidation | None) -> None:
        """Move pending batches to another validation; without one, store them."""
        for pending in self._take_all():
            if to is None:
                self._finish_later(pending, None)
            else:
                to._enqueue(pending)  # noqa: SLF001  # The same class.

    def close(self, reason: BrokerError) -> None:
        """Reject all pending batches."""
        for pending in self._take_all():
            pending.done(0, reason)

    # Helpers.

    def _must_wait(self, frame: BatchFrame) -> bool:
        return self._is_unknown(frame.header) or (
            frame.plain_body_bytes > self._inline_bytes_max(frame)
        )

    def _inline_bytes_max(self, frame: BatchFrame) -> int:
        """Return the largest size of a batch of this version to validate inline."""
        if not self.schema.validates_payload:
            return frame.plain_body_bytes
        return min(INLINE_BYTES_MAX, self._quick_bytes_max(frame))

    def _quick_bytes_max(self, frame: BatchFrame) -> int:
        """Return the largest size to validate without a worker process."""
        validator = self._validators.get(frame.header.schema_version)
        return (
            frame.plain_body_bytes if validator is None else validator.quick_bytes_max
        )

    def _is_unknown(self, header: BatchHeader) -> bool:
        """Return whether the batch's version must be looked up."""
        if not header.schema_id:
            return False
        return self._schema_id is None or (
            header.schema_id == self._schema_id
            and header.schema_version not in self._validators
        )

    def _enqueue(self, pending: _PendingBatch) -> None:
        self._pending.append(pending)
        self._backlog.add(pending.frame.byte_count)
        if self._task is None:
            self._task = self._tasks.create_task(
                self._run(), name=f"schema validation of {self._topic}"
            )

    def _take_all(self) -> list[_PendingBatch]:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        taken = list(self._pending)
        self._pending.clear()
        for pending in taken:
            self._backlog.add(-pending.frame.byte_count)
        return taken

    async def _run(self) -> None:
        while self._pending:
            # Other tasks run in between, even if no batch takes long.
            await asyncio.sleep(0)
            pending = self._pending[0]
            try:
                failure = await self._validate_pending(pending)
            except Exception:
                # A failure of one batch must not stop those behind it.
                log.exception("%s: a batch could not be validated", self._topic)
                reason = BrokerError("the broker failed; its log says why")
                failure = _Failure("failed", reason)
            self._pending.popleft()
            self._backlog.add(-pending.frame.byte_count)
            self._finish_later(pending, failure)
        self._task = None

    async def _validate_pending(self, pending: _PendingBatch) -> _Failure | None:
        frame, producer_schema = pending.frame, pending.producer_schema
        if self._is_unknown(frame.header):
            try:
                await self._look_up(frame.header)
            except InvalidSchema as error:
                return _Failure("unusable_schema", error)
            except BrokerError as error:
                return _Failure("not_looked_up", error)
        if frame.plain_body_bytes <= self._inline_bytes_max(frame):
            return self._validate(frame, producer_schema)
        if frame.plain_body_bytes <= self._quick_bytes_max(frame):
            return await asyncio.to_thread(self._validate, frame, producer_schema)
        async with self._backlog.worker_slots:
            return await asyncio.to_thread(self._validate, frame, producer_schema)

    async def _look_up(self, header: BatchHeader) -> None:
        """Cache the subject and the version of a batch, if they exist."""
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

    def _validate(
        self, frame: BatchFrame, producer_schema: ProducerSchema | None
    ) -> _Failure | None:
        """Validate a batch by what is cached; may run in a thread."""
        header, subject = frame.header, self.schema.subject
        version = header.schema_version
        if not header.schema_id:
            if all(map(_tombstones(frame), range(frame.count))):
                return None
            return _mismatch(
                "missing",
                f"{self._topic} requires messages of schema subject '{subject}', "
                "and this message has no schema",
            )
        if self._schema_id is None:
            return _mismatch(
                "unknown_subject",
                f"the schema subject '{subject}' of {self._topic} was not found",
            )
        if header.schema_id != self._schema_id:
            return _mismatch(
                "other_subject",
                f"{self._topic} requires messages of schema subject '{subject}' "
                f"(id {self._schema_id}), and this message has the schema id "
                f"{header.schema_id}",
            )
        if version not in self._validators:
            return _mismatch(
                "unknown_version",
                f"the schema subject '{subject}' of {self._topic} has no version "
                f"{version}",
            )
        return self._check_version(version, producer_schema) or _validate_payloads(
            frame, self._validators[version]
        )

    def _check_version(
        self, version: int, producer_schema: ProducerSchema | None
    ) -> _Failure | None:
        schema = self.schema
        if schema.version not in {None, version} or (
            schema.version_min is not None and version < schema.version_min
        ):
            only = schema.version or f"{schema.version_min} or later"
            return _mismatch(
                "other_version",
                f"{self._topic} accepts only version {only} of the schema subject "
                f"'{schema.subject}', and this message has version {version}",
            )
        if producer_schema is None:
            return None
        return _check_declared_version(producer_schema, version)

    def _finish(self, pending: _PendingBatch, failure: _Failure | None) -> None:
        """Store the accepted messages of a batch; raise if the batch is rejected."""
        frame: BatchFrame | None = pending.frame
        count = pending.frame.count
        self._counts.validated[self.schema.policy.value] += count
        if failure is not None:
            self._count(failure, len(failure.bad) or count)
            if self.schema.policy is SchemaPolicy.ENFORCE:
                if not failure.bad or pending.reject is None:
                    raise failure.error
                frame = pending.reject(failure.bad)
        if frame is not None:
            pending.store(frame)

    def _finish_later(self, pending: _PendingBatch, failure: _Failure | None) -> None:
        """Do the same for a batch that was queued, and report errors to *done*."""
        try:
            self._finish(pending, failure)
        except BrokerError as error:
            pending.done(0, error)
        except Exception:
            log.exception("%s: a batch could not be stored", self._topic)
            pending.done(0, BrokerError("the broker failed; its log says why"))

    def _count(self, failure: _Failure, count: int) -> None:
        self._counts.failed[failure.reason] += count
        if self.schema.policy is not SchemaPolicy.WARN:
            return
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            log.warning(
                "%s: a message was accepted although it does not match the schema: %s",
                self._topic,
                failure.error,
            )


def _mismatch(reason: str, text: str) -> _Failure:
    return _Failure(reason, SchemaMismatch(text))


def _check_declared_version(
    producer_schema: ProducerSchema, version: int
) -> _Failure | None:
    reference = producer_schema.reference
    if reference.version is not None:
        is_match = version == reference.version
        declared = f"version {reference.version}"
    else:
        is_match = reference.version_min is None or version >= reference.version_min
        declared = f"version {reference.version_min} or later"
    if is_match:
        return None
    return _mismatch(
        "other_version",
        f"the producer was opened for {declared} of the schema subject "
        f"'{reference.subject}', and the message has version {version}",
    )


def _validate_payloads(
    frame: BatchFrame, validator: Validator | None
) -> _Failure | None:
    if validator is None:
        return None
    small = frame.decode_small_batch()
    bad = validator(
        frame.arrow().column("payload").to_pylist()
        if small is None
        else small.payloads()
    )
    if bad:
        is_tombstone = _tombstones(frame)
        bad = [each for each in bad if not is_tombstone(each[0])]
    if not bad:
        return None
    index, why = bad[0]
    if frame.count == 1:
        error = InvalidPayload(f"the message does not match its schema: {why}")
    else:
        error = invalid_payload(index, why)
    return _Failure("payload", error, bad)


def _tombstones(frame: BatchFrame) -> Callable[[int], bool]:
    """Return whether a message only deletes its key in compacted topics, by number."""
    rows = frame.arrow()
    if "key" not in rows.schema.names:
        return lambda _: False
    keys, payloads = rows.column("key"), rows.column("payload")
    return lambda at: keys[at].is_valid and not payloads[at].as_py()
