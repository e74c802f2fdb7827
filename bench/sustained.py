"""
Publishing and consuming without a pause for minutes: what becomes of rate and memory.

A short run may live on what memory and the page cache take in.  A long one shows what
the system keeps up, and whether its memory stays bounded.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.crew import Crew, hired
from bench.payloads import ring_length
from bench.systems.system import BenchFailed
from bench.usage import memory_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.plan import Line

REPORT_S = 10.0
SHORT_S = 10.0
"""The run that the last minutes are compared with."""
LAST_PART = 0.3
"""Of the long run, that is compared."""
RING = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One stretch of a long run."""

    at_s: float
    messages_per_s: float
    """Received in the stretch that ends here."""
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
        """The rate of the last part."""
        wanted = max(1, round(len(self.samples) * LAST_PART))
        last = self.samples[-wanted:]
        return sum(sample.messages_per_s for sample in last) / max(1, len(last))

    @property
    def ratio(self) -> float:
        """The last part, compared with the short run at the beginning."""
        return self.last_per_s / self.short_per_s if self.short_per_s else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The run for JSON."""
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
    Publish and consume at once for so many *minutes*, after a short run.

    Cancellation: After Ctrl-C *run* has the samples that were taken so far.
    """
    try:
        with _server(line, directory) as (crew, pids):
            stretch = Stretch(crew, pids, run.message_bytes)
            run.short_per_s = stretch.work("short", SHORT_S, lambda _: None)

            def keep(sample: Sample) -> None:
                run.samples.append(sample)
                on_sample(sample)

            stretch.work("long", minutes * 60, keep)
    except BenchFailed as error:
        run.failure = str(error)


@contextmanager
def _server(line: Line, directory: Path) -> Iterator[tuple[Crew, tuple[int, ...]]]:
    os.sync()
    with (
        tempfile.TemporaryDirectory(
            prefix="bench-", dir=directory, ignore_cleanup_errors=True
        ) as name,
        line.system.serve(line.variant, Path(name), "both") as server,
        hired(
            line.system,
            server.endpoint,
            Path(name) / "workers",
            "producer",
            "consumer",
        ) as crew,
    ):
        yield crew, server.pids


class Stretch:
    """A producer and a consumer that work until time is up."""

    def __init__(self, crew: Crew, pids: tuple[int, ...], message_bytes: int) -> None:
        self._crew = crew
        self._pids = pids
        self._message_bytes = message_bytes

    def work(
        self, topic: str, seconds: float, on_sample: Callable[[Sample], None]
    ) -> float:
        """Publish for so many seconds, and consume all of it; messages a second."""
        crew = self._crew
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
        crew.do("producer", job | {"do": "create"})
        start_ns = crew.start(
            {"consumer": job | {"do": "consume"}, "producer": job | {"do": "publish"}}
        )
        samples = Samples(self._pids, start_ns, on_sample)
        results: dict[str, Any] = {}
        while "consumer" not in results:
            heard = crew.hear_next(samples.wait_s())
            samples.take_if_due()
            if heard is None:
                continue
            name, told = heard
            samples.received = told.get("progress", samples.received)
            if "result" in told:
                results[name] = told["result"]
                if name == "producer":
                    crew.tell("consumer", {"end_at": told["result"]["messages"]})
        crew.do("producer", job | {"do": "delete"})
        result = results["consumer"]
        if result["problems"]:
            raise BenchFailed("; ".join(result["problems"]))
        took_s = (result["ended_ns"] - start_ns) / 1e9
        per_second: float = result["messages"] / took_s
        return per_second


class Samples:
    """Looks at the rate and at the server's memory every ten seconds."""

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
        """How long it is until the next look."""
        return max(0.01, self._last_s + REPORT_S - time.monotonic())

    def take_if_due(self) -> None:
        """Take a sample if it is time for one."""
        now = time.monotonic()
        if now < self._last_s + REPORT_S:
            return
        rate = (self.received - self._received_before) / (now - self._last_s)
        sample = Sample(now - self._began_s, rate, memory_bytes(self._pids) / 1e6)
        self._last_s, self._received_before = now, self.received
        self._on_sample(sample)
