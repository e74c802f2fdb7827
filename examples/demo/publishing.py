"""The demo's producers, and the records of what they published."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from examples.demo.inputs import (
    batches_of,
    fingerprint,
    read_source,
    sample,
    telemetry_batch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

LINES = "/default/stdlib-lines"
TELEMETRY = "/default/telemetry"
NAMES = {LINES: "demo-lines", TELEMETRY: "demo-telemetry"}
"""The name of each topic's producer and of its subscription."""

BATCH_LINES = 5_000
FILES_AT_ONCE = 100

SAMPLE_INTERVAL_S = 0.5


class Sent(NamedTuple):
    """A batch that was acknowledged."""

    messages: int
    took_s: float
    """The time from the call to the acknowledgement."""


@dataclass(slots=True)
class Ledger:
    """The totals of the messages that were published to one topic."""

    published: int = 0
    acknowledged: int = 0
    byte_count: int = 0
    fingerprint: int = 0
    are_offsets_ordered: bool = True
    """Whether every acknowledged offset followed the one before."""
    fingerprints: dict[str, int] = field(default_factory=dict)
    """The fingerprint of each file whose lines were acknowledged."""
    sent: list[Sent] = field(default_factory=list)

    @property
    def duration_s(self) -> float:
        """How long publishing took, without preparing the messages."""
        return sum(each.took_s for each in self.sent)

    def send(self, producer: Any, batch: pa.RecordBatch) -> list[int]:
        """Publish *batch* with *producer*; return the offsets of its messages."""
        self.published += batch.num_rows
        started_at = time.perf_counter()
        offsets: list[int] = producer.send_batch(batch).offsets
        self.sent.append(Sent(batch.num_rows, time.perf_counter() - started_at))
        return offsets

    def record(self, payloads: Sequence[bytes], offsets: Sequence[int]) -> int:
        """Add acknowledged *payloads* and return their fingerprint."""
        expected = range(self.acknowledged, self.acknowledged + len(payloads))
        self.are_offsets_ordered &= list(offsets) == list(expected)
        self.acknowledged += len(offsets)
        self.byte_count += sum(map(len, payloads))
        found = fingerprint(payloads, offsets)
        self.fingerprint += found
        return found


def publish_lines(client: Any, paths: Sequence[Path]) -> Ledger:
    """
    Publish every line of the files at *paths*, in order.

    Durability: All lines are on the broker's disk on return.
    """
    ledger = Ledger()
    with client.producer(LINES, name=NAMES[LINES], reliable=True) as producer:
        for at in range(0, len(paths), FILES_AT_ONCE):
            files = [read_source(path) for path in paths[at : at + FILES_AT_ONCE]]
            offsets: list[int] = []
            for batch in batches_of(files, BATCH_LINES):
                offsets += ledger.send(producer, batch)
            left = iter(offsets)
            for file in files:
                own = list(islice(left, len(file.lines)))
                ledger.fingerprints[file.name] = ledger.record(file.lines, own)
    return ledger


class TelemetryProducer:
    """Publishes this machine's counters, and records the lag of the queries."""

    def __init__(self, client: Any) -> None:
        self.ledger = Ledger()
        self.lag: list[tuple[float, dict[str, int]]] = []
        """The lag by subscription, after a number of seconds."""
        self.stopping = threading.Event()
        self._client = client
        self._started_at = time.monotonic()

    def publish(self) -> None:
        """
        Publish twice a second until ``stopping`` is set.

        Durability: All messages are acknowledged on return.
        """
        with self._client.producer(
            TELEMETRY, name=NAMES[TELEMETRY], reliable=True
        ) as producer:
            while not self.stopping.is_set():
                batch = telemetry_batch(sample())
                offsets = self.ledger.send(producer, batch)
                payloads: list[Any] = batch.column("payload").to_pylist()
                self.ledger.record(payloads, offsets)
                self.find_lag()
                self.stopping.wait(SAMPLE_INTERVAL_S)

    def find_lag(self) -> dict[str, int]:
        """Record and return the lag that the broker shows, by subscription."""
        found = {
            each.subscription: each.backlog
            for topic in NAMES
            for each in self._client.topics.describe(topic).subscriptions
        }
        self.lag.append((time.monotonic() - self._started_at, found))
        return found
