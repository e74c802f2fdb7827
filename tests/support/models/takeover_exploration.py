"""The exploration of the model of takeovers: all worlds that can be reached."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from pydanube_broker.metadata.cluster_records import ShardState
from support.models.takeover_model import BrokenPromise, Model
from support.models.takeover_rules import Bounds, Rules
from support.models.takeover_worlds import World


class Violation(NamedTuple):
    """A broken promise, and the shortest way to it."""

    message: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n  ".join((self.message, *self.trace))


class Exploration(NamedTuple):
    """All worlds that were reached, or the first violation."""

    worlds: int
    violation: Violation | None
    served: frozenset[tuple[str, int]]
    """The sessions that served the shard, with their epochs."""


def explore(rules: Rules, bounds: Bounds) -> Exploration:
    """Visit all worlds, breadth first, up to the first violation."""
    model = Model(rules, bounds)
    start = model.start()
    parents: dict[World, tuple[World, str] | None] = {start: None}
    queue = deque([start])
    served = set()
    while queue:
        world = queue.popleft()
        for name, act in model.actions(world):
            try:
                after = act()
                if after in parents:
                    continue
                model.check(after)
            except BrokenPromise as broken:
                trace = (*_trace(parents, world), name)
                return Exploration(
                    len(parents), Violation(str(broken), trace), frozenset(served)
                )
            parents[after] = world, name
            queue.append(after)
            record = after.record
            if record.state is ShardState.OPEN:
                served.add((record.owner or "", record.epoch))
    return Exploration(len(parents), None, frozenset(served))


def _trace(parents: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    trace = []
    while (parent := parents[world]) is not None:
        world, name = parent
        trace.append(name)
    return trace[::-1]
