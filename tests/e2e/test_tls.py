"""TLS on all ports of a broker: clients that may connect, and all others."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import asynccontextmanager
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest

import pydanube
from pydanube.client.connections.broker_pool import BrokerPool
from pydanube.client.connections.credentials import NO_CREDENTIALS
from pydanube.client.connections.tls import ClientTls
from pydanube.model.url_options import UrlOptions
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import (
    BrokerConfig,
    ListenConfig,
    TlsConfig,
)
from support.drivers.running import published
from support.servers.certificates import AN_END_IN_THE_PAST, write_certificates

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/orders"
PLAIN_REFUSED = "this port accepts only TLS"


@asynccontextmanager
async def running(directory, files=None, **tls):
    """Run a broker in this process, with TLS if it has *files*."""
    if files is not None:
        certificate, key = map(str, files["server"])
        tls |= {"certificate_file": certificate, "key_file": key}
    config = BrokerConfig(
        data_dir=directory / "data",
        listen=ListenConfig(stream_port=0, grpc_port=0, admin_port=0, http_port=0),
        tls=TlsConfig(**tls),
    )
    async with serve(config) as broker:
        yield broker


@pytest.fixture
def files(tmp_path):
    return write_certificates(tmp_path)


@pytest.fixture
async def broker(tmp_path, files):
    async with running(tmp_path, files) as broker:
        yield broker


@pytest.fixture
async def strict_broker(tmp_path, files):
    """A broker that requires certificates of clients."""
    settings = {
        "client_ca_file": str(files["ca"][0]),
        "client_certificates": "required",
    }
    async with running(tmp_path, files, **settings) as broker:
        yield broker


async def exchange(url, **options):
    """Publish messages of many sizes, and read them back."""
    payloads = [bytes([n % 256]) * n * n for n in range(300)] + [b"x" * 3_000_000]
    async with pydanube.connect(url, **options) as client:
        async with client.producer(TOPIC) as producer:
            for each in payloads:
                producer.send_nowait(each)
            await producer.flush()
        batches = [batch async for batch in client.read(TOPIC)]
        assert [each for batch in batches for each in batch.payloads] == payloads
        async with client.consumer(
            TOPIC, subscription="s", start="earliest"
        ) as consumer:
            for each in payloads:
                message = await consumer.receive()
                assert message.payload == each
                await consumer.ack(message)


async def refusal(url, kind, **options):
    with pytest.raises(kind) as caught:
        async with pydanube.connect(url, **options):
            pass
    return str(caught.value)


async def test_messages_are_produced_and_consumed_over_tls(broker, files):
    assert broker.stream_url.startswith("danubes://")
    await exchange(broker.stream_url, ca_file=files["ca"][0])


async def test_options_in_the_url_are_enough(broker, files):
    url = f"{broker.stream_url}?ca_file={files['ca'][0]}"
    async with pydanube.connect(url) as client:
        await published(client, b"a")


async def test_broker_of_another_authority_is_refused(broker, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    ca_file = write_certificates(other)["ca"][0]
    error = await refusal(broker.stream_url, pydanube.Unauthenticated, ca_file=ca_file)
    assert "is not trusted" in error
    assert "set ca_file" in error


async def test_broker_with_an_expired_certificate_is_refused(tmp_path):
    files = write_certificates(tmp_path, end=AN_END_IN_THE_PAST)
    async with running(tmp_path, files) as broker:
        error = await refusal(
            broker.stream_url, pydanube.Unauthenticated, ca_file=files["ca"][0]
        )
    assert "the broker's certificate has expired" in error


async def test_broker_with_another_name_is_refused_without_server_name(broker, files):
    options = {"ca_file": files["ca"][0]}
    error = await refusal(
        *(broker.stream_url, pydanube.Unauthenticated),
        **options,
        server_name="broker.example",
    )
    assert "for another name" in error
    assert "server_name" in error
    async with pydanube.connect(
        broker.stream_url, **options, server_name="localhost"
    ) as client:
        await published(client, b"a")


async def test_client_without_a_required_certificate_is_refused(strict_broker, files):
    error = await refusal(
        strict_broker.stream_url, pydanube.Unauthenticated, ca_file=files["ca"][0]
    )
    assert "requires a client certificate" in error


async def test_client_with_a_required_certificate_connects(strict_broker, files):
    certificate_file, key_file = files["client"]
    await exchange(
        strict_broker.stream_url,
        ca_file=files["ca"][0],
        certificate_file=certificate_file,
        key_file=key_file,
    )


async def test_client_with_a_certificate_of_another_authority_is_refused(
    strict_broker, files, tmp_path
):
    other = tmp_path / "other"
    other.mkdir()
    certificate_file, key_file = write_certificates(other)["client"]
    error = await refusal(
        strict_broker.stream_url,
        pydanube.Unauthenticated,
        ca_file=files["ca"][0],
        certificate_file=certificate_file,
        key_file=key_file,
    )
    assert "refuses the certificate of this client" in error


async def test_new_connections_use_changed_certificates(broker, files, tmp_path):
    ca_file = files["ca"][0]
    async with pydanube.connect(broker.stream_url, ca_file=ca_file) as client:
        old = tmp_path / "old.pem"
        old.write_bytes(ca_file.read_bytes())
        write_certificates(tmp_path)
        # The connection that is open does not notice.
        await published(client, b"a")
        await refusal(broker.stream_url, pydanube.Unauthenticated, ca_file=old)
    async with pydanube.connect(broker.stream_url, ca_file=ca_file) as client:
        await published(client, b"a")


async def test_plain_client_of_a_tls_port_learns_about_tls(broker):
    url = broker.stream_url.replace("danubes:", "danube:")
    error = await refusal(url, pydanube.ProtocolViolation)
    assert PLAIN_REFUSED in error


async def test_tls_client_of_a_plain_port_learns_that_it_is_plain(tmp_path, files):
    async with running(tmp_path) as broker:
        url = broker.stream_url.replace("danube:", "danubes:")
        error = await refusal(url, pydanube.ProtocolViolation, ca_file=files["ca"][0])
    assert "does not speak TLS on this port: use a URL that begins with" in error


async def test_addresses_that_other_brokers_name_are_reached_over_tls(broker, files):
    tls = ClientTls(UrlOptions(ca_file=str(files["ca"][0])))
    pool = BrokerPool({}, NO_CREDENTIALS, 30.0, tls=tls, shown=str)
    plain_url = broker.stream_url.replace("danubes:", "danube:")
    connection = await pool.connection(plain_url)
    assert connection.welcome.revision
    for each in pool.close():
        await each.wait_closed()


async def test_grpc_clients_connect_with_root_certificates(broker, files):
    credentials = grpc.ssl_channel_credentials(files["ca"][0].read_bytes())
    for url in (broker.grpc_url, broker.admin_url):
        assert url.startswith("https://")
        async with grpc.aio.secure_channel(
            url.removeprefix("https://"), credentials
        ) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert await check(b"", timeout=30) == b"\x08\x01"


async def test_grpc_client_needs_a_required_certificate(strict_broker, files):
    ca = files["ca"][0].read_bytes()
    certificate, key = (each.read_bytes() for each in files["client"])
    address = strict_broker.grpc_url.removeprefix("https://")
    with_certificate = grpc.ssl_channel_credentials(ca, key, certificate)
    async with grpc.aio.secure_channel(address, with_certificate) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await check(b"", timeout=30) == b"\x08\x01"
    async with grpc.aio.secure_channel(
        address, grpc.ssl_channel_credentials(ca)
    ) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(b"", timeout=30)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_plain_grpc_client_of_a_tls_port_fails_at_once(broker):
    address = broker.grpc_url.removeprefix("https://")
    async with grpc.aio.insecure_channel(address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(b"", timeout=30)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_metrics_are_served_over_https(broker, files):
    context = ssl.create_default_context(cafile=files["ca"][0])

    def get():
        with urlopen(f"{broker.http_url}/metrics", context=context) as answer:
            return answer.read()

    assert b"danube_connections" in await asyncio.to_thread(get)


async def test_plain_http_request_gets_the_reason(broker):
    def get():
        with pytest.raises(HTTPError) as caught:
            urlopen(broker.http_url.replace("https:", "http:"))
        with caught.value as answer:
            return answer.code, answer.read()

    code, body = await asyncio.to_thread(get)
    assert code == 400
    assert PLAIN_REFUSED.encode() in body


def ports_of(broker):
    urls = (broker.stream_url, broker.grpc_url, broker.admin_url, broker.http_url)
    return [int(url.rpartition(":")[2]) for url in urls]


CLIENT_HELLO = bytes.fromhex("160301") + struct.pack(">H", 512) + b"\x01\x00\x01\xfc"


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"\x16",
        CLIENT_HELLO,
        CLIENT_HELLO + b"\xff" * 600,
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x17\x03\x03\xff\xff" + b"\x00" * 70_000,
        b"\x80\x2e\x01\x00\x02" + b"\x00" * 50,
        b"\x00" * 100_000,
    ],
    ids=[
        "nothing",
        "one-byte",
        "half-a-hello",
        "damaged-hello",
        "alert",
        "data",
        "ssl-2",
        "zeros",
    ],
)
async def test_garbage_and_half_handshakes_leave_the_broker_running(
    broker, files, beginning
):
    for port in ports_of(broker):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(beginning)
        writer.write_eof()
        # The broker ends the connection, and may reset it while it is being written.
        try:
            async with asyncio.timeout(30):
                await reader.read()
        except ConnectionError:
            pass
        writer.close()
    await check_publishing(broker, files)


async def check_publishing(broker, files):
    async with pydanube.connect(broker.stream_url, ca_file=files["ca"][0]) as client:
        await published(client, b"still here")


async def test_connection_that_ends_after_the_handshake_is_forgotten(broker, files):
    context = ssl.create_default_context(cafile=files["ca"][0])
    for port in ports_of(broker):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        peer = writer.get_extra_info("socket")
        # Closing sends a reset.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        assert reader is not None
    await check_publishing(broker, files)
