"""
The audit log: administrative requests, refusals, and failed authentications.

Records wait in a bounded queue for a task that appends them to a file and publishes
them to a topic.  Requests never wait for either; what does not fit is dropped and
counted, and the next record that is written says how many are missing.  Of a client
that is refused again and again, only some refusals are recorded, and then their number.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    NotOwner,
    TimedOut,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import SYSTEM_NAMESPACE, TopicName
from pydanube.security.failed_attempts import network_of
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.security.refusal_limit import RefusalLimit
from pydanube.wire.files.journal_format import INTERNAL_PREFIX
from pydanube_broker.broker.delivery.internal_batches import (
    InternalBatch,
    PublishInternally,
    Source,
)
from pydanube_broker.broker.publishing.message_batcher import SingleMessage, frame_of

log = logging.getLogger(__name__)

AUDIT_TOPIC: Final = TopicName(SYSTEM_NAMESPACE, "audit")
PRODUCER: Final = "audit"
PRODUCERS: Final = f"{INTERNAL_PREFIX}audit/"
"""The beginning of the names of brokers as producers of records."""
RETRY_S = 0.5
BATCH_MAX = 500
"""The most records that are written at a time."""
TEXT_MAX = 1000
"""Longer texts of a record are cut."""

_encode = msgspec.json.Encoder().encode

Record: TypeAlias = "dict[str, str]"
Publish: TypeAlias = "Callable[[Sequence[bytes]], Awaitable[None]]"


class Outcome(Enum):
    """How a recorded request ended."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLimits:
    """The bounds of an audit log."""

    queued_max: int = 10_000
    """The most records that wait; more are dropped."""
    summary_s: float = 60.0
    """How long refusals that are not recorded one by one are counted for a summary."""
    summaries_max: int = 100
    """The most records of a summary; the last one has the refusals of all others."""
    write_timeout_s: float = 5.0
    """The most time for writing a batch to one place; then it is given up there."""


LIMITS = AuditLimits()


