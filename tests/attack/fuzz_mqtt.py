"""
Clients of MQTT that send packets in any order, with any values, and damaged ones.

Many of them use the same few client ids, topics and packet identifiers, so that
sessions are taken over, resumed and ended in all states.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydanube_mqtt.wire.encoding import encode
from pydanube_mqtt.wire.packets import (
    V5,
    V311,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Property,
    Publish,
    Reason,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
    Will,
)
from support.drivers.mqtt_clients import MqttClient

if TYPE_CHECKING:
    from random import Random

    from attack.target import Target

TEST_ROUNDS = 4
CLIENTS = 20
PACKETS_MAX = 60
READ_TIMEOUT_S = 0.05
TOPICS = ("a", "a/b", "a/b/c", "/", "b", "$SYS/a", "x" * 2000, "é/ü")
FILTERS = (*TOPICS, "#", "+", "a/#", "+/b", "$share/g/a/#", "$share/g/#", "a/#/b", "")
CLIENT_IDS = ("", "fuzz-1", "fuzz-2", "fuzz-3", "x" * 300, "a\tb")
ACKS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
_BYTES_MAX = 2_000_000


async def attack(target: Target, rng: Random) -> None:
    """Let clients send packets; then one behaves well and has to be served."""
    port = target.broker.mqtt_port
    assert port is not None
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            sent = b"".join(_conversation(rng))
            tasks.create_task(_send(port, sent, rng.random() < 0.5))
    await _check(port)


def _conversation(rng: Random) -> list[bytes]:
    version = rng.choice((V311, V5))
    packets: list[Packet] = [_packet(rng, version) for _ in range(_count(rng))]
    if rng.random() < 0.95:
        packets.insert(0, _connect(rng, version))
    return [_maybe_damaged(encode(each, version), rng) for each in packets]


def _count(rng: Random) -> int:
    return rng.randrange(PACKETS_MAX)


def _connect(rng: Random, version: int) -> Connect:
    client_id = rng.choice(CLIENT_IDS[:4] * 5 + CLIENT_IDS)
    properties: dict[Property, Any] = {}
    if version == V5:
        # Sessions of clients without an id would never be used again.
        if client_id and rng.random() < 0.7:
            properties[Property.SESSION_EXPIRY_INTERVAL] = rng.choice(
                (1, 60, 2**32 - 1)
            )
        if rng.random() < 0.3:
            properties[Property.RECEIVE_MAXIMUM] = rng.choice((1, 2, 65_535))
        if rng.random() < 0.2:
            properties[Property.MAXIMUM_PACKET_SIZE] = rng.choice((1, 30, 2**20))
    will = None
    if rng.random() < 0.3:
        will = Will(
            topic=rng.choice(TOPICS),
            payload=rng.randbytes(rng.randrange(20)),
            qos=rng.randrange(3),
            retain=rng.random() < 0.5,
        )
    return Connect(
        version=version,
        client_id=client_id,
        clean_start=rng.random() < 0.3,
        keep_alive_s=rng.choice((0, 1, 60)),
        will=will,
        properties=properties,
    )


def _packet(rng: Random, version: int) -> Packet:
    packet_id = rng.randrange(1, 6)
    match rng.randrange(12):
        case 0 | 1:
            found = [
                SubscriptionOptions(rng.choice(FILTERS), rng.randrange(3))
                for _ in range(rng.randint(1, 3))
            ]
            return Subscribe(packet_id=packet_id, subscriptions=found)
        case 2:
            return Unsubscribe(packet_id=packet_id, filters=[rng.choice(FILTERS)])
        case 3 | 4 | 5:
            return Ack(rng.choice(ACKS), packet_id, rng.choice(list(Reason)))
        case 6:
            others = (Ping(), Ping(PacketType.PINGRESP), Disconnect(), Connack())
            return rng.choice((*others, Auth(), _connect(rng, version)))
        case _:
            return _publish(rng, packet_id)


def _publish(rng: Random, packet_id: int) -> Publish:
    qos = rng.randrange(3)
    properties: dict[Property, Any] = {}
    if rng.random() < 0.3:
        properties[Property.TOPIC_ALIAS] = rng.choice((1, 2, 1000))
    if rng.random() < 0.2:
        properties[Property.MESSAGE_EXPIRY_INTERVAL] = rng.choice((0, 1, 2**32 - 1))
    if rng.random() < 0.2:
        properties[Property.USER_PROPERTY] = (("", ""), ("a", "\U0010ffff"))
    return Publish(
        topic=rng.choice(TOPICS),
        payload=rng.randbytes(rng.choice((0, 1, 20, 20_000))),
        qos=qos,
        retain=rng.random() < 0.3,
        is_duplicate=bool(qos) and rng.random() < 0.3,
        packet_id=packet_id if qos else 0,
        properties=properties,
    )


def _maybe_damaged(data: bytes, rng: Random) -> bytes:
    if rng.random() > 0.03:
        return data
    damaged = bytearray(data)
    at = rng.randrange(len(damaged))
    damaged[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    return bytes(damaged)


async def _send(port: int, sent: bytes, reads: bool) -> None:
    """Send everything at once; some clients never read what they are sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError, TimeoutError):
        writer.write(sent)
        async with asyncio.timeout(READ_TIMEOUT_S):
            await writer.drain()
            while reads and await reader.read(_BYTES_MAX):
                pass
    writer.transport.abort()


async def _check(port: int) -> None:
    """Publish and receive as a client that behaves well."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        client = MqttClient(reader, writer, V5)
        assert (await client.connect("check")).reason is Reason.SUCCESS
        assert await client.subscribe("check/#", qos=2) == [Reason.GRANTED_QOS_2]
        assert await client.publish("check/1", b"x", qos=2) == Reason.SUCCESS
        assert (await client.take()).payload == b"x"
    finally:
        writer.transport.abort()
