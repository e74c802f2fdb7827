"""
How the native protocol answers requests that belong to no channel.

Each function translates one kind of request, calls the broker, and translates back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydanube.model.descriptions import NamespaceDescription, Segment, Segments
from pydanube.model.errors import InvalidRequest
from pydanube.model.ids import TopicId
from pydanube.model.names import (
    TopicName,
    parse_client_name,
    parse_namespace,
    parse_subscription,
)
from pydanube.servers.native.schemas import SCHEMA_REQUESTS
from pydanube.servers.native.staging import STAGING_REQUESTS
from pydanube.storage.replacement import Replacement
from pydanube.wire.native.frames import Kind
from pydanube.wire.native.messages import (
    RANGES_MAX,
    dispatch_limits_from_wire,
    failure_policy_from_wire,
    limits_from_wire,
    namespace_to_wire,
    on_corruption_from_wire,
    policy_from_wire,
    position_from_wire,
    ranges_from_wire,
    segments_to_wire,
    settings_to_wire,
    start_from_wire,
    subscription_to_wire,
    topic_to_wire,
    type_from_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pydanube.broker.broker import Broker
    from pydanube.model.names import SubscriptionName
    from pydanube.model.policy import Position

Answer = tuple[Kind, "Message"] | None
"""What a request is answered with; None stands for OK."""


HOLD_REASON_LENGTH_MAX = 1000
PAGE_MAX = 5000
"""The most names, or descriptions, in one answer; they fit into a frame."""


def start_of(message: Any) -> Position:
    """Where a new subscription begins, as old and new clients say it."""
    if message.HasField("position"):
        return position_from_wire(message.position)
    return start_from_wire(message.start)


def _subscription_of(message: Any) -> tuple[TopicName, SubscriptionName]:
    return TopicName.parse(message.topic), parse_subscription(message.subscription)


async def _look_up(broker: Broker, m: Any) -> Answer:
    await broker.topic(TopicName.parse(m.topic))
    return Kind.LOCATION, pb.Location()


async def _create_topic(broker: Broker, m: Any) -> Answer:
    name, policy = TopicName.parse(m.topic), policy_from_wire(m.policy)
    if m.partitions:
        await broker.create_partitioned_topic(
            name, m.partitions, policy, exist_ok=m.exist_ok
        )
    else:
        await broker.create_topic(name, policy, exist_ok=m.exist_ok)
    return None


async def _delete_topic(broker: Broker, m: Any) -> Answer:
    await broker.delete_topic(TopicName.parse(m.topic), force=m.force)
    return None


async def _list_topics(broker: Broker, m: Any) -> Answer:
    namespace = parse_namespace(m.namespace) if m.namespace else None
    if not m.limit:
        names = await broker.topic_names(namespace)
        return Kind.TOPICS, pb.Topics(topics=[str(name) for name in names])
    after = TopicName.parse(m.after) if m.after else None
    limit = min(m.limit, PAGE_MAX)
    page = [str(name) for name in await broker.topic_page(namespace, after, limit + 1)]
    return Kind.TOPICS, pb.Topics(topics=page[:limit], has_more=len(page) > limit)


async def _describe_topic(broker: Broker, m: Any) -> Answer:
    topic = await broker.topic(TopicName.parse(m.topic))
    limit = min(m.limit, PAGE_MAX) if m.limit else None
    description = replace(
        topic.describe(m.first, limit),
        limits=topic.limits,
        own_limits=await broker.topic_limits(topic.name),
        holds=await broker.holds_of(topic),
    )
    answer = topic_to_wire(description)
    if limit is not None:
        told = m.first + limit
        answer.has_more = max(len(topic.registrations), len(topic.subscriptions)) > told
    return Kind.TOPIC_DESCRIPTION, answer


async def _set_topic_limits(broker: Broker, m: Any) -> Answer:
    limits = limits_from_wire(m.limits) if m.HasField("limits") else None
    await broker.set_topic_limits(TopicName.parse(m.topic), limits)
    return None


async def _set_on_corruption(broker: Broker, m: Any) -> Answer:
    on_corruption = on_corruption_from_wire(m.on_corruption)
    await broker.set_on_corruption(TopicName.parse(m.topic), on_corruption)
    return None


async def _add_partitions(broker: Broker, m: Any) -> Answer:
    await broker.add_partitions(TopicName.parse(m.topic), m.partitions)
    return None


async def _list_partitions(broker: Broker, m: Any) -> Answer:
    name = TopicName.parse(m.topic)
    topics = await broker.partitions_of(name)
    return Kind.PARTITIONS, pb.Partitions(
        topics=[str(each) for each in topics],
        is_partitioned=bool(topics) and topics != [name],
    )


async def _create_namespace(broker: Broker, m: Any) -> Answer:
    await broker.create_namespace(
        parse_namespace(m.namespace),
        limits_from_wire(m.policy),
        exist_ok=m.exist_ok,
    )
    return None


async def _delete_namespace(broker: Broker, m: Any) -> Answer:
    await broker.delete_namespace(parse_namespace(m.namespace))
    return None


async def _list_namespaces(broker: Broker, _: Any) -> Answer:
    names = await broker.namespace_names()
    return Kind.NAMESPACES, pb.Namespaces(namespaces=names)


async def _describe_namespace(broker: Broker, m: Any) -> Answer:
    name = parse_namespace(m.namespace)
    description = NamespaceDescription(
        namespace=name,
        policy=await broker.namespace_policy(name),
        topic_count=len(await broker.topic_names(name)),
    )
    return Kind.NAMESPACE_DESCRIPTION, namespace_to_wire(description)


async def _set_namespace_policy(broker: Broker, m: Any) -> Answer:
    await broker.set_namespace_policy(
        parse_namespace(m.namespace), limits_from_wire(m.policy)
    )
    return None


async def _create_subscription(broker: Broker, m: Any) -> Answer:
    await broker.create_subscription(
        TopicName.parse(m.topic),
        parse_subscription(m.subscription),
        type_from_wire(m.type),
        start_of(m),
    )
    return None


async def _delete_subscription(broker: Broker, m: Any) -> Answer:
    await broker.delete_subscription(
        TopicName.parse(m.topic),
        parse_subscription(m.subscription),
        force=m.force,
    )
    return None


async def _describe_subscription(broker: Broker, m: Any) -> Answer:
    topic = await broker.topic(TopicName.parse(m.topic))
    found = topic.find_subscription(parse_subscription(m.subscription))
    facts = found.describe(topic.end_offset)
    return Kind.SUBSCRIPTION_DESCRIPTION, subscription_to_wire(facts)


async def _report_progress(broker: Broker, m: Any) -> Answer:
    await broker.report_progress(
        TopicName.parse(m.topic), parse_subscription(m.subscription), m.offset
    )
    return None


async def _describe_settings(broker: Broker, m: Any) -> Answer:
    settings = await broker.subscription_settings(*_subscription_of(m))
    return Kind.SETTINGS, settings_to_wire(settings)


async def _set_failure_policy(broker: Broker, m: Any) -> Answer:
    policy = failure_policy_from_wire(m.policy) if m.HasField("policy") else None
    await broker.set_failure_policy(*_subscription_of(m), policy)
    return None


async def _set_dispatch_limits(broker: Broker, m: Any) -> Answer:
    limits = dispatch_limits_from_wire(m.limits) if m.HasField("limits") else None
    await broker.set_dispatch_limits(*_subscription_of(m), limits)
    return None


async def _pause_subscription(broker: Broker, m: Any) -> Answer:
    await broker.set_paused(*_subscription_of(m), is_paused=m.is_paused)
    return None


async def _seek_subscription(broker: Broker, m: Any) -> Answer:
    name, subscription = _subscription_of(m)
    topic = await broker.topic(name)
    found = topic.find_subscription(subscription)
    await broker.seek(topic, found, position_from_wire(m.to))
    return None


async def _skip(broker: Broker, m: Any) -> Answer:
    await broker.skip(*_subscription_of(m), m.count)
    return None


async def _mark_done(broker: Broker, m: Any) -> Answer:
    ranges = ranges_from_wire(m.ranges, RANGES_MAX)
    await broker.mark_done(*_subscription_of(m), ranges)
    return None


async def _find_offsets(broker: Broker, m: Any) -> Answer:
    offsets, base, end = await broker.find_offsets(
        TopicName.parse(m.topic), m.publish_time
    )
    return Kind.OFFSETS_FOUND, pb.OffsetsFound(
        offset=offsets, base_offset=base, end_offset=end
    )


async def _list_segments(broker: Broker, m: Any) -> Answer:
    topic = await broker.topic(TopicName.parse(m.topic))
    facts = topic.describe()
    base, end = m.base_offset, m.end_offset or facts.end_offset
    segments = Segments(
        topic_id=facts.topic_id,
        base_offset=facts.base_offset,
        sealed_offset=facts.sealed_offset,
        end_offset=facts.end_offset,
        segments=tuple(
            Segment(
                base=entry.base,
                end=entry.end,
                epoch=entry.epoch,
                count=entry.count,
                byte_count=entry.byte_count,
                url=broker.segment_url(entry),
                object_name=entry.object_name,
                checksum=entry.checksum,
                part_checksums=entry.part_checksums,
                first_publish_time=entry.first_publish_time,
                last_publish_time=entry.last_publish_time,
                sealed_at=entry.sealed_at,
            )
            for entry in topic.segments
            if entry.base < end and base < entry.end
        ),
        epoch=facts.epoch,
    )
    return Kind.SEGMENTS, segments_to_wire(segments)


async def _replace_segments(broker: Broker, m: Any) -> Answer:
    removed = await broker.replace_segments(
        TopicName.parse(m.topic),
        TopicId(m.topic_id),
        list(m.old),
        [
            Replacement(
                object_name=each.object_name,
                byte_count=each.byte_count,
                checksum=each.checksum,
            )
            for each in m.new
        ],
    )
    return Kind.SEGMENTS_REPLACED, pb.SegmentsReplaced(removed=removed)


async def _hold_topic(broker: Broker, m: Any) -> Answer:
    holder = parse_client_name("hold", m.name)
    if len(m.reason) > HOLD_REASON_LENGTH_MAX:
        raise InvalidRequest(
            f"the reason of a hold has at most {HOLD_REASON_LENGTH_MAX} characters"
        )
    await broker.hold_topic(TopicName.parse(m.topic), holder, m.reason)
    return None


async def _release_topic(broker: Broker, m: Any) -> Answer:
    await broker.release_topic(
        TopicName.parse(m.topic), parse_client_name("hold", m.name)
    )
    return None


REQUESTS: dict[Kind, Callable[[Broker, Any], Awaitable[Answer]]] = {
    Kind.LOOKUP: _look_up,
    Kind.CREATE_TOPIC: _create_topic,
    Kind.DELETE_TOPIC: _delete_topic,
    Kind.LIST_TOPICS: _list_topics,
    Kind.DESCRIBE_TOPIC: _describe_topic,
    Kind.LIST_SEGMENTS: _list_segments,
    Kind.REPLACE_SEGMENTS: _replace_segments,
    Kind.HOLD_TOPIC: _hold_topic,
    Kind.RELEASE_TOPIC: _release_topic,
    Kind.SET_ON_CORRUPTION: _set_on_corruption,
    Kind.FIND_OFFSETS: _find_offsets,
    Kind.SET_TOPIC_LIMITS: _set_topic_limits,
    Kind.ADD_PARTITIONS: _add_partitions,
    Kind.LIST_PARTITIONS: _list_partitions,
    Kind.CREATE_NAMESPACE: _create_namespace,
    Kind.DELETE_NAMESPACE: _delete_namespace,
    Kind.LIST_NAMESPACES: _list_namespaces,
    Kind.DESCRIBE_NAMESPACE: _describe_namespace,
    Kind.SET_NAMESPACE_POLICY: _set_namespace_policy,
    Kind.DESCRIBE_SETTINGS: _describe_settings,
    Kind.SET_FAILURE_POLICY: _set_failure_policy,
    Kind.SET_DISPATCH_LIMITS: _set_dispatch_limits,
    Kind.PAUSE: _pause_subscription,
    Kind.SEEK_SUBSCRIPTION: _seek_subscription,
    Kind.SKIP: _skip,
    Kind.MARK_DONE: _mark_done,
    Kind.CREATE_SUBSCRIPTION: _create_subscription,
    Kind.DELETE_SUBSCRIPTION: _delete_subscription,
    Kind.DESCRIBE_SUBSCRIPTION: _describe_subscription,
    Kind.REPORT_PROGRESS: _report_progress,
    **SCHEMA_REQUESTS,
    **STAGING_REQUESTS,
}
