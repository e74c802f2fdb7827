"""MQTT messages arrive through Mosquitto; nothing is lost although both sides crash."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import pydanube
from pydanube.aio.tasks import task_scope
from pydanube_broker.testing import memory_broker
from pydanube_connect.status import State
from support.drivers.connectors import ConnectProcess, declared, running
from support.servers.mosquitto import MosquittoProcess
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

TOPIC = "/default/sensors"
COUNT = 4000
KILLS = 4


def file_for(mosquitto, version="5"):
    return f"""
connectors:
  sensors:
    kind: mqtt-source
    topic: {TOPIC}
    retries: {{backoff: 50ms}}
    options:
      client_id: danube
      port: {mosquitto.port}
      version: "{version}"
      filters:
        sensors/+/temperature: /default/temperature-{{1}}
        sensors/#:
"""


def publisher(mosquitto):
    return aiomqtt.Client(
        "127.0.0.1", mosquitto.port, protocol=aiomqtt.ProtocolVersion.V5
    )


def is_running(statuses):
    return statuses["sensors"].state is State.RUNNING


async def messages_of(client, topic):
    return [each async for batch in client.read(topic) for each in batch]


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_mqtt_messages_become_messages_of_topics(tmp_path, version):
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            connectors = declared(file_for(mosquitto, version), broker.url)
            async with publisher(mosquitto) as mqtt:
                await mqtt.publish("sensors/x/kept", "old", qos=1, retain=True)
                async with running(connectors) as until:
                    await until(lambda all_: all_["sensors"].messages == 1)
                    properties = Properties(PacketTypes.PUBLISH)
                    properties.UserProperty = ("unit", "C")
                    properties.ContentType = "text/plain"
                    for _ in range(2):
                        await mqtt.publish(
                            "sensors/hall 1/temperature",
                            "20.5",
                            qos=2,
                            properties=properties,
                        )
                    await mqtt.publish("sensors/x/raw", b"\xff", qos=0)
                    await until(lambda all_: all_["sensors"].messages == 4)
            kept, raw = await messages_of(client, TOPIC)
            assert kept.attributes["mqtt.retain"] == "true"
            assert (raw.payload, raw.key) == (b"\xff", "sensors/x/raw")
            assert raw.attributes == {
                "mqtt.topic": "sensors/x/raw",
                "mqtt.qos": "0",
                "mqtt.retain": "false",
            }
            found = await messages_of(client, "/default/temperature-hall_1")
            assert [each.payload for each in found] == [b"20.5", b"20.5"]
            user = {"mqtt.user.unit": "C", "mqtt.content_type": "text/plain"}
            assert user.items() <= found[0].attributes.items() or version == "3.1.1"

    with MosquittoProcess(tmp_path) as mosquitto:
        asyncio.run(run())


def test_connector_subscribes_again_after_a_crash_of_mosquitto(tmp_path):
    async def run():
        async with memory_broker() as broker:
            connectors = declared(file_for(mosquitto), broker.url)
            async with running(connectors) as until:
                await until(is_running)
                mosquitto.kill()
                statuses = await until(lambda all_: all_["sensors"].retries > 0)
                assert str(mosquitto.port) in statuses["sensors"].error
                mosquitto.start()
                async with publisher(mosquitto) as mqtt:
                    while not statuses["sensors"].messages:
                        # Until the connector subscribes, nobody keeps a message.
                        await mqtt.publish("sensors/a/b", "x", qos=1)

    with MosquittoProcess(tmp_path) as mosquitto:
        asyncio.run(run())


@pytest.mark.soak
def test_nothing_is_lost_although_connector_and_broker_are_killed(tmp_path):
    file = tmp_path / "connectors.yaml"
    kills = sorted(random.Random(3).sample(range(1, COUNT - 500), KILLS))

    async def publish():
        async with publisher(mosquitto) as mqtt:
            for number in range(COUNT):
                await mqtt.publish("sensors/a/b", str(number), qos=1)

    async def run(broker, connector):
        numbers = []
        async with pydanube.connect(broker.url) as client, task_scope() as tasks:
            await client.topics.create(TOPIC)
            # The session begins with the first subscription.
            connector.start()
            await wait_for_session()
            publishing = tasks.start(publish())
            while not numbers or max(numbers) < COUNT - 1:
                with suppress(pydanube.Unavailable):
                    async for batch in client.read(
                        TOPIC, start=len(numbers), follow=True
                    ):
                        numbers += [int(each) for each in batch.payloads]
                        while kills and len(numbers) >= kills[0]:
                            kills.pop(0)
                            if len(kills) % 2:
                                connector.kill()
                                connector.start()
                            else:
                                broker.kill()
                                broker.start()
                        if max(numbers) == COUNT - 1:
                            break
            await publishing
        return numbers

    async def wait_for_session():
        """Wait until Mosquitto has a subscriber."""
        async with publisher(mosquitto) as mqtt:
            await mqtt.subscribe("$SYS/broker/subscriptions/count")
            async for message in mqtt.messages:
                if int(message.payload) >= 2:
                    return

    with (
        MosquittoProcess(tmp_path) as mosquitto,
        BrokerProcess(tmp_path / "data") as broker,
    ):
        # Small batches, so that no kill is after the last of them.
        text = file_for(mosquitto).replace(
            "      filters:", "      in_flight: 50\n      filters:"
        )
        file.write_text(text)
        connector = ConnectProcess(file, broker.url)
        try:
            numbers = pydanube.run(run(broker, connector))
        finally:
            connector.kill()
    assert kills == []
    # Repetitions follow a crash; what comes first is complete and in order.
    assert list(dict.fromkeys(numbers)) == list(range(COUNT))


SINK = """
connectors:
  commands:
    kind: mqtt-sink
    topic: {topic}
    retries: {{backoff: 50ms}}
    dead_letters: /default/dead
    options: {{port: {port}, topic: "devices/{{key}}/{{topic}}", version: "{version}"}}
