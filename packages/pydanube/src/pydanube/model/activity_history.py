"""The rates and the lag of the last hours, as brokers remember them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pydanube.model.lazy_dataclasses import dataclass

SHORT_STEP_S = 10
"""The step of the points of the last hour."""
LONG_STEP_S = 300
"""The step of the points of the last two days."""
POINTS_MAX = {SHORT_STEP_S: 360, LONG_STEP_S: 576}
"""How many points of each step are remembered: one hour, and 48 hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityPoint:
    """Rates and lag in one step of time."""

    begins_at_s: int
    """When the step begins, in seconds since 1970 in UTC; a multiple of the step."""
    published_per_s: float = 0.0
    """The messages published, on average; of a subscription 0."""
    delivered_per_s: float = 0.0
    lag: float = 0.0
    """
    The most messages that were not acknowledged.

    Of a topic: by the subscription furthest behind; of brokers: by all together.
    """
    age_s: float = 0.0
    """The longest that the oldest of them had waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityHistory:
    """The activity of brokers, a topic or a subscription in the last hours."""

    step_s: int
    """The time between two points, in seconds."""
    points: tuple[ActivityPoint, ...] = ()
    """The steps that are known, in order.  Steps before the broker started, and those
    before the first message or after two days without one, are missing."""


def added_up(parts: Iterable[ActivityHistory], step_s: int) -> ActivityHistory:
    """Return what several brokers remember, as one history."""
    found: defaultdict[int, list[ActivityPoint]] = defaultdict(list)
    for part in parts:
        for each in part.points:
            found[each.begins_at_s].append(each)
    points = [
        ActivityPoint(
            begins_at_s=at,
            published_per_s=sum(each.published_per_s for each in same),
            delivered_per_s=sum(each.delivered_per_s for each in same),
            lag=sum(each.lag for each in same),
            age_s=max(each.age_s for each in same),
        )
        for at, same in sorted(found.items())
    ]
    return ActivityHistory(step_s=step_s, points=tuple(points))
