"""One topic and one subscription, used by clients of all protocols at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from functools import partial

import aiokafka
import pytest

import pydanube
from pydanube.aio.tasks import task_scope
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import ListenConfig, config_type
from pydanube_kafka.config import KafkaConfig
from pydanube_mqtt.config import MqttConfig
from support.drivers.danube_calls import DanubeCalls, Type
from support.drivers.mqtt_clients import V5, mqtt_client, rule
from support.fakes.grpc_calls import connected
from support.fakes.guarded_clusters import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/orders"
KEYS = [f"orders/k{number}" for number in range(6)]
EACH = 24
"""The messages that the clients of each protocol publish."""
PROTOCOLS = ("native", "grpc", "mqtt", "kafka")
SENT = sorted(f"{name}-{number}" for name in PROTOCOLS for number in range(EACH))


def served(directory):
    return serve(
        config_type()(
            data_dir=directory / "data",
            listen=ListenConfig(stream_port=0, grpc_port=0, admin_port=0, http_port=0),
            kafka=KafkaConfig(port=0),
            mqtt=MqttConfig(port=0, rules=[rule("orders/#", TOPIC)]),
        )
    )


def address_of(broker, listener):
    return broker.listener_urls[listener].partition("://")[2]


def port_of(url):
    return int(url.rpartition(":")[2])


def numbered(name):
    """The keys and payloads of a protocol."""
    return [(KEYS[n % len(KEYS)], f"{name}-{n}") for n in range(EACH)]


async def publish_by_all(broker, client, calls):
    async with client.producer(TOPIC) as producer:
        for key, payload in numbered("native"):
            await producer.send(payload, key=key)
    await calls.create_producer()
    for key, payload in numbered("grpc"):
        await calls.send(payload, routing_key=key)
    async with mqtt_client(broker, "device", version=V5) as device:
        for key, payload in numbered("mqtt"):
            assert await device.publish(key, payload.encode()) == 0
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address_of(broker, "kafka"))
    async with producer:
        for key, payload in numbered("kafka"):
            await producer.send_and_wait("orders", payload.encode(), key.encode())


async def test_each_client_receives_what_all_the_others_publish(tmp_path):
    async with (
        served(tmp_path) as broker,
        pydanube.connect(broker.stream_url) as client,
        connected(port_of(broker.grpc_url)) as call,
        mqtt_client(broker, "display", version=V5) as display,
    ):
        calls = DanubeCalls(call)
        stream = await calls.consume(subscription="g")
        await display.subscribe("orders/#", qos=1)
        await publish_by_all(broker, client, calls)
        found = [
            m.payload.decode() async for batch in client.read(TOPIC) for m in batch
        ]
        assert sorted(found) == SENT
        for payload in found:
            [message] = await stream.read()
            await calls.ack(message, subscription="g")
            assert message.payload.decode() == payload
        taken = [await display.take() for _ in SENT]
        assert [each.payload.decode() for each in taken] == found
        assert {each.topic for each in taken} == set(KEYS)
        reader = aiokafka.AIOKafkaConsumer(
            "orders",
            bootstrap_servers=address_of(broker, "kafka"),
            group_id="audit",
            auto_offset_reset="earliest",
        )
        async with reader:
            records = [await reader.getone() for _ in SENT]
            await reader.commit()
        assert [each.value.decode() for each in records] == found
        assert {each.key.decode() for each in records} == set(KEYS)
        facts = await client.subscriptions.describe(TOPIC, "audit")
        assert facts.backlog == 0


async def test_keys_of_a_subscription_are_divided_among_clients_of_two_protocols(
    tmp_path,
):
    async with (
        served(tmp_path) as broker,
        pydanube.connect(broker.stream_url) as client,
        connected(port_of(broker.grpc_url)) as call,
    ):
        calls = DanubeCalls(call)
        stream = await calls.consume("g", type_=Type.KeyShared)
        found = {"native": [], "grpc": []}
        everything = asyncio.Event()

        def take(name, key, payload):
            found[name].append((key, payload))
            if sum(map(len, found.values())) == len(SENT):
                everything.set()

        async def read_native(consumer):
            async for message in consumer:
                await consumer.ack(message)
                take("native", message.key, message.payload.decode())

        async def read_grpc():
            while True:
                [message] = await stream.read()
                await calls.ack(message)
                take("grpc", message.routing_key, message.payload.decode())

        async with (
            client.consumer(TOPIC, subscription="s", type="key_shared") as consumer,
            asyncio.timeout(100),
            task_scope() as tasks,
        ):
            tasks.run(read_native(consumer))
            tasks.run(read_grpc())
            await publish_by_all(broker, client, calls)
            await everything.wait()
        payloads = Counter(payload for each in found.values() for _, payload in each)
        assert payloads == Counter(SENT)
        keys = {name: {key for key, _ in each} for name, each in found.items()}
        assert not keys["native"] & keys["grpc"]
        for each in found.values():
            # The order of a producer's messages of a key stays.
            order = defaultdict(list)
            for key, payload in each:
                name, number = payload.split("-")
                order[key, name].append(int(number))
            assert all(numbers == sorted(numbers) for numbers in order.values())
        await eventually(partial(is_done, client))


async def is_done(client):
    return not (await client.subscriptions.describe(TOPIC, "s")).backlog


async def test_consumers_of_a_subscription_go_on_beside_a_group_of_its_name(tmp_path):
    async with (
        served(tmp_path) as broker,
        pydanube.connect(broker.stream_url) as client,
        connected(port_of(broker.grpc_url)) as call,
        client.producer(TOPIC) as producer,
    ):
        calls = DanubeCalls(call)
        stream = await calls.consume("g", type_=Type.KeyShared)
        for key, payload in numbered("native"):
            await producer.send(payload, key=key)
        reader = aiokafka.AIOKafkaConsumer(
            "orders",
            bootstrap_servers=address_of(broker, "kafka"),
            group_id="s",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with reader:
            records = [await reader.getone() for _ in range(EACH)]
            await reader.commit()
        assert [each.value.decode() for each in records] == [
            payload for _, payload in numbered("native")
        ]
        # What the group has committed is done for all.
        assert await is_done(client)
        await producer.send("last", key=KEYS[0])
        found = []
        while "last" not in found:
            [message] = await stream.read()
            await calls.ack(message)
            found.append(message.payload.decode())
        assert len(found) == len(set(found))
        await eventually(partial(is_done, client))
