"""Rate limiting; pure."""

from __future__ import annotations

from math import floor

TICK_S = 0.02
"""At high rates messages are released in groups, at this interval."""
CATCH_UP_S = 0.5
"""A sender that falls further behind than this does not catch up."""


class RateLimiter:
    """A limiter that releases *rate* messages per second on average."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._start = now
        self._sent = 0

    def available(self, now: float) -> int:
        """Return how many messages may be sent now."""
        behind = (now - self._start) - self._sent / self._rate
        if behind > CATCH_UP_S:
            self._start += behind - CATCH_UP_S
        # The first message is released at once.
        return max(0, floor((now - self._start) * self._rate + 1e-6) + 1 - self._sent)

    def take(self, count: int) -> None:
        """Record that *count* messages were sent."""
        self._sent += count

    def next_time(self, now: float) -> float:
        """Return when to call ``available`` again."""
        return max(self._start + self._sent / self._rate, now + TICK_S)
