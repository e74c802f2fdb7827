"""Peers that want weaker TLS, or none, on each listener of a broker."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import suppress

import pytest

import pydanube
from support.fakes.listeners import LISTENERS, port_of, urls_of
from support.fakes.secured import secured
from support.servers.certificates import tls_settings, write_certificates

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ALPN = {"stream": [], "grpc": ["h2"], "admin": ["h2"], "http": ["http/1.1"]}
TIMEOUT_S = 60


@pytest.fixture
def files(tmp_path):
    return write_certificates(tmp_path)


@pytest.fixture
async def urls(tmp_path, files):
    async with secured(tmp_path, tls=tls_settings(files)) as broker:
        yield urls_of(broker)


def weak_context(files, *, versions=None, ciphers="ALL:@SECLEVEL=0"):
    """A context of a client that would accept anything of the broker."""
    context = ssl.create_default_context(cafile=files["ca"][0])
    context.set_ciphers(ciphers)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    if versions is not None:
        context.minimum_version, context.maximum_version = versions
    return context


async def negotiated(url, context):
    """Return the version of TLS and the cipher that a listener chooses."""

    def shake_hands():
        with (
            socket.create_connection(("127.0.0.1", port_of(url)), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            return secure.version(), secure.cipher()[0]

    return await asyncio.to_thread(shake_hands)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
async def test_old_version_of_tls_is_refused_on_all_listeners(urls, files, version):
    old = getattr(ssl.TLSVersion, version)
    for name in LISTENERS:
        with pytest.raises(ssl.SSLError) as caught:
            await negotiated(urls[name], weak_context(files, versions=(old, old)))
        # The alert of the broker, not a refusal of the client's own library.
        assert "ALERT_PROTOCOL_VERSION" in str(caught.value.reason), name


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_client_that_accepts_old_versions_gets_the_newest(urls, files):
    every = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_3
    for name in LISTENERS:
        version, _ = await negotiated(urls[name], weak_context(files, versions=every))
        assert version == "TLSv1.3", name


@pytest.mark.parametrize(
    "ciphers",
    ["aNULL", "eNULL", "AES128-SHA256:AES256-SHA:AES128-GCM-SHA256", "ECDHE+SHA1"],
    ids=["no-certificate", "no-encryption", "no-forward-secrecy", "sha-1"],
)
async def test_weak_cipher_is_refused_on_all_listeners(urls, files, ciphers):
    only = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    context = weak_context(files, versions=only, ciphers=f"{ciphers}:@SECLEVEL=0")
    for name in LISTENERS:
        with pytest.raises(ssl.SSLError) as caught:
            await negotiated(urls[name], context)
        assert "HANDSHAKE_FAILURE" in str(caught.value.reason), name


async def test_ciphers_of_tls_1_2_have_forward_secrecy_and_authentication(urls, files):
    only = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    for name in LISTENERS:
        _, cipher = await negotiated(urls[name], weak_context(files, versions=only))
        assert cipher.startswith("ECDHE-"), name
        assert "GCM" in cipher or "CHACHA20" in cipher, name


async def test_client_without_tls_is_served_on_no_listener(urls):
    request = {
        "stream": b"\x0c\0\0\0",
        "http": b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    }
    for name in LISTENERS:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(urls[name]))
        writer.write(
            request.get(name, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + bytes(100)
        )
        answer = b""
        with suppress(ConnectionError):
            answer = await reader.read()
        writer.close()
        assert answer == b"" or b"accepts only TLS" in answer, name


class WeakServer:
    """A server that stands between a client and its broker, and offers old TLS."""

    def __init__(self, files, version):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = version
        context.load_cert_chain(*files["server"])
        self.received = b""
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()
        self._listener.close()

    def _serve(self):
        plain, _ = self._listener.accept()
        with suppress(OSError), self._context.wrap_socket(plain, True) as secure:
            self.received = secure.recv(1000)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_client_sends_no_credentials_over_old_tls(files):
    with (
        WeakServer(files, ssl.TLSVersion.TLSv1_1) as server,
        pytest.raises(pydanube.BrokerError),
    ):
        async with pydanube.connect(
            f"danubes://127.0.0.1:{server.port}",
            ca_file=files["ca"][0],
            api_key=f"danube_{'0' * 16}_{'a' * 43}",
        ):
            pass
    assert server.received == b""
