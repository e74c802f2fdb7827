"""Brokers with an MQTT listener, and a client of it that sends any packet."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace

import pytest

from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import ListenConfig, config_type
from pydanube_mqtt.config import MqttConfig
from pydanube_mqtt.rule_config import MqttRule
from pydanube_mqtt.wire.decoding import PacketReader
from pydanube_mqtt.wire.encoding import encode
from pydanube_mqtt.wire.packets import (
    V5,
    V311,
    Ack,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Ping,
    Property,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
)
from support.servers.processes import BrokerProcess

DEFAULT_TOPIC = "/default/mqtt"
VERSIONS = pytest.mark.parametrize("version", [V311, V5])
TIMEOUT_S = 60.0
AN_HOUR = {Property.SESSION_EXPIRY_INTERVAL: 3600}
PACKET_BYTES_MAX = 1 << 24


def rule(topic_filter, topic, **more):
    return MqttRule(filter=topic_filter, topic=topic, **more)


@asynccontextmanager
async def mqtt_broker(directory, *, listen=None, **mqtt):
    """Run a broker in this process with an MQTT listener."""
    config = config_type()(
        data_dir=directory / "data",
        listen=ListenConfig(
            **{"stream_port": 0, "grpc_port": 0, "admin_port": 0, "http_port": 0}
            | (listen or {})
        ),
        mqtt=MqttConfig(**{"port": 0} | mqtt),
    )
    async with serve(config) as broker:
        yield broker


@contextmanager
def mqtt_processes(directory, count, *, tls=None, **mqtt):
    """Run a broker with several processes that share a port for MQTT."""
    settings = directory / "settings.json"
    settings.write_text(
        json.dumps(
            {"cluster": {"shards": 8}, "mqtt": {"port": 0} | mqtt, "tls": tls or {}}
        )
    )
    with BrokerProcess(
        directory / "data",
        *("--processes", str(count), "--config", str(settings)),
        log_file=directory / "broker.log",
    ) as process:
        yield SimpleNamespace(
            listener_urls={"mqtt": f"mqtt://127.0.0.1:{process.mqtt_port}"},
            stream_url=process.url,
            children=process.children,
        )
        assert process.stop() == 0


@asynccontextmanager
async def mqtt_broker_of(directory, count):
    """Run a broker with *count* processes."""
    if count == 1:
        async with mqtt_broker(directory) as broker:
            yield broker
        return
    with mqtt_processes(directory, count) as broker:
        yield broker


def port_of(broker) -> int:
    return int(broker.listener_urls["mqtt"].rpartition(":")[2])


class Closed(Exception):
    """The broker has closed the connection."""


class MqttClient:
    """A client that sends and receives packets, and does nothing by itself."""

    def __init__(self, reader, writer, version) -> None:
        self.version = version
        self._stream = reader
        self._writer = writer
        self._reader = PacketReader(PACKET_BYTES_MAX, version)
        self._received = []
        self._last_id = 0

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def send(self, packet) -> None:
        self._writer.write(encode(packet, self.version))

    def send_bytes(self, data) -> None:
        self._writer.write(data)

    async def receive(self):
        """Return the next packet."""
        async with asyncio.timeout(TIMEOUT_S):
            while not self._received:
                try:
                    data = await self._stream.read(65_536)
                except ConnectionError:
                    data = b""
                if not data:
                    raise Closed
                self._reader.add(data)
                self._received += self._reader.packets()
        return self._received.pop(0)

    async def expect(self, kind):
        """Return the next packet, which must be of this class."""
        packet = await self.receive()
        assert isinstance(packet, kind), packet
        return packet

    async def connect(self, client_id="", **fields):
        self.send(Connect(version=self.version, client_id=client_id, **fields))
        return await self.expect(Connack)

    async def subscribe(self, *filters, qos=0, properties=None, **options):
        request = Subscribe(
            packet_id=self.new_id(),
            subscriptions=[
                SubscriptionOptions(each, qos, **options) for each in filters
            ],
            properties=properties or {},
        )
        self.send(request)
        answer = await self.expect(Suback)
        assert answer.packet_id == request.packet_id
        return answer.reasons

    async def unsubscribe(self, *filters):
        self.send(Unsubscribe(packet_id=self.new_id(), filters=list(filters)))
        return (await self.expect(Unsuback)).reasons

    async def publish(self, topic, payload=b"", qos=1, **fields):
        """Publish and return the reason when the exchange is complete."""
        packet_id = self.new_id() if qos else 0
        self.send(
            Publish(
                topic=topic, payload=payload, qos=qos, packet_id=packet_id, **fields
            )
        )
        if not qos:
            return None
        answer = await self._find_ack(packet_id)
        if qos == 2 and answer.reason < 0x80:
            assert answer.type is PacketType.PUBREC
            self.send(Ack(PacketType.PUBREL, packet_id))
            answer = await self._find_ack(packet_id)
            assert answer.type is PacketType.PUBCOMP
        return answer.reason

    async def _find_ack(self, packet_id):
        """Return the next acknowledgement; messages may come before it."""
        messages = []
        while isinstance(packet := await self.receive(), Publish):
            messages.append(packet)
        self._received[:0] = messages
        assert isinstance(packet, Ack), packet
        assert packet.packet_id == packet_id
        return packet

    async def take(self):
        """Return the next message, after acknowledging it."""
        packet = await self.expect(Publish)
        if packet.qos == 1:
            self.send(Ack(PacketType.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self.send(Ack(PacketType.PUBREC, packet.packet_id))
            release = await self.expect(Ack)
            assert release.type is PacketType.PUBREL
            self.send(Ack(PacketType.PUBCOMP, packet.packet_id))
        return packet

    async def ends(self):
        """Wait until the broker closes the connection; return what came before."""
        packets = []
        try:
            while True:
                packets.append(await self.receive())
        except Closed:
            return packets

    async def disconnect(self, **fields):
        self.send(Disconnect(**fields))
        return await self.ends()

    def abort(self) -> None:
        """Lose the connection."""
        self._writer.transport.abort()


@asynccontextmanager
async def mqtt_client(broker, client_id=None, *, version=V5, tls=None, **fields):
    """Connect a client; with a *client_id* it has sent CONNECT."""
    options = {}
    if tls is not None:
        options = {"ssl": tls, "server_hostname": "localhost"}
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port_of(broker), **options
    )
    client = MqttClient(reader, writer, version)
    try:
        if client_id is not None:
            client.answer = await client.connect(client_id, **fields)
            assert client.answer.reason == 0, client.answer
        yield client
    finally:
        writer.transport.abort()


def trusting(ca_file, *files) -> ssl.SSLContext:
    """The TLS of a client that trusts *ca_file*, perhaps with a certificate."""
    context = ssl.create_default_context(cafile=ca_file)
    if files:
        context.load_cert_chain(*files)
    return context


def persistent(version):
    """The fields of CONNECT with which a session outlives its connection."""
    return {
        "version": version,
        "clean_start": False,
        "properties": AN_HOUR if version == V5 else {},
    }


async def take(client, count):
    return [(await client.take()).payload for _ in range(count)]


async def quiet(client):
    """Assert that nothing came for the client: only the answer to a ping comes."""
    client.send(Ping())
    assert await client.receive() == Ping(PacketType.PINGRESP)
