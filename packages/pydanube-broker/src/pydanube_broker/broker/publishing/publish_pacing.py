"""The pace at which a topic accepts messages: its rate limit, and the quotas on it."""

from __future__ import annotations

from collections.abc import Callable

from pydanube.model.token_bucket import TokenBucket
from pydanube_broker.dispatch.quota_meter import QuotaMeter


class PublishPacing:
    """The limits on publishing to one topic, and what they have counted."""

    __slots__ = ("_clock", "_rate", "meters")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.meters: tuple[QuotaMeter, ...] = ()
        """The meters of the quotas of the topic and its namespace; none without."""
        self._clock = clock
        self._rate: TokenBucket | None = None

    def set_meters(self, meters: tuple[QuotaMeter, ...]) -> None:
        """Change the meters of the quotas of the topic and its namespace."""
        self.meters = meters

    def set_rate(self, messages_per_s: int) -> None:
        """Change the rate limit; 0: none."""
        now = self._clock()
        if not messages_per_s:
            self._rate = None
        elif self._rate is None:
            self._rate = TokenBucket(messages_per_s, now)
        else:
            self._rate.set_rate(messages_per_s, now)

    def delay_s(self, now: float) -> float:
        """Return how many seconds a server should wait before it publishes more."""
        delay_s = 0.0 if self._rate is None else self._rate.delay_s(now)
        for meter in self.meters:
            held_s = meter.delay_in_s(now)
            if held_s > 0:
                delay_s = max(delay_s, held_s)
        return delay_s

    def count(self, messages: int, byte_count: int, *, are_stored: bool) -> None:
        """Count what was published."""
        if self._rate is not None:
            self._rate.take(messages, self._clock())
        for meter in self.meters:
            meter.take_in(byte_count, self._clock())
            if are_stored:
                meter.add("storage_bytes", byte_count)

    def check(self, limit: str) -> None:
        """
        Raise if a quota allows no more of what *limit* limits.

        Raises:
            QuotaExceeded: It does not.
        """
        for meter in self.meters:
            meter.check(limit)

    def add(self, limit: str, change: int) -> None:
        """Count what was added to the topic or removed from it."""
        for meter in self.meters:
            meter.add(limit, change)
