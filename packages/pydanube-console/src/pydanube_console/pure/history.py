"""
The samples that a console remembers for its charts.

Pure.  Bounds: ``POINTS_MAX`` points of all topics together and of each topic, of at
most as many topics as a sample has, and of at most ``SUBSCRIPTIONS_MAX`` subscriptions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pydanube.model.activity import Activity, Sample, activities
from pydanube.model.subscription_lag import SubscriptionLag

POINTS_MAX = 90
SUBSCRIPTIONS_MAX = 1000
"""The subscriptions whose lag is remembered: those that are furthest behind."""
INTERVAL_S = 2.0
"""The least time between two samples."""


@dataclass(frozen=True, slots=True)
class Point:
    """Rates and lag at one moment."""

    published_per_s: float
    delivered_per_s: float
    lag: int


@dataclass(frozen=True, slots=True)
class LagPoint:
    """The lag of a subscription at one moment."""

    lag: int
    age_s: float
    """The age of the oldest message that waits; 0 if none does."""


class History:
    """The latest samples of a broker or cluster."""

    def __init__(self) -> None:
        self.sample: Sample | None = None
        """The last one."""
        self.found: list[Activity] = []
        """The activity of topics between the last two samples, the busiest first."""
        self.totals: deque[Point] = deque(maxlen=POINTS_MAX)
        self._topics: dict[str, deque[Point]] = {}
        self._lags: dict[tuple[str, str], deque[LagPoint]] = {}
        self._times: deque[float] = deque(maxlen=POINTS_MAX)

    @property
    def interval_s(self) -> float:
        """The time between two points, on average."""
        if len(self._times) < 2:
            return INTERVAL_S
        return (self._times[-1] - self._times[0]) / (len(self._times) - 1)

    def add(self, sample: Sample, lags: Sequence[SubscriptionLag] = ()) -> None:
        """
        Add a sample, which is later than those before it.

        *lags* has its subscriptions, the largest lag first.
        """
        before, self.sample = self.sample, sample
        self.found = activities(before or sample, sample, "rate")
        if before is None:
            # There are no rates yet.
            return
        self._times.append(sample.taken_at)
        known, self._topics = self._topics, {}
        for each in self.found:
            points = known.get(each.topic) or deque(maxlen=POINTS_MAX)
            points.append(_point_of(each))
            self._topics[each.topic] = points
        self._add_lags(lags[:SUBSCRIPTIONS_MAX])
        self.totals.append(self._total(before, sample))

    def _total(self, before: Sample, sample: Sample) -> Point:
        """Return the rates and the lag of all topics, also of those not sampled."""
        old, new = before.totals, sample.totals
        if old is None or new is None:
            return Point(
                sum(each.published_per_s for each in self.found),
                sum(each.delivered_per_s for each in self.found),
                sum(each.lag for each in self.found),
            )
        elapsed_s = max(sample.taken_at - before.taken_at, 1e-3)
        # Brokers that were restarted count from 0 again.
        return Point(
            max(0, new.published - old.published) / elapsed_s,
            max(0, new.delivered - old.delivered) / elapsed_s,
            new.backlog,
        )

    def _add_lags(self, lags: Sequence[SubscriptionLag]) -> None:
        known, self._lags = self._lags, {}
        for each in lags:
            key = (each.topic, each.subscription)
            points = known.get(key) or deque(maxlen=POINTS_MAX)
            points.append(LagPoint(each.lag, each.age_s or 0.0))
            self._lags[key] = points

    def of_subscription(self, topic: str, subscription: str) -> list[LagPoint]:
        """Return the points of a subscription of a topic, by its base name."""
        return list(self._lags.get((topic, subscription), ()))

    def of_topic(self, topic: str) -> list[Point]:
        """Return the points of a topic; of a partitioned one by its base name."""
        return list(self._topics.get(topic, ()))


def _point_of(activity: Activity) -> Point:
    return Point(activity.published_per_s, activity.delivered_per_s, activity.lag)
