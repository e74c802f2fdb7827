"""The connectors for NATS JetStream, with a real server."""

from __future__ import annotations

import pytest

pytest.importorskip("nats")

import nats

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
from support.servers.nats_server import NatsProcess
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

TOPIC = "/default/orders"


@pytest.fixture
def server(tmp_path):
    with NatsProcess(tmp_path) as found:
        yield found


def source(server, options=""):
    return f"""
connectors:
  orders:
    kind: nats-source
    topic: {TOPIC}
    retries: {{backoff: 50ms}}
    options: {{servers: "{server.url}", stream: ORDERS{options}}}
"""


def sink(server, subject):
    return f"""
connectors:
  orders:
    kind: nats-sink
    topic: {TOPIC}
    dead_letters: {TOPIC}-dead
    retries: {{backoff: 50ms}}
    options: {{servers: "{server.url}", subject: "{subject}"}}
"""


async def stored(client, count, topic=TOPIC):
    found = []
    async for batch in client.read(topic, end=count, follow=True):
        found += list(batch)
    return found


async def test_messages_of_a_stream_are_published_once(server):
    async with memory_broker() as broker, pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC)
        connection = await nats.connect(server.url)
        stream = connection.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(3):
            await stream.publish(
                f"orders.{number}", b"%d" % number, headers={"color": "red"}
            )
        [connector] = declared(source(server), broker.url)
        trial = await try_connector(connector)
        assert [each.payload for each in trial.samples] == ["0", "1", "2"]
        for first in (0, 3):
            async with running([connector]):
                await stored(client, first + 3)
                for number in range(first + 3, first + 6):
                    await stream.publish(f"orders.{number}", b"%d" % number)
                found = await stored(client, first + 6)
        await connection.close()
    assert [each.payload for each in found] == [b"%d" % each for each in range(9)]
    assert [each.key for each in found] == [f"orders.{each}" for each in range(9)]
    assert found[0].attributes == {
        "color": "red",
        "nats.subject": "orders.0",
        "nats.sequence": "1",
    }


async def test_a_part_of_the_subjects_and_the_end_of_a_stream(server):
    async with memory_broker() as broker, pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC)
        connection = await nats.connect(server.url)
        stream = connection.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders.>"])
        await stream.publish("orders.new", b"before")
        text = source(server, ", subject: orders.new, start: latest")
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["orders"].state is State.RUNNING)
            async for _ in client.read("/default/orders.positions", end=1, follow=True):
                pass
            await stream.publish("orders.old", b"other")
            await stream.publish("orders.new", b"after")
            [message] = await stored(client, 1)
        await connection.close()
    assert message.payload == b"after"


async def test_messages_that_were_deleted_unread_are_reported(server):
    async with memory_broker() as broker, pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC)
        connection = await nats.connect(server.url)
        stream = connection.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders"], max_msgs=2)
        await stream.publish("orders", b"1")
        async with running(declared(source(server), broker.url)):
            await stored(client, 1)
        for number in range(2, 6):
            await stream.publish("orders", b"%d" % number)
        async with running(declared(source(server), broker.url)) as until:
            found = await until(lambda found: found["orders"].state is State.FAILED)
        assert "has deleted the messages 2 to 3 of the stream" in found["orders"].error
        text = source(server, ", missing_messages: continue")
        async with running(declared(text, broker.url)):
            messages = await stored(client, 3)
        await stream.delete_stream("ORDERS")
        await stream.add_stream(name="ORDERS", subjects=["orders"])
        async with running(declared(source(server), broker.url)) as until:
            found = await until(lambda found: found["orders"].state is State.FAILED)
        await connection.close()
    assert [each.payload for each in messages] == [b"1", b"4", b"5"]
    assert "was created at" in found["orders"].error


async def test_messages_are_published_with_headers_and_ids(server):
    async with memory_broker() as broker, pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC)
        connection = await nats.connect(server.url)
        stream = connection.jetstream()
        await stream.add_stream(name="OUT", subjects=["out.>"])
        async with client.producer(TOPIC) as producer:
            await producer.send(b"1", key="a", attributes={"color": "red"})
            await producer.send(b"2", key="no key")
            await producer.send(b"3", key="b")
        text = sink(server, "out.{topic}.{key}")
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["orders"].messages == 2)
            [dead] = await stored(client, 1, f"{TOPIC}-dead")
        reader = await stream.subscribe("out.>", ordered_consumer=True)
        found = [await reader.next_msg() for _ in range(2)]
        await connection.close()
    assert [(each.subject, each.data) for each in found] == [
        ("out.orders.a", b"1"),
        ("out.orders.b", b"3"),
    ]
    assert found[0].headers == {"color": "red", "Nats-Msg-Id": f"{TOPIC}:0"}
    assert "must not have spaces" in dead.attributes["x-failure-reason"]


