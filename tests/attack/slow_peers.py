"""
Peers of the native server that are slow, silent, frozen or gone.

They connect and send nothing, send half a frame, never read the answers, connect and
disconnect hundreds of times, or disconnect in the middle.  Meanwhile the broker must
serve others, and in the end it must free the memory of all these peers.

``python -m attack.slow_peers URL`` measures the latency of a well-behaved publisher
beside each kind of flood.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pydanube
from pydanube.client.connections.urls import parse_url
from pydanube.wire.native.connection import REVISION, StreamConnection
from pydanube.wire.native.frames import HEADER_BYTES, header
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb
from support.fakes.streams import feed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from attack.target import Target

TOPIC = "/default/attack-slow"
CONNECTIONS = 500
PEERS = 20
FRAMES = 2000
LONG_FRAME_BYTES = 1_000_000
SECONDS_PER_FLOOD = 8.0


async def attack(target: Target, rng: Random) -> None:
    """Run one behaviour beside a well-behaved client."""
    name = rng.choice(list(BEHAVIOURS))
    port = target.broker.stream_port
    peers: list[Peer] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(BEHAVIOURS[name](port, peers, rng))
            tasks.create_task(target.check())
    finally:
        for peer in peers:
            peer.disconnect()


class Peer:
    """A connected socket with the client's side of the protocol."""

    def __init__(self, port: int, *, receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes
            )
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.machine = StreamConnection(Side.CLIENT)

    async def send(self, data: bytes) -> None:
        """Send *data*, or the part that the broker reads within half a second."""
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(0.5):
                await loop.sock_sendall(self.socket, data)

    async def handshake(self) -> None:
        """Do the handshake."""
        hello = pb.Hello(
            revision_min=REVISION,
            revision_max=REVISION,
        )
        await self.ask(Kind.HELLO, hello)

    async def ask(self, kind: Kind, message: Any, channel: int = 0) -> Any:
        """Send a request and wait for its answer."""
        loop = asyncio.get_running_loop()
        _, data = self.machine.request(kind, message, channel)
        await loop.sock_sendall(self.socket, data)
        while not (frames := feed(self.machine, await self._read())):
            pass
        return frames[0]

    async def _read(self) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self.socket, 65536)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        return data

    def requests(self, kind: Kind, message: Any, channel: int = 0) -> bytes:
        """Return the bytes of ``FRAMES`` requests."""
        return b"".join(
            self.machine.request(kind, message, channel)[1] for _ in range(FRAMES)
        )

    def disconnect(self) -> None:
        """Close the socket."""
        self.socket.close()


# Behaviours.


async def connect_and_disconnect(port: int, peers: list[Peer], rng: Random) -> None:
    """Connect and disconnect repeatedly, like health checks."""
    for _ in range(CONNECTIONS):
        peer = Peer(port)
        if rng.random() < 0.2:
            await peer.send(header(Kind.HELLO, 0, 1, 60_000) + bytes(40_000))
        peer.disconnect()
        await asyncio.sleep(0)


async def stay_silent(port: int, peers: list[Peer], rng: Random) -> None:
    """Connect, and send nothing at all or nothing after the handshake."""
    for _ in range(PEERS):
        peer = Peer(port)
        peers.append(peer)
        if rng.random() < 0.5:
            await peer.handshake()


async def send_half_a_frame(port: int, peers: list[Peer], rng: Random) -> None:
    """Send the beginning of a frame, and wait or disconnect."""
    for _ in range(PEERS):
        peer = Peer(port)
        peers.append(peer)
        await peer.handshake()
        length = rng.choice((100, 30_000, LONG_FRAME_BYTES, 8_000_000))
        frame = header(Kind.LIST_TOPICS, 0, 9, length) + bytes(length)
        await peer.send(frame[: rng.randrange(1, HEADER_BYTES + length)])


