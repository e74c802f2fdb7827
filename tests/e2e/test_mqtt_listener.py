"""Clients of MQTT 3.1.1 and 5 use a broker; what the standard promises holds."""

from __future__ import annotations

import asyncio
from urllib.request import urlopen

import aiomqtt
import pytest

import pydanube
from pydanube_mqtt.wire.packets import (
    V5,
    V311,
    Ack,
    Property,
    Publish,
    Reason,
    Will,
)
from support.drivers.mqtt_clients import (
    DEFAULT_TOPIC,
    VERSIONS,
    mqtt_broker,
    mqtt_broker_of,
    mqtt_client,
    persistent,
    port_of,
    quiet,
    rule,
    take,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(params=[1, pytest.param(3, marks=pytest.mark.soak)])
async def broker(tmp_path, request):
    async with mqtt_broker_of(tmp_path, request.param) as running:
        yield running


async def messages_of(client, topic):
    return [each async for batch in client.read(topic) for each in batch]


# Publishing and subscribing.


@pytest.mark.parametrize("version", ["V311", "V5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_paho_publishes_and_subscribes(broker, version, qos):
    protocol = aiomqtt.ProtocolVersion[version]
    port = port_of(broker)
    received = []
    async with (
        aiomqtt.Client("127.0.0.1", port, protocol=protocol) as subscriber,
        aiomqtt.Client("127.0.0.1", port, protocol=protocol) as publisher,
    ):
        await subscriber.subscribe("sensors/+/temperature", qos=qos)
        for number in range(50):
            topic = f"sensors/{number % 3}/temperature"
            await publisher.publish(topic, str(number), qos=qos)
        async for message in subscriber.messages:
            received.append((int(message.payload), message.qos))
            if len(received) == 50:
                break
    assert received == [(number, qos) for number in range(50)]


async def test_messages_reach_clients_of_other_protocols(broker):
    async with (
        mqtt_client(broker, "device-1") as device,
        pydanube.connect(broker.stream_url) as client,
    ):
        properties = {
            Property.CONTENT_TYPE: "text/plain",
            Property.USER_PROPERTY: (("site", "north"),),
        }
        await device.publish("a/b", b"21.5", properties=properties)
        (message,) = await messages_of(client, DEFAULT_TOPIC)
    assert (message.key, message.payload) == ("a/b", b"21.5")
    assert message.producer == "device-1"
    assert message.attributes == {
        "mqtt.content_type": "text/plain",
        "mqtt.user.site": "north",
    }


async def test_messages_of_other_protocols_reach_devices(broker):
    async with (
        mqtt_client(broker, "device-1") as device,
        pydanube.connect(broker.stream_url) as client,
        client.producer(DEFAULT_TOPIC) as producer,
    ):
        await device.subscribe("commands/device-1", qos=1)
        await producer.send(b"for another", key="commands/device-2")
        await producer.send(b"without a topic")
        await producer.send(b"open", key="commands/device-1")
        message = await device.take()
    assert (message.topic, message.payload) == ("commands/device-1", b"open")


async def test_attributes_that_mqtt_does_not_have_do_not_reach_devices(broker):
    async with (
        mqtt_client(broker, "device-1") as device,
        pydanube.connect(broker.stream_url) as client,
        client.producer(DEFAULT_TOPIC) as producer,
    ):
        await device.subscribe("a", qos=1)
        attributes = {"mqtt.user.long": "x" * 70_000, "mqtt.user.b": "2"}
        await producer.send(b"1", key="a", attributes=attributes)
        await producer.send(b"2", key="a")
        first, second = [await device.take() for _ in range(2)]
    assert (first.payload, second.payload) == (b"1", b"2")
    assert first.properties == {Property.USER_PROPERTY: (("b", "2"),)}


async def test_rules_choose_topic_and_key(tmp_path):
    rules = (
        rule("sensors/+/temperature", "/default/temperature"),
        rule("sensors/#", "/default/sensors", key="client_id"),
        rule("status", "/default/status", key="none", reliable=False),
    )
    async with (
        mqtt_broker(tmp_path, rules=rules) as broker,
        pydanube.connect(broker.stream_url) as client,
        mqtt_client(broker, "d") as device,
    ):
        await device.subscribe("#", qos=1)
        for topic in ("sensors/1/temperature", "sensors/1/humidity", "status"):
            assert await device.publish(topic, b"x") == Reason.SUCCESS
            assert (await device.take()).topic == topic
        (temperature,) = await messages_of(client, "/default/temperature")
        (sensors,) = await messages_of(client, "/default/sensors")
    assert temperature.key == "sensors/1/temperature"
    assert sensors.key == "d"
    assert sensors.attributes == {"mqtt.topic": "sensors/1/humidity"}


async def test_topics_without_a_rule_are_refused(tmp_path):
    async with mqtt_broker(tmp_path, rules=(rule("a/#", "/default/a"),)) as broker:
        async with mqtt_client(broker, "new") as client:
            assert await client.publish("b", b"x") == Reason.TOPIC_NAME_INVALID
            assert await client.publish("$SYS/a", b"x") == Reason.TOPIC_NAME_INVALID
            assert await client.publish("a", b"x") == Reason.SUCCESS
            refused = Reason.TOPIC_FILTER_INVALID
            assert await client.subscribe("b/#", "a", "$SYS/#", "a/#/b") == [
                *(refused, Reason.SUCCESS, refused, refused)
            ]
        async with mqtt_client(broker, "old", version=V311) as client:
            client.send(Publish(topic="b", payload=b"", qos=1, packet_id=1))
            assert await client.ends() == []


@VERSIONS
async def test_overlapping_subscriptions_deliver_once_with_the_highest_qos(
    broker, version
):
    async with mqtt_client(broker, "c", version=version) as client:
        await client.subscribe("a/+", qos=0)
        await client.subscribe("a/#", qos=2)
        await client.publish("a/b", b"x", qos=2)
        message = await client.take()
        assert (message.payload, message.qos) == (b"x", 2)
        await quiet(client)


async def test_options_of_version_5_hold(broker):
    async with mqtt_client(broker, "one") as one, mqtt_client(broker, "two") as two:
        identifier = {Property.SUBSCRIPTION_IDENTIFIER: (7,)}
        await one.subscribe("a", qos=1, no_local=True, properties=identifier)
        await two.subscribe("a", qos=1, retain_as_published=True)
        await one.publish("a", b"1", retain=True)
        await two.publish("a", b"2")
        first, second, third = await two.take(), await two.take(), await one.take()
        assert [(each.payload, each.retain) for each in (first, second)] == [
            (b"1", True),
            (b"2", False),
        ]
        assert third.payload == b"2"
        assert third.properties[Property.SUBSCRIPTION_IDENTIFIER] == (7,)


async def test_properties_reach_subscribers(broker):
    sent = {
        Property.PAYLOAD_FORMAT_INDICATOR: 1,
        Property.CONTENT_TYPE: "text/plain",
        Property.RESPONSE_TOPIC: "answers",
        Property.CORRELATION_DATA: b"\x00\x01",
        Property.USER_PROPERTY: (("a", "b"),),
        Property.MESSAGE_EXPIRY_INTERVAL: 1000,
    }
    async with mqtt_client(broker, "c") as client:
        await client.subscribe("a")
        alias = {Property.TOPIC_ALIAS: 3}
        await client.publish("a", b"1", qos=0, properties=sent | alias)
        await client.publish("", b"2", qos=0, properties=alias)
        first, second = await client.take(), await client.take()
    left_s = first.properties.pop(Property.MESSAGE_EXPIRY_INTERVAL)
    assert 0 <= left_s <= 1000
    del sent[Property.MESSAGE_EXPIRY_INTERVAL]
    assert first.properties == sent
    assert (second.topic, second.payload) == ("a", b"2")


async def test_unsubscribing_ends_the_messages(broker):
    async with mqtt_client(broker, "c") as client:
        await client.subscribe("a", "b")
        assert await client.unsubscribe("a", "x") == [
            Reason.SUCCESS,
            Reason.NO_SUBSCRIPTION_EXISTED,
        ]
        await client.publish("a", b"1", qos=0)
        await client.publish("b", b"2", qos=0)
        assert (await client.take()).payload == b"2"


# Violations and limits.


async def test_packets_that_are_too_long_end_the_connection(tmp_path):
    async with mqtt_broker(tmp_path, packet_bytes_max=1024) as broker:
        async with mqtt_client(broker, "new") as client:
            properties = client.answer.properties
            assert properties[Property.MAXIMUM_PACKET_SIZE] == 1024
            client.send(Publish(topic="a", payload=bytes(1024)))
            (goodbye,) = await client.ends()
            assert goodbye.reason is Reason.PACKET_TOO_LARGE
        async with mqtt_client(broker, "old", version=V311) as client:
            client.send(Publish(topic="a", payload=bytes(1024)))
            assert await client.ends() == []


async def test_messages_that_are_too_long_for_a_client_are_left_out(broker):
    properties = {Property.MAXIMUM_PACKET_SIZE: 100}
    async with mqtt_client(broker, "c", properties=properties) as client:
        await client.subscribe("a", qos=1)
        async with mqtt_client(broker, "p") as publisher:
            await publisher.publish("a", bytes(200))
            await publisher.publish("a", b"x")
        assert (await client.take()).payload == b"x"


async def test_subscriptions_are_bounded(tmp_path):
    async with (
        mqtt_broker(tmp_path, subscriptions_max=1) as broker,
        mqtt_client(broker, "c") as client,
    ):
        assert await client.subscribe("a", "b", "a") == [
            *(Reason.SUCCESS, Reason.QUOTA_EXCEEDED, Reason.SUCCESS)
        ]


async def test_sessions_are_bounded(tmp_path):
    async with (
        mqtt_broker(tmp_path, sessions_max=1) as broker,
        mqtt_client(broker, "one"),
        mqtt_client(broker) as two,
    ):
        assert (await two.connect("two")).reason is Reason.QUOTA_EXCEEDED


async def test_connections_are_bounded(tmp_path):
    listen = {"connections_max": 1}
    async with (
        mqtt_broker(tmp_path, listen=listen) as broker,
        mqtt_client(broker, "one"),
        mqtt_client(broker) as two,
    ):
        assert await two.ends() == []


async def test_a_client_with_too_much_in_flight_is_disconnected(tmp_path):
    async with (
        mqtt_broker(tmp_path, in_flight_max=1) as broker,
        mqtt_client(broker, "c") as client,
    ):
        client.send(Publish(topic="a", payload=b"x", qos=2, packet_id=1))
        await client.expect(Ack)
        client.send(Publish(topic="a", payload=b"x", qos=2, packet_id=2))
        (goodbye,) = await client.ends()
        assert goodbye.reason is Reason.RECEIVE_MAXIMUM_EXCEEDED


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"\x30\x03\x00\x01a", b""),
        (b"\x00\x00", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"\x10\x0c\x00\x04MQTT\x03\x02\x00\x00\x00\x00", b"\x20\x02\x00\x01"),
        (b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x00\x00\x00", b"\x20\x02\x00\x01"),
    ],
)
async def test_what_is_no_connect_is_refused(broker, data, answer):
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
    writer.write(data)
    assert await reader.read() == answer
    writer.close()
    await writer.wait_closed()


async def test_silent_clients_are_disconnected_and_their_will_is_published(broker):
    will = Will(topic="gone", payload=b"x")
    async with mqtt_client(broker, "w") as watcher:
        await watcher.subscribe("gone")
        async with mqtt_client(broker, "c", keep_alive_s=1, will=will) as client:
            (goodbye,) = await client.ends()
            assert goodbye.reason is Reason.KEEP_ALIVE_TIMEOUT
            assert (await watcher.take()).payload == b"x"


async def test_version_5_is_told_the_limits(tmp_path):
    async with mqtt_broker(tmp_path, keep_alive_s_max=60, in_flight_max=9) as broker:
        asked = {Property.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}
        async with mqtt_client(broker, "c", properties=asked) as client:
            answered = client.answer.properties
    assert answered[Property.SERVER_KEEP_ALIVE] == 60
    assert answered[Property.RECEIVE_MAXIMUM] == 9
    assert answered[Property.SESSION_EXPIRY_INTERVAL] == 7 * 86_400


async def test_the_broker_says_goodbye_when_it_stops(tmp_path):
    async with mqtt_broker(tmp_path) as broker:
        client = mqtt_client(broker, "c", will=Will(topic="gone", payload=b"x"))
        connected = await client.__aenter__()
    (goodbye,) = await connected.ends()
    assert goodbye.reason is Reason.SERVER_SHUTTING_DOWN
    await client.__aexit__(None, None, None)


async def test_a_topic_that_was_deleted_is_created_again(broker):
    async with (
        mqtt_client(broker, "c") as device,
        pydanube.connect(broker.stream_url) as client,
    ):
        await device.subscribe("a", qos=1)
        await device.publish("a", b"1")
        await take(device, 1)
        await client.topics.delete(DEFAULT_TOPIC, force=True)
        assert await device.publish("a", b"2") == Reason.SUCCESS
        assert await take(device, 1) == [b"2"]


async def test_a_topic_that_another_client_creates_again_is_followed(broker):
    async with (
        mqtt_client(broker, "c") as device,
        pydanube.connect(broker.stream_url) as client,
    ):
        await device.subscribe("a", qos=1)
        await client.topics.delete(DEFAULT_TOPIC, force=True)
        await client.topics.create(DEFAULT_TOPIC)
        async with client.producer(DEFAULT_TOPIC) as producer:
            number = 0
            received = asyncio.Event()

            async def publish():
                nonlocal number
                while not received.is_set():
                    number += 1
                    await producer.send(b"x", key="a")

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(publish())
                await device.take()
                received.set()


async def test_the_topics_of_rules_are_created_with_their_namespace(tmp_path):
    rules = (rule("#", "/iot/everything"),)
    async with (
        mqtt_broker(tmp_path, rules=rules) as broker,
        pydanube.connect(broker.stream_url) as client,
    ):
        assert "/iot/everything" in map(str, await client.topics.list("iot"))


async def test_partitioned_topics_cannot_be_used(tmp_path):
    async with (
        mqtt_broker(tmp_path) as broker,
        pydanube.connect(broker.stream_url) as client,
    ):
        await client.topics.create("/default/parts", partitions=2)
    with pytest.raises(ExceptionGroup) as refusal:
        async with mqtt_broker(tmp_path, rules=(rule("#", "/default/parts"),)):
            pass
    text = "/default/parts cannot be used"
    assert refusal.group_contains(pydanube.InvalidConfig, match=text)


async def test_metrics_count_messages_and_sessions(tmp_path):
    async with (
        mqtt_broker(tmp_path) as broker,
        mqtt_client(broker, "c", **persistent(V5)) as client,
    ):
        await client.subscribe("a", qos=1)
        await client.publish("a", b"x", retain=True)
        await client.take()
        await client.subscribe("$SYS/#")
        text = await asyncio.to_thread(fetch, f"{broker.http_url}/metrics")
    for line in (
        "danube_mqtt_sessions 1.0",
        "danube_mqtt_subscriptions 1.0",
        "danube_mqtt_messages_in_total 1.0",
        "danube_mqtt_messages_out_total 1.0",
        "danube_mqtt_retained_messages 1.0",
        'danube_mqtt_refusals_total{reason="topic_filter_invalid"} 1.0',
        'danube_listener_connections{listener="mqtt"} 1.0',
    ):
        assert line in text


def fetch(url):
    with urlopen(url, timeout=60) as answer:
        return answer.read().decode()
