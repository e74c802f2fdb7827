"""TLS on the broker's listeners, with certificates that can be replaced."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from pydanube.aio.certificates import check_readable, load_certificate
from pydanube.aio.file_reloading import FromFiles
from pydanube.aio.tls_connection import TlsConnection
from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube_broker.servers.settings.addresses import peer_text
from pydanube_broker.servers.settings.config import TlsConfig

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
HANDSHAKING_MAX = 1000
"""The most connections of a listener without a completed handshake.  A new one closes
the oldest of them."""

PLAIN_REFUSED = (
    "this port accepts only TLS: connect with TLS, for example to danubes://HOST:PORT "
    "with a client of pydanube, or to https://HOST:PORT"
)
"""The answer to clients that connect without TLS."""

_VERIFY_MODES = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

PROTOCOLS = ("", "h2", "http/1.1")
"""The names that listeners negotiate with clients; empty: none."""

Factory = Callable[..., asyncio.BaseProtocol]


class ServerTls:
    """The broker's certificates, which are read again when their files change."""

    def __init__(self, config: TlsConfig) -> None:
        """
        Read the files that *config* names.

        Raises:
            InvalidConfig: A file is missing or damaged, or the key is another one's.
        """
        names = (config.certificate_file, config.key_file, config.client_ca_file)
        self._contexts = FromFiles(lambda: _load_all(config), names, "TLS certificates")

    def context(self, protocol: str) -> ssl.SSLContext:
        """
        Return the context for a new connection, which negotiates *protocol*.

        If the files have changed, it has the new certificates; if they cannot be used,
        the old ones, and the log has the reason.
        """
        return self._contexts.get()[protocol]


def open_tls(config: TlsConfig) -> ServerTls | None:
    """
    Return the TLS of a broker with these settings; None: it has none.

    Raises:
        InvalidConfig: A file is missing or damaged, or the key is another one's.
    """
    return ServerTls(config) if config.is_enabled else None


class _Listener:
    """The TLS connections of one listener."""

    def __init__(
        self, tls: ServerTls, factory: Factory, *, protocol: str, plain_answer: bytes
    ) -> None:
        self._tls = tls
        self._factory = factory
        self._alpn = protocol
        self._plain_answer = plain_answer
        # In the order in which they were made.
        self._handshaking: dict[TlsConnection, None] = {}

    def accept(self, **options: Any) -> TlsConnection:
        """Return the protocol of a new connection; the factory gets *options*."""
        connection = TlsConnection(
            self._factory(**options),
            self._tls.context(self._alpn),
            server_side=True,
            timeout_s=HANDSHAKE_TIMEOUT_S,
            plain_answer=self._plain_answer,
            on_handshake=self._on_handshake,
        )
        self._handshaking[connection] = None
        if len(self._handshaking) > HANDSHAKING_MAX:
            oldest = next(iter(self._handshaking))
            del self._handshaking[oldest]
            oldest.abort()
        return connection

    def _on_handshake(
        self, connection: TlsConnection, failure: Exception | None
    ) -> None:
        self._handshaking.pop(connection, None)
        if failure is not None:
            peer = peer_text(connection.get_extra_info("peername"))
            log.info("closing the connection of %s: %s", peer, failure)


def over_tls(
    factory: Factory,
    tls: ServerTls | None,
    *,
    protocol: str = "",
    plain_answer: bytes = b"",
) -> Factory:
    """
    Return *factory* for connections with TLS; if *tls* is None, *factory* itself.

    Clients that connect without TLS get *plain_answer*, and are disconnected.
    """
    if tls is None:
        return factory
    return _Listener(tls, factory, protocol=protocol, plain_answer=plain_answer).accept


def _load_all(config: TlsConfig) -> dict[str, ssl.SSLContext]:
    contexts = {each: _load(config) for each in PROTOCOLS}
    for protocol, context in contexts.items():
        if protocol:
            context.set_alpn_protocols([protocol])
    return contexts


def _load(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that only writes, and closes, would otherwise leave the tickets unread,
    # and the kernel would drop what it wrote.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        check_readable(
            certificate_file=config.certificate_file,
            key_file=config.key_file,
            client_ca_file=config.client_ca_file,
        )
        load_certificate(context, config.certificate_file, config.key_file)
    except InvalidRequest as error:
        raise InvalidConfig(f"tls.{error}") from error
    if config.client_ca_file:
        try:
            context.load_verify_locations(config.client_ca_file)
        except ssl.SSLError as error:
            raise InvalidConfig(
                "tls.client_ca_file: expected certificates in PEM format, got "
                f"{config.client_ca_file} ({error.reason or error})"
            ) from error
    context.verify_mode = _VERIFY_MODES[config.client_certificates]
    return context
