"""
Floods of HTTP/2 frames on the gRPC server, beside a well-behaved publisher.

Each round runs one flood with a bounded number of bytes.  The publisher must make
progress meanwhile, and the server must close the connection of every flood that does
not advance a request.  ``python -m attack.http2_abuse`` measures the latency of the
publisher beside each flood, which reconnects whenever the server closes its connection.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path
from select import select
from typing import TYPE_CHECKING

from attack.target import running_target
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.wire.grpc.hpack import encode_headers
from pydanube_broker.wire.grpc.http2_frames import FrameType
from support.drivers.danube_calls import DanubeCalls
from support.fakes.grpc_calls import connected
from support.fakes.http2_frames import (
    ACK,
    END_HEADERS,
    PADDED,
    data,
    frame,
    handshake,
    request,
    reset,
    settings,
    window,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from attack.target import Target

TEST_ROUNDS = 4
TOPIC = "/default/http2-abuse"
FLOOD_BYTES = 8 * 1024 * 1024
READ_BYTES = 64 * 1024
MESSAGES_MIN = 10
"""The number of messages that the publisher must send during the flood, and again after
it."""
TIMEOUT_S = 60.0
MEASURED_S = 4.0

PATH = (b":path", b"/danube.Discovery/TopicLookup")
CALL = [
    *((b":method", b"POST"), (b":scheme", b"http"), PATH),
    (b"content-type", b"application/grpc"),
]


def call(stream: int) -> bytes:
    """Return a complete request for a lookup."""
    body = pb.TopicLookupRequest(topic=TOPIC).SerializeToString()
    body = b"\0" + struct.pack(">I", len(body)) + body
    return request(stream, headers=CALL) + data(stream, body, ends=True)


def numbered(one: Callable[[int], bytes], count: int) -> bytes:
    """Return the bytes of *one* for each of *count* streams."""
    return b"".join(one(2 * number + 1) for number in range(count))


def thrash(stream: int) -> bytes:
    """Return headers that each replace one in the peer's table."""
    block = encode_headers(CALL) + b"".join(
        b"\x40\x01%c\x03%03d" % (97 + at % 26, (stream + at) % 1000)
        for at in range(500)
    )
    return frame(FrameType.HEADERS, END_HEADERS, stream, block)


def bomb(stream: int) -> bytes:
    """Return a short block that expands to many headers."""
    first = b"\x40\x01a\x01b" if stream == 1 else b""
    block = encode_headers(CALL) + first + b"\xbe" * 900
    return frame(FrameType.HEADERS, END_HEADERS, stream, block) + reset(stream)


def pieces(stream: int) -> bytes:
    """Return headers in frames of one byte."""
    block = encode_headers(CALL)
    middle = b"".join(
        frame(FrameType.CONTINUATION, 0, stream, block[at : at + 1])
        for at in range(1, len(block) - 1)
    )
    last = frame(FrameType.CONTINUATION, END_HEADERS, stream, block[-1:])
    return (
        frame(FrameType.HEADERS, 0, stream, block[:1]) + middle + last + reset(stream)
    )


