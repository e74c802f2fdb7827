"""Counters of topics and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydanube.model.histograms import NO_EXEMPLARS, Exemplar, Histogram
from pydanube.model.lazy_dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """
    Counters that only rise, and the current number of consumers.

    Each event is counted here and in the parent, so the totals stay when a topic or
    subscription is deleted.
    """

    parent: Counts | None = None
    published: int = 0
    published_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    redelivered: int = 0
    dropped: int = 0
    nacked: int = 0
    timed_out: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dead_letter_failures: int = 0
    given_up: int = 0
    skipped: int = 0
    consumers: int = 0

    def add(self, **changes: int) -> None:
        """Add to these counters; the number of consumers may also fall."""
        for name, change in changes.items():
            setattr(self, name, getattr(self, name) + change)
        if self.parent is not None:
            self.parent.add(**changes)

    # These run for every batch, and attributes are faster than names.

    def publish(self, count: int, byte_count: int) -> None:
        """Count a published batch."""
        self.published += count
        self.published_bytes += byte_count
        if self.parent is not None:
            self.parent.publish(count, byte_count)

    def deliver(
        self, count: int, byte_count: int, publish_time: int, *, is_again: bool
    ) -> None:
        """Count a delivered batch; *publish_time* is that of its first message."""
        self.delivered += count
        self.delivered_bytes += byte_count
        if is_again:
            self.redelivered += count
        if self.parent is not None:
            self.parent.deliver(count, byte_count, publish_time, is_again=is_again)


class BrokerCounts(Counts):
    """The counters of all topics, and how old messages were when they were sent."""

    __slots__ = ("_wall_clock_us", "delivery_age")

    def __init__(
        self,
        wall_clock_us: Callable[[], int],
        exemplars: Mapping[int, Exemplar] = NO_EXEMPLARS,
    ) -> None:
        super().__init__()
        self.delivery_age = Histogram(exemplars)
        """The age of messages at their first delivery."""
        self._wall_clock_us = wall_clock_us

    def deliver(
        self, count: int, byte_count: int, publish_time: int, *, is_again: bool
    ) -> None:
        """Count a delivered batch, and its age unless *is_again*."""
        super().deliver(count, byte_count, publish_time, is_again=is_again)
        if not is_again:
            age_us = self._wall_clock_us() - publish_time
            self.delivery_age.observe(age_us / 1_000_000, count)
