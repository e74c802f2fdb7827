"""
The topics that records have chosen, and that a connector has lately been permitted.

A permit expires, so that a connector asks again when a record next chooses the topic;
topics that no record chooses any more cost nothing.  Pure.
"""

from __future__ import annotations

PERMITS_MAX = 10_000
"""The most permits; a source publishes to as many topics."""


class Permits:
    """
    The permits of a connector, each for *age_s*.

    Bounds: The most recent *count_max* are kept.
    """

    def __init__(self, age_s: float, count_max: int = PERMITS_MAX) -> None:
        self._age_s = age_s
        self._count_max = count_max
        # In the order in which they were given.
        self._given_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._given_at)

    def has(self, topic: str, now: float) -> bool:
        """Return whether there is a permit for *topic* that has not expired *now*."""
        given_at = self._given_at.get(topic)
        return given_at is not None and now - given_at < self._age_s

    def add(self, topic: str, now: float) -> None:
        """Note that *topic* is permitted *now*."""
        self._given_at.pop(topic, None)
        self._given_at[topic] = now
        if len(self._given_at) > self._count_max:
            del self._given_at[next(iter(self._given_at))]

    def clear(self) -> None:
        """Forget all."""
        self._given_at.clear()
