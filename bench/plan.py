"""The trials of a measurement, and their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube_cli.bench.figures import Durability

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.systems.system import System, Variant

KIB = 1024
SIZES = (16, 100, KIB, 64 * KIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload, the same for every system."""

    name: str
    title: str
    sizes: tuple[int, ...]
    """The default message sizes."""
    bytes_max: int = 64 * KIB
    """The maximum message size."""
    rate: int | None = None
    """Messages per second; None: as fast as possible."""
    topics: int = 1
    producers: int = 1
    sharing: int = 1
    """The number of consumers of each subscription."""
    subscriptions: int = 1
    only: tuple[str, ...] = ()
    """The systems that it compares; empty: all."""
    varies: str = ""
    """The workload that runs the same code with another figure; empty: none does."""
    messages_max: int | None = None
    burst: int | None = None
    """The messages published to one topic before the next; None: any number."""
    senders: int = 0
    """
    The number of tasks of a producer that send one message after the other, each when
    the last one is acknowledged; 0: the producer does not wait.
    """

    @property
    def streams(self) -> int:
        """Return the number of streams, each of one producer to one topic."""
        return self.topics * self.producers

    @property
    def shows_latency(self) -> bool:
        """Return whether it measures latency instead of throughput."""
        return self.senders == 1 or self.rate is not None


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(name="publish", title="Publish", sizes=SIZES, varies="both"),
        Workload(name="both", title="Publish and consume at once", sizes=SIZES),
        Workload(
            name="program",
            title="The same, with a program that reads every message",
            sizes=(100,),
            only=("danube", "prototype"),
        ),
        Workload(
            name="worker",
            title="A worker without batch=: an async function that does not wait",
            sizes=(100,),
            only=("danube",),
        ),
        Workload(
            name="worker-waits",
            title="2 workers, each with 16 calls at a time that wait once",
            sizes=(100,),
            sharing=2,
            only=("danube",),
            varies="worker",
        ),
        Workload(
            name="worker-sync",
            title="A worker with a function without async",
            sizes=(100,),
            only=("danube",),
            varies="worker",
        ),
        Workload(
            name="worker-batch",
            title="A worker with batch=1000",
            sizes=(100,),
            only=("danube",),
            varies="worker",
        ),
        Workload(
            name="backlog",
            title="Consume a backlog",
            sizes=(100,),
            messages_max=5_000_000,
        ),
        Workload(
            name="latency",
            title="One message at a time: publish to acknowledgement",
            sizes=(100,),
            messages_max=20_000,
            senders=1,
        ),
        Workload(
            name="tasks",
            title="100 tasks, each publishes a message when the last is acknowledged",
            sizes=(100,),
            bytes_max=KIB,
            senders=100,
            varies="latency",
        ),
        Workload(
            name="steady-1k",
            title="End to end at 1,000 messages/s",
            sizes=(100,),
            bytes_max=KIB,
            rate=1000,
            varies="steady-20k",
        ),
        Workload(
            name="steady-20k",
            title="End to end at 20,000 messages/s",
            sizes=(100,),
            bytes_max=KIB,
            rate=20_000,
        ),
        Workload(
            name="topics",
            title="100 topics, 10 producers that publish to each, 1 consumer of all",
            sizes=(100,),
            bytes_max=KIB,
            topics=100,
            producers=10,
            burst=100,
        ),
        Workload(
            name="topics-small",
            title="The same, with 10 messages at a time",
            sizes=(100,),
            bytes_max=KIB,
            topics=100,
            producers=10,
            burst=10,
            varies="topics",
        ),
        Workload(
            name="shared",
            title="4 consumers share a subscription",
            sizes=(100,),
            sharing=4,
        ),
        Workload(
            name="fan-out",
            title="8 subscriptions, each gets everything",
            sizes=(100,),
            subscriptions=8,
            varies="shared",
        ),
    )
}

QUICK = [name for name, workload in WORKLOADS.items() if not workload.varies]
"""The workloads of a quick measurement."""


@dataclass(frozen=True, slots=True)
class Line:
    """A system with one of its variants, to be compared with others."""

    system: System
    variant: Variant

    @property
    def name(self) -> str:
        """Return the name in reports."""
        return f"{self.system.name}/{self.variant.name}"


@dataclass(frozen=True, slots=True)
class Trial:
    """One round of a workload with a line, with a new server."""

    line: Line
    workload: Workload
    sizes: tuple[int, ...]
    round: int


@dataclass(frozen=True, slots=True)
class Skip:
    """Something that is not measured, with the reason."""

    line: str
    reason: str
    workloads: tuple[str, ...] = ()
    """The workloads; empty means all."""


def plan_lines(
    systems: Sequence[System], durabilities: Sequence[Durability]
) -> tuple[list[Line], list[Skip]]:
    """Return the lines that can be measured here, and those that cannot."""
    lines: list[Line] = []
    skips: list[Skip] = []
    for system in systems:
        missing = system.missing()
        if missing is not None:
            skips.append(Skip(system.name, missing))
            continue
        for variant in system.variants():
            line = Line(system, variant)
            if variant.durability not in durabilities:
                continue
            if variant.missing is not None:
                skips.append(Skip(line.name, variant.missing))
            else:
                lines.append(line)
    classes = list(Durability)[::-1]
    lines.sort(key=lambda line: classes.index(line.variant.durability))
    return lines, skips


def plan_trials(
    lines: Sequence[Line],
    workloads: Sequence[Workload],
    sizes: Sequence[int] | None,
    rounds: int,
    *,
    one_line: bool = False,
) -> tuple[list[Trial], list[Skip]]:
    """
    Return the trials in order, interleaved within a workload: A B C, A B C, …

    Changes of the machine over time then affect all systems.  With *one_line*, a system
    has each workload once: in the first of *lines* that is able.
    """
    trials: list[Trial] = []
    unable: dict[tuple[str, str], list[str]] = {}
    for workload in workloads:
        chosen = tuple(
            size
            for size in (workload.sizes if sizes is None else sizes)
            if size <= workload.bytes_max
        )
        if not chosen:
            continue
        able: list[Line] = []
        for line in lines:
            if workload.only and line.system.name not in workload.only:
                continue
            if one_line and any(each.system is line.system for each in able):
                continue
            reason = line.variant.cannot.get(workload.name)
            if reason is None:
                able.append(line)
            else:
                unable.setdefault((line.name, reason), []).append(workload.name)
        trials += [
            Trial(line, workload, chosen, round_)
            for round_ in range(1, rounds + 1)
            for line in able
        ]
    skips = [
        Skip(line, reason, tuple(names)) for (line, reason), names in unable.items()
    ]
    return trials, skips


TRIAL_S = 4.0
"""The approximate time to start and stop a server and its workers."""
RUN_PARTS = 1.6
"""The duration of a run with its calibration and checks, in runs."""
RUN_S = 2.0


def estimated_s(trials: Sequence[Trial], seconds: float) -> float:
    """Return the approximate duration of *trials*."""
    return sum(_estimated_trial_s(trial, seconds) for trial in trials)


def _estimated_trial_s(trial: Trial, seconds: float) -> float:
    once = max(seconds * RUN_PARTS, trial.line.system.warm_s + seconds) + RUN_S
    return TRIAL_S + len(trial.sizes) * once


def blocks(trials: Sequence[Trial]) -> Iterator[tuple[Workload, list[Trial]]]:
    """Yield the trials of each workload."""
    for workload in dict.fromkeys(trial.workload for trial in trials):
        yield workload, [trial for trial in trials if trial.workload is workload]
