"""The connectors for RabbitMQ, with a real server."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

pytest.importorskip("aio_pika")

import aio_pika

import pydanube
from pydanube.model.batch import batch_of
from pydanube_broker.testing import memory_broker
from pydanube_connect.status import State
from pydanube_connect.trial import try_connector
from support.drivers.connectors import (
    ConnectProcess,
    declared,
    numbers_under_kills,
    running,
)
from support.servers.processes import BrokerProcess
from support.servers.rabbitmq_server import RabbitmqProcess

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

TOPIC = "/default/orders"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RabbitmqProcess(tmp_path_factory.mktemp("rabbitmq")) as found:
        yield found


@asynccontextmanager
async def channel_with(server, *queues):
    """A channel, with durable queues that are empty."""
    connection = await aio_pika.connect(server.url)
    async with connection:
        channel = await connection.channel()
        for name in queues:
            queue = await channel.declare_queue(name, durable=True)
            await queue.purge()
        yield channel


def source(server, queues, fields=""):
    return f"""
connectors:
  orders:
    kind: rabbitmq-source
    topic: {TOPIC}
    retries: {{backoff: 50ms}}
    {fields}
    options: {{url: "{server.url}", queues: {queues}}}
"""


def sink(server, options):
    return f"""
connectors:
  orders:
    kind: rabbitmq-sink
    topic: {TOPIC}
    dead_letters: {TOPIC}-dead
    retries: {{backoff: 50ms}}
    options: {{url: "{server.url}", {options}}}
"""


async def stored(client, count, topic=TOPIC):
    found = []
    async for batch in client.read(topic, end=count, follow=True):
        found += list(batch)
    return found


async def test_messages_of_queues_are_published_and_acknowledged(server):
    queues = "{orders: , returns: /default/returns}"
    async with (
        memory_broker() as broker,
        pydanube.connect(broker.url) as client,
        channel_with(server, "orders", "returns") as channel,
    ):
        for topic in (TOPIC, "/default/returns"):
            await client.topics.create(topic)
        [connector] = declared(source(server, queues), broker.url)
        assert (await try_connector(connector)).problem is None
        headers = {"color": "red", "count": 7}
        message = aio_pika.Message(b"1", headers=headers, message_id="first")
        await channel.default_exchange.publish(message, "orders")
        async with running([connector]):
            for number in range(2, 2000):
                message = aio_pika.Message(b"%d" % number)
                await channel.default_exchange.publish(message, "orders")
            await channel.default_exchange.publish(aio_pika.Message(b"back"), "returns")
            found = await stored(client, 1999)
            [back] = await stored(client, 1, "/default/returns")
        for name in ("orders", "returns"):
            queue = await channel.declare_queue(name, passive=True)
            assert queue.declaration_result.message_count == 0
    assert [each.payload for each in found] == [b"%d" % each for each in range(1, 2000)]
    assert found[0].key == "orders"
    assert found[0].attributes == {
        "color": "red",
        "count": "7",
        "rabbitmq.message_id": "first",
        "rabbitmq.queue": "orders",
        "rabbitmq.routing_key": "orders",
    }
    assert back.payload == b"back"


async def test_a_queue_that_is_deleted_is_noticed(server):
    async with (
        memory_broker() as broker,
        pydanube.connect(broker.url) as client,
        channel_with(server, "short-lived") as channel,
    ):
        await client.topics.create(TOPIC)
        text = source(server, "{short-lived: }")
        async with running(declared(text, broker.url)) as until:
            message = aio_pika.Message(b"1")
            await channel.default_exchange.publish(message, "short-lived")
            await stored(client, 1)
            await channel.queue_delete("short-lived")
            found = await until(lambda found: found["orders"].state is State.FAILED)
    assert found["orders"].retries == 1
    assert "no queue 'short-lived'" in found["orders"].error


async def test_messages_with_ids_are_published_once(server):
    text = source(server, "{orders: }", "deduplicate: 1h")
    async with (
        memory_broker() as broker,
        pydanube.connect(broker.url) as client,
        channel_with(server, "orders") as channel,
    ):
        await client.topics.create(
            TOPIC, deduplication=pydanube.Deduplication(age_s=3600)
        )
        async with running(declared(text, broker.url)):
            for each in ("a", "a", "b"):
                message = aio_pika.Message(each.encode(), message_id=each)
                await channel.default_exchange.publish(message, "orders")
            found = await stored(client, 2)
    assert [each.payload for each in found] == [b"a", b"b"]


async def test_messages_are_published_and_those_without_a_queue_refused(server):
    async with (
        memory_broker() as broker,
        pydanube.connect(broker.url) as client,
        channel_with(server, "a", "b") as channel,
    ):
        await client.topics.create(TOPIC)
        async with client.producer(TOPIC) as producer:
            await producer.send(b"1", key="a", attributes={"color": "red"})
            await producer.send(b"2", key="missing")
            await producer.send(b"3", key="a")
        text = sink(server, 'routing_key: "{key}"')
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["orders"].messages == 2)
            [dead] = await stored(client, 1, f"{TOPIC}-dead")
        queue = await channel.get_queue("a")
        found = [await queue.get(no_ack=True) for _ in range(2)]
    assert [each.body for each in found] == [b"1", b"3"]
    assert found[0].headers == {"color": "red"}
    assert [each.message_id for each in found] == [f"{TOPIC}:0", f"{TOPIC}:2"]
    assert "no queue gets messages" in dead.attributes["x-failure-reason"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("source", "no queue 'none'"),
        ("exchange", "no exchange 'none'"),
        ("password", "ACCESS_REFUSED"),
    ],
)
async def test_servers_that_do_not_fit_are_reported(server, text, error):
    declarations = {
        "source": source(server, "{none: }"),
        "exchange": sink(server, "exchange: none, routing_key: a"),
        "password": source(server, "{a: }").replace("guest:guest", "guest:wrong"),
    }
    async with memory_broker() as broker, pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC)
        async with client.producer(TOPIC) as producer:
            await producer.send(b"1")
        [connector] = declared(declarations[text], broker.url)
        assert error in (await try_connector(connector)).problem
        async with running([connector]) as until:
            found = await until(lambda found: found["orders"].state is State.FAILED)
    assert error in found["orders"].error


def test_nothing_is_lost_although_all_are_killed(server, tmp_path):
    """Through RabbitMQ and back, while connectors, broker and RabbitMQ are killed."""
    file = tmp_path / "connectors.yaml"
    back = source(server, "{through: }").partition("connectors:")[2]
    back = back.replace("  orders:", "  back:").replace(TOPIC, "/default/back")
    file.write_text(sink(server, "routing_key: through") + back)
    count = 4000

    async def run(kill):
        async with channel_with(server, "through"):
            pass
        async with pydanube.connect(broker.url, retry_s=60) as client:
            await client.topics.create(TOPIC, exist_ok=True)
            await client.topics.create("/default/back", exist_ok=True)
            async with client.producer(TOPIC) as producer:
                for first in range(0, count, 100):
                    payloads = [b"%d" % each for each in range(first, first + 100)]
                    await producer.send_batch(batch_of(payloads))
            return await numbers_under_kills(client, "/default/back", count, kill)

    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as connectors,
    ):

        def kill(number):
            process = (connectors, broker, server)[number % 3]
            process.kill()
            process.start()

        found = pydanube.run(run(kill))
    # The first time of each is in order.
    assert list(dict.fromkeys(found)) == list(range(count))
