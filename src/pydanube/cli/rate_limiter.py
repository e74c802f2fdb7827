"""Not faster than so many messages a second; pure."""

from __future__ import annotations

from math import floor

TICK_S = 0.02
"""At high rates messages leave together, so often."""
CATCH_UP_S = 0.5
"""Whoever falls further behind than this does not make up for it."""


class RateLimiter:
    """Says how many messages may leave, so that on average *rate* a second do."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._start = now
        self._sent = 0

    def available(self, now: float) -> int:
        """How many messages may leave now."""
        behind = (now - self._start) - self._sent / self._rate
        if behind > CATCH_UP_S:
            self._start += behind - CATCH_UP_S
        # The first one leaves at once.
        return max(0, floor((now - self._start) * self._rate + 1e-6) + 1 - self._sent)

    def take(self, count: int) -> None:
        """So many left."""
        self._sent += count

    def next_time(self, now: float) -> float:
        """When to ask again."""
        return max(self._start + self._sent / self._rate, now + TICK_S)
