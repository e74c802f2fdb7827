"""Closed objects are freed at once, without Python's garbage collector."""

import asyncio
import gc
import logging
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

import pydanube
from pydanube import sync
from pydanube.client.client import Client
from pydanube.client.connections.connection import BrokerConnection
from pydanube.client.consumers.consumer import TopicConsumer
from pydanube.client.consumers.partitioned_consumer import PartitionedConsumer
from pydanube.client.producers.partitioned_producer import PartitionedProducer
from pydanube.client.producers.producer import Producer
from pydanube.client.producers.typed_producer import TypedProducer
from pydanube.client.workers.staging import PartWriter
from pydanube.wire.native.connection import StreamConnection
from pydanube.wire.native.frames import RECEIVE_BUFFER_BYTES, header
from pydanube.wire.native.kinds import Kind
from pydanube_broker.broker.delivery.reliable_subscription import ReliableSubscription
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.servers.native.connection import NativeConnection, listen
from pydanube_broker.servers.native.consumers import ConsumerChannel
from pydanube_broker.servers.native.producers import ProducerChannel
from pydanube_broker.storage.segments.topic_log import TopicLog
from support.drivers.running import TOPIC, published

pytestmark = pytest.mark.slow

TURNS_MAX = 1000


async def until(is_so):
    """Run the event loop until *is_so* returns true, or for some time."""
    for _ in range(TURNS_MAX):
        if is_so():
            return True
        await asyncio.sleep(0.001)
    return False


@asynccontextmanager
async def without_collector():
    """Yield a function that waits until all new objects of some types are freed."""
    gc.collect()
    # Fixtures of the whole session have clients.  Held here, they keep their ids.
    existing = gc.get_objects()
    ids = set(map(id, existing))
    gc.disable()
    # pytest keeps log records, whose exceptions refer to closed objects.
    logging.disable()

    async def are_gone(*types):
        return await until(
            lambda: (
                not any(
                    type(each) in types and id(each) not in ids
                    for each in gc.get_objects()
                )
            )
        )

    try:
        yield are_gone
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()


async def connected(broker, port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await until(lambda: broker.server.connections)
    return reader, writer


async def check_health(broker, port):
    """Connect and close, as load balancers do."""
    _, writer = await connected(broker, port)
    writer.close()


async def send_half_a_frame(broker, port):
    _, writer = await connected(broker, port)
    writer.write(header(Kind.HELLO, 0, 1, 60_000) + bytes(RECEIVE_BUFFER_BYTES))
    await writer.drain()
    [connection] = broker.server.connections
    assert await until(lambda: connection._protocol.reader.has_partial_frame)
    writer.close()


async def break_the_protocol(broker, port):
    reader, writer = await connected(broker, port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await reader.read()
    writer.close()


async def connect_a_client(broker, port):
    async with pydanube.connect(f"danube://127.0.0.1:{port}") as client:
        await client.cluster.describe_broker()


async def send_a_request(broker, port):
    async with pydanube.connect(f"danube://127.0.0.1:{port}") as client:
        await client.topics.create(TOPIC)
        async with (
            client.consumer(TOPIC, subscription="s") as consumer,
            asyncio.TaskGroup() as tasks,
        ):
            asked = tasks.create_task(client.request(TOPIC, b"q", timeout_s=60))
            message = await consumer.receive(timeout_s=60)
            await message.reply(b"r")
            await asked


async def publish(client):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"m")


async def publish_values(client):
    async with client.producer(TOPIC, schema=str) as producer:
        await producer.send("m")


async def publish_to_partitions(client):
    async with client.producer(TOPIC, partitions=2) as producer:
        await producer.send(b"m", key="k")


async def consume(client):
    await published(client, b"m")
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        await consumer.ack(await consumer.receive())
        await consumer.flush()


async def consume_partitions(client):
    await publish_to_partitions(client)
    await consume(client)


async def stage(client):
    await client.topics.create(TOPIC)
    part = client.staging("q", 1).part("0")
    await part.write(TOPIC, pa.table({"payload": [b"m"]}))
    await part.finish()


async def delete_a_subscription(client):
    await consume(client)
    await client.subscriptions.delete(TOPIC, "s")


async def delete_a_topic(client):
    await consume(client)
    await client.topics.delete(TOPIC, force=True)


@pytest.mark.parametrize(
    "use",
    [
        check_health,
        send_half_a_frame,
        break_the_protocol,
        connect_a_client,
        send_a_request,
    ],
)
async def test_closed_connection_leaves_no_garbage(broker, use):
    async with (
        listen(broker.server, "127.0.0.1", 0) as port,
        without_collector() as are_gone,
    ):
        await use(broker, port)
        assert await until(lambda: not broker.server.connections)
        assert await are_gone(
            NativeConnection, StreamConnection, BrokerConnection, Client
        )


@pytest.mark.parametrize(
    ("use", "types"),
    [
        (publish, [Producer, ProducerChannel]),
        (publish_values, [TypedProducer, Producer]),
        (publish_to_partitions, [PartitionedProducer, Producer, ProducerChannel]),
        (consume, [TopicConsumer, ConsumerChannel]),
        (consume_partitions, [PartitionedConsumer, TopicConsumer, ConsumerChannel]),
        (stage, [PartWriter]),
        (delete_a_subscription, [ReliableSubscription]),
        (delete_a_topic, [ReliableTopic, ReliableSubscription, TopicLog]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_closed_client_objects_leave_no_garbage(client, use, types):
    async with without_collector() as are_gone:
        await use(client)
        assert await are_gone(*types)


async def test_closed_sync_client_leaves_no_garbage(broker):
    def use(url):
        with sync.connect(url) as client:
            with client.producer(TOPIC) as producer:
                producer.send(b"m")
            with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
                consumer.ack(consumer.receive())

    async with (
        listen(broker.server, "127.0.0.1", 0) as port,
        without_collector() as are_gone,
    ):
        await asyncio.to_thread(use, f"danube://127.0.0.1:{port}")
        assert await are_gone(
            Client, sync.Client, sync.Producer, sync.Consumer, NativeConnection
        )