async def never_read(port: int, peers: list[Peer], rng: Random) -> None:
    """Send requests with large answers, and read nothing."""
    for _ in range(PEERS // 4):
        peer = Peer(port, receive_buffer_bytes=4096)
        peers.append(peer)
        await peer.handshake()
        kind, message = rng.choice(
            [
                (Kind.PING, pb.Ping()),
                (Kind.LIST_TOPICS, pb.ListTopics()),
                (Kind.DESCRIBE_TOPIC, pb.DescribeTopic(topic="/default/attack-check")),
                (Kind.FETCH, pb.Fetch(topic="/default/attack-check", bytes_max=2**24)),
            ]
        )
        await peer.send(peer.requests(kind, message))


async def open_and_disconnect(port: int, peers: list[Peer], rng: Random) -> None:
    """Open producers and consumers, and disconnect before or after the answer."""
    for number in range(PEERS):
        peer = Peer(port)
        peers.append(peer)
        await peer.handshake()
        producer = pb.OpenProducer(
            topic=TOPIC, name=f"p{number}", policy=pb.TopicPolicy()
        )
        consumer = pb.OpenConsumer(
            topic=TOPIC, subscription="s", name="c", type=pb.FAILOVER
        )
        await peer.send(
            peer.machine.request(Kind.OPEN_PRODUCER, producer, 1)[1]
            + peer.machine.request(Kind.OPEN_CONSUMER, consumer, 2)[1]
            + (
                b""
                if rng.random() < 0.5
                else peer.machine.request(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 1)[1]
            )
        )
        if rng.random() < 0.5:
            peer.disconnect()


BEHAVIOURS: dict[str, Callable[[int, list[Peer], Random], Awaitable[None]]] = {
    "connect and disconnect": connect_and_disconnect,
    "stay silent": stay_silent,
    "half a frame": send_half_a_frame,
    "never read": never_read,
    "open and disconnect": open_and_disconnect,
}


# Measuring.


async def flood(port: int, kind: Kind, stop: asyncio.Event) -> None:
    """Send frames of one kind as fast as the broker reads them."""
    peer = Peer(port)
    await peer.handshake()
    await peer.ask(
        Kind.OPEN_CONSUMER, pb.OpenConsumer(topic=TOPIC, subscription="f", name="c"), 2
    )
    many = pb.OffsetRanges(base=range(0, 200_000, 2), end=range(1, 200_001, 2))
    loop = asyncio.get_running_loop()

    async def read() -> None:
        with suppress(OSError):
            while data := await loop.sock_recv(peer.socket, 1 << 18):
                del data

    def data_of(turn: int) -> bytes:
        match kind:
            case Kind.CREDIT:
                return peer.machine.send(kind, pb.Credit(messages=1), 2) * FRAMES
            case Kind.ACK | Kind.NACK | Kind.EXTEND | Kind.RELEASE:
                assert kind.body is not None
                return peer.machine.send(kind, kind.body(ranges=many), 2) * 4
            case Kind.SEEK:
                return peer.requests(kind, pb.Seek(offset=0), 2)
            case Kind.OPEN_PRODUCER:
                return b"".join(
                    peer.machine.request(
                        kind,
                        pb.OpenProducer(
                            topic=TOPIC, name=f"p{turn}-{channel}", is_anonymous=True
                        ),
                        channel,
                    )[1]
                    for channel in range(10 + turn * 250, 260 + turn * 250)
                )
            case _:
                message: Any = {
                    Kind.PING: pb.Ping(),
                    Kind.LOOKUP: pb.Lookup(topic=TOPIC),
                    Kind.LIST_TOPICS: pb.ListTopics(),
                    Kind.DESCRIBE_TOPIC: pb.DescribeTopic(topic=TOPIC),
                    Kind.FETCH: pb.Fetch(topic=TOPIC, bytes_max=2**20),
                }[kind]
                return peer.requests(kind, message)

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        turn = 0
        with suppress(ConnectionError):
            while not stop.is_set():
                await loop.sock_sendall(peer.socket, data_of(turn % 200))
                peer.machine._pending_requests.clear()
                turn += 1
        reading.cancel()
    peer.disconnect()


async def wait_for_receipts(url: str, stop: asyncio.Event) -> list[float]:
    """Publish one message at a time; return the sorted latencies."""
    latencies = []
    async with (
        pydanube.connect(url) as client,
        client.producer("/default/attack-measured") as producer,
    ):
        while not stop.is_set():
            begun = time.perf_counter()
            await producer.send(b"m" * 100)
            latencies.append(time.perf_counter() - begun)
            await asyncio.sleep(0.002)
    return sorted(latencies)


async def measure(url: str) -> None:
    """Print the latency of a well-behaved publisher beside each kind of flood."""
    async with pydanube.connect(url) as client, client.producer(TOPIC) as producer:
        for _ in range(20):
            await producer.send_batch([b"m" * 100] * 1000)
    kinds = [None, Kind.PING, Kind.LOOKUP, Kind.LIST_TOPICS, Kind.DESCRIBE_TOPIC]
    kinds += [
        Kind.FETCH,
        Kind.CREDIT,
        Kind.ACK,
        Kind.NACK,
        Kind.EXTEND,
        Kind.RELEASE,
        Kind.SEEK,
    ]
    kinds += [Kind.OPEN_PRODUCER, None]
    for kind in kinds:
        stop = asyncio.Event()
        flooding = []
        if kind is not None:
            flooding = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "attack.slow_peers", url, kind.name),
                )
            ]
            await asyncio.sleep(2.0)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(wait_for_receipts(url, stop))
            await asyncio.sleep(SECONDS_PER_FLOOD)
            stop.set()
        for process in flooding:
            # A flood may have ended when the broker closed its connection.
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        found = waiting.result()
        p50, p99 = (1000 * found[int(len(found) * part)] for part in (0.5, 0.99))
        sys.stdout.write(
            f"{kind.name if kind else 'nobody':16} {len(found):6} messages   "
            f"p50 {p50:7.1f} ms   p99 {p99:7.1f} ms   max {1000 * found[-1]:7.1f} ms\n"
        )
        sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """``URL``: measure beside all floods; ``URL KIND``: run one flood."""
    url, *kinds = arguments
    if kinds:
        asyncio.run(flood(parse_url(url)[1], Kind[kinds[0]], asyncio.Event()))
    else:
        asyncio.run(measure(url))


if __name__ == "__main__":
    main(sys.argv[1:])
