"""A broker is killed while devices publish and subscribe; nothing promised is lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

import pydanube
from pydanube_mqtt.wire.packets import (
    V5,
    Ack,
    PacketType,
    Property,
    Publish,
    Reason,
)
from support.drivers.mqtt_clients import Closed, MqttClient
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KILLS = 4
MESSAGES_PER_LIFE = 150
WINDOW = 20
SESSION = {
    "clean_start": False,
    "properties": {Property.SESSION_EXPIRY_INTERVAL: 3600},
}


@asynccontextmanager
async def connected(broker, client_id):
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.mqtt_port)
    client = MqttClient(reader, writer, V5)
    try:
        answer = await client.connect(client_id, **SESSION)
        assert answer.reason is Reason.SUCCESS
        client.answer = answer
        yield client
    finally:
        writer.transport.abort()


class Publisher:
    """A device that publishes numbers, and again those that were not acknowledged."""

    def __init__(self) -> None:
        self.acknowledged = set()
        self._unacknowledged = []
        self._next = 0

    async def run(self, broker, count):
        """Publish until *count* more are acknowledged, or the broker ends."""
        enough = len(self.acknowledged) + count
        try:
            async with connected(broker, "publisher") as client:
                sent = {}
                while len(self.acknowledged) < enough:
                    while len(sent) < WINDOW:
                        number = self._take()
                        packet_id = client.new_id()
                        sent[packet_id] = number
                        self._unacknowledged.append(number)
                        client.send(
                            Publish(
                                topic=f"numbers/{number % 7}",
                                payload=str(number).encode(),
                                qos=1,
                                packet_id=packet_id,
                            )
                        )
                    answer = await client.expect(Ack)
                    assert answer.reason is Reason.SUCCESS
                    number = sent.pop(answer.packet_id)
                    self._unacknowledged.remove(number)
                    self.acknowledged.add(number)
        except (Closed, ConnectionError):
            pass

    def _take(self):
        self._next += 1
        return self._next


class Subscriber:
    """A device with a session, which acknowledges what it receives."""

    def __init__(self) -> None:
        self.received = set()

    async def subscribe(self, broker):
        async with connected(broker, "subscriber") as client:
            assert await client.subscribe("numbers/+", qos=1) == [Reason(1)]

    async def run(self, broker, until):
        """Receive until *until* returns True, or the broker ends."""
        try:
            async with connected(broker, "subscriber") as client:
                assert client.answer.session_present
                while not until():
                    packet = await client.expect(Publish)
                    self.received.add(int(packet.payload))
                    client.send(Ack(PacketType.PUBACK, packet.packet_id))
        except (Closed, ConnectionError):
            pass


async def test_sessions_get_everything_that_was_acknowledged(tmp_path):
    rng = random.Random(7)
    publisher, subscriber = Publisher(), Subscriber()
    broker = BrokerProcess(tmp_path / "data", "--mqtt-port", "0")
    with broker:
        await subscriber.subscribe(broker)
        for _ in range(KILLS):
            count = rng.randrange(MESSAGES_PER_LIFE)
            async with asyncio.TaskGroup() as tasks:
                receiving = tasks.create_task(
                    subscriber.run(broker, until=lambda: False)
                )
                await publisher.run(broker, count)
                # The last window is on its way.
                broker.kill()
                await receiving
            await asyncio.to_thread(broker.start)
        await publisher.run(broker, 10)
        await subscriber.run(
            broker, until=lambda: publisher.acknowledged <= subscriber.received
        )
        async with pydanube.connect(broker.url) as client:
            stored = {
                int(each.payload)
                async for batch in client.read("/default/mqtt")
                for each in batch
            }
    assert publisher.acknowledged <= stored


async def test_the_state_survives_a_kill(tmp_path):
    with BrokerProcess(tmp_path / "data", "--mqtt-port", "0") as broker:
        async with connected(broker, "device") as client:
            await client.subscribe("a/#", "$share/g/b", qos=1)
            await client.publish("kept", b"x", retain=True)
            await client.disconnect()
        async with connected(broker, "other") as client:
            await client.publish("a/1", b"1")
            await client.publish("b", b"2")
        broker.kill()
        await asyncio.to_thread(broker.start)
        async with connected(broker, "device") as client:
            assert client.answer.session_present
            received = {(await client.take()).payload for _ in range(2)}
            assert received == {b"1", b"2"}
            await client.subscribe("kept")
            assert (await client.take()).payload == b"x"
