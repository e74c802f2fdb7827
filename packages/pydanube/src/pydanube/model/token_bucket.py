"""A token bucket: limits the rate of messages, with bursts of one second."""

from __future__ import annotations

# A caller that waits for a fast bucket wakes up this often, not for every token.
_WAKE_S = 0.01
# Times are floats, so a token that is nearly whole counts.
_NEARLY = 1e-3


class TokenBucket:
    """
    A token bucket that holds the messages of one second, and is full at first.

    ``spend`` removes tokens that are available; ``take`` may leave a debt, which
    delays the messages that follow.
    """

    __slots__ = ("_at", "_per_s", "_tokens")

    def __init__(self, messages_per_s: float, now: float) -> None:
        assert messages_per_s > 0
        self._per_s = messages_per_s
        self._tokens = self._tokens_max
        self._at = now

    @property
    def capacity(self) -> int:
        """The most messages that may be delivered at once; at least 1."""
        return int(self._tokens_max)

    def available(self, now: float) -> int:
        """Return how many messages may be delivered now."""
        self._refill(now)
        return max(0, int(self._tokens + _NEARLY))

    def spend(self, messages: int) -> None:
        """Remove *messages* tokens, at most the number that are available."""
        self._tokens -= messages

    def take(self, messages: int, now: float) -> None:
        """Remove *messages* tokens, whether or not they are available."""
        self._refill(now)
        self._tokens -= messages

    def take_past(self, messages: int, now: float) -> None:
        """Remove tokens for *messages* that went elsewhere since the last call."""
        # They were spread over that time, in which the bucket was not full.
        self._tokens -= messages
        self._refill(now)

    def delay_s(self, now: float) -> float:
        """Return the seconds until there is no debt."""
        self._refill(now)
        return 0.0 if self._tokens > -_NEARLY else -self._tokens / self._per_s

    def next_time(self, waiting: int, now: float) -> float:
        """Return when to deliver the next of *waiting* messages."""
        self._refill(now)
        worthwhile = min(waiting, max(1, int(self._per_s * _WAKE_S)))
        return now + max(0.0, worthwhile - self._tokens) / self._per_s

    def set_rate(self, messages_per_s: float, now: float) -> None:
        """Change the rate; tokens are kept up to the new capacity."""
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
