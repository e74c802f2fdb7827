"""The activity of a broker's topics between two samples, as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydanube.cli.output import Columns, Table, printable
from pydanube.cli.quantities import format_bytes, format_count
from pydanube.cli.subscription_lag import base_of
from pydanube.cli.text_columns import wrap
from pydanube.model.descriptions import StorageDescription, TopicDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A broker at one moment."""

    taken_at: float
    """By a monotonic clock, in seconds."""
    topics: Sequence[TopicDescription]
    topic_count: int
    """The number of topics and partitions, of which *topics* may be the first ones."""
    storage: StorageDescription


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

COLUMNS: Columns = {
    "Topic": "topic",
    "In/s": lambda each: round(each.published_per_s),
    "Out/s": lambda each: round(each.delivered_per_s),
    "Lag": "lag",
    "Producers": "producers",
    "Consumers": "consumers",
    "Stored": lambda each: format_bytes(each.byte_count),
}


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


def screen(
    sample: Sample,
    found: Sequence[Activity],
    *,
    title: str,
    width: int | None,
    height: int | None,
) -> list[str]:
    """
    Return the lines that show *found*; None: with any width or height.

    Topics for which there is no line are counted in the last one.
    """
    lines = [title, *_totals(sample.storage, found), ""]
    if width is not None:
        lines = [piece for line in lines for piece in wrap(line, width)]
    hidden = sample.topic_count - len(sample.topics)
    shown = list(found)
    if height is not None:
        # The table has a heading and a rule, and a line says what is not shown.
        shown = shown[: max(1, height - len(lines) - 3)]
    lines += Table.of(shown, COLUMNS).lines(width)
    if hidden:
        lines.append(f"{hidden} topics are not examined; name a pattern")
    elif len(shown) < len(found):
        lines.append(f"{len(found) - len(shown)} more topics")
    return lines


def _totals(storage: StorageDescription, found: Sequence[Activity]) -> list[str]:
    """Return the lines about the whole broker."""
    rate_in = sum(each.published_per_s for each in found)
    rate_out = sum(each.delivered_per_s for each in found)
    rates = f"in {format_count(rate_in)}/s  out {format_count(rate_out)}/s"
    producers = sum(each.producers for each in found)
    consumers = sum(each.consumers for each in found)
    stored = format_bytes(sum(each.byte_count for each in found))
    journal = format_bytes(storage.journal_bytes)
    return [
        f"{rates}  producers {producers}  consumers {consumers}  topics {len(found)}",
        f"stored {stored}  journal {journal}{_uploads(storage)}",
        *(f"problem: {printable(each)}" for each in storage.problems),
    ]


def _uploads(storage: StorageDescription) -> str:
    if not storage.remote_url:
        return ""
    waiting = format_bytes(storage.backlog_bytes)
    return f"  not uploaded {storage.backlog_segments} segments ({waiting})"


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