class AuditLog:
    """The audit log of a broker; opened by ``open_audit``."""

    def __init__(
        self,
        wall_clock_us: Callable[[], int],
        *,
        path: Path | None = None,
        publish: Publish | None = None,
        limits: AuditLimits = LIMITS,
    ) -> None:
        self._limits = limits
        self.is_enabled = path is not None or publish is not None
        self.recorded_count = 0
        self.suppressed_count = 0
        """The refusals that were only counted; see ``RefusalLimit``."""
        self.dropped_count = 0
        """The records that were dropped because ``queued_max`` waited."""
        self.failed_count = 0
        """The records that the file or the topic has not got."""
        self._wall_clock_us = wall_clock_us
        self._path = path
        self._publish = publish
        self._queue: deque[Record] = deque()
        self._refusals = RefusalLimit()
        self._clock = asyncio.get_running_loop().time
        self._summary_at: float | None = None
        self._unreported = 0
        self._problems: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()

    def record(
        self,
        *,
        principal: Principal,
        address: str,
        listener: str,
        operation: str,
        resource: str,
        outcome: Outcome,
        reason: str = "",
        details: str = "",
    ) -> None:
        """Add a record, without waiting; *details* are the fields of the request."""
        if not self.is_enabled:
            return
        if outcome is Outcome.REFUSED and not self._admits(principal, address):
            return
        self._add(
            principal=principal.name,
            method=principal.method,
            address=address,
            listener=listener,
            operation=operation,
            resource=resource,
            outcome=outcome.value,
            reason=reason,
            details=details,
        )

    def _admits(self, principal: Principal, address: str) -> bool:
        """Return whether to record a refusal; if not, it is counted."""
        # The port of a client is another one for each connection.
        host = address.rpartition(":")[0].strip("[]") or address
        now = self._clock()
        if self._refusals.admits((principal.name, network_of(host)), now):
            return True
        self.suppressed_count += 1
        if self._summary_at is None:
            self._summary_at = now + self._limits.summary_s
            self._wake.set()
        return False

    def summarize(self) -> None:
        """Add records of the refusals that were not recorded one by one."""
        self._summary_at = None
        suppressed = self._refusals.take_suppressed()
        ordered = sorted(suppressed.items(), key=lambda each: -each[1])
        count_max = self._limits.summaries_max - 1
        named, rest = ordered[:count_max], ordered[count_max:]
        for source, count in named:
            principal, address = source if isinstance(source, tuple) else ("", "")
            self._add_summary(count, principal=principal, address=address)
        if rest:
            self._add_summary(sum(count for _, count in rest), principal="", address="")

    def _add_summary(self, count: int, **source: str) -> None:
        text = f"{count} more refusals were not recorded, because there were too many"
        self._add(
            **source, operation="audit", outcome=Outcome.REFUSED.value, reason=text
        )

    def _add(self, **texts: str) -> None:
        if len(self._queue) >= self._limits.queued_max:
            self.dropped_count += 1
            self._unreported += 1
            return
        self.recorded_count += 1
        self._queue.append(self._record(**texts))
        self._wake.set()

    def record_failed_authentication(
        self, *, address: str, listener: str, reason: str
    ) -> None:
        """Add a record of a client whose credentials were refused; never has them."""
        self.record(
            principal=ANONYMOUS,
            address=address,
            listener=listener,
            operation="authenticate",
            resource="",
            outcome=Outcome.REFUSED,
            reason=reason,
        )

    def _record(self, **texts: str) -> Record:
        time = datetime.fromtimestamp(self._wall_clock_us() / 1_000_000, UTC)
        cut = {name: text[:TEXT_MAX] for name, text in texts.items()}
        return {"time": time.isoformat(timespec="milliseconds"), **cut}

    async def run(self) -> None:
        """Write records until cancelled."""
        while True:
            try:
                async with asyncio.timeout_at(self._summary_at):
                    await self._wake.wait()
            except TimeoutError:
                self.summarize()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write all records that wait."""
        async with self._lock:
            await self._write_all()

    async def _write_all(self) -> None:
        while self._queue:
            count = min(len(self._queue), BATCH_MAX)
            records = [self._queue.popleft() for _ in range(count)]
            if self._unreported:
                dropped, self._unreported = self._unreported, 0
                text = f"{dropped} records were dropped, because too many waited"
                records.append(
                    self._record(operation="audit", outcome="failed", reason=text)
                )
            lines = [_encode(record) for record in records]
            if self._path is not None:
                append = asyncio.to_thread(_append, self._path, lines)
                await self._attempt(f"the file {self._path}", append, len(lines))
            if self._publish is not None:
                publish = self._publish(lines)
                await self._attempt(f"the topic {AUDIT_TOPIC}", publish, len(lines))

    async def _attempt(self, place: str, write: Awaitable[None], count: int) -> None:
        timeout_s = self._limits.write_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await write
        except (BrokerError, OSError) as error:
            # TimeoutError is an OSError.
            self.failed_count += count
            text = str(error) or f"no answer within {timeout_s:g} s"
            if self._problems.get(place) != text:
                self._problems[place] = text
                log.warning("the audit log cannot be written to %s: %s", place, text)
        else:
            self._problems.pop(place, None)


@asynccontextmanager
async def open_audit(
    wall_clock_us: Callable[[], int],
    *,
    path: Path | None = None,
    publish: Publish | None = None,
    limits: AuditLimits = LIMITS,
) -> AsyncIterator[AuditLog]:
    """
    Open an audit log that is written during the body.

    At the end, the records that wait are written, or given up after a time.
    """
    audit = AuditLog(wall_clock_us, path=path, publish=publish, limits=limits)
    async with task_scope() as tasks:
        tasks.run(audit.run(), "write the audit log")
        try:
            yield audit
        finally:
            audit.summarize()
            # Before the task is cancelled: what it writes is not in the queue any more.
            try:
                async with asyncio.timeout(limits.write_timeout_s):
                    await audit.flush()
            except TimeoutError:
                log.warning("the last records of the audit log were not written")


class AuditTopic:
    """Publishes records to ``AUDIT_TOPIC``, whichever broker serves it."""

    def __init__(
        self,
        publish: PublishInternally,
        broker_id: str,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self._publish = publish
        self._producer = f"{PRODUCERS}{broker_id}"
        self._generation = wall_clock_us()
        self._wall_clock_us = wall_clock_us
        self._next = 0

    async def publish(self, records: Sequence[bytes]) -> None:
        """
        Publish *records* as messages; while the topic moves, this waits.

        Raises:
            BrokerError: At least one was not published.
        """
        source = Source(
            producer=self._producer,
            generation=self._generation,
            epoch=1,
            settled=self._next,
        )
        now = self._wall_clock_us()
        messages = [SingleMessage(PRODUCER, record, now) for record in records]
        frame = frame_of(messages, sender=self._producer)
        positions = range(self._next, self._next + len(records))
        # They may be stored even if this fails or is cancelled.
        self._next += len(records)
        while True:
            try:
                return await self._publish(
                    AUDIT_TOPIC, source, [InternalBatch(positions, frame)]
                )
            except (NotOwner, ConnectionLost, TimedOut):
                await asyncio.sleep(RETRY_S)


def _append(path: Path, lines: Sequence[bytes]) -> None:
    # The file is opened for each batch, so it may be renamed at any time.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        data = memoryview(b"".join(line + b"\n" for line in lines))
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
