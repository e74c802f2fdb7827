"""TLS between a transport and a protocol, without sockets."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from pydanube.aio.tls_connection import (
    ENCRYPTED_BYTES_AT_ONCE,
    HandshakeTimeoutError,
    NotTlsError,
    TlsConnection,
)
from support.fakes.transports import RecordingTransport
from support.servers.certificates import write_certificates


class Receiver(asyncio.Protocol):
    """Keeps what it receives, and pauses reading if told to."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.pauses = False
        self.transport = None
        self.losses = []

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data) -> None:
        self.received += data
        if self.pauses:
            self.transport.pause_reading()

    def connection_lost(self, exc) -> None:
        self.losses.append(exc)


class BufferedReceiver(asyncio.BufferedProtocol):
    """The same with a buffer of its own, which is smaller than a record."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.buffer = bytearray(1000)
        self.pauses = False
        self.transport = None

    def connection_made(self, transport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        if self.pauses:
            self.transport.pause_reading()


class End:
    """One end of a connection."""

    def __init__(self, protocol, context, *, timeout_s=60.0, **options) -> None:
        self.protocol = protocol
        self.outcomes = []
        self.has_outcome = asyncio.Event()
        self.transport = RecordingTransport()
        self.tls = TlsConnection(
            protocol,
            context,
            timeout_s=timeout_s,
            on_handshake=self.on_handshake,
            **options,
        )
        self.tls.connection_made(self.transport)

    def on_handshake(self, _, failure) -> None:
        self.outcomes.append(failure)
        self.has_outcome.set()

    def receive(self, data: bytes) -> None:
        while data and not self.transport.is_closed:
            buffer = self.tls.get_buffer(-1)
            count = min(len(data), len(buffer))
            buffer[:count] = data[:count]
            data = data[count:]
            self.tls.buffer_updated(count)

    def send_to(self, other: End) -> bool:
        data, self.transport.written = bytes(self.transport.written), bytearray()
        other.receive(data)
        return bool(data)


def exchange(one: End, other: End) -> None:
    """Let the ends exchange data until neither has any."""
    while one.send_to(other) | other.send_to(one):
        pass


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """The contexts of a client and a server."""
    files = write_certificates(tmp_path_factory.mktemp("certificates"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*files["server"])
    return ssl.create_default_context(cafile=files["ca"][0]), server


def ends_of(contexts, receiver):
    client = End(
        Receiver(), contexts[0], server_side=False, server_hostname="localhost"
    )
    server = End(receiver, contexts[1], server_side=True)
    exchange(client, server)
    return client, server


@pytest.mark.parametrize("kind", [Receiver, BufferedReceiver])
async def test_data_of_all_sizes_arrives(contexts, kind):
    client, server = ends_of(contexts, kind())
    assert (client.outcomes, server.outcomes) == ([None], [None])
    sent = b""
    for size in (0, 1, 999, 1000, 1001, 16_384, 16_385, ENCRYPTED_BYTES_AT_ONCE + 1):
        part = bytes([size % 251]) * size
        client.protocol.transport.write(part)
        client.protocol.transport.writelines([part, b"", part])
        sent += part * 3
    client.send_to(server)
    assert server.protocol.received == sent


async def test_paused_protocol_gets_the_rest_after_resuming(contexts):
    client, server = ends_of(contexts, Receiver())
    server.protocol.pauses = True
    client.protocol.transport.write(b"x" * 200_000)
    data = bytes(client.transport.written)
    server.receive(data[:65_536])
    first = len(server.protocol.received)
    server.receive(data[65_536:100_000])
    assert len(server.protocol.received) == first
    assert not server.transport.is_reading_now
    server.protocol.pauses = False
    server.protocol.transport.resume_reading()
    await asyncio.sleep(0)
    server.receive(data[100_000:])
    assert len(server.protocol.received) == 200_000


async def test_transport_is_read_again_when_everything_is_decrypted(contexts):
    client, server = ends_of(contexts, BufferedReceiver())
    receiver = server.protocol
    receiver.pauses = True
    client.protocol.transport.write(b"x" * 20_000)
    client.send_to(server)
    resumed = 0
    while len(receiver.received) < 20_000:
        assert len(receiver.received) == 1000 * (resumed + 1)
        # More could arrive than is decrypted.
        assert not server.transport.is_reading_now
        receiver.transport.resume_reading()
        resumed += 1
        await asyncio.sleep(0)
    receiver.pauses = False
    receiver.transport.resume_reading()
    await asyncio.sleep(0)
    assert server.transport.is_reading_now


async def test_close_ends_tls_in_good_order(contexts):
    client, server = ends_of(contexts, Receiver())
    client.protocol.transport.write(b"last words")
    client.protocol.transport.close()
    assert client.transport.is_closed
    client.send_to(server)
    await asyncio.sleep(0)
    assert server.protocol.received == b"last words"
    assert server.transport.is_closed
    assert not server.transport.is_aborted
    server.tls.connection_lost(None)
    assert server.protocol.losses == [None]


async def test_damaged_record_ends_the_connection_with_the_reason(contexts):
    client, server = ends_of(contexts, Receiver())
    client.protocol.transport.write(b"message")
    client.transport.written[-1] ^= 1
    client.send_to(server)
    assert server.transport.is_closed
    server.tls.connection_lost(None)
    (loss,) = server.protocol.losses
    assert isinstance(loss, ssl.SSLError)
    assert server.protocol.received == b""


async def test_peer_without_tls_gets_the_answer_for_it(contexts):
    server = End(Receiver(), contexts[1], server_side=True, plain_answer=b"use TLS")
    server.receive(b"GET / HTTP/1.1\r\n\r\n")
    assert server.transport.written == b"use TLS"
    assert server.transport.is_closed
    assert isinstance(server.outcomes[0], NotTlsError)
    server.tls.connection_lost(None)
    assert len(server.outcomes) == 1
    # It was never connected.
    assert server.protocol.losses == []


async def test_silent_peer_is_disconnected(contexts):
    server = End(Receiver(), contexts[1], server_side=True, timeout_s=0)
    await server.has_outcome.wait()
    assert isinstance(server.outcomes[0], HandshakeTimeoutError)
    assert server.transport.is_closed


async def test_untrusted_server_gets_an_alert(contexts):
    distrusting = ssl.create_default_context()
    client = End(
        Receiver(), distrusting, server_side=False, server_hostname="localhost"
    )
    server = End(Receiver(), contexts[1], server_side=True)
    exchange(client, server)
    assert isinstance(client.outcomes[0], ssl.SSLCertVerificationError)
    (failure,) = server.outcomes
    assert "ALERT_UNKNOWN_CA" in failure.reason
