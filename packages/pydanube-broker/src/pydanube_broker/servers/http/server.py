"""The HTTP server: uvicorn inside the broker's event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from pydanube.aio.http_server import config_of, listener_at, serving
from pydanube.model.errors import InvalidRequest
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.http.app import BrokerState, make_app
from pydanube_broker.servers.http.connection import (
    HEAD_BYTES_MAX,
    KEEP_ALIVE_S,
    HttpConnection,
)
from pydanube_broker.servers.http.forwarding import HttpForwarding
from pydanube_broker.servers.http.responses import error_body
from pydanube_broker.servers.settings.addresses import binding
from pydanube_broker.servers.settings.tls import PLAIN_REFUSED, ServerTls, over_tls

SHUTDOWN_S = 1
"""The time that running requests have to end when the broker stops."""


@asynccontextmanager
async def open_http(
    host: str,
    port: int,
    state: BrokerState,
    *,
    own_port: int | None = None,
    hosts: Iterable[str] = (),
    trusted_proxies: Sequence[str] = (),
    counts: ConnectionCounts | None = None,
    tls: ServerTls | None = None,
    authenticator: Authenticator | None = None,
    forwarding: HttpForwarding | None = None,
) -> AsyncIterator[int]:
    """
    Serve health, metrics and the JSON API; yields the port (0: any free port).

    With *own_port*, the port is shared with other processes, and that one is not.

    The host of a request must be an address, a name without a dot or one of *hosts*.
    The headers ``X-Forwarded-*`` count only from *trusted_proxies*.
    *counts* counts connections and limits their number.  With *tls*, it is HTTPS.
    Without *authenticator*, clients need no credentials.  *forwarding* is the way to
    the other processes of the broker.

    Requests are served during the whole body, so ``/readyz`` can report that the broker
    is starting or draining.  The server does not handle signals.

    Raises:
        InvalidConfig: The address is not available.
    """
    with binding(host, port, "HTTP", "--http-port"):
        listeners = [listener_at(host, port, reuse_port=own_port is not None)]
        if own_port is not None:
            listeners.append(listener_at(host, own_port, reuse_port=True))
    counted = counts or ConnectionCounts(listener="http")
    factory = over_tls(
        partial(HttpConnection, counted, state.find_connections),
        tls,
        protocol="http/1.1",
        plain_answer=_plain_answer(),
    )
    config = config_of(
        make_app(state, hosts, authenticator, forwarding),
        trusted_proxies,
        http=factory,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    port = listeners[0].getsockname()[1]
    async with serving(config, *listeners):
        yield port


def _plain_answer() -> bytes:
    """Return the answer to requests without TLS."""
    body = error_body(InvalidRequest(PLAIN_REFUSED))
    head = (
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
