"""The consequences of moving the cursor of a subscription, before it is moved."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pydanube.model.descriptions import SubscriptionDescription, TopicDescription
from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.positions import PositionLike
from pydanube.model.ranges import Range
from pydanube.sync import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPlan:
    """The move of a subscription's cursor in a topic or partition."""

    topic: str
    subscription: str
    cursor: int
    """The present cursor."""
    position: int
    """The offset to move to."""
    delivered_again: int
    """About how many acknowledged messages would be delivered again."""
    skipped: int
    """About how many messages would count as acknowledged without a delivery."""


def plan_seek(
    topic: TopicDescription, subscription: SubscriptionDescription, position: int
) -> SeekPlan:
    """
    Return what a seek to the offset *position* would do.

    Raises:
        InvalidRequest: The topic is not reliable, or has no such offset yet.
    """
    if not topic.policy.is_reliable:
        raise InvalidRequest(
            f"{topic.topic} is not reliable: its subscriptions have no cursors"
        )
    if position > topic.end_offset:
        raise InvalidRequest(
            f"offset {position} is beyond the end of {topic.topic}, which is "
            f"{topic.end_offset}"
        )
    position = max(position, topic.base_offset)
    cursor, end = subscription.cursor, topic.end_offset
    passed = position - cursor - _count(subscription.done, cursor, position)
    return SeekPlan(
        topic=topic.topic,
        subscription=subscription.subscription,
        cursor=cursor,
        position=position,
        delivered_again=max(0, cursor - position)
        + _count(subscription.done, position, end),
        skipped=max(0, passed),
    )


def plan_seeks(
    client: Client, topic: str, subscription: str, to: PositionLike
) -> list[SeekPlan]:
    """
    Return what a seek would do in *topic*, or in each of its partitions.

    Raises:
        TopicNotFound: There is no such topic.
        SubscriptionNotFound: There is no such subscription.
        InvalidRequest: The seek would be refused.
    """
    # Of a topic that does not exist, this raises the error.
    names = client.topics.partitions(topic) or [topic]
    if isinstance(to, int) and len(names) > 1:
        raise InvalidRequest(
            f"{topic} has {len(names)} partitions, and an offset needs one: name it, "
            f"for example {names[0]}"
        )
    plans = []
    for name in names:
        described = client.topics.describe(name)
        found = client.subscriptions.describe(name, subscription)
        plans.append(plan_seek(described, found, _offset(client, described, to)))
    return plans


def _offset(client: Client, topic: TopicDescription, to: PositionLike) -> int:
    match to:
        case "earliest":
            return topic.base_offset
        case "latest":
            return topic.end_offset
        case int():
            return to
        case datetime():
            [offset] = client.topics.find_offsets(topic.topic, [to])
            return topic.end_offset if offset is None else offset
    raise InvalidRequest(f"{to!r} is not a position")


def _count(ranges: Iterable[Range], base: int, end: int) -> int:
    """Return how many offsets of *ranges* are in ``base … end``."""
    return sum(max(0, min(last, end) - max(first, base)) for first, last in ranges)
