"""
Peers of the native server that are slow, silent, frozen or gone.

They connect and say nothing, send half a frame and wait, ask and never read, open
and close by the thousand, or vanish in the middle.  Others have to be served
meanwhile, and the broker has to forget all of them.

``python -m attack.slow_peers URL`` measures what each kind of flood does to the time
that a well-behaved publisher waits for its receipts.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pydanube
from pydanube.client.client import parse_url
from pydanube.wire.native.connection import PROTOCOL_VERSION, REVISION, StreamConnection
from pydanube.wire.native.frames import HEADER_BYTES, header
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb
from support.streams import feed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from attack.target import Target

TOPIC = "/default/attack-slow"
VISITS = 500
PEERS = 20
FRAMES = 2000
LONG_FRAME_BYTES = 1_000_000
SECONDS_PER_FLOOD = 8.0


async def attack(target: Target, chance: Random) -> None:
    """Play one kind of bad manners while a well-behaved client is served."""
    name = chance.choice(list(MANNERS))
    port = target.broker.stream_port
    peers: list[Peer] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(MANNERS[name](port, peers, chance))
            tasks.create_task(target.check())
    finally:
        for peer in peers:
            peer.vanish()


class Peer:
    """A socket that is connected by hand and does not have to behave."""

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
        """Send all of *data*, as far as the broker takes it in a while."""
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(0.5):
                await loop.sock_sendall(self.socket, data)

    async def greet(self) -> None:
        """Exchange greetings."""
        hello = pb.Hello(
            version_min=PROTOCOL_VERSION,
            version_max=PROTOCOL_VERSION,
            revision=REVISION,
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
        """The bytes of many requests."""
        return b"".join(
            self.machine.request(kind, message, channel)[1] for _ in range(FRAMES)
        )

    def vanish(self) -> None:
        """Close the socket."""
        self.socket.close()


# Manners.


async def visit(port: int, peers: list[Peer], chance: Random) -> None:
    """Connect and leave, again and again, as health checks do."""
    for _ in range(VISITS):
        peer = Peer(port)
        if chance.random() < 0.2:
            await peer.send(header(Kind.HELLO, 0, 1, 60_000) + bytes(40_000))
        peer.vanish()
        await asyncio.sleep(0)


async def say_nothing(port: int, peers: list[Peer], chance: Random) -> None:
    """Connect, and say nothing at all or nothing after the handshake."""
    for _ in range(PEERS):
        peer = Peer(port)
        peers.append(peer)
        if chance.random() < 0.5:
            await peer.greet()


async def send_half_a_frame(port: int, peers: list[Peer], chance: Random) -> None:
    """Send the beginning of a frame, and wait or vanish."""
    for _ in range(PEERS):
        peer = Peer(port)
        peers.append(peer)
        await peer.greet()
        length = chance.choice((100, 30_000, LONG_FRAME_BYTES, 8_000_000))
        frame = header(Kind.LIST_TOPICS, 0, 9, length) + bytes(length)
        await peer.send(frame[: chance.randrange(1, HEADER_BYTES + length)])


async def ask_and_never_read(port: int, peers: list[Peer], chance: Random) -> None:
    """Ask for much, and read nothing of it."""
    for _ in range(PEERS // 4):
        peer = Peer(port, receive_buffer_bytes=4096)
        peers.append(peer)
        await peer.greet()
        kind, message = chance.choice(
            [
                (Kind.PING, pb.Ping()),
                (Kind.LIST_TOPICS, pb.ListTopics()),
                (Kind.DESCRIBE_TOPIC, pb.DescribeTopic(topic="/default/attack-check")),
                (Kind.FETCH, pb.Fetch(topic="/default/attack-check", bytes_max=2**24)),
            ]
        )
        await peer.send(peer.requests(kind, message))


async def open_and_vanish(port: int, peers: list[Peer], chance: Random) -> None:
    """Open producers and consumers, and vanish before or after the answer."""
    for number in range(PEERS):
        peer = Peer(port)
        peers.append(peer)
        await peer.greet()
        producer = pb.OpenProducer(
            topic=TOPIC, name=f"p{number}", policy=pb.TopicPolicy(reliable=True)
        )
        consumer = pb.OpenConsumer(
            topic=TOPIC, subscription="s", name="c", type=pb.FAILOVER
        )
        await peer.send(
            peer.machine.request(Kind.OPEN_PRODUCER, producer, 1)[1]
            + peer.machine.request(Kind.OPEN_CONSUMER, consumer, 2)[1]
            + (
                b""
                if chance.random() < 0.5
                else peer.machine.request(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 1)[1]
            )
        )
        if chance.random() < 0.5:
            peer.vanish()


MANNERS: dict[str, Callable[[int, list[Peer], Random], Awaitable[None]]] = {
    "visit": visit,
    "say nothing": say_nothing,
    "half a frame": send_half_a_frame,
    "never read": ask_and_never_read,
    "open and vanish": open_and_vanish,
}


# Measuring.


async def flood(port: int, kind: Kind, stop: asyncio.Event) -> None:
    """Send frames of one kind as fast as the broker takes them."""
    peer = Peer(port)
    await peer.greet()
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
            case Kind.ACK:
                return peer.machine.send(kind, pb.Ack(ranges=many), 2) * 4
            case Kind.NACK:
                return peer.machine.send(kind, pb.Nack(ranges=many), 2) * 4
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
    peer.vanish()


async def wait_for_receipts(url: str, stop: asyncio.Event) -> list[float]:
    """Publish one message after the other; how long each took."""
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
    """Print, for each kind of flood, what a well-behaved publisher notices of it."""
    async with pydanube.connect(url) as client, client.producer(TOPIC) as producer:
        for _ in range(20):
            await producer.send_batch([b"m" * 100] * 1000)
    kinds = [None, Kind.PING, Kind.LOOKUP, Kind.LIST_TOPICS, Kind.DESCRIBE_TOPIC]
    kinds += [Kind.FETCH, Kind.CREDIT, Kind.ACK, Kind.NACK, Kind.SEEK]
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
    """``URL``: measure all floods; ``URL KIND``: be one of them."""
    url, *kinds = arguments
    if kinds:
        asyncio.run(flood(parse_url(url)[1], Kind[kinds[0]], asyncio.Event()))
    else:
        asyncio.run(measure(url))


if __name__ == "__main__":
    main(sys.argv[1:])
