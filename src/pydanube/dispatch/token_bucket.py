"""How fast messages may be delivered."""

from __future__ import annotations

# A sleeper is not woken for every token of a fast bucket, but this often.
_WAKE_S = 0.01
# Time is a float: a token is whole when it is nearly so.
_NEARLY = 1e-3


class TokenBucket:
    """
    Room for one second's worth of messages, refilled all the time.

    A bucket begins full.
    """

    __slots__ = ("_at", "_per_s", "_tokens")

    def __init__(self, messages_per_s: float, now: float) -> None:
        assert messages_per_s > 0
        self._per_s = messages_per_s
        self._tokens = self._tokens_max
        self._at = now

    @property
    def capacity(self) -> int:
        """How many messages may go at once, at the most; one at least."""
        return int(self._tokens_max)

    def available(self, now: float) -> int:
        """How many messages may go now."""
        self._refill(now)
        return max(0, int(self._tokens + _NEARLY))

    def spend(self, messages: int) -> None:
        """So many went, no more than available() said."""
        self._tokens -= messages

    def next_time(self, waiting: int, now: float) -> float:
        """When it is worth the while to come back for *waiting* messages."""
        self._refill(now)
        worthwhile = min(waiting, max(1, int(self._per_s * _WAKE_S)))
        return now + max(0.0, worthwhile - self._tokens) / self._per_s

    def set_rate(self, messages_per_s: float, now: float) -> None:
        """From now on this rate holds; what has gathered stays, if there is room."""
        assert messages_per_s > 0
        self._refill(now)
        self._per_s = messages_per_s

    @property
    def _tokens_max(self) -> float:
        return max(1.0, self._per_s)

    def _refill(self, now: float) -> None:
        passed_s = max(0.0, now - self._at)
        self._tokens = min(self._tokens_max, self._tokens + passed_s * self._per_s)
        self._at = max(now, self._at)