def _long(one: bytes) -> bytes:
    return one * (FLOOD_BYTES // len(one))


OPEN = request(1, headers=CALL)
PING = frame(FrameType.PING, 0, 0, bytes(8))
BLOCKED = numbered(call, 900)
"""Calls whose answers wait if the peer's window is 0."""

FLOODS: dict[str, Callable[[], bytes]] = {
    "unknown frames": lambda: _long(frame(0xAB, 0, 7)),
    "empty data": lambda: OPEN + _long(data(1, b"")),
    "short data": lambda: OPEN + _long(data(1, b"\0\0")),
    "padded data": lambda: OPEN + _long(frame(FrameType.DATA, PADDED, 1, b"\3\0\0\0")),
    "priorities": lambda: _long(frame(FrameType.PRIORITY, 0, 9, bytes(5))),
    "window updates": lambda: OPEN + _long(window(1, 1)),
    "window updates with answers waiting": lambda: (
        settings(window=0) + BLOCKED + _long(window(0, 1))
    ),
    "settings": lambda: BLOCKED + _long(settings(window=10) + settings(window=20)),
    "long settings": lambda: (
        BLOCKED
        + _long(
            frame(FrameType.SETTINGS, 0, 0, struct.pack(">HIHI", 4, 10, 4, 20) * 1300)
        )
    ),
    "acknowledged settings": lambda: _long(frame(FrameType.SETTINGS, ACK)),
    "pings": lambda: _long(PING),
    "answered pings": lambda: _long(frame(FrameType.PING, ACK, 0, bytes(8))),
    "rapid resets": lambda: numbered(lambda n: call(n) + reset(n), 60_000),
    "requests without an end": lambda: numbered(
        lambda n: request(n, headers=CALL), 100_000
    ),
    "continuations": lambda: numbered(pieces, 10_000),
    "table thrash": lambda: numbered(thrash, 2_000),
    "header bomb": lambda: numbered(bomb, 8_000),
}


class Flood(threading.Thread):
    """Sends bytes on its own connection until the broker closes it."""

    def __init__(self, port: int, sent: bytes, *, again: bool = False) -> None:
        super().__init__(name="flood")
        self.was_closed = False
        self.connections = 0
        self.error: OSError | None = None
        self._port = port
        self._sent = sent
        self._again = again
        self._is_stopping = False

    def __enter__(self) -> Flood:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self.join()

    def run(self) -> None:
        while not self._is_stopping:
            try:
                self._flood()
            except OSError as error:
                # The broker closed the connection while bytes were in transit.
                self.was_closed = True
                self.error = error
            if not self._again:
                return

    def _flood(self) -> None:
        self.connections += 1
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(handshake() + frame(FrameType.SETTINGS, ACK))
            left = memoryview(self._sent)
            give_up_at = time.monotonic() + TIMEOUT_S / 2
            # The system may buffer all bytes before the broker closes the connection.
            while not self._is_stopping and (left or time.monotonic() < give_up_at):
                writing = [connection] if left else []
                readable, writable, _ = select([connection], writing, [], 1.0)
                if readable and not connection.recv(2**20):
                    self.was_closed = True
                    return
                if writable:
                    left = left[connection.send(left[:READ_BYTES]) :]


@asynccontextmanager
async def publisher(port: int):
    """Open a publisher on its own connection; yield a function that sends a message."""
    async with connected(port) as caller:
        calls = DanubeCalls(caller)
        await calls.create_producer("abuse", TOPIC)

        async def send() -> None:
            message = calls.message(b"x" * 100, "abuse", TOPIC)
            await caller("danube.ProducerService/SendMessage", message)

        yield send


async def attack(target: Target, rng: random.Random) -> None:
    """Run one flood beside a publisher, which must make progress."""
    name = rng.choice(list(FLOODS))
    port = target.broker.grpc_port
    async with asyncio.timeout(TIMEOUT_S), publisher(port) as send:
        with Flood(port, FLOODS[name]()) as flood:
            for _ in range(MESSAGES_MIN):
                await send()
            while flood.is_alive():
                await send()
        for _ in range(MESSAGES_MIN):
            await send()
    assert flood.was_closed, f"{name}: the broker accepted {FLOOD_BYTES} bytes"


async def _latencies_s(send, seconds: float) -> list[float]:
    latencies = []
    end = time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        await send()
        latencies.append(time.monotonic() - start)
    return sorted(latencies)


async def _measure(target: Target) -> None:
    port = target.broker.grpc_port
    async with publisher(port) as send:
        for name in ["", *FLOODS, ""]:
            flood = _start_flood(port, name)
            await asyncio.sleep(1.0)
            before = _closed(target)
            latencies = await _latencies_s(send, MEASURED_S)
            flood.kill()
            flood.wait()
            p50, p99 = (latencies[int(len(latencies) * at)] for at in (0.5, 0.99))
            sys.stdout.write(
                f"{name or 'nothing':36} {len(latencies):6} messages, "
                f"p50 {p50 * 1e3:7.1f} ms, p99 {p99 * 1e3:7.1f} ms, "
                f"max {latencies[-1] * 1e3:7.1f} ms, "
                f"{_closed(target) - before:5} connections closed\n"
            )
            sys.stdout.flush()


def _start_flood(port: int, name: str) -> subprocess.Popen[bytes]:
    """Start the flood *name* in a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "attack.http2_abuse", str(port), name]
    )


def _closed(target: Target) -> int:
    """Return the number of connections that the broker closed as hostile."""
    assert target.broker.log_file is not None
    return target.broker.log_file.read_bytes().count(b"closing the connection")


def main() -> int:
    """Print the publisher's latency beside each flood."""
    if arguments := sys.argv[1:]:
        port, name = arguments
        if not name:
            return 0
        flood = Flood(int(port), FLOODS[name](), again=True)
        flood.run()
        return 0
    with (
        tempfile.TemporaryDirectory() as directory,
        running_target(Path(directory)) as target,
    ):
        asyncio.run(_measure(target))
        sys.stdout.write(f"memory {target.memory_bytes() / 1e6:.0f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
