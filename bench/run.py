"""A measurement: all trials in order, until the end or until Ctrl-C."""

from __future__ import annotations

import platform
import signal
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psutil

from bench.plan import blocks
from bench.trial import run_trial
from pydanube_cli.bench.machine import measure_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.plan import Line, Skip, Trial
    from bench.rows import Run


@dataclass(slots=True)
class Measurement:
    """The results of a measurement, with its conditions."""

    machine: dict[str, Any]
    versions: dict[str, str]
    how: dict[str, str]
    seconds: float
    rounds: int
    skips: list[Skip]
    runs: list[Run] = field(default_factory=list)
    is_complete: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the measurement for JSON, without computed values."""
        return {
            "machine": self.machine,
            "versions": self.versions,
            "how": self.how,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "is_complete": self.is_complete,
            "skips": [asdict(skip) for skip in self.skips],
            "runs": [run.as_dict() for run in self.runs],
        }


def describe_machine(directory: Path) -> dict[str, Any]:
    """Return the machine; *directory* is on the disk that the servers write to."""
    return asdict(measure_machine(directory)) | {
        "memory_gb": psutil.virtual_memory().total / 1e9,
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "disk": _disk(directory),
        "load_before": psutil.getloadavg()[0],
    }


def measurement_of(
    directory: Path,
    lines: Sequence[Line],
    skips: Sequence[Skip],
    *,
    seconds: float,
    rounds: int,
) -> Measurement:
    """Return a measurement without results."""
    systems = dict.fromkeys(line.system for line in lines)
    return Measurement(
        machine=describe_machine(directory),
        versions={system.name: system.version() for system in systems},
        how={system.name: system.how for system in systems},
        seconds=seconds,
        rounds=rounds,
        skips=list(skips),
    )


def joined(measurements: Sequence[Measurement]) -> Measurement:
    """Merge measurements that were made in parts on one machine."""
    first, *others = measurements
    skips = [skip for each in measurements for skip in each.skips]
    whole = replace(
        first,
        versions=first.versions.copy(),
        how=first.how.copy(),
        skips=list(dict.fromkeys(skips)),
        runs=[run for each in measurements for run in each.runs],
        is_complete=all(each.is_complete for each in measurements),
    )
    for other in others:
        whole.versions |= other.versions
        whole.how |= other.how
    return whole


def measure(
    measurement: Measurement,
    trials: Sequence[Trial],
    directory: Path,
    *,
    on_trial: Callable[[Trial], None],
    on_run: Callable[[Run], None],
) -> None:
    """
    Run all trials, add their results to *measurement*, and report them at once.

    Cancellation: Ctrl-C ends every server and worker; the results so far are kept.
    """

    def keep(run: Run) -> None:
        measurement.runs.append(run)
        on_run(run)

    with interruptible():
        for _, block in blocks(trials):
            for trial in block:
                on_trial(trial)
                run_trial(trial, measurement.seconds, directory, keep)
        measurement.is_complete = True


@contextmanager
def interruptible() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that everything is cleaned up."""

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as told:  # noqa: PTH123
            for line in told:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _disk(directory: Path) -> str:
    """Return the file system of *directory*."""
    path = str(directory.resolve())
    holding = [
        part
        for part in psutil.disk_partitions(all=True)
        if path == part.mountpoint or path.startswith(part.mountpoint.rstrip("/") + "/")
    ]
    if not holding:
        return "unknown"
    nearest = max(holding, key=lambda part: len(part.mountpoint))
    return f"{nearest.fstype} on {nearest.device}"
