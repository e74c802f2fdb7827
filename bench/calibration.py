"""
The calibration of the number of messages of a run.

Systems differ by three orders of magnitude, so each gets a number of messages that
keeps it busy for about the same time.
"""

from __future__ import annotations

WARM_PART = 0.2
"""The part of the wanted time that a calibration run must take to be used."""
GROWTH_MAX = 16
RUNS_MAX = 8


class Calibration:
    """The search for the number of messages that takes *seconds*, with short runs."""

    def __init__(
        self,
        seconds: float,
        *,
        warm_s: float = 0.0,
        first: int = 1000,
        least: int = 1,
        most: int = 1 << 40,
    ) -> None:
        """*warm_s* is the time that the system needs to warm up."""
        self._seconds = seconds
        self._enough_s = max(seconds * WARM_PART, warm_s)
        self._least = least
        self._most = most
        self._next = min(first, most)
        self._spent_s = 0.0
        self._runs = 0
        self._was_long = False
        self._is_capped = False
        self.rate: float | None = None
        """The messages per second of the last run."""

    def next_count(self) -> int | None:
        """Return the number of messages of the next run; None: the search is over."""
        if self._runs >= RUNS_MAX or (self._runs and self._is_known()):
            return None
        return self._next

    def add(self, messages: int, took_s: float) -> None:
        """Add the result of a run."""
        took_s = max(took_s, 1e-6)
        self._runs += 1
        self._spent_s += took_s
        self.rate = messages / took_s
        growth = min(GROWTH_MAX, max(2.0, self._enough_s * 1.1 / took_s))
        self._was_long = took_s >= self._enough_s / 2
        if not self._was_long:
            self._next = min(self._most, round(messages * growth))
        self._is_capped = messages >= self._most

    def _is_known(self) -> bool:
        if self._is_capped:
            return True
        return self._was_long and self._spent_s >= self._enough_s

    def count(self) -> int:
        """Return the number of messages that takes the wanted time."""
        assert self.rate is not None
        return max(self._least, min(self._most, round(self.rate * self._seconds)))
