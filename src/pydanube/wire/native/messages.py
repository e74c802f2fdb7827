"""
Conversions between control messages of the native protocol and types of the model.

A ``…_from_wire`` function raises InvalidRequest if the peer sent a number that this
version does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydanube.model.descriptions import (
    Hold,
    NamespaceDescription,
    Segment,
    Segments,
    SubscriptionCounts,
    SubscriptionDescription,
    TopicDescription,
)
from pydanube.model.errors import BrokerError, InvalidRequest, error_of
from pydanube.model.policy import (
    AtTime,
    Backoff,
    CorruptionPolicy,
    DispatchLimits,
    DispatchMode,
    Durability,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    ProducerAccess,
    Retention,
    Start,
    SubscriptionSettings,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.wire.native.schema_messages import (
    topic_schema_from_wire,
    topic_schema_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydanube.model.policy import Position
    from pydanube.model.ranges import Range

T = TypeVar("T")

RANGES_MAX = 32 * 1024
"""The most ranges in one ACK, NACK or MARK_DONE; they always fit into a frame."""

_TYPES = {
    SubscriptionType.EXCLUSIVE: pb.EXCLUSIVE,
    SubscriptionType.SHARED: pb.SHARED,
    SubscriptionType.FAILOVER: pb.FAILOVER,
    SubscriptionType.KEY_SHARED: pb.KEY_SHARED,
}
_STARTS = {Start.LATEST: pb.LATEST, Start.EARLIEST: pb.EARLIEST}
_ACCESS = {
    ProducerAccess.SHARED: pb.ACCESS_SHARED,
    ProducerAccess.EXCLUSIVE: pb.ACCESS_EXCLUSIVE,
    ProducerAccess.EXCLUSIVE_WAIT: pb.ACCESS_EXCLUSIVE_WAIT,
    ProducerAccess.EXCLUSIVE_FENCE: pb.ACCESS_EXCLUSIVE_FENCE,
}
_BACKOFFS = {
    Backoff.EXPONENTIAL: pb.BACKOFF_EXPONENTIAL,
    Backoff.FIXED: pb.BACKOFF_FIXED,
}
_POISON = {
    PoisonPolicy.BLOCK: pb.POISON_BLOCK,
    PoisonPolicy.DEAD_LETTER: pb.POISON_DEAD_LETTER,
    PoisonPolicy.DROP: pb.POISON_DROP,
}

_CORRUPTION = {
    CorruptionPolicy.STOP: pb.CORRUPTION_STOP,
    CorruptionPolicy.SKIP: pb.CORRUPTION_SKIP,
}


def error_to_wire(error: BrokerError) -> pb.Error:
    return pb.Error(code=error.code, message=str(error))


def error_from_wire(message: pb.Error) -> BrokerError:
    return error_of(message.code, message.message)


def policy_to_wire(policy: TopicPolicy) -> pb.TopicPolicy:
    return pb.TopicPolicy(
        reliable=policy.is_reliable,
        written_is_enough=policy.durability is Durability.WRITTEN,
        retention_age_s=policy.retention.age_s or 0,
        retention_bytes_max=policy.retention.bytes_max or 0,
        ttl_s=policy.ttl_s or 0,
        on_corruption=on_corruption_to_wire(policy.on_corruption),
    )


def policy_from_wire(message: pb.TopicPolicy) -> TopicPolicy:
    return TopicPolicy(
        dispatch=(
            DispatchMode.RELIABLE if message.reliable else DispatchMode.NON_RELIABLE
        ),
        durability=(
            Durability.WRITTEN if message.written_is_enough else Durability.DURABLE
        ),
        retention=Retention(
            age_s=seconds_from_wire("retention age", message.retention_age_s),
            bytes_max=message.retention_bytes_max or None,
        ),
        ttl_s=seconds_from_wire("time to live", message.ttl_s),
        on_corruption=on_corruption_from_wire(message.on_corruption),
    )


def on_corruption_to_wire(on_corruption: CorruptionPolicy) -> pb.CorruptionPolicy:
    return _CORRUPTION[on_corruption]


def on_corruption_from_wire(number: pb.CorruptionPolicy) -> CorruptionPolicy:
    return _known("corruption policy", number, _CORRUPTION)


def limits_to_wire(limits: NamespacePolicy) -> pb.NamespacePolicy:
    return pb.NamespacePolicy(
        max_producers_per_topic=limits.max_producers_per_topic,
        max_subscriptions_per_topic=limits.max_subscriptions_per_topic,
        max_consumers_per_topic=limits.max_consumers_per_topic,
        max_consumers_per_subscription=limits.max_consumers_per_subscription,
        max_publish_rate=limits.max_publish_rate,
        max_subscription_dispatch_rate=limits.max_subscription_dispatch_rate,
        max_message_size=limits.max_message_size,
    )


def limits_from_wire(message: pb.NamespacePolicy) -> NamespacePolicy:
    return NamespacePolicy(
        max_producers_per_topic=message.max_producers_per_topic,
        max_subscriptions_per_topic=message.max_subscriptions_per_topic,
        max_consumers_per_topic=message.max_consumers_per_topic,
        max_consumers_per_subscription=message.max_consumers_per_subscription,
        max_publish_rate=message.max_publish_rate,
        max_subscription_dispatch_rate=message.max_subscription_dispatch_rate,
        max_message_size=message.max_message_size,
    )


def type_to_wire(type_: SubscriptionType) -> pb.SubscriptionType:
    return _TYPES[type_]


def type_from_wire(number: int) -> SubscriptionType:
    return _known("subscription type", number, _TYPES)


def start_to_wire(start: Start) -> pb.Start:
    return _STARTS[start]


def start_from_wire(number: int) -> Start:
    return _known("start", number, _STARTS)


def position_to_wire(position: Position) -> pb.Position:
    if isinstance(position, AtTime):
        return pb.Position(publish_time=position.publish_time)
    if isinstance(position, Start):
        return pb.Position(start=start_to_wire(position))
    return pb.Position(offset=position)


def position_from_wire(message: pb.Position | pb.Seek) -> Position:
    match message.WhichOneof("to"):
        case "offset":
            return message.offset
        case "publish_time":
            return AtTime(message.publish_time)
        case _:
            return start_from_wire(message.start)


def access_to_wire(access: ProducerAccess) -> pb.ProducerAccess:
    return _ACCESS[access]


def access_from_wire(number: int) -> ProducerAccess:
    return _known("producer access", number, _ACCESS)


def failure_policy_to_wire(policy: FailurePolicy) -> pb.FailurePolicy:
    return pb.FailurePolicy(
        redeliveries_max=policy.redeliveries_max,
        ack_timeout_s=policy.ack_timeout_s or 0,
        redelivery_delay_s=policy.redelivery_delay_s,
        redelivery_delay_s_max=policy.redelivery_delay_s_max,
        backoff=_BACKOFFS[policy.backoff],
        poison=_POISON[policy.poison],
        dead_letter_topic=policy.dead_letter_topic or "",
        dead_letter_expired=policy.dead_letter_expired,
    )


def failure_policy_from_wire(message: pb.FailurePolicy) -> FailurePolicy:
    return FailurePolicy(
        redeliveries_max=message.redeliveries_max,
        ack_timeout_s=seconds_from_wire("ack timeout", message.ack_timeout_s),
        redelivery_delay_s=message.redelivery_delay_s,
        redelivery_delay_s_max=message.redelivery_delay_s_max,
        backoff=_known("backoff", message.backoff, _BACKOFFS),
        poison=_known("poison policy", message.poison, _POISON),
        dead_letter_topic=message.dead_letter_topic or None,
        dead_letter_expired=message.dead_letter_expired,
    )


def dispatch_limits_to_wire(limits: DispatchLimits) -> pb.DispatchLimits:
    return pb.DispatchLimits(
        unacked_messages_max=limits.unacked_messages_max or 0,
        unacked_messages_max_per_consumer=(
            limits.unacked_messages_max_per_consumer or 0
        ),
    )


def dispatch_limits_from_wire(message: pb.DispatchLimits) -> DispatchLimits:
    return DispatchLimits(
        unacked_messages_max=message.unacked_messages_max or None,
        unacked_messages_max_per_consumer=(
            message.unacked_messages_max_per_consumer or None
        ),
    )


def settings_to_wire(settings: SubscriptionSettings) -> pb.Settings:
    policy, limits = settings.failure_policy, settings.limits
    return pb.Settings(
        failure_policy=None if policy is None else failure_policy_to_wire(policy),
        limits=None if limits is None else dispatch_limits_to_wire(limits),
        is_paused=settings.is_paused,
    )


def settings_from_wire(message: pb.Settings) -> SubscriptionSettings:
    return SubscriptionSettings(
        failure_policy=(
            failure_policy_from_wire(message.failure_policy)
            if message.HasField("failure_policy")
            else None
        ),
        limits=(
            dispatch_limits_from_wire(message.limits)
            if message.HasField("limits")
            else None
        ),
        is_paused=message.is_paused,
    )


def ranges_to_wire(ranges: Iterable[Range]) -> pb.OffsetRanges:
    pairs = list(ranges)
    return pb.OffsetRanges(
        base=[base for base, _ in pairs], end=[end for _, end in pairs]
    )


def divided_to_wire(ranges: Iterable[Range]) -> list[pb.OffsetRanges]:
    """Return messages with up to ``RANGES_MAX`` ranges each; at least one message."""
    pairs = list(ranges)
    return [
        ranges_to_wire(pairs[at : at + RANGES_MAX])
        for at in range(0, max(len(pairs), 1), RANGES_MAX)
    ]


def ranges_from_wire(
    message: pb.OffsetRanges, count_max: int | None = None
) -> list[Range]:
    """
    Return the offset ranges in *message*.

    Raises:
        InvalidRequest: The numbers of bases and ends differ, a range is empty, or
            there are more than *count_max*.
    """
    bases, ends = message.base, message.end
    if len(bases) != len(ends):
        raise InvalidRequest(
            f"offset ranges have {len(bases)} bases and {len(ends)} ends: each range "
            "needs one of both"
        )
    if count_max is not None and len(bases) > count_max:
        raise InvalidRequest(
            f"{len(bases)} offset ranges in one message, at most {count_max} are "
            "allowed: send several messages"
        )
    for base, end in zip(bases, ends, strict=True):
        if base >= end:
            raise InvalidRequest(
                f"the offset range {base} to {end} is empty: its end must be greater "
                "than its base"
            )
    return list(zip(bases, ends, strict=True))


def subscription_to_wire(
    description: SubscriptionDescription,
) -> pb.SubscriptionDescription:
    counts = description.counts
    return pb.SubscriptionDescription(
        subscription=description.subscription,
        type=type_to_wire(description.type),
        cursor=description.cursor,
        backlog=description.backlog,
        in_flight=description.in_flight,
        consumers=description.consumers,
        done=ranges_to_wire(description.done),
        backlog_bytes=description.backlog_bytes,
        oldest_publish_time=description.oldest_publish_time,
        delayed=description.delayed,
        blocked=ranges_to_wire(description.blocked),
        parked=description.parked,
        dead_letter_error=description.dead_letter_error or "",
        is_paused=description.is_paused,
        settings=settings_to_wire(description.settings),
        counts=pb.SubscriptionCounts(
            delivered=counts.delivered,
            redelivered=counts.redelivered,
            nacked=counts.nacked,
            timed_out=counts.timed_out,
            expired=counts.expired,
            dead_lettered=counts.dead_lettered,
            given_up=counts.given_up,
            skipped=counts.skipped,
        ),
        stopped_by=description.stopped_by or "",
        skipped=ranges_to_wire(description.skipped),
    )


def subscription_from_wire(
    message: pb.SubscriptionDescription,
) -> SubscriptionDescription:
    counts = message.counts
    return SubscriptionDescription(
        subscription=message.subscription,
        type=type_from_wire(message.type),
        cursor=message.cursor,
        done=tuple(ranges_from_wire(message.done)),
        backlog=message.backlog,
        in_flight=message.in_flight,
        consumers=tuple(message.consumers),
        backlog_bytes=message.backlog_bytes,
        oldest_publish_time=(
            message.oldest_publish_time
            if message.HasField("oldest_publish_time")
            else None
        ),
        delayed=message.delayed,
        blocked=tuple(ranges_from_wire(message.blocked)),
        parked=message.parked,
        dead_letter_error=message.dead_letter_error or None,
        stopped_by=message.stopped_by or None,
        skipped=tuple(ranges_from_wire(message.skipped)),
        is_paused=message.is_paused,
        settings=settings_from_wire(message.settings),
        counts=SubscriptionCounts(
            delivered=counts.delivered,
            redelivered=counts.redelivered,
            nacked=counts.nacked,
            timed_out=counts.timed_out,
            expired=counts.expired,
            dead_lettered=counts.dead_lettered,
            given_up=counts.given_up,
            skipped=counts.skipped,
        ),
    )


def topic_to_wire(description: TopicDescription) -> pb.TopicDescription:
    own = description.own_limits
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
        limits=limits_to_wire(description.limits),
        own_limits=None if own is None else limits_to_wire(own),
        schema=(
            None
            if description.schema is None
            else topic_schema_to_wire(description.schema)
        ),
        message_count=description.message_count,
        holds=[
            pb.Hold(name=hold.name, reason=hold.reason, created_at=hold.created_at)
            for hold in description.holds
        ],
    )


def topic_from_wire(message: pb.TopicDescription) -> TopicDescription:
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
        limits=limits_from_wire(message.limits),
        own_limits=(
            limits_from_wire(message.own_limits)
            if message.HasField("own_limits")
            else None
        ),
        schema=(
            topic_schema_from_wire(message.schema)
            if message.HasField("schema")
            else None
        ),
        message_count=(
            # Older brokers do not send it; they keep all messages.
            message.message_count or message.end_offset - message.base_offset
        ),
        holds=tuple(
            Hold(name=hold.name, reason=hold.reason, created_at=hold.created_at)
            for hold in message.holds
        ),
    )


def namespace_to_wire(description: NamespaceDescription) -> pb.NamespaceDescription:
    return pb.NamespaceDescription(
        namespace=description.namespace,
        policy=limits_to_wire(description.policy),
        topic_count=description.topic_count,
    )


def namespace_from_wire(message: pb.NamespaceDescription) -> NamespaceDescription:
    return NamespaceDescription(
        namespace=message.namespace,
        policy=limits_from_wire(message.policy),
        topic_count=message.topic_count,
    )


def segments_to_wire(segments: Segments) -> pb.Segments:
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
                object_name=segment.object_name,
                checksum=segment.checksum,
                part_checksums=segment.part_checksums,
                first_publish_time=segment.first_publish_time,
                last_publish_time=segment.last_publish_time,
                sealed_at=segment.sealed_at,
            )
            for segment in segments.segments
        ],
        epoch=segments.epoch,
    )


def segments_from_wire(message: pb.Segments) -> Segments:
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
                object_name=segment.object_name,
                checksum=(segment.checksum if segment.HasField("checksum") else None),
                part_checksums=(
                    segment.part_checksums
                    if segment.HasField("part_checksums")
                    else None
                ),
                first_publish_time=segment.first_publish_time,
                last_publish_time=segment.last_publish_time,
                sealed_at=segment.sealed_at,
            )
            for segment in message.segments
        ),
        epoch=message.epoch,
    )


def seconds_from_wire(what: str, seconds: float) -> float | None:
    """
    Return a duration, or None for 0.

    Raises:
        InvalidRequest: The duration is negative, infinite, or not a number.
    """
    if not 0 <= seconds < float("inf"):
        raise InvalidRequest(f"{what} must be a number of seconds, not {seconds}")
    return seconds or None


def _known(what: str, number: int, numbers: Mapping[T, Any]) -> T:
    for word, known in numbers.items():
        if known == number:
            return word
    raise InvalidRequest(
        f"a {what} of number {number} is unknown to this version of pydanube"
    )
