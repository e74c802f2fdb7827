"""The handlers of operations on a channel or a connection, and of FETCH."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.names import TopicName, parse_client_name, parse_subscription
from pydanube.servers.native.consumers import ConsumerChannel
from pydanube.servers.native.fetch import fetch
from pydanube.servers.native.handlers import Handlers
from pydanube.servers.native.producers import ProducerChannel
from pydanube.servers.native.requests import start_of
from pydanube.wire.native.messages import (
    access_from_wire,
    policy_from_wire,
    position_from_wire,
    seconds_from_wire,
    type_from_wire,
)
from pydanube.wire.native.schema_messages import reference_from_wire
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from pydanube.servers.native.connection import NativeConnection
    from pydanube.wire.native.connection import ReceivedFrame

CHANNEL_REQUESTS: Handlers[
    Callable[[NativeConnection, ReceivedFrame, Any], Awaitable[Message | None]]
] = Handlers()
CHANNEL_REQUESTS.handler(pb.Fetch)(fetch)


@CHANNEL_REQUESTS.handler(pb.OpenProducer)
async def _open_producer(
    connection: NativeConnection, frame: ReceivedFrame, m: pb.OpenProducer
) -> pb.ProducerOpened:
    channel = frame.channel
    topic, session = await connection.broker.producers.open(
        TopicName.parse(m.topic),
        parse_client_name("producer", m.name),
        policy=policy_from_wire(m.policy) if m.HasField("policy") else None,
        takes_any_kind=m.takes_any_kind,
        resume=(m.producer_id, m.producer_epoch),
        access=access_from_wire(m.access),
        on_fenced=partial(_on_fenced, connection, channel),
        schema=reference_from_wire(m.schema) if m.HasField("schema") else None,
    )
    if connection.is_lost:
        connection.broker.producers.close(topic, session, forget=m.is_anonymous)
    else:
        connection.producers[channel] = ProducerChannel(
            connection, channel, topic, session, is_anonymous=m.is_anonymous
        )
    written = None if session.registration is None else session.registration.schema
    return pb.ProducerOpened(
        producer_id=session.producer_id,
        producer_epoch=session.epoch,
        next_sequence=session.next_sequence,
        reliable=topic.policy.is_reliable,
        batch_bytes_max=connection.batch_bytes_max,
        schema_id=0 if written is None else written.schema_id,
        schema_version=0 if written is None else written.version,
    )


def _on_fenced(connection: NativeConnection, channel: int, reason: BrokerError) -> None:
    # If the producer is not open yet, its first batch will fail.
    producer = connection.producers.get(channel)
    if producer is not None:
        producer.send_receipts()
        connection.close_channel(channel, reason)


@CHANNEL_REQUESTS.handler(pb.CloseProducer)
async def _close_producer(
    connection: NativeConnection, frame: ReceivedFrame, _: object
) -> None:
    await connection.await_opening(frame.channel)
    producer = connection.producers.get(frame.channel)
    if producer is not None:
        producer.send_receipts()
        del connection.producers[frame.channel]
        producer.close(forget=producer.is_anonymous)


@CHANNEL_REQUESTS.handler(pb.OpenConsumer)
async def _open_consumer(
    connection: NativeConnection, frame: ReceivedFrame, m: pb.OpenConsumer
) -> pb.ConsumerOpened:
    channel = frame.channel
    topic, subscription = await connection.broker.subscriptions.open(
        TopicName.parse(m.topic),
        parse_subscription(m.subscription),
        type_from_wire(m.type),
        start_of(m),
        ack_timeout_s=seconds_from_wire("ack timeout", m.ack_timeout_s),
    )
    if not connection.is_lost:
        name = parse_client_name("consumer", m.name)
        consumer = ConsumerChannel(connection, channel, topic, subscription)
        # It is registered first, because attaching may make it active.
        connection.consumers[channel] = consumer
        try:
            consumer.consumer = subscription.attach(
                name, consumer, key_filters=m.key_filters, priority=m.priority
            )
        except BrokerError:
            del connection.consumers[channel]
            raise
    return pb.ConsumerOpened(
        reliable=topic.policy.is_reliable, cursor=subscription.cursor_offset
    )


@CHANNEL_REQUESTS.handler(pb.CloseConsumer)
async def _close_consumer(
    connection: NativeConnection, frame: ReceivedFrame, _: object
) -> None:
    await connection.await_opening(frame.channel)
    consumer = connection.consumers.pop(frame.channel, None)
    if consumer is not None:
        consumer.detach()


@CHANNEL_REQUESTS.handler(pb.OpenStage)
async def _open_stage(
    connection: NativeConnection, frame: ReceivedFrame, m: pb.OpenStage
) -> pb.StageOpened:
    answer = await connection.stages.open(connection, frame.channel, m)
    if connection.is_lost:
        connection.stages.close(frame.channel)
    return answer


@CHANNEL_REQUESTS.handler(pb.CloseStage)
async def _close_stage(
    connection: NativeConnection, frame: ReceivedFrame, _: object
) -> None:
    await connection.await_opening(frame.channel)
    connection.stages.close(frame.channel)


@CHANNEL_REQUESTS.handler(pb.Seek)
async def _seek(connection: NativeConnection, frame: ReceivedFrame, m: pb.Seek) -> None:
    consumer = connection.consumers.get(frame.channel)
    if consumer is None:
        raise InvalidRequest(f"there is no consumer on channel {frame.channel}")
    await connection.broker.subscriptions.seek(
        consumer.topic, consumer.subscription, position_from_wire(m)
    )