async def test_messages_whose_subject_no_stream_has_become_dead_letters(server):
    async with memory_broker() as broker, pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC)
        connection = await nats.connect(server.url)
        stream = connection.jetstream()
        await stream.add_stream(name="OUT", subjects=["out.a"])
        async with client.producer(TOPIC) as producer:
            await producer.send(b"1", key="missing")
            await producer.send(b"2", key="a")
        text = sink(server, "out.{key}")
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["orders"].messages == 1)
            [dead] = await stored(client, 1, f"{TOPIC}-dead")
        await connection.close()
    assert dead.payload == b"1"
    assert "no stream has its subject" in dead.attributes["x-failure-reason"]


async def test_messages_that_are_too_large_become_dead_letters(tmp_path):
    with NatsProcess(tmp_path, max_payload=2000) as server:
        async with memory_broker() as broker, pydanube.connect(broker.url) as client:
            await client.topics.create(TOPIC)
            connection = await nats.connect(server.url)
            stream = connection.jetstream()
            await stream.add_stream(name="OUT", subjects=["out"])
            sizes = [*range(1900, 2010, 10), 1]
            async with client.producer(TOPIC) as producer:
                await producer.send_batch([b"x" * each for each in sizes])
            async with running(declared(sink(server, "out"), broker.url)) as until:
                await until(
                    lambda found: (
                        found["orders"].messages + found["orders"].dead_letters
                        == len(sizes)
                    )
                )
            dead = [
                len(each)
                async for batch in client.read(f"{TOPIC}-dead")
                for each in batch.payloads
            ]
            facts = await stream.stream_info("OUT")
            await connection.close()
    assert 0 < len(dead) < len(sizes)
    assert min(dead) < 2000
    assert facts.state.messages == len(sizes) - len(dead)


async def test_a_reader_that_nats_has_forgotten_begins_again(server):
    async with memory_broker() as broker, pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC)
        connection = await nats.connect(server.url)
        stream = connection.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders"])
        await stream.publish("orders", b"1")
        async with running(declared(source(server), broker.url)):
            await stored(client, 1)
            for each in await stream.consumers_info("ORDERS"):
                await stream.delete_consumer("ORDERS", each.name)
            await stream.publish("orders", b"2")
            found = await stored(client, 2)
        await connection.close()
    assert [each.payload for each in found] == [b"1", b"2"]


async def test_messages_that_are_larger_than_a_request_are_published(tmp_path):
    sizes = [1, 3_000_000, 3_000_000, *range(2, 2000), 6_000_000, 5]
    with NatsProcess(tmp_path, max_payload=8_000_000) as server:
        async with memory_broker() as broker, pydanube.connect(broker.url) as client:
            await client.topics.create(TOPIC)
            connection = await nats.connect(server.url)
            stream = connection.jetstream()
            await stream.add_stream(name="ORDERS", subjects=["orders"])
            for size in sizes:
                await stream.publish("orders", b"x" * size)
            async with running(declared(source(server), broker.url)):
                found = await stored(client, len(sizes))
            await connection.close()
    assert [len(each.payload) for each in found] == sizes


async def test_subjects_without_a_stream_are_reported(server):
    async with memory_broker() as broker:
        [connector] = declared(sink(server, "nowhere"), broker.url)
        assert "NATS" in (await try_connector(connector)).problem


def test_nothing_is_lost_or_repeated_although_all_are_killed(server, tmp_path):
    """Through NATS and back, while connectors, broker and NATS are killed."""
    file = tmp_path / "connectors.yaml"
    back = source(server).partition("connectors:")[2]
    back = back.replace("  orders:", "  back:").replace(TOPIC, "/default/back")
    file.write_text(sink(server, "orders.{key}") + back)
    count = 20_000

    async def run(kill):
        async with pydanube.connect(broker.url, retry_s=60) as client:
            await client.topics.create(TOPIC, exist_ok=True)
            await client.topics.create("/default/back", exist_ok=True)
            connection = await nats.connect(server.url)
            await connection.jetstream().add_stream(
                name="ORDERS", subjects=["orders.>"]
            )
            await connection.close()
            async with client.producer(TOPIC) as producer:
                for first in range(0, count, 100):
                    numbers = range(first, first + 100)
                    payloads = [b"%d" % each for each in numbers]
                    keys = [b"%d" % (each % 7) for each in numbers]
                    await producer.send_batch(batch_of(payloads, keys=keys))
            found = await numbers_under_kills(client, "/default/back", count, kill)
            facts = await client.topics.describe("/default/back")
            return found, facts.message_count

    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as connectors,
    ):

        def kill(number):
            process = (connectors, broker, server)[number % 3]
            process.kill()
            process.start()

        found, stored_count = pydanube.run(run(kill))
    assert stored_count == count
    assert found == list(range(count))
