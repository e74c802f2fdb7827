"""
One turn: a server is started, measured with messages of each size, and stopped.

Nothing else runs meanwhile.  The server has nothing from earlier turns, and what those
left in the page cache has been written before.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.calibration import Calibration
from bench.crew import Crew, hired
from bench.payloads import ring_length
from bench.rows import Run
from bench.systems.system import BenchFailed
from bench.usage import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.plan import Turn

RUN_BYTES_MAX = min(4 << 30, psutil.virtual_memory().total // 6)
"""Payload bytes of one run; a system that keeps all of it in memory has to."""
RUN_MESSAGES_MIN = 10
SUBSCRIPTION = "bench"


@dataclass(slots=True)
class Outcome:
    """What the workers and the meter told of one run."""

    messages: int
    seconds: float
    figures: dict[str, float]


def take_turn(
    turn: Turn, seconds: float, directory: Path, on_run: Callable[[Run], None]
) -> None:
    """
    Measure the sizes of *turn*, each for about so many *seconds*; tells of each run.

    A size that fails is told of as failed, and the others go on with a new server.
    """
    left = list(turn.sizes)
    while left:
        try:
            with _bench(turn, directory) as bench:
                while left:
                    outcome = bench.measure(left[0], seconds)
                    on_run(_run(turn, left.pop(0), outcome))
        except BenchFailed as error:
            failed = left.pop(0) if left else turn.sizes[-1]
            on_run(_run(turn, failed, str(error)))


def _run(turn: Turn, message_bytes: int, outcome: Outcome | str) -> Run:
    """The run as it is told of: its outcome, or why it has none."""
    failure = outcome if isinstance(outcome, str) else None
    if isinstance(outcome, str):
        outcome = Outcome(0, 0.0, {})
    return Run(
        workload=turn.workload.name,
        line=turn.line.name,
        durability=turn.line.variant.durability,
        setting=turn.line.variant.setting,
        message_bytes=message_bytes,
        round=turn.round,
        messages=outcome.messages,
        seconds=outcome.seconds,
        figures=outcome.figures,
        failure=failure,
    )


@contextmanager
def _bench(turn: Turn, directory: Path) -> Iterator[Bench]:
    os.sync()
    system = turn.line.system
    with (
        tempfile.TemporaryDirectory(
            prefix="bench-", dir=directory, ignore_cleanup_errors=True
        ) as name,
        system.serve(turn.line.variant, Path(name), turn.workload.name) as server,
        hired(
            system, server.endpoint, Path(name) / "workers", "producer", "consumer"
        ) as crew,
    ):
        yield Bench(turn, crew, server.pids)


class Bench:
    """A server that runs, and the workers that use it."""

    def __init__(self, turn: Turn, crew: Crew, pids: tuple[int, ...]) -> None:
        self._turn = turn
        self._workload = turn.workload
        self._crew = crew
        self._pids = pids
        self._numbers = count()

    def measure(self, message_bytes: int, seconds: float) -> Outcome:
        """
        Warm up, find out how many messages are enough, and measure with these.

        Raises:
            BenchFailed: A message was lost, repeated or out of place, or something
                broke.
        """
        workload = self._workload
        system = self._turn.line.system
        if workload.rate is not None:
            self._once(message_bytes, round(workload.rate * max(0.5, system.warm_s)))
            # The first second does not count.
            return self._once(message_bytes, round(workload.rate * (seconds + 1)))
        # Every producer sends a burst to every topic, at least.
        least = max(RUN_MESSAGES_MIN, workload.streams * (workload.burst or 1))
        most = max(least, RUN_BYTES_MAX // message_bytes)
        calibration = Calibration(
            seconds,
            warm_s=system.warm_s,
            first=max(system.first_messages, least),
            least=least,
            most=min(most, workload.messages_max or most),
        )
        while (messages := calibration.next_count()) is not None:
            outcome = self._once(message_bytes, messages)
            calibration.add(outcome.messages, outcome.seconds)
        return self._once(message_bytes, calibration.count())

    def _once(self, message_bytes: int, messages: int) -> Outcome:
        workload = self._workload
        number = next(self._numbers)
        streams = workload.streams
        per_stream = max(1, messages // streams)
        ring = ring_length(per_stream, message_bytes, streams)
        job = {
            "topics": [f"bench-{number}-{at}" for at in range(workload.topics)],
            "subscriptions": [
                f"{SUBSCRIPTION}-{at}" for at in range(workload.subscriptions)
            ],
            "sharing": workload.sharing,
            "producers": workload.producers,
            "streams": streams,
            "messages": per_stream * streams,
            "message_bytes": message_bytes,
            "ring": ring if workload.rate is None else per_stream,
            "rate": workload.rate,
            "burst": workload.burst,
        }
        self._crew.do("producer", job | {"do": "create"})
        outcome = self._work(job)
        self._crew.do("producer", job | {"do": "delete"})
        return outcome

    def _work(self, job: dict[str, Any]) -> Outcome:
        workload = self._workload
        publish = "publish"
        if workload.waits_for_each:
            publish = "publish_each"
        elif workload.rate is not None:
            publish = "publish_paced"
        produce, consume = job | {"do": publish}, job | {"do": "consume"}
        if workload.name == "backlog":
            self._timed(producer=produce)
            self._crew.do("producer", job | {"do": "settle"})
            return self._outcome(job, *self._timed(consumer=consume))
        if workload.name == "publish" or workload.waits_for_each:
            results, meter = self._timed(producer=produce)
            # Whether all of it is there is looked at when the clock has stopped.
            checked, _ = self._timed(consumer=consume | {"rate": None})
            _raise_if_wrong(checked["consumer"])
            return self._outcome(job, results, meter)
        return self._outcome(job, *self._timed(consumer=consume, producer=produce))

    def _timed(self, **jobs: dict[str, Any]) -> tuple[dict[str, Any], Meter]:
        with Meter(self._pids) as meter:
            self._crew.start(jobs)
            results = self._crew.results(*jobs)
        return results, meter

    def _outcome(
        self, job: dict[str, Any], results: dict[str, Any], meter: Meter
    ) -> Outcome:
        for result in results.values():
            _raise_if_wrong(result)
        messages = job["messages"]
        began_ns = min(result["began_ns"] for result in results.values())
        ended_ns = max(result["ended_ns"] for result in results.values())
        seconds = (ended_ns - began_ns) / 1e9
        client_cpu_s = sum(result["cpu_s"] for result in results.values())
        figures = {
            "messages_per_s": messages / seconds,
            "mb_per_s": messages * job["message_bytes"] / seconds / 1e6,
            "client_cpu_s_per_million": client_cpu_s / messages * 1e6,
            "server_cpu_s_per_million": meter.cpu_s / messages * 1e6,
            "server_peak_mb": meter.peak_bytes / 1e6,
        }
        for result in results.values():
            figures |= result.get("latency_us", {})
            if "lag_us" in result:
                figures["lag_p99"] = result["lag_us"]["p99"]
        return Outcome(messages, seconds, figures)


def _raise_if_wrong(result: dict[str, Any]) -> None:
    if problems := result.get("problems"):
        raise BenchFailed("; ".join(problems))
