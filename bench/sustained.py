"""
Sustained publishing and consuming for minutes, with samples of rate and memory.

Memory and the page cache may absorb a short run.  A long one shows the sustained rate,
and whether memory is bounded.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.payloads import ring_length
from bench.systems.system import BenchFailed
from bench.usage import memory_bytes
from bench.worker_pool import WorkerPool, worker_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.plan import Line

REPORT_S = 10.0
SHORT_S = 10.0
"""The duration of the short run for comparison."""
LAST_PART = 0.3
"""The part of the long run that is compared."""
RING = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One interval of a long run."""

    at_s: float
    messages_per_s: float
    """Messages received in the interval that ends here."""
    server_mb: float


@dataclass(slots=True)
class Sustained:
    """A long run."""

    line: str
    setting: str
    message_bytes: int
    short_per_s: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    failure: str | None = None

    @property
    def last_per_s(self) -> float:
        """Return the rate of the last part."""
        wanted = max(1, round(len(self.samples) * LAST_PART))
        last = self.samples[-wanted:]
        return sum(sample.messages_per_s for sample in last) / max(1, len(last))

    @property
    def ratio(self) -> float:
        """Return the rate of the last part relative to the short run."""
        return self.last_per_s / self.short_per_s if self.short_per_s else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the run for JSON."""
        return asdict(self) | {"last_per_s": self.last_per_s, "ratio": self.ratio}


def sustain(
    run: Sustained,
    line: Line,
    *,
    minutes: float,
    directory: Path,
    on_sample: Callable[[Sample], None],
) -> None:
    """
    Publish and consume concurrently for *minutes*, after a short run.

    Cancellation: After Ctrl-C *run* has the samples so far.
    """
    try:
        with _server(line, directory) as (workers, pids):
            timed = TimedRun(workers, pids, run.message_bytes)
            run.short_per_s = timed.work("short", SHORT_S, lambda _: None)

            def keep(sample: Sample) -> None:
                run.samples.append(sample)
                on_sample(sample)

            timed.work("long", minutes * 60, keep)
    except BenchFailed as error:
        run.failure = str(error)


@contextmanager
def _server(
    line: Line, directory: Path
) -> Iterator[tuple[WorkerPool, tuple[int, ...]]]:
    os.sync()
    with (
        tempfile.TemporaryDirectory(
            prefix="bench-", dir=directory, ignore_cleanup_errors=True
        ) as name,
        line.system.serve(line.variant, Path(name), "both") as server,
        worker_pool(
            line.system,
            server.endpoint,
            Path(name) / "workers",
            "producer",
            "consumer",
        ) as workers,
    ):
        yield workers, server.pids


class TimedRun:
    """A producer and a consumer that run for a fixed time."""

    def __init__(
        self, workers: WorkerPool, pids: tuple[int, ...], message_bytes: int
    ) -> None:
        self._workers = workers
        self._pids = pids
        self._message_bytes = message_bytes

    def work(
        self, topic: str, seconds: float, on_sample: Callable[[Sample], None]
    ) -> float:
        """Publish for *seconds*, consume everything, and return messages per second."""
        workers = self._workers
        job = {
            "topics": [f"bench-{topic}-0"],
            "subscriptions": ["bench-0"],
            "sharing": 1,
            "producers": 1,
            "streams": 1,
            "messages": 1 << 60,
            "message_bytes": self._message_bytes,
            "ring": ring_length(RING, self._message_bytes),
            "rate": None,
            "burst": None,
            "until_told": True,
            "seconds": seconds,
        }
        workers.run_job("producer", job | {"do": "create"})
        start_ns = workers.start(
            {"consumer": job | {"do": "consume"}, "producer": job | {"do": "publish"}}
        )
        samples = Samples(self._pids, start_ns, on_sample)
        results: dict[str, Any] = {}
        while "consumer" not in results:
            heard = workers.receive(samples.wait_s())
            samples.take_if_due()
            if heard is None:
                continue
            name, told = heard
            samples.received = told.get("progress", samples.received)
            if "result" in told:
                results[name] = told["result"]
                if name == "producer":
                    workers.send("consumer", {"end_at": told["result"]["messages"]})
        workers.run_job("producer", job | {"do": "delete"})
        result = results["consumer"]
        if result["problems"]:
            raise BenchFailed("; ".join(result["problems"]))
        took_s = (result["ended_ns"] - start_ns) / 1e9
        per_second: float = result["messages"] / took_s
        return per_second


class Samples:
    """Samples of the rate and of the server's memory every ten seconds."""

    def __init__(
        self,
        pids: tuple[int, ...],
        start_ns: int,
        on_sample: Callable[[Sample], None],
    ) -> None:
        self._pids = pids
        self._began_s = self._last_s = start_ns / 1e9
        self._on_sample = on_sample
        self._received_before = 0
        self.received = 0

    def wait_s(self) -> float:
        """Return the seconds until the next sample."""
        return max(0.01, self._last_s + REPORT_S - time.monotonic())

    def take_if_due(self) -> None:
        """Take a sample if it is due."""
        now = time.monotonic()
        if now < self._last_s + REPORT_S:
            return
        rate = (self.received - self._received_before) / (now - self._last_s)
        sample = Sample(now - self._began_s, rate, memory_bytes(self._pids) / 1e6)
        self._last_s, self._received_before = now, self.received
        self._on_sample(sample)
