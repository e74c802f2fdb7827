"""
The samples that a console remembers for its charts.

Pure.  Bounds: ``POINTS_MAX`` points of all topics together and of each topic, of at
most as many topics as a sample has.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pydanube.model.activity import Activity, Sample, activities

POINTS_MAX = 90
INTERVAL_S = 2.0
"""The least time between two samples."""


@dataclass(frozen=True, slots=True)
class Point:
    """Rates and lag at one moment."""

    published_per_s: float
    delivered_per_s: float
    lag: int


class History:
    """The latest samples of a broker or cluster."""

    def __init__(self) -> None:
        self.sample: Sample | None = None
        """The last one."""
        self.found: list[Activity] = []
        """The activity of topics between the last two samples, the busiest first."""
        self.totals: deque[Point] = deque(maxlen=POINTS_MAX)
        self._topics: dict[str, deque[Point]] = {}
        self._times: deque[float] = deque(maxlen=POINTS_MAX)

    @property
    def interval_s(self) -> float:
        """The time between two points, on average."""
        if len(self._times) < 2:
            return INTERVAL_S
        return (self._times[-1] - self._times[0]) / (len(self._times) - 1)

    def add(self, sample: Sample) -> None:
        """Add a sample, which is later than those before it."""
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
        self.totals.append(
            Point(
                sum(each.published_per_s for each in self.found),
                sum(each.delivered_per_s for each in self.found),
                sum(each.lag for each in self.found),
            )
        )

    def of_topic(self, topic: str) -> list[Point]:
        """Return the points of a topic; of a partitioned one by its base name."""
        return list(self._topics.get(topic, ()))

    def activity_of(self, topic: str) -> Activity | None:
        """Return the last activity of a topic."""
        return next((each for each in self.found if each.topic == topic), None)


def _point_of(activity: Activity) -> Point:
    return Point(activity.published_per_s, activity.delivered_per_s, activity.lag)
