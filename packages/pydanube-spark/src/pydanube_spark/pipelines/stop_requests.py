"""The signals that ask a run of a pipeline to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class StopRequest:
    """The signals that a run has received; the signal handler only sets these."""

    number: int | None = None
    """The first signal."""
    count: int = 0
    parent: int | None = None
    """The pid of the process that supervises this one, if there is one."""

    def poll(self) -> None:
        """Stop as after SIGTERM if the process that supervises this one has ended."""
        if self.parent is not None and os.getppid() != self.parent:
            self.parent = None
            self.on_signal(signal.SIGTERM)

    @property
    def is_immediate(self) -> bool:
        """Return whether the run must stop without finishing micro-batches."""
        return self.count > 1

    def on_signal(self, number: int, _frame: object = None) -> None:
        """Record a signal."""
        self.number = self.number or number
        self.count += 1


@contextmanager
def signals_to(stop_request: StopRequest) -> Iterator[None]:
    """Record SIGINT and SIGTERM in *stop_request* while the body runs."""
    numbers = signal.SIGINT, signal.SIGTERM
    before = {
        number: signal.signal(number, stop_request.on_signal) for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
