"""Sessions read sealed topics, lose what retention drops, and survive crashes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import ObjectsUnavailable, SubscriptionNotFound
from pydanube.model.names import TopicName
from pydanube.model.policy import Retention
from pydanube_broker.testing import memory_broker
from pydanube_mqtt.config import MqttConfig
from pydanube_mqtt.connection import listen_mqtt
from pydanube_mqtt.server import open_mqtt_server
from pydanube_mqtt.shared import subscription_name
from pydanube_mqtt.wire.packets import V5, Disconnect, Property, Publish, Reason, Will
from pydanube_mqtt.wire.topics import TopicFilter
from support.drivers.mqtt_clients import Closed, mqtt_client, persistent, quiet, take
from support.fakes.brokers import BrokerWorld
from support.fakes.guarded_clusters import eventually
from support.fakes.listener_parts import listener_parts
from support.fakes.storages import seal

pytestmark = pytest.mark.slow

TOPIC = TopicName.parse("/default/mqtt")
SESSION = {name: each for name, each in persistent(V5).items() if name != "version"}


@asynccontextmanager
async def served(world, **mqtt):
    """Serve MQTT over a broker of *world*."""
    async with (
        world.broker() as broker,
        serving(broker, store=world.store, **mqtt) as running,
    ):
        yield running


@asynccontextmanager
async def serving(broker, store=None, **mqtt):
    """Serve MQTT over *broker*."""
    async with (
        open_mqtt_server(
            MqttConfig(port=0, **mqtt), listener_parts(broker, "mqtt", store=store)
        ) as server,
        listen_mqtt(server, "127.0.0.1", 0) as port,
    ):
        yield SimpleNamespace(
            broker=broker,
            server=server,
            listener_urls={"mqtt": f"mqtt://127.0.0.1:{port}"},
        )


async def publish(running, *payloads, client_id="p"):
    async with mqtt_client(running, client_id) as publisher:
        for payload in payloads:
            await publisher.publish("a", payload)


async def sealed(running):
    topic = running.broker.topics.opened[TOPIC]
    await seal(running.broker.storage, topic.topic_id)


async def test_a_session_reads_what_it_has_missed_from_segments():
    async with served(BrokerWorld()) as running:
        async with mqtt_client(running, "s", **SESSION) as client:
            await client.subscribe("a", qos=1)
            await publish(running, b"1", b"2")
            in_flight = [await client.expect(Publish) for _ in range(2)]
        await publish(running, b"3")
        await sealed(running)
        await publish(running, b"4")
        async with mqtt_client(running, "s", **SESSION) as client:
            again = [await client.expect(Publish) for _ in range(2)]
            assert [each.is_duplicate for each in again] == [True, True]
            assert [(each.packet_id, each.payload) for each in again] == [
                (each.packet_id, each.payload) for each in in_flight
            ]
            assert await take(client, 2) == [b"3", b"4"]


async def test_clients_are_listed_and_disconnected():
    async with served(BrokerWorld()) as running:
        connections = running.broker.connections
        async with mqtt_client(running, "ada", **SESSION) as client:
            [(number, connection)] = connections.page(0, 9)
            facts = connection.facts(lambda _: True)
            assert (facts.listener, facts.client) == ("mqtt", "ada")
            connections.close(number, "new limits")
            ending = await client.expect(Disconnect)
            assert ending.reason is Reason.ADMINISTRATIVE_ACTION
            assert ending.properties[Property.REASON_STRING] == "new limits"
        assert len(connections) == 0


async def test_what_retention_drops_is_lost_for_a_session_and_counted():
    async with served(BrokerWorld(), in_flight_max=1) as running:
        async with mqtt_client(running, "s", **SESSION) as client:
            await client.subscribe("a", qos=1)
            await publish(running, b"1", b"2")
            await client.expect(Publish)
        await publish(running, b"3")
        await sealed(running)
        topics = running.broker.topics
        await topics.configure(TOPIC, retention=Retention(bytes_max=1))
        await publish(running, b"4")
        await sealed(running)
        await topics.apply_retention(TOPIC)
        await publish(running, b"5")
        async with mqtt_client(running, "s", **SESSION) as client:
            assert await take(client, 2) == [b"4", b"5"]
            await quiet(client)
        # The first was in flight, and is not counted.
        assert running.server.counts.lost == 2


async def test_sessions_and_retained_messages_end_in_time():
    world = BrokerWorld()
    an_hour = {Property.MESSAGE_EXPIRY_INTERVAL: 3600}
    async with served(world) as running, mqtt_client(running, "s", **SESSION) as client:
        await client.publish("a", b"x", retain=True, properties=an_hour)
        await client.subscribe("a", qos=1)
        await client.disconnect()
    world.now_us += 3_601 * 1_000_000
    async with served(world) as running:
        async with mqtt_client(running, "s", **SESSION) as client:
            assert not client.answer.session_present
            await client.subscribe("a", qos=1)
            await quiet(client)
        running.server.sweep(saves_positions=True)
        assert running.server.retained.count == 0


async def test_a_session_that_was_connected_at_a_crash_is_kept():
    world = BrokerWorld()
    async with served(world) as running, mqtt_client(running, "s", **SESSION) as client:
        await client.subscribe("a", qos=1)
        # What a crash would leave.
        crashed = BrokerWorld()
        crashed.store.copy_from(world.store)
    crashed.now_us += 10_000 * 1_000_000
    async with (
        served(crashed) as running,
        mqtt_client(running, "s", **SESSION) as client,
    ):
        assert client.answer.session_present


async def test_a_client_whose_session_cannot_be_written_is_refused():
    world = BrokerWorld()
    async with served(world) as running:

        async def fail():
            raise ObjectsUnavailable("on purpose")

        world.store.concurrent_actions = [fail]
        async with mqtt_client(running) as client:
            will = Will(topic="gone", payload=b"x")
            answer = await client.connect("s", will=will, **SESSION)
            assert answer.reason.name == "SERVER_UNAVAILABLE"
            assert await client.ends() == []
        assert running.server.counts.wills == 0
        async with mqtt_client(running, "s", **SESSION) as client:
            assert await client.publish("a", b"x") == 0


async def test_clients_that_connect_at_the_same_time_take_over_one_by_one():
    async with served(BrokerWorld()) as running:
        async with mqtt_client(running, "s", **SESSION) as client:
            await client.subscribe("a", "$share/g/b", qos=1)

        async with (
            mqtt_client(running) as one,
            mqtt_client(running) as two,
            asyncio.TaskGroup() as tasks,
        ):
            attempts = [tasks.create_task(attempt(each)) for each in (one, two)]
            assert True in [await each for each in attempts]
        async with mqtt_client(running, "s", **SESSION) as client:
            await publish(running, b"x")
            assert await take(client, 1) == [b"x"]
            await quiet(client)


async def attempt(client):
    """Connect; return whether the client was accepted."""
    try:
        return (await client.connect("s", **SESSION)).session_present
    except Closed:
        # The other one was faster.
        return False


async def test_native_consumers_share_a_subscription_with_members_and_outlive_them():
    name = subscription_name(TopicFilter.parse("$share/g/#"))
    sent = [b"%d" % number for number in range(20)]
    found = []
    everything = asyncio.Event()

    def take_in(payload):
        found.append(payload)
        if len(found) == len(sent):
            everything.set()

    async def read_native(own):
        async for message in own:
            await own.ack(message)
            take_in(message.payload)

    async def read_mqtt(member):
        while True:
            take_in((await member.take()).payload)

    async with (
        memory_broker() as memory,
        memory.connect() as native,
        serving(memory.broker) as running,
        native.producer(str(TOPIC)) as sending,
        mqtt_client(running, "m") as member,
    ):
        await member.subscribe("$share/g/#", qos=1)
        async with native.consumer(str(TOPIC), subscription=name, type="shared") as own:
            async with task_scope() as tasks:
                tasks.run(read_native(own))
                tasks.run(read_mqtt(member))
                for payload in sent:
                    await sending.send(payload, key="a")
                await everything.wait()
            assert sorted(found) == sorted(sent)
            await member.unsubscribe("$share/g/#")
            # No session has the subscription any more, but somebody consumes it.
            await sending.send(b"last", key="a")
            last = await own.receive()
            assert last.payload == b"last"
            await own.ack(last)
            await own.flush()
            described = await native.subscriptions.describe(str(TOPIC), name)
            assert described.backlog == 0
        await member.subscribe("$share/g/#", qos=1)
        await member.unsubscribe("$share/g/#")

        async def is_gone():
            try:
                await native.subscriptions.describe(str(TOPIC), name)
            except SubscriptionNotFound:
                return True
            return False

        await eventually(is_gone)
