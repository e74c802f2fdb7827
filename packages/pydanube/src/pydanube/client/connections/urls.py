"""The URLs of brokers, and how to connect to them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from pydanube.aio.tls_connection import TlsConnection
from pydanube.client.connections.connection import BrokerConnection, Dial, retrieve
from pydanube.client.connections.redirects import find_redirect
from pydanube.client.connections.tls import ClientTls, explain
from pydanube.model.errors import InvalidRequest
from pydanube.model.redaction import without_password
from pydanube.model.url_options import SCHEME, TLS_OPTIONS, UrlOptions, split_query
from pydanube.security.addresses import host_in_url

DEFAULT_PORT = 6651
HANDSHAKE_TIMEOUT_S = 60.0
"""The longest TLS handshake, whatever the timeout for connecting is."""


def parse_url(url: str) -> tuple[str, int]:
    """
    Return the host and port of a broker's URL.

    Raises:
        InvalidRequest: *url* is not of the form ``danube://host[:port]``, or the same
            with ``danubes``.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if parts.scheme not in {"danube", SCHEME} or not parts.hostname or not port:
        shown = without_password(url)
        raise InvalidRequest(f"{shown!r} is not a URL like danube://127.0.0.1:6651")
    return parts.hostname, port


def split_url(url: str) -> list[str]:
    """
    Return the URL of each broker that ``danube://host[:port],host[:port],…`` names.

    Passwords in it, which clients ignore, are masked.  The query is left out.

    Raises:
        InvalidRequest: One of them is not of the form ``danube://host[:port]``, or some
            of them have another scheme.
    """
    addresses, _ = split_query(url)
    first, *others = (each.strip() for each in addresses.split(","))
    scheme = SCHEME if uses_tls(first) else "danube"
    urls = [
        first,
        *(each if "://" in each else f"{scheme}://{each}" for each in others),
    ]
    try:
        for each in urls:
            parse_url(each)
    except InvalidRequest:
        # A password may contain a comma, and must not be shown in parts.
        shown = without_password(url)
        raise InvalidRequest(
            f"{shown!r} is not a URL like danube://127.0.0.1:6651, and not a list of "
            "brokers like danube://one,two:6652"
        ) from None
    if len({uses_tls(each) for each in urls}) > 1:
        raise InvalidRequest(
            f"{without_password(url)!r} mixes danube:// and danubes://: either all "
            "brokers of a cluster use TLS, or none does"
        )
    return list(dict.fromkeys(map(without_password, urls)))


def uses_tls(url: str) -> bool:
    """Return whether *url* is that of a broker with TLS."""
    return urlsplit(url).scheme == SCHEME


def http_url_of(url: str, port: int) -> str:
    """Return the address of the HTTP *port* of the broker at *url*."""
    scheme = "https" if uses_tls(url) else "http"
    return f"{scheme}://{host_in_url(parse_url(url)[0])}:{port}"


def options_of(url: str) -> UrlOptions:
    """
    Return the options in the query of *url*.

    Raises:
        InvalidRequest: An option is malformed.
    """
    _, query = split_query(url)
    return UrlOptions.parse(query) if query else UrlOptions()


def tls_of(url: str, options: UrlOptions) -> ClientTls | None:
    """
    Return the TLS that *url* asks for; None: none.

    *options* override those in the query of the URL.

    Raises:
        InvalidRequest: An option is malformed or not for this URL, or a file cannot be
            used.
    """
    options = options_of(url).overridden_by(options)
    if uses_tls(split_query(url)[0]):
        return ClientTls(options)
    given = [name for name in options.given() if name in TLS_OPTIONS]
    if given:
        raise InvalidRequest(
            f"{given[0]} is an option of TLS: use a URL that begins with {SCHEME}://"
        )
    return None


def dial_of(url: str, tls: ClientTls | None = None) -> Dial:
    """
    Return the function that connects to the broker at *url*, with *tls* if given.

    Raises:
        InvalidRequest: *url* is not of the form ``danube://host[:port]``.
    """
    host, port = parse_url(url)
    redirect = find_redirect((host, port))
    if redirect is not None:
        return redirect.dial
    if tls is None and uses_tls(url):
        # The address that a broker without TLS tells.
        tls = ClientTls(UrlOptions())

    async def dial(factory: Callable[[], BrokerConnection]) -> BrokerConnection:
        if tls is not None:
            return await _dial_tls(host, port, factory, tls)
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(factory, host, port)
        _send_at_once(transport)
        return connection

    return dial


async def _dial_tls(
    host: str, port: int, factory: Callable[[], BrokerConnection], tls: ClientTls
) -> BrokerConnection:
    """
    Connect to a broker over TLS.

    Raises:
        InvalidRequest: A file cannot be used.
        OSError: The broker cannot be reached, or does not complete the handshake.
        ProtocolViolation: The server does not speak TLS.
        Unauthenticated: A side does not trust the certificate of the other.
        ConnectionLost: TLS has failed for another reason.
    """
    loop = asyncio.get_running_loop()
    connection = factory()
    outcome: asyncio.Future[None] = loop.create_future()
    outcome.add_done_callback(retrieve)

    def on_handshake(_: TlsConnection, failure: Exception | None) -> None:
        if outcome.done():
            return
        if failure is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(explain(failure))

    context = tls.context()
    transport, _ = await loop.create_connection(
        lambda: TlsConnection(
            connection,
            context,
            server_side=False,
            server_hostname=tls.server_name or host,
            timeout_s=HANDSHAKE_TIMEOUT_S,
            on_handshake=on_handshake,
        ),
        host,
        port,
    )
    _send_at_once(transport)
    try:
        await outcome
    except BaseException:
        transport.abort()
        raise
    return connection


def _send_at_once(transport: asyncio.BaseTransport) -> None:
    peer: socket.socket = transport.get_extra_info("socket")
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
