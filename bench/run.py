"""A whole measurement: every turn in its order, until the end or until Ctrl-C."""

from __future__ import annotations

import platform
import signal
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psutil

from bench.plan import blocks
from bench.turn import take_turn
from pydanube.bench.machine import measure_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.plan import Line, Skip, Turn
    from bench.rows import Run


@dataclass(slots=True)
class Measurement:
    """What was measured, with all that is needed to read it."""

    machine: dict[str, Any]
    versions: dict[str, str]
    how: dict[str, str]
    seconds: float
    rounds: int
    skips: list[Skip]
    runs: list[Run] = field(default_factory=list)
    is_complete: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Everything for JSON, except what is computed from it."""
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
    """What figures depend on; *directory* is on the disk that the servers write to."""
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
    """A measurement in which nothing has been measured."""
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
    """Several as one: parts of what was to be measured, on one machine."""
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
    turns: Sequence[Turn],
    directory: Path,
    *,
    on_turn: Callable[[Turn], None],
    on_run: Callable[[Run], None],
) -> None:
    """
    Take all turns; what they come to is in *measurement*, and told at once.

    Cancellation: After Ctrl-C every server and worker is ended, and what was measured
        so far is there.
    """

    def keep(run: Run) -> None:
        measurement.runs.append(run)
        on_run(run)

    with interruptible():
        for _, block in blocks(turns):
            for turn in block:
                on_turn(turn)
                take_turn(turn, measurement.seconds, directory, keep)
        measurement.is_complete = True


@contextmanager
def interruptible() -> Iterator[None]:
    """Being told to end is the same as Ctrl-C: everything is put away first."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
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
    """The file system that holds *directory*."""
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
