"""The demo's producers, and the records of what they published."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydanube.demo.inputs import (
    SourceFile,
    batches_of,
    fingerprint,
    read_source,
    sample,
    telemetry_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

LINES = "/default/stdlib-lines"
TELEMETRY = "/default/telemetry"
LINES_SUBSCRIPTION = "demo-lines"
TELEMETRY_SUBSCRIPTION = "demo-telemetry"

BATCH_LINES = 5_000
FILES_AT_ONCE = 100

SAMPLE_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class KeyTotals:
    """The totals of the acknowledged messages of one key."""

    byte_count: int
    fingerprint: int


@dataclass(slots=True)
class Ledger:
    """The totals of the messages that were published to one topic."""

    published: int = 0
    acknowledged: int = 0
    byte_count: int = 0
    fingerprint: int = 0
    are_offsets_ordered: bool = True
    """Whether every acknowledged offset followed the one before."""
    by_key: dict[str, KeyTotals] = field(default_factory=dict)
    duration_s: float = 0.0

    @property
    def rate(self) -> float:
        """Return the acknowledged messages per second of publishing."""
        return self.acknowledged / self.duration_s if self.duration_s else 0.0

    def record(self, payloads: Sequence[bytes], offsets: Sequence[int]) -> int:
        """Add acknowledged *payloads* and return their fingerprint."""
        expected = range(self.acknowledged, self.acknowledged + len(payloads))
        self.are_offsets_ordered &= list(offsets) == list(expected)
        self.acknowledged += len(offsets)
        self.byte_count += sum(map(len, payloads))
        found = fingerprint(payloads, offsets)
        self.fingerprint += found
        return found


def publish_lines(
    client: Any, paths: Sequence[Path], on_progress: Callable[[Ledger], None]
) -> Ledger:
    """
    Publish every line of the files at *paths*, in order.

    Durability: All lines are on the broker's disk on return.
    """
    ledger = Ledger()
    with client.producer(LINES, name="demo-lines", reliable=True) as producer:
        for at in range(0, len(paths), FILES_AT_ONCE):
            files = [read_source(path) for path in paths[at : at + FILES_AT_ONCE]]
            offsets: list[int] = []
            started_at = time.monotonic()
            for batch in batches_of(files, BATCH_LINES):
                ledger.published += batch.num_rows
                offsets += producer.send_batch(batch).offsets
            # The time for reading files and for fingerprints does not count.
            ledger.duration_s += time.monotonic() - started_at
            _record_files(ledger, files, offsets)
            on_progress(ledger)
    return ledger


def _record_files(
    ledger: Ledger, files: Sequence[SourceFile], offsets: Sequence[int]
) -> None:
    at = 0
    for file in files:
        end = at + len(file.lines)
        found = ledger.record(file.lines, offsets[at:end])
        ledger.by_key[file.name] = KeyTotals(file.byte_count, found)
        at = end


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of the queries at one moment, by subscription."""

    at_s: float
    backlogs: dict[str, int]


class TelemetryProducer:
    """
    Publishes this machine's counters twice a second.

    With each sample it records the lag of the queries.
    """

    def __init__(self, client: Any) -> None:
        self.ledger = Ledger()
        self.lag: list[LagSample] = []
        self._client = client
        self._started_at = time.monotonic()
        self._stopping = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Callable[[], None]]:
        """
        Publish in a thread while the body runs.

        Yield a function that stops publishing; all published messages are acknowledged
        when it returns.
        """
        with ThreadPoolExecutor(1) as thread:
            publishing = thread.submit(self._publish)

            def stop() -> None:
                self._stopping.set()
                publishing.result()

            try:
                yield stop
            finally:
                self._stopping.set()

    def find_backlogs(self) -> dict[str, int]:
        """Record and return the current lag of the queries."""
        found = find_backlogs(self._client)
        self.lag.append(LagSample(time.monotonic() - self._started_at, found))
        return found

    def _publish(self) -> None:
        with self._client.producer(
            TELEMETRY, name="demo-telemetry", reliable=True
        ) as producer:
            while not self._stopping.is_set():
                batch = telemetry_batch(sample())
                self.ledger.published += batch.num_rows
                offsets = producer.send_batch(batch).offsets
                payloads: list[Any] = batch.column("payload").to_pylist()
                self.ledger.record(payloads, offsets)
                self.find_backlogs()
                self._stopping.wait(SAMPLE_INTERVAL_S)


def find_backlogs(client: Any) -> dict[str, int]:
    """Return the lag of the queries as the broker shows it, by subscription."""
    return {
        each.subscription: each.backlog
        for topic in (LINES, TELEMETRY)
        for each in client.describe_topic(topic).subscriptions
    }
