"""
The samples of the topics and subscriptions that a broker has open.

There may be very many of them, so one walk over all collects everything, and other
tasks run in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pydanube.aio.long_work import LongWork
from pydanube.model import metrics
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.metrics import Metric, Sample
from pydanube.model.topic_patterns import TopicPattern
from pydanube_broker.broker.delivery.subscription import Subscription
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.serving.findings import problem_of

_TOTALS = (
    metrics.PRODUCERS,
    metrics.SUBSCRIPTIONS,
    metrics.STOPPED_SUBSCRIPTIONS,
    metrics.BLOCKED_SUBSCRIPTIONS,
)
_Count = tuple[Metric, tuple[str, ...], int]

_OTHER_TOPICS = (metrics.OTHER,)
_OTHER_SUBSCRIPTIONS = (metrics.OTHER, metrics.OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeries:
    """Which topics and subscriptions have series of their own."""

    series_max: int = metrics.SERIES_MAX
    """The maximum number of topics, of subscriptions, and of those with problems."""
    pattern: TopicPattern | None = None
    """If not None, only the topics that match have series, and there are no others."""


FIRST_TOPICS = TopicSeries()


class TopicSamples:
    """The samples of the topics that were added, the first of which have series."""

    def __init__(self, series: TopicSeries, now_us: int) -> None:
        self._pattern = series.pattern
        self._now_us = now_us
        self._named: list[Sample] = []
        self._sums: Counter[tuple[Metric, tuple[str, ...]]] = Counter()
        """The sums of what has no series of its own, and of all topics."""
        self._other_lag_s: float | None = None
        """The longest lag of a subscription that has no series of its own."""
        # How many more get series.
        self._topics_left = self._subscriptions_left = series.series_max
        self._problems_left = series.series_max

    async def add(self, topics: Iterable[Topic], work: LongWork) -> None:
        """Add *topics*, and let other tasks run in between."""
        for topic in topics:
            name = str(topic.name)
            self._sums[metrics.PRODUCERS, ()] += len(topic.registrations)
            has_series = self._pattern is None or self._pattern.matches(topic.name)
            if has_series:
                self._add_topic(name, topic)
            await work.did()
            for subscription in list(topic.subscriptions.values()):
                labels = (name, str(subscription.name))
                self._add_state(labels, subscription)
                if has_series:
                    self._add_subscription(labels, topic, subscription)
                await work.did()

    def samples(self) -> list[Sample]:
        """Return the samples of all topics that were added."""
        sums = dict.fromkeys([(metric, ()) for metric in _TOTALS], 0) | self._sums
        found: list[Sample] = [(*key, count) for key, count in sums.items()]
        if self._other_lag_s is not None:
            lag = metrics.LAG_SECONDS, _OTHER_SUBSCRIPTIONS, self._other_lag_s
            found.append(lag)
        return self._named + found

    def _add_topic(self, name: str, topic: Topic) -> None:
        is_named = self._topics_left > 0
        self._topics_left -= 1
        labels = (name,) if is_named else _OTHER_TOPICS
        counts, schema_counts = topic.counts, topic.schema_counts
        found: list[_Count] = [
            (metrics.TOPIC_MESSAGES_IN, labels, counts.published),
            (metrics.TOPIC_BYTES_IN, labels, counts.published_bytes),
            (metrics.TOPIC_MESSAGES_OUT, labels, counts.delivered),
            (metrics.TOPIC_BYTES_OUT, labels, counts.delivered_bytes),
            (metrics.TOPIC_MESSAGES_NACKED, labels, counts.nacked),
            (metrics.TOPIC_MESSAGES_DEAD_LETTERED, labels, counts.dead_lettered),
        ]
        if schema_counts is not None:
            for policy, count in schema_counts.validated.items():
                found.append((metrics.SCHEMA_VALIDATIONS, (*labels, policy), count))
            for why, count in schema_counts.failed.items():
                found.append(
                    (metrics.SCHEMA_VALIDATION_FAILURES, (*labels, why), count)
                )
        self._add_all(found, is_named=is_named)

    def _add_subscription(
        self, labels: tuple[str, ...], topic: Topic, each: Subscription
    ) -> None:
        counts, lag_s = each.counts, each.lag_s(self._now_us)
        is_named = self._subscriptions_left > 0
        self._subscriptions_left -= 1
        if is_named:
            self._named.append((metrics.LAG_SECONDS, labels, lag_s))
        else:
            labels = _OTHER_SUBSCRIPTIONS
            self._other_lag_s = max(lag_s, self._other_lag_s or 0.0)
        dead_lettered = metrics.SUBSCRIPTION_MESSAGES_DEAD_LETTERED
        found: list[_Count] = [
            (metrics.SUBSCRIPTION_MESSAGES_SKIPPED, labels, counts.skipped),
            (dead_lettered, labels, counts.dead_lettered),
            (metrics.BACKLOG, labels, each.backlog(topic.end_offset)),
        ]
        self._add_all(found, is_named=is_named)

    def _add_state(self, labels: tuple[str, ...], each: Subscription) -> None:
        """Count the subscription, and what is wrong with it."""
        self._sums[metrics.SUBSCRIPTIONS, ()] += 1
        self._sums[metrics.STOPPED_SUBSCRIPTIONS, ()] += each.is_stopped
        self._sums[metrics.BLOCKED_SUBSCRIPTIONS, ()] += each.is_blocked
        problem = problem_of(each)
        if problem is not None:
            is_named = self._problems_left > 0
            self._problems_left -= 1
            labels = labels if is_named else _OTHER_SUBSCRIPTIONS
            sample = (metrics.SUBSCRIPTION_PROBLEM, (*labels, problem.value), 1)
            self._add_all([sample], is_named=is_named)

    def _add_all(self, samples: Iterable[_Count], *, is_named: bool) -> None:
        """Add samples that have series, or else are added up."""
        if is_named:
            self._named += samples
            return
        for metric, labels, count in samples:
            self._sums[metric, labels] += count
