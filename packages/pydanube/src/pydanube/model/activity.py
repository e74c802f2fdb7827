"""The activity of topics between two samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydanube.model.descriptions import StorageDescription, TopicDescription
from pydanube.model.findings import Findings
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.subscription_lag import base_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A broker at one moment."""

    taken_at: float
    """By a monotonic clock, in seconds."""
    topics: Sequence[TopicDescription]
    topic_count: int
    """The number of topics and partitions, of which *topics* may be the first ones."""
    storage: StorageDescription
    totals: Findings | None = None
    """The totals of all topics that are open, by the brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The activity of a topic, or of all partitions of one."""

    topic: str
    published_per_s: float
    delivered_per_s: float
    lag: int
    """The lag of the subscription that is furthest behind."""
    producers: int
    consumers: int
    byte_count: int
    """The size of the stored messages."""


ORDERS: dict[str, Callable[[Activity], Any]] = {
    "rate": lambda each: -(each.published_per_s + each.delivered_per_s),
    "lag": lambda each: -each.lag,
    "size": lambda each: -each.byte_count,
    "name": lambda each: each.topic,
}
"""The orders of topics; equal ones are sorted by name."""


def activities(before: Sample, after: Sample, order: str) -> list[Activity]:
    """
    Return the activity of the topics of *after* since *before*, in this *order*.

    The rates of a topic that *before* lacks are 0.
    """
    known = {each.topic_id: each for each in before.topics}
    groups: dict[str, list[TopicDescription]] = {}
    for topic in after.topics:
        groups.setdefault(base_of(topic.topic), []).append(topic)
    elapsed_s = max(after.taken_at - before.taken_at, 1e-3)
    found = [
        _activity(name, topics, known, elapsed_s) for name, topics in groups.items()
    ]
    return sorted(found, key=lambda each: (ORDERS[order](each), each.topic))


def _activity(
    name: str,
    topics: Iterable[TopicDescription],
    known: dict[int, TopicDescription],
    elapsed_s: float,
) -> Activity:
    published = delivered = byte_count = 0
    lags: dict[str, int] = {}
    producers: set[str] = set()
    consumers: set[tuple[str, str]] = set()
    for topic in topics:
        before = known.get(topic.topic_id)
        if before is not None:
            published += topic.end_offset - before.end_offset
            # A broker that was restarted counts deliveries from 0 again.
            delivered += max(0, _delivered(topic) - _delivered(before))
        byte_count += topic.tail_bytes + topic.segment_bytes
        producers.update(topic.producers)
        for each in topic.subscriptions:
            lags[each.subscription] = lags.get(each.subscription, 0) + each.backlog
            consumers.update((each.subscription, who) for who in each.consumers)
    return Activity(
        topic=name,
        published_per_s=published / elapsed_s,
        delivered_per_s=delivered / elapsed_s,
        lag=max(lags.values(), default=0),
        producers=len(producers),
        consumers=len(consumers),
        byte_count=byte_count,
    )


def _delivered(topic: TopicDescription) -> int:
    return sum(each.counts.delivered for each in topic.subscriptions)
