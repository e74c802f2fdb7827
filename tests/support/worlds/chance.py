"""When something happens to the brokers of a world, and what: all of it by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

T = TypeVar("T")

FIRST_STEPS = 6
"""The first event happens within so many steps of clients."""
GROWTH = 1.7
"""Each further event lets wait longer, so long tests have few more than short ones."""


@dataclass
class Chance:
    """The events of one world in one test."""

    seed: str
    rng: Random = field(init=False)
    steps: int = 0
    """The steps that clients have made."""
    log: list[str] = field(default_factory=list)
    """What has happened, for the report of a failure."""

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self._within = float(FIRST_STEPS)
        self._next = self.rng.randint(1, FIRST_STEPS)

    def is_due(self) -> bool:
        """Count a step; return whether something happens before it."""
        self.steps += 1
        if self.steps < self._next:
            return False
        self._within *= GROWTH
        self._next = self.steps + self.rng.randint(1, round(self._within))
        return True

    def postpone(self) -> None:
        """Let what is due happen before the next step instead."""
        self._next = self.steps + 1

    def choose(self, options: Sequence[T]) -> T:
        """Choose one of *options*."""
        return self.rng.choice(options)

    def note(self, event: str) -> None:
        """Record what happens."""
        self.log.append(f"step {self.steps}: {event}")