"""


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_messages_are_published_to_mqtt(tmp_path, version):
    with MosquittoProcess(tmp_path) as mosquitto:
        text = SINK.format(topic=TOPIC, port=mosquitto.port, version=version)
        async with (
            memory_broker() as broker,
            broker.connect() as client,
            publisher(mosquitto) as listener,
        ):
            await listener.subscribe("devices/#", qos=2)
            async with client.producer(TOPIC) as producer:
                for number in range(500):
                    await producer.send(
                        b"%d" % number, key="a/b", attributes={"from": "test"}
                    )
                await producer.send(b"bad", key="a+b")
            async with running(declared(text, broker.url)) as until:
                await until(lambda found: found["commands"].messages == 500)
            received = []
            async for message in listener.messages:
                received.append(message)
                if len(received) == 500:
                    break
            [dead] = await messages_of(client, "/default/dead")
    assert [int(each.payload) for each in received] == list(range(500))
    assert str(received[0].topic) == "devices/a/b/sensors"
    if version == "5":
        assert received[0].properties.UserProperty == [("from", "test")]
    assert "must not have '+'" in dead.attributes["x-failure-reason"]


async def test_a_sink_waits_for_an_mqtt_broker_that_was_killed(tmp_path):
    count = 500
    with MosquittoProcess(tmp_path) as mosquitto:
        text = SINK.format(topic=TOPIC, port=mosquitto.port, version="5")
        text = text.replace('topic: "', 'retain: true, topic: "')
        async with (
            memory_broker() as broker,
            broker.connect() as client,
            running(declared(text, broker.url)) as until,
            client.producer(TOPIC) as producer,
        ):
            await producer.send(b"first", key="first")
            await until(lambda found: found["commands"].messages == 1)
            mosquitto.kill()
            for number in range(count):
                await producer.send(b"%d" % number, key=str(number))
            await until(lambda found: found["commands"].retries > 0)
            mosquitto.start()
            await until(lambda found: found["commands"].messages == 1 + count)
        # What it has acknowledged since then, it has retained.
        async with publisher(mosquitto) as listener:
            await listener.subscribe("devices/#", qos=1)
            received = set()
            async for message in listener.messages:
                received.add(int(message.payload))
                if len(received) == count:
                    break
    assert received == set(range(count))
