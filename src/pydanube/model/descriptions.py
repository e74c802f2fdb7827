"""What can be told about a topic, a subscription and a topic's segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydanube.model.policy import SubscriptionType, TopicPolicy
    from pydanube.model.ranges import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDescription:
    """A subscription at one moment."""

    subscription: str
    type: SubscriptionType
    cursor: int
    """Every message below this offset is done."""
    done: tuple[Range, ...]
    """What is done above the cursor."""
    backlog: int
    """How many messages were published and are not done."""
    in_flight: int
    """How many were delivered and are neither acknowledged nor given back."""
    consumers: tuple[str, ...]
    """Names; where one is active and the others stand by, it is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic at one moment; messages ``base_offset … end_offset`` can be read."""

    topic: str
    topic_id: int
    policy: TopicPolicy
    epoch: int
    base_offset: int
    end_offset: int
    sealed_offset: int
    """What is older stands in segments, the rest in the broker's memory."""
    tail_bytes: int
    segment_bytes: int
    segment_count: int
    producers: tuple[str, ...]
    subscriptions: tuple[SubscriptionDescription, ...]
    dropped: int
    """Messages that slow consumers of a non-reliable topic did not get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One immutable Parquet file with the messages ``base … end`` of a topic."""

    base: int
    end: int
    epoch: int
    count: int
    byte_count: int
    url: str
    """Where any engine can read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Where a topic's messages are: in these segments, then with the broker."""

    topic_id: int
    segments: tuple[Segment, ...]
    base_offset: int
    sealed_offset: int
    end_offset: int
