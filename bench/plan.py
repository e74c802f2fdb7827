"""What is measured, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.durability import Durability

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.systems.system import System, Variant

KIB = 1024
SIZES = (16, 100, KIB, 64 * KIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of work, the same for every system."""

    name: str
    title: str
    sizes: tuple[int, ...]
    """Message sizes that it has by default."""
    bytes_max: int = 64 * KIB
    """Larger messages would be another workload."""
    rate: int | None = None
    """Messages a second that are due; None: as fast as it goes."""
    topics: int = 1
    producers: int = 1
    sharing: int = 1
    """Consumers of each subscription."""
    subscriptions: int = 1
    messages_max: int | None = None
    burst: int | None = None
    """So many messages go to one topic before the next; None: as the client likes."""
    waits_for_each: bool = False
    """Whether every message is acknowledged before the next one is sent."""

    @property
    def streams(self) -> int:
        """What one producer sends to one topic is a stream."""
        return self.topics * self.producers

    @property
    def shows_latency(self) -> bool:
        """Whether latency is what it is about, and not throughput."""
        return self.waits_for_each or self.rate is not None


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(name="publish", title="Publish", sizes=SIZES),
        Workload(name="both", title="Publish and consume at once", sizes=SIZES),
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
            waits_for_each=True,
        ),
        Workload(
            name="steady-1k",
            title="End to end at 1,000 messages/s",
            sizes=(100,),
            bytes_max=KIB,
            rate=1000,
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
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Line:
    """A system with one of its settings: what is compared with others."""

    system: System
    variant: Variant

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return f"{self.system.name}/{self.variant.name}"


@dataclass(frozen=True, slots=True)
class Turn:
    """One line's go at a workload: a server is started for it, and stopped."""

    line: Line
    workload: Workload
    sizes: tuple[int, ...]
    round: int


@dataclass(frozen=True, slots=True)
class Skip:
    """Something that is not measured, and why."""

    line: str
    reason: str
    workloads: tuple[str, ...] = ()
    """Only these; none means all."""


def lines_of(
    systems: Sequence[System], durabilities: Sequence[Durability]
) -> tuple[list[Line], list[Skip]]:
    """What can be measured here, class by class; and what cannot, with the reason."""
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


def turns_of(
    lines: Sequence[Line],
    workloads: Sequence[Workload],
    sizes: Sequence[int] | None,
    rounds: int,
) -> tuple[list[Turn], list[Skip]]:
    """
    Who is measured after whom: within a workload A B C, A B C, and so on.

    So whatever changes on the machine meanwhile, changes for everyone.
    """
    turns: list[Turn] = []
    unable: dict[tuple[str, str], list[str]] = {}
    for workload in workloads:
        chosen = tuple(
            size
            for size in (workload.sizes if sizes is None else sizes)
            if size <= workload.bytes_max
        )
        if not chosen:
            continue
        able = []
        for line in lines:
            reason = line.variant.cannot.get(workload.name)
            if reason is None:
                able.append(line)
            else:
                unable.setdefault((line.name, reason), []).append(workload.name)
        turns += [
            Turn(line, workload, chosen, round_)
            for round_ in range(1, rounds + 1)
            for line in able
        ]
    skips = [
        Skip(line, reason, tuple(names)) for (line, reason), names in unable.items()
    ]
    return turns, skips


TURN_S = 4.0
"""What starting and stopping a server and its workers takes, about."""
RUN_PARTS = 1.6
"""How long a run is with its calibration and checks, in runs."""
RUN_S = 2.0


def estimated_s(turns: Sequence[Turn], seconds: float) -> float:
    """About how long all of it takes."""
    return sum(_estimated_turn_s(turn, seconds) for turn in turns)


def _estimated_turn_s(turn: Turn, seconds: float) -> float:
    once = max(seconds * RUN_PARTS, turn.line.system.warm_s + seconds) + RUN_S
    return TURN_S + len(turn.sizes) * once


def blocks(turns: Sequence[Turn]) -> Iterator[tuple[Workload, list[Turn]]]:
    """The turns of each workload."""
    for workload in dict.fromkeys(turn.workload for turn in turns):
        yield workload, [turn for turn in turns if turn.workload is workload]
