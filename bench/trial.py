"""
A trial: a server is started, measured with messages of each size, and stopped.

Nothing else runs meanwhile.  The server has an empty directory, and the page cache is
synced before.
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
from bench.payloads import ring_length
from bench.rows import Run
from bench.systems.system import BenchFailed
from bench.usage import Meter
from bench.worker_pool import WorkerPool, worker_pool
from pydanube_cli.bench.figures import rate_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.plan import Trial

RUN_BYTES_MAX = min(4 << 30, psutil.virtual_memory().total // 6)
"""The maximum payload bytes of a run; some systems keep all of it in memory."""
RUN_MESSAGES_MIN = 10
SUBSCRIPTION = "bench"


@dataclass(slots=True)
class Outcome:
    """The results of the workers and the meter in one run."""

    messages: int
    seconds: float
    figures: dict[str, float]


def run_trial(
    trial: Trial, seconds: float, directory: Path, on_run: Callable[[Run], None]
) -> None:
    """
    Measure the sizes of *trial*, each for about *seconds*; report each run.

    After a failed size, the others continue with a new server.
    """
    left = list(trial.sizes)
    while left:
        try:
            with _bench(trial, directory) as bench:
                while left:
                    outcome = bench.measure(left[0], seconds)
                    on_run(_run(trial, left.pop(0), outcome))
        except BenchFailed as error:
            failed = left.pop(0) if left else trial.sizes[-1]
            on_run(_run(trial, failed, str(error)))


def _run(trial: Trial, message_bytes: int, outcome: Outcome | str) -> Run:
    """Return the run with its outcome, or with the reason for its failure."""
    failure = outcome if isinstance(outcome, str) else None
    if isinstance(outcome, str):
        outcome = Outcome(0, 0.0, {})
    return Run(
        workload=trial.workload.name,
        line=trial.line.name,
        durability=trial.line.variant.durability,
        setting=trial.line.variant.setting,
        message_bytes=message_bytes,
        round=trial.round,
        messages=outcome.messages,
        seconds=outcome.seconds,
        figures=outcome.figures,
        failure=failure,
    )


@contextmanager
def _bench(trial: Trial, directory: Path) -> Iterator[Bench]:
    os.sync()
    system = trial.line.system
    with (
        tempfile.TemporaryDirectory(
            prefix="bench-", dir=directory, ignore_cleanup_errors=True
        ) as name,
        system.serve(trial.line.variant, Path(name), trial.workload.name) as server,
        worker_pool(
            system, server.endpoint, Path(name) / "workers", "producer", "consumer"
        ) as workers,
    ):
        yield Bench(trial, workers, server.pids)


class Bench:
    """A running server and the workers that use it."""

    def __init__(
        self, trial: Trial, workers: WorkerPool, pids: tuple[int, ...]
    ) -> None:
        self._trial = trial
        self._workload = trial.workload
        self._workers = workers
        self._pids = pids
        self._numbers = count()

    def measure(self, message_bytes: int, seconds: float) -> Outcome:
        """
        Warm up, calibrate the number of messages, and measure.

        Raises:
            BenchFailed: A message was lost, repeated or reordered, or a process failed.
        """
        workload = self._workload
        system = self._trial.line.system
        if workload.rate is not None:
            self._once(message_bytes, round(workload.rate * max(0.5, system.warm_s)))
            # The first second does not count.
            return self._once(message_bytes, round(workload.rate * (seconds + 1)))
        # At least one burst of every producer to every topic.
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
            "senders": workload.senders,
        }
        self._workers.run_job("producer", job | {"do": "create"})
        outcome = self._work(job)
        self._workers.run_job("producer", job | {"do": "delete"})
        return outcome

    def _work(self, job: dict[str, Any]) -> Outcome:
        workload = self._workload
        publish = "publish"
        if workload.senders:
            publish = "publish_each"
        elif workload.rate is not None:
            publish = "publish_paced"
        produce, consume = job | {"do": publish}, job | {"do": "consume"}
        if workload.name == "backlog":
            self._timed(producer=produce)
            self._workers.run_job("producer", job | {"do": "settle"})
            return self._outcome(job, *self._timed(consumer=consume))
        if workload.name == "publish" or workload.senders:
            results, meter = self._timed(producer=produce)
            # The messages are checked after the measurement.
            checked, _ = self._timed(consumer=consume | {"rate": None})
            _raise_on_problems(checked["consumer"])
            return self._outcome(job, results, meter)
        return self._outcome(job, *self._timed(consumer=consume, producer=produce))

    def _timed(self, **jobs: dict[str, Any]) -> tuple[dict[str, Any], Meter]:
        with Meter(self._pids) as meter:
            self._workers.start(jobs)
            results = self._workers.results(*jobs)
        return results, meter

    def _outcome(
        self, job: dict[str, Any], results: dict[str, Any], meter: Meter
    ) -> Outcome:
        for result in results.values():
            _raise_on_problems(result)
        messages = job["messages"]
        began_ns = min(result["began_ns"] for result in results.values())
        ended_ns = max(result["ended_ns"] for result in results.values())
        seconds = (ended_ns - began_ns) / 1e9
        client_cpu_s = sum(result["cpu_s"] for result in results.values())
        figures = rate_figures(messages, job["message_bytes"], seconds) | {
            "client_cpu_s_per_million": client_cpu_s / messages * 1e6,
            "server_cpu_s_per_million": meter.cpu_s / messages * 1e6,
            "server_peak_mb": meter.peak_bytes / 1e6,
        }
        for result in results.values():
            figures |= result.get("latency_us", {})
            if "lag_us" in result:
                figures["lag_p99"] = result["lag_us"]["p99_us"]
        return Outcome(messages, seconds, figures)


def _raise_on_problems(result: dict[str, Any]) -> None:
    if problems := result.get("problems"):
        raise BenchFailed("; ".join(problems))
