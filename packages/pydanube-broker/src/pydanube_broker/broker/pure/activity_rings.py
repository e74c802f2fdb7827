"""
The rates and the lag of the last hours, as a broker remembers them.

A ring has a point for each 10 s of the last hour, and one for each 5 minutes of the
last 48 hours.  There is one ring for the whole broker, and one for each topic and each
subscription that was active in this time.  Partitions of a topic are added up.  While a
topic is not open here, because another broker serves it, its points are missing.

A broker that restarts begins again.  If the clock is set back, the points of the time
that has not come yet are forgotten.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from math import isnan, nan

from pydanube.model.activity_history import (
    LONG_STEP_S,
    POINTS_MAX,
    SHORT_STEP_S,
    ActivityHistory,
    ActivityPoint,
)
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass

RINGS_MAX = 1000
"""The most topics and subscriptions that are remembered, of 15 kB each; those that are
idle longest are forgotten first."""
BRIDGED_MAX = 12
"""After more steps without a measurement, there is a gap."""
WIDTH = 4
"""The values of a point."""

Key = tuple[str, str]
"""A topic and a subscription; the latter is empty for the topic, both for the broker.
"""
BROKER: Key = ("", "")
Values = tuple[float, float, float, float]
"""Published and delivered per second, lag, and its age in seconds."""

_UNKNOWN: Values = (nan, nan, nan, nan)
_IDLE: Values = (0.0, 0.0, 0.0, 0.0)


class _Points:
    """The last points of one step, without gaps: a point may be unknown."""

    __slots__ = ("_end", "_max", "_step_s", "_values")

    def __init__(self, step_s: int) -> None:
        self._step_s = step_s
        self._max = POINTS_MAX[step_s]
        # The number of the step after the last one.
        self._end = 0
        self._values = array("f")

    def add(self, step: int, values: Values) -> None:
        """Add the point of *step*, which comes after those before it."""
        missing = step - self._end if self._values else 0
        if missing > self._max:
            del self._values[:]
            missing = 0
        self._values.extend(_UNKNOWN * missing)
        self._values.extend(values)
        self._end = step + 1
        excess = len(self._values) - WIDTH * self._max
        # Some at a time: to remove the first ones moves the others.
        if excess > WIDTH * self._max // 10:
            del self._values[:excess]

    def forget_from(self, step: int) -> None:
        """Forget the points of *step* and of those after it."""
        excess = min(max(0, self._end - step) * WIDTH, len(self._values))
        if excess:
            del self._values[-excess:]
            self._end = step

    def points(self) -> Iterator[ActivityPoint]:
        """Yield the points that are known."""
        values = self._values[-WIDTH * self._max :]
        first = self._end - len(values) // WIDTH
        for number, at in enumerate(range(0, len(values), WIDTH), first):
            published, delivered, lag, age_s = values[at : at + WIDTH]
            if not isnan(lag):
                yield ActivityPoint(
                    begins_at_s=number * self._step_s,
                    published_per_s=published,
                    delivered_per_s=delivered,
                    lag=lag,
                    age_s=age_s,
                )


class _Ring:
    """The points of one topic, one subscription or the broker."""

    __slots__ = (
        *("_count", "_long", "_long_step", "_short", "_sum"),
        *("last_active", "topics"),
    )

    def __init__(self) -> None:
        self.last_active = 0
        """The last step with a message, or with one that waited."""
        self.topics: set[TopicId] = set()
        """The topic, or the partitions that were active."""
        self._short = _Points(SHORT_STEP_S)
        self._long = _Points(LONG_STEP_S)
        # The long step that has not ended, and what was added in it.
        self._long_step = self._count = 0
        self._sum = _IDLE

    def add(self, step: int, values: Values) -> None:
        if any(values):
            self.last_active = step
        self._short.add(step, values)
        long_step = step * SHORT_STEP_S // LONG_STEP_S
        if long_step != self._long_step:
            self._end_long_step()
            self._long_step = long_step
        published, delivered, lag, age_s = self._sum
        self._sum = (
            published + values[0],
            delivered + values[1],
            max(lag, values[2]),
            max(age_s, values[3]),
        )
        self._count += 1

    def forget_from(self, step: int) -> None:
        """Forget the points of *step* and of those after it."""
        self.last_active = min(self.last_active, step)
        self._short.forget_from(step)
        long_step = step * SHORT_STEP_S // LONG_STEP_S
        self._long.forget_from(long_step)
        if long_step < self._long_step:
            self._sum, self._count = _IDLE, 0

    def points(self, step_s: int) -> list[ActivityPoint]:
        if step_s == SHORT_STEP_S:
            return list(self._short.points())
        points = list(self._long.points())
        if self._count:
            published, delivered, lag, age_s = self._mean()
            current = ActivityPoint(
                begins_at_s=self._long_step * LONG_STEP_S,
                published_per_s=published,
                delivered_per_s=delivered,
                lag=lag,
                age_s=age_s,
            )
            points = [*points[-POINTS_MAX[step_s] + 1 :], current]
        return points

    def _mean(self) -> Values:
        published, delivered, lag, age_s = self._sum
        return published / self._count, delivered / self._count, lag, age_s

    def _end_long_step(self) -> None:
        if self._count:
            self._long.add(self._long_step, self._mean())
        self._sum, self._count = _IDLE, 0


@dataclass(slots=True)
class Measurement:
    """The counts of all open topics at one moment, while they are collected."""

    before: dict[tuple[TopicId, str], tuple[int, int]]
    counts: dict[tuple[TopicId, str], tuple[int, int]] = field(default_factory=dict)
    sums: defaultdict[Key, list[float]] = field(
        default_factory=lambda: defaultdict(lambda: [0.0] * WIDTH)
    )
    topics: defaultdict[Key, set[TopicId]] = field(
        default_factory=lambda: defaultdict(set)
    )

    def count(
        self, topic_id: TopicId, subscription: str, published: int, delivered: int
    ) -> tuple[int, int]:
        """
        Return what was published and delivered since the measurement before.

        *published* and *delivered* count since the topic was opened; *subscription* is
        empty for the topic itself.
        """
        counted = topic_id, subscription
        self.counts[counted] = published, delivered
        old_published, old_delivered = self.before.get(counted, (0, 0))
        if published < old_published or delivered < old_delivered:
            # It was opened again, and counts from 0.
            return published, delivered
        return published - old_published, delivered - old_delivered

    def add(
        self,
        key: Key,
        topic_id: TopicId,
        new: tuple[int, int],
        lag: int = 0,
        age_s: float = 0.0,
    ) -> None:
        """
        Add what ``count`` has returned of a topic or a subscription, if it is active.

        *key* has the base name of a partition.
        """
        self.topics[key].add(topic_id)
        found = self.sums[key]
        found[0] += new[0]
        found[1] += new[1]
        found[2] += lag
        found[3] = max(found[3], age_s)

    def has_open(self, topic_ids: set[TopicId]) -> bool:
        """Return whether one of these topics is open."""
        return any((each, "") in self.counts for each in topic_ids)

    def rates(self, elapsed_s: float) -> dict[Key, Values]:
        """Return what was added, and of the broker, in *elapsed_s*; nothing if idle."""
        broker = [0.0] * WIDTH
        for (name, subscription), values in list(self.sums.items()):
            if subscription:
                topic = self.sums[name, ""]
                topic[2] = max(topic[2], values[2])
                topic[3] = max(topic[3], values[3])
                broker[2] += values[2]
                broker[3] = max(broker[3], values[3])
            else:
                broker[0] += values[0]
                broker[1] += values[1]
        self.sums[BROKER] = broker
        return {
            key: (published / elapsed_s, delivered / elapsed_s, lag, age_s)
            for key, (published, delivered, lag, age_s) in self.sums.items()
        }


class ActivityRings:
    """
    The rings of one broker.

    Bounds: ``RINGS_MAX`` topics and subscriptions.  Each measurement keeps two counts
        of every open topic and subscription until the next one.
    """

    def __init__(self, now_s: float, rings_max: int = RINGS_MAX) -> None:
        self._rings_max = rings_max
        self._rings: dict[Key, _Ring] = {}
        self._broker = _Ring()
        self._counts: dict[tuple[TopicId, str], tuple[int, int]] = {}
        self._step = int(now_s // SHORT_STEP_S) - 1
        """The last step that is over and has a point."""

    def begin(self) -> Measurement:
        """Return an empty measurement, for ``end``."""
        return Measurement(self._counts)

    def end(self, measured: Measurement, now_s: float, elapsed_s: float) -> None:
        """
        Add what was *measured*, *elapsed_s* after the measurement before.

        It is about the steps since then; the one of *now_s* is not over.
        """
        self._counts = measured.counts
        last = int(now_s // SHORT_STEP_S) - 1
        if last == self._step:
            return
        if last < self._step:
            # The clock was set back.
            self._step = last - 1
            for each in (self._broker, *self._rings.values()):
                each.forget_from(last)
        is_gap = last - self._step > BRIDGED_MAX
        steps = range(last if is_gap else self._step + 1, last + 1)
        self._step = last
        rates = measured.rates(elapsed_s)
        self._make_room([each for each in rates if each != BROKER], last)
        for key, topic_ids in measured.topics.items():
            if key in self._rings:
                self._rings[key].topics |= topic_ids
        for step in steps:
            self._broker.add(step, rates.get(BROKER, _IDLE))
            for key, ring in self._rings.items():
                if key in rates or measured.has_open(ring.topics):
                    ring.add(step, rates.get(key, _IDLE))

    def history(self, key: Key, step_s: int) -> ActivityHistory:
        """Return the points of a topic, a subscription or the broker, if any."""
        ring = self._broker if key == BROKER else self._rings.get(key)
        points = [] if ring is None else ring.points(step_s)
        # A ring of a topic that another broker serves may end long ago.
        first_s = (self._step + 1) * SHORT_STEP_S - POINTS_MAX[step_s] * step_s
        known = tuple(each for each in points if each.begins_at_s >= first_s)
        return ActivityHistory(step_s=step_s, points=known)

    def _make_room(self, active: list[Key], step: int) -> None:
        """Add rings for what is *active*; forget what is idle, if there is no room."""
        kept_steps = POINTS_MAX[LONG_STEP_S] * LONG_STEP_S // SHORT_STEP_S
        for key, ring in list(self._rings.items()):
            if step - ring.last_active > kept_steps:
                del self._rings[key]
        wanted = [each for each in active if each not in self._rings]
        excess = len(self._rings) + len(wanted) - self._rings_max
        if excess > 0:
            still = set(active)
            idle = [each for each in self._rings if each not in still]
            idle.sort(key=lambda each: self._rings[each].last_active)
            for key in idle[:excess]:
                del self._rings[key]
        for key in wanted[: max(0, self._rings_max - len(self._rings))]:
            self._rings[key] = _Ring()
