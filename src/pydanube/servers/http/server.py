"""The HTTP server: uvicorn inside the broker's event loop."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from pydanube.model.errors import InvalidConfig
from pydanube.servers.connections import ConnectionCounts
from pydanube.servers.http.app import make_app
from pydanube.servers.http.connection import (
    HEAD_BYTES_MAX,
    KEEP_ALIVE_S,
    HttpConnection,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from contextlib import AbstractContextManager

    from pydanube.servers.http.app import BrokerState

CONNECTIONS_MAX = 1000
SHUTDOWN_S = 1
"""How long a request that is being answered may hold up the end of the broker."""


@asynccontextmanager
async def open_http(
    host: str,
    port: int,
    state: BrokerState,
    *,
    hosts: Iterable[str] = (),
    counts: ConnectionCounts | None = None,
) -> AsyncIterator[int]:
    """
    Serve health, metrics and the JSON API for the body; gives the port, free if 0.

    Requests have to name the broker by an address, a name without a dot or one of
    *hosts*.  Connections are counted in *counts*, which also bounds their number.

    Requests are answered from when the body begins until it ends, so ``/readyz`` can
    say that the broker is starting or draining.  Signals are left to the process.

    Raises:
        InvalidConfig: Nobody can listen there.
    """
    listener = _listen(host, port)
    counted = counts or ConnectionCounts(
        listener="http", connections_max=CONNECTIONS_MAX
    )
    server = _Server(
        uvicorn.Config(
            make_app(state, hosts),
            loop="none",
            http=partial(HttpConnection, counted),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            # The broker's own logging shows what is worth it.
            log_config=None,
            # What is less is caused by clients, who could fill the log with it.
            log_level="error",
            access_log=False,
            server_header=False,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
    )
    with listener:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve([listener]), name="http server")
            try:
                await server.is_listening.wait()
                yield listener.getsockname()[1]
            finally:
                server.should_exit = True
                # Before the group cancels it: only a server that ends by itself
                # closes its connections.
                await asyncio.wait([serving])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_listening.set()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = error.strerror or error
        raise InvalidConfig(f"cannot listen on {host}:{port}: {why}") from error
