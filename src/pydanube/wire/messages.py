"""Control messages of the native protocol ↔ the words of the model; both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.model.descriptions import (
    Segment,
    Segments,
    SubscriptionDescription,
    TopicDescription,
)
from pydanube.model.errors import BrokerError, error_of
from pydanube.model.policy import (
    DispatchMode,
    Durability,
    Retention,
    Start,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.model.ranges import Range

_TYPES = {
    SubscriptionType.EXCLUSIVE: pb.EXCLUSIVE,
    SubscriptionType.SHARED: pb.SHARED,
    SubscriptionType.FAILOVER: pb.FAILOVER,
}
_TYPES_BACK = {number: type_ for type_, number in _TYPES.items()}
_STARTS = {Start.LATEST: pb.LATEST, Start.EARLIEST: pb.EARLIEST}
_STARTS_BACK = {number: start for start, number in _STARTS.items()}


def error_to_wire(error: BrokerError) -> pb.Error:
    """What the peer is told of *error*."""
    return pb.Error(code=error.code, message=str(error))


def error_from_wire(message: pb.Error) -> BrokerError:
    """The error that the peer told us of."""
    return error_of(message.code, message.message)


def policy_to_wire(policy: TopicPolicy) -> pb.TopicPolicy:
    """A topic's policy as it is sent."""
    return pb.TopicPolicy(
        reliable=policy.is_reliable,
        written_is_enough=policy.durability is Durability.WRITTEN,
        retention_age_s=policy.retention.age_s or 0,
        retention_bytes_max=policy.retention.bytes_max or 0,
    )


def policy_from_wire(message: pb.TopicPolicy) -> TopicPolicy:
    """A topic's policy as it was sent."""
    return TopicPolicy(
        dispatch=(
            DispatchMode.RELIABLE if message.reliable else DispatchMode.NON_RELIABLE
        ),
        durability=(
            Durability.WRITTEN if message.written_is_enough else Durability.DURABLE
        ),
        retention=Retention(
            age_s=message.retention_age_s or None,
            bytes_max=message.retention_bytes_max or None,
        ),
    )


def type_to_wire(type_: SubscriptionType) -> pb.SubscriptionType:
    """A subscription's type as it is sent."""
    return _TYPES[type_]


def type_from_wire(number: int) -> SubscriptionType:
    """A subscription's type; one that we do not know is taken as exclusive."""
    return _TYPES_BACK.get(number, SubscriptionType.EXCLUSIVE)  # type: ignore[call-overload, no-any-return]


def start_to_wire(start: Start) -> pb.Start:
    """A start position as it is sent."""
    return _STARTS[start]


def start_from_wire(number: int) -> Start:
    """A start position; one that we do not know is taken as latest."""
    return _STARTS_BACK.get(number, Start.LATEST)  # type: ignore[call-overload, no-any-return]


def ranges_to_wire(ranges: Iterable[Range]) -> pb.OffsetRanges:
    """Offset ranges as they are sent."""
    message = pb.OffsetRanges()
    for base, end in ranges:
        message.base.append(base)
        message.end.append(end)
    return message


def ranges_from_wire(message: pb.OffsetRanges) -> list[Range]:
    """Offset ranges as they were sent; pairs that are not ranges are dropped."""
    return [(b, e) for b, e in zip(message.base, message.end, strict=False) if b < e]


def subscription_to_wire(
    description: SubscriptionDescription,
) -> pb.SubscriptionDescription:
    """A description as it is sent."""
    return pb.SubscriptionDescription(
        subscription=description.subscription,
        type=type_to_wire(description.type),
        cursor=description.cursor,
        backlog=description.backlog,
        in_flight=description.in_flight,
        consumers=description.consumers,
        done=ranges_to_wire(description.done),
    )


def subscription_from_wire(
    message: pb.SubscriptionDescription,
) -> SubscriptionDescription:
    """A description as it was sent."""
    return SubscriptionDescription(
        subscription=message.subscription,
        type=type_from_wire(message.type),
        cursor=message.cursor,
        done=tuple(ranges_from_wire(message.done)),
        backlog=message.backlog,
        in_flight=message.in_flight,
        consumers=tuple(message.consumers),
    )


def topic_to_wire(description: TopicDescription) -> pb.TopicDescription:
    """A description as it is sent."""
    return pb.TopicDescription(
        topic=description.topic,
        topic_id=description.topic_id,
        policy=policy_to_wire(description.policy),
        epoch=description.epoch,
        base_offset=description.base_offset,
        end_offset=description.end_offset,
        sealed_offset=description.sealed_offset,
        tail_bytes=description.tail_bytes,
        segment_bytes=description.segment_bytes,
        segment_count=description.segment_count,
        producers=description.producers,
        subscriptions=[subscription_to_wire(s) for s in description.subscriptions],
        dropped=description.dropped,
    )


def topic_from_wire(message: pb.TopicDescription) -> TopicDescription:
    """A description as it was sent."""
    return TopicDescription(
        topic=message.topic,
        topic_id=message.topic_id,
        policy=policy_from_wire(message.policy),
        epoch=message.epoch,
        base_offset=message.base_offset,
        end_offset=message.end_offset,
        sealed_offset=message.sealed_offset,
        tail_bytes=message.tail_bytes,
        segment_bytes=message.segment_bytes,
        segment_count=message.segment_count,
        producers=tuple(message.producers),
        subscriptions=tuple(map(subscription_from_wire, message.subscriptions)),
        dropped=message.dropped,
    )


def segments_to_wire(segments: Segments) -> pb.Segments:
    """A topic's segments as they are sent."""
    return pb.Segments(
        topic_id=segments.topic_id,
        base_offset=segments.base_offset,
        sealed_offset=segments.sealed_offset,
        end_offset=segments.end_offset,
        segments=[
            pb.Segment(
                base_offset=segment.base,
                end_offset=segment.end,
                epoch=segment.epoch,
                count=segment.count,
                byte_count=segment.byte_count,
                url=segment.url,
            )
            for segment in segments.segments
        ],
    )


def segments_from_wire(message: pb.Segments) -> Segments:
    """A topic's segments as they were sent."""
    return Segments(
        topic_id=message.topic_id,
        base_offset=message.base_offset,
        sealed_offset=message.sealed_offset,
        end_offset=message.end_offset,
        segments=tuple(
            Segment(
                base=segment.base_offset,
                end=segment.end_offset,
                epoch=segment.epoch,
                count=segment.count,
                byte_count=segment.byte_count,
                url=segment.url,
            )
            for segment in message.segments
        ),
    )
