"""The random numbers that shorten waits."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar

SOURCE: ContextVar[Callable[[], float]] = ContextVar(
    "chance", default=random.SystemRandom().random
)
"""
The function that returns a number from 0 to 1 to the current task.

A simulation sets one with a seed.  The generator of the process would not do: other
threads draw from it, too, and programs that seed it expect its numbers for themselves.
"""


def draw() -> float:
    """Return a random number from 0 to 1."""
    return SOURCE.get()()
