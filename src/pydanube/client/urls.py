"""The URLs of brokers, and how to connect to them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from pydanube.client.connection import BrokerConnection, Dial
from pydanube.client.redirects import find_redirect
from pydanube.model.errors import InvalidRequest
from pydanube.model.redaction import without_password

DEFAULT_PORT = 6651


def parse_url(url: str) -> tuple[str, int]:
    """
    Return the host and port of a broker's URL.

    Raises:
        InvalidRequest: *url* is not of the form ``danube://host[:port]``.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if parts.scheme != "danube" or not parts.hostname or not port:
        shown = without_password(url)
        raise InvalidRequest(f"{shown!r} is not a URL like danube://127.0.0.1:6651")
    return parts.hostname, port


def split_url(url: str) -> list[str]:
    """
    Return the URL of each broker that ``danube://host[:port],host[:port],…`` names.

    Passwords in it, which clients ignore, are masked.

    Raises:
        InvalidRequest: One of them is not of the form ``danube://host[:port]``.
    """
    first, *others = (each.strip() for each in url.split(","))
    urls = [first, *(each if "://" in each else f"danube://{each}" for each in others)]
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
    return list(dict.fromkeys(map(without_password, urls)))


def dial_of(url: str) -> Dial:
    """
    Return the function that connects to the broker at *url*.

    Raises:
        InvalidRequest: *url* is not of the form ``danube://host[:port]``.
    """
    host, port = parse_url(url)
    redirect = find_redirect((host, port))
    if redirect is not None:
        return redirect.dial

    async def dial(factory: Callable[[], BrokerConnection]) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(factory, host, port)
        peer: socket.socket = transport.get_extra_info("socket")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    return dial
