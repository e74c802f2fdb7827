"""Strangers that connect and send much before they log in cost a broker little."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import psutil
import pytest

from pydanube.aio.tasks import gather
from pydanube.wire.native.frames import header
from pydanube.wire.native.kinds import Kind
from pydanube_broker.wire.grpc.hpack import encode_headers
from pydanube_broker.wire.grpc.http2_frames import FrameType
from support.fakes.http2_frames import REQUEST, data, frame, handshake, request
from support.servers.certificates import write_certificates
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

CONNECTIONS = 100
SENT_BYTES = 2 * 1024 * 1024
"""The bytes that a connection tries to send."""
GROWTH_BYTES_MAX = 256 * 1024
"""How much the process may grow for each connection: for what it has received, at most
64 KiB, for TLS, and for what the allocator does not give back."""
STRANGER = [each for each in REQUEST if each[0] != b":path"]
SHORT = data(1, bytes(16_000))
POST = (
    b"POST /api/v1/create_topic HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/json\r\ncontent-length: 9000000\r\n"
)


def call(path):
    return handshake() + request(1, headers=[*STRANGER, (b":path", path)])


def message(size):
    """The beginning of a gRPC message, and as much of it as is sent."""
    prefix = data(1, b"\0" + size.to_bytes(4, "big"))
    return prefix + SHORT * (min(size, SENT_BYTES) // 16_000)


FLOODS = {
    "stream, long HELLO": ("stream", header(Kind.HELLO, 0, 1, 60_000) + bytes(59_000)),
    "stream, long batch": (
        "stream",
        header(Kind.PUBLISH, 1, 0, SENT_BYTES) + bytes(SENT_BYTES),
    ),
    "grpc, refused call": (
        "grpc",
        call(b"/danube.ProducerService/SendMessage") + message(SENT_BYTES),
    ),
    "grpc, login": (
        "grpc",
        call(b"/danube.AuthService/Authenticate") + message(SENT_BYTES),
    ),
    "grpc, probe": (
        "grpc",
        call(b"/grpc.health.v1.Health/Check") + message(SENT_BYTES),
    ),
    "grpc, many calls": (
        "grpc",
        handshake() + b"".join(request(number) for number in range(1, 1999, 2)),
    ),
    "grpc, long headers": (
        "grpc",
        handshake()
        + frame(FrameType.HEADERS, 0, 1, encode_headers(REQUEST))
        + frame(FrameType.CONTINUATION, 0, 1, b"\x00\x01a\x7f\x80\x7c" + bytes(16_000))
        * (SENT_BYTES // 16_000),
    ),
    "http, long line": ("http", b"GET /" + b"a" * SENT_BYTES),
    "http, many headers": ("http", POST + (b"x: " + b"y" * 1000 + b"\r\n") * 2000),
    "http, long body": ("http", POST + b"\r\n" + bytes(SENT_BYTES)),
}


@pytest.fixture(
    scope="module", params=[pytest.param("plain", marks=pytest.mark.soak), "tls"]
)
def target(request, tmp_path_factory):
    """A broker process with security, and the context of its clients."""
    directory = tmp_path_factory.mktemp("broker")
    files = write_certificates(directory)
    settings = (
        f"security: {{enabled: true, bootstrap_key_file: {directory / 'b.key'}}}\n"
    )
    context = None
    if request.param == "tls":
        context = ssl.create_default_context(cafile=files["ca"][0])
        certificate, key = files["server"]
        settings += f"tls: {{certificate_file: {certificate}, key_file: {key}}}\n"
    file = directory / "broker.yaml"
    file.write_text(settings)
    options = "--config", str(file)
    log_file = directory / "log"
    with BrokerProcess(directory / "data", *options, log_file=log_file) as broker:
        yield broker, context


@pytest.mark.parametrize("name", FLOODS)
async def test_flood_before_login_takes_little_memory(target, name):
    broker, context = target
    listener, sent = FLOODS[name]
    port = (
        broker.http_port if listener == "http" else getattr(broker, f"{listener}_port")
    )
    writers = []

    async def flood():
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writers.append(writer)
        with suppress(ConnectionError, TimeoutError):
            writer.write(sent)
            # The broker may stop reading, or close the connection.
            async with asyncio.timeout(1):
                await writer.drain()
                await reader.read()

    process = psutil.Process(broker.pid)
    await gather(flood() for _ in range(5))
    before = process.memory_info().rss
    await gather(flood() for _ in range(CONNECTIONS))
    growth = process.memory_info().rss - before
    assert growth < CONNECTIONS * GROWTH_BYTES_MAX
    for writer in writers:
        writer.transport.abort()
