"""Counting what a piece of the broker's work costs, without a clock."""

from __future__ import annotations

import sys
from contextlib import contextmanager

from support.project import SOURCES

_SOURCES = tuple(map(str, SOURCES))


class Steps:
    """The number of lines of the packages that were executed."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame, event, _):
        """See ``sys.settrace``; also a turn of a loop is a line."""
        if not frame.f_code.co_filename.startswith(_SOURCES):
            return None
        if event == "line":
            self.count += 1
        return self.trace


@contextmanager
def counting_steps():
    """Count the lines that this thread executes in frames begun by the body."""
    steps, before = Steps(), sys.gettrace()
    sys.settrace(steps.trace)
    try:
        yield steps
    finally:
        sys.settrace(before)


def assert_constant(small, large, *, what="one operation"):
    """Fail if *large*, steps with four times as many things, grows with them."""
    assert large <= small * 1.25 + 20, f"{what}: {small} steps became {large}"


def assert_linear(small, large, *, what="all of it"):
    """Fail if *large*, steps for four times as many things, is more than linear."""
    assert large <= 4 * small * 1.25 + 100, f"{what}: {small} steps became {large}"
