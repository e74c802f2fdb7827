"""
The MQTT listener: memory of idle clients, and messages of QoS 1 per second.

``python -m bench.mqtt_listener`` starts a broker and connects idle clients, each with a
subscription of its own.  Then devices publish messages of QoS 1 to a reliable topic,
each with a window of unacknowledged messages: first without a subscriber, and then with
one that receives everything with QoS 1.

The clients are in this process.  They count bytes instead of decoding packets, so that
the broker is measured, as far as the machine has a processor for each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil

from bench.remote_reads import say
from bench.servers import free_port
from pydanube.aio.loops import new_loop
from pydanube.aio.tasks import gather
from pydanube_cli.bench.broker_process import running_broker
from pydanube_mqtt.wire.decoding import PacketReader
from pydanube_mqtt.wire.encoding import encode, encode_ack
from pydanube_mqtt.wire.packets import (
    V311,
    Connack,
    Connect,
    PacketType,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
)

HOST = "127.0.0.1"
CONNECTING_MAX = 100
"""The most idle clients that connect at the same time."""
ACK_BYTES = 4
MIB = 1024 * 1024


class Device(asyncio.Protocol):
    """A client that publishes messages as fast as they are acknowledged."""

    def __init__(self, name: str, count: int, window: int, payload: bytes) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._left = count
        self.acknowledged = 0
        self._expected = count * ACK_BYTES
        self._hello = encode(Connect(version=V311, client_id=name), V311)
        self._window = min(window, count)
        # One packet for each identifier, made beforehand.
        self._packets = [
            encode(
                Publish(
                    topic=f"sensors/{name}/temperature",
                    payload=payload,
                    qos=1,
                    packet_id=number + 1,
                ),
                V311,
            )
            for number in range(self._window)
        ]
        self._next = 0
        self._is_connected = False
        self._unread = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = transport  # type: ignore[assignment]
        self._transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol: four bytes of CONNACK, and of each PUBACK."""
        if not self._is_connected:
            self._is_connected = True
            return
        self.acknowledged += len(data)
        self._unread += len(data)
        self.send(self._unread // ACK_BYTES)
        self._unread %= ACK_BYTES
        if self.acknowledged >= self._expected and not self.done.done():
            self.done.set_result(None)

    def begin(self) -> None:
        """Send the first window."""
        self.send(self._window)

    def send(self, count: int) -> None:
        """Send the next messages."""
        count = min(count, self._left)
        self._left -= count
        window, begin = self._window, self._next
        self._next = (begin + count) % window
        packets = self._packets[begin : begin + count]
        if begin + count > window:
            packets += self._packets[: begin + count - window]
        self._transport.write(b"".join(packets))

    def close(self) -> None:
        """Disconnect."""
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        if not self.done.done():
            self.done.set_exception(ConnectionError("the broker has disconnected"))


class Subscriber(asyncio.Protocol):
    """A client that receives and acknowledges messages."""

    def __init__(self, name: str, topic_filter: str, count: int) -> None:
        self.ready = asyncio.get_running_loop().create_future()
        self.done = asyncio.get_running_loop().create_future()
        self._name = name
        self._filter = topic_filter
        self._left = count
        self._reader = PacketReader(MIB, V311)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = transport  # type: ignore[assignment]
        hello = Connect(version=V311, client_id=self._name)
        self._transport.write(encode(hello, V311))

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._reader.add(data)
        acks = []
        for packet in self._reader.packets():
            if isinstance(packet, Publish):
                acks.append(encode_ack(PacketType.PUBACK, packet.packet_id, V311))
            elif isinstance(packet, Connack):
                options = [SubscriptionOptions(self._filter, 1)]
                request = Subscribe(packet_id=1, subscriptions=options)
                self._transport.write(encode(request, V311))
            elif isinstance(packet, Suback):
                self.ready.set_result(None)
        if acks:
            self._transport.write(b"".join(acks))
            self._left -= len(acks)
            if self._left <= 0 and not self.done.done():
                self.done.set_result(None)

    def close(self) -> None:
        """Disconnect."""
        self._transport.abort()


async def measure_idle(port: int, process: psutil.Process, count: int) -> float:
    """Return the memory in MiB by which *count* idle clients let the broker grow."""
    loop = asyncio.get_running_loop()
    before = process.memory_info().rss
    turns = asyncio.Semaphore(CONNECTING_MAX)
    clients: list[Subscriber] = []

    async def connect(number: int) -> None:
        async with turns:
            name = f"idle-{number}"
            _, client = await loop.create_connection(
                lambda: Subscriber(name, f"commands/{name}/#", 1), HOST, port
            )
            clients.append(client)
            await client.ready

    await gather(connect(number) for number in range(count))
    grown = process.memory_info().rss - before
    for client in clients:
        client.close()
    return grown / MIB


async def measure_rate(
    port: int, given: argparse.Namespace, *, delivers: bool
) -> float:
    """Return the messages per second that are published and perhaps received."""
    loop = asyncio.get_running_loop()
    share = given.messages // given.devices
    payload = bytes(given.message_bytes)
    devices: list[Device] = []
    for number in range(given.devices):
        name = f"device-{number}"
        _, device = await loop.create_connection(
            lambda name=name: Device(name, share, given.window, payload),  # type: ignore[misc]
            HOST,
            port,
        )
        devices.append(device)
    waiting = [device.done for device in devices]
    subscriber = None
    if delivers:
        _, subscriber = await loop.create_connection(
            lambda: Subscriber("all", "sensors/#", share * given.devices), HOST, port
        )
        await subscriber.ready
        waiting.append(subscriber.done)
    await asyncio.sleep(0.5)
    begun = time.perf_counter()
    for device in devices:
        device.begin()
    for each in waiting:
        await each
    taken_s = time.perf_counter() - begun
    for device in devices:
        device.close()
    if subscriber is not None:
        subscriber.close()
    return float(share * given.devices / taken_s)


async def measure(port: int, pid: int, given: argparse.Namespace) -> dict[str, float]:
    """Measure everything."""
    process = psutil.Process(pid)
    # The first messages load what the broker imports late.
    await measure_rate(
        port, argparse.Namespace(**vars(given) | {"messages": 1000}), delivers=True
    )
    found = {"idle_mib": await measure_idle(port, process, given.clients)}
    say(f"{given.clients} idle clients: {found['idle_mib']:.0f} MiB")
    for name, delivers in (("publish", False), ("publish_and_receive", True)):
        rates = []
        cpu = process.cpu_times()
        for _ in range(given.rounds):
            rates.append(await measure_rate(port, given, delivers=delivers))
            say(f"{name}: {rates[-1]:,.0f} messages/s")
        used = process.cpu_times()
        cpu_s = used.user + used.system - cpu.user - cpu.system
        found[f"{name}_per_s"] = median(rates)
        found[f"{name}_broker_us"] = cpu_s * 1e6 / (given.messages * given.rounds)
    return found


def main() -> None:
    """Measure, and print what was found as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--clients", type=int, default=10_000, help="idle ones")
    parser.add_argument("--devices", type=int, default=50, help="that publish")
    parser.add_argument("--window", type=int, default=50, help="of each device")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--message-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    port = free_port()
    settings = {
        "DANUBE_MQTT__PORT": str(port),
        "DANUBE_LISTEN__CONNECTIONS_MAX": str(given.clients + given.devices + 10),
    }
    with tempfile.TemporaryDirectory(prefix="mqtt-") as scratch:
        directory = Path(scratch)
        with (
            running_broker(directory / "data", directory / "log", settings) as broker,
            asyncio.Runner(loop_factory=new_loop) as runner,
        ):
            found = runner.run(measure(port, broker.pid, given))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
