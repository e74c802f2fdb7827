"""The handlers of operations on a channel or a connection, and of FETCH."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import Message

from pydanube.model.errors import BrokerError, Unavailable
from pydanube.model.names import TopicName, parse_client_name, parse_subscription
from pydanube.model.policy import ProducerAccess, SubscriptionType, TopicPolicy
from pydanube.model.schemas import SchemaReference
from pydanube.security.permissions import Permission
from pydanube.wire.native.connection import ReceivedFrame
from pydanube.wire.native.kinds import KIND_OF, Kind
from pydanube.wire.native.messages import (
    enum_from_wire,
    from_wire,
    position_from_wire,
    seconds_from_wire,
)
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.dispatch.quota_meter import credit_bytes_of, delay_out_s, take_out
from pydanube_broker.operations.authorization import check_may_create
from pydanube_broker.operations.quota_holds import wait_for_quota
from pydanube_broker.operations.staging import part_key_of
from pydanube_broker.servers.native.consumers import ConsumerChannel
from pydanube_broker.servers.native.link import ClientLink
from pydanube_broker.servers.native.producers import ProducerChannel
from pydanube_broker.servers.native.staging import StageChannel
from pydanube_broker.storage.segments.topic_log import TopicLog

FETCH_BYTES_MAX = 16 * 1024 * 1024
FETCH_TURN_BYTES = 1024 * 1024
"""How much one FETCH sends in a turn of the event loop, or one batch."""
FETCH_WAIT_S_MAX = 30.0

ChannelHandler = Callable[[ClientLink, ReceivedFrame, Any], Awaitable[Message | None]]
H = TypeVar("H", bound=ChannelHandler)

CHANNEL_REQUESTS: dict[Kind, ChannelHandler] = {}
"""The handlers of operations that need a connection; the others are in `operations`."""


def _handler(*bodies: type[Message]) -> Callable[[H], H]:
    """Return a decorator that adds the handler of the requests *bodies*."""

    def add(handler: H) -> H:
        CHANNEL_REQUESTS.update((KIND_OF[body], handler) for body in bodies)
        return handler

    return add


@_handler(pb.OpenProducer)
async def _open_producer(
    link: ClientLink, frame: ReceivedFrame, m: pb.OpenProducer
) -> pb.ProducerOpened:
    channel, name = frame.channel, TopicName.parse(m.topic)
    if m.HasField("policy"):
        await check_may_create(link.broker, name)
    topic, session = await link.broker.producers.open(
        name,
        parse_client_name("producer", m.name),
        policy=from_wire(TopicPolicy, m.policy) if m.HasField("policy") else None,
        takes_any_kind=m.takes_any_kind,
        resume=(m.producer_id, m.producer_epoch),
        access=enum_from_wire(ProducerAccess, m.access),
        on_fenced=partial(_on_fenced, link, channel),
        schema=from_wire(SchemaReference, m.schema) if m.HasField("schema") else None,
    )
    if link.is_lost:
        link.broker.producers.close(topic, session, forget=m.is_anonymous)
    else:
        link.channels[channel] = ProducerChannel(
            link, channel, topic, session, is_anonymous=m.is_anonymous
        )
    written = None if session.registration is None else session.registration.schema
    return pb.ProducerOpened(
        producer_id=session.producer_id,
        producer_epoch=session.epoch,
        next_sequence=session.next_sequence,
        reliable=topic.policy.is_reliable,
        batch_bytes_max=link.batch_bytes_max,
        schema_id=0 if written is None else written.schema_id,
        schema_version=0 if written is None else written.version,
    )


def _on_fenced(link: ClientLink, channel: int, reason: BrokerError) -> None:
    # If the producer is not open yet, its first batch will fail.
    producer = link.channels.get(channel)
    if isinstance(producer, ProducerChannel):
        producer.send_receipts()
        link.close_channel(channel, reason)


@_handler(pb.OpenConsumer)
async def _open_consumer(
    link: ClientLink, frame: ReceivedFrame, m: pb.OpenConsumer
) -> pb.ConsumerOpened:
    channel, name = frame.channel, TopicName.parse(m.topic)
    if m.may_create:
        await check_may_create(link.broker, name)
        await link.broker.topics.get_or_create(name, TopicPolicy())
    topic, subscription = await link.broker.subscriptions.open(
        name,
        parse_subscription(m.subscription),
        enum_from_wire(SubscriptionType, m.type),
        position_from_wire(m.position),
        ack_timeout_s=seconds_from_wire("ack timeout", m.ack_timeout_s),
    )
    consumer_id = 0
    if not link.is_lost:
        consumer_name = parse_client_name("consumer", m.name)
        consumer = ConsumerChannel(link, channel, topic, subscription)
        # It is registered first, because attaching may make it active.
        link.channels[channel] = consumer
        try:
            consumer.consumer = subscription.attach(
                consumer_name, consumer, key_filters=m.key_filters, priority=m.priority
            )
        except BrokerError:
            del link.channels[channel]
            raise
        consumer_id = consumer.consumer.id
    return pb.ConsumerOpened(
        reliable=topic.policy.is_reliable,
        cursor=subscription.cursor_offset,
        consumer_id=consumer_id,
        ack_timeout_s=subscription.ack_timeout_s or 0,
        generation=subscription.generation,
    )


@_handler(pb.OpenStage)
async def _open_stage(
    link: ClientLink, frame: ReceivedFrame, m: pb.OpenStage
) -> pb.StageOpened:
    channel = StageChannel(link, frame.channel)
    channel.stage = stage = await link.broker.staging.open_stage(
        part_key_of(m),
        TopicName.parse(m.topic),
        from_wire(SchemaReference, m.schema) if m.HasField("schema") else None,
        channel,
    )
    if link.is_lost:
        channel.leave()
    else:
        link.channels[frame.channel] = channel
    return pb.StageOpened(
        producer=stage.producer,
        next_sequence=stage.next_sequence,
        batch_bytes_max=link.batch_bytes_max,
        schema_id=0 if stage.schema is None else stage.schema.schema_id,
        schema_version=0 if stage.schema is None else stage.schema.version,
    )


@_handler(pb.CloseProducer, pb.CloseConsumer, pb.CloseStage)
async def _close(link: ClientLink, frame: ReceivedFrame, _: object) -> None:
    await link.await_opening(frame.channel)
    channel = link.channels.pop(frame.channel, None)
    if channel is not None:
        channel.finish()


@_handler(pb.Seek)
async def _seek(link: ClientLink, frame: ReceivedFrame, m: pb.Seek) -> None:
    consumer = link.channels.get(frame.channel)
    if not isinstance(consumer, ConsumerChannel):
        # The broker may have closed it, and the client not know that yet.
        raise Unavailable(
            f"no consumer is open on channel {frame.channel}: seek again when it is"
        )
    await link.broker.subscriptions.seek(
        consumer.topic, consumer.subscription, position_from_wire(m)
    )


@_handler(pb.Fetch)
async def _fetch(link: ClientLink, frame: ReceivedFrame, m: pb.Fetch) -> pb.FetchEnd:
    """Send the batches that *frame* asks for, and return the final answer."""
    topic = await link.broker.topics.get_reliable(TopicName.parse(m.topic))
    topic_log, server = topic.log, link.server
    offset, left = m.base_offset, min(m.bytes_max or 1, FETCH_BYTES_MAX)
    # The client gets the messages at the end of the request, so it ends soon.
    left = credit_bytes_of(link.meters_out(topic), left)
    if m.HasField("publish_time"):
        offset = await topic_log.find_time(m.publish_time)
    if offset >= topic_log.end_offset and m.wait_s:
        wait_s = min(m.wait_s, FETCH_WAIT_S_MAX)
        await _wait_for(link, offset, topic_log, wait_s)
        link.check_now(Permission.CONSUME, topic.name, "fetch")
    end = min(m.end_offset or topic_log.end_offset, topic_log.end_offset)
    while offset < end and left > 0 and not link.is_lost:
        bytes_max, sent = min(left, FETCH_TURN_BYTES), 0
        batch = topic_log.read_tail(offset, bytes_max=bytes_max)
        if batch is None:
            batch = await topic_log.read(offset, bytes_max=bytes_max)
        if not batch:
            # Compaction removed the rest.
            offset = end
        for held in batch:
            if left <= 0:
                break
            part = held.within(offset, end)
            if part is None:
                # There is no message before the end.
                offset = end
                break
            offset = part.end
            left -= part.plain_bytes
            byte_count = link.send_fetched(frame, part)
            sent += byte_count
            server.fetched += part.count
            server.fetched_bytes += byte_count
        if meters := link.meters_out(topic):
            delay_s = take_out(meters, sent, link.loop.time())
            await wait_for_quota(delay_s, partial(delay_out_s, meters))
        # What is ready for other clients is sent before the next messages.
        await asyncio.sleep(0)
        await link.until_writable()
    return pb.FetchEnd(
        next_offset=offset,
        base_offset=topic_log.base_offset,
        end_offset=topic_log.end_offset,
    )


async def _wait_for(
    link: ClientLink, offset: int, topic_log: TopicLog, wait_s: float
) -> None:
    """Wait at most *wait_s* until the log has a message at *offset*."""
    changed = asyncio.Event()
    unwatch = topic_log.watch(changed.set)
    try:
        async with asyncio.timeout(wait_s):
            while topic_log.end_offset <= offset and not link.is_lost:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        pass
    finally:
        unwatch()
