"""An HTTP server inside the event loop of a program: uvicorn, which does not own it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from typing import Any

import uvicorn

from pydanube.aio.tasks import task_scope

TICK_S = 1.0
"""The interval in which the date of answers is updated."""


def config_of(
    app: Any, trusted_proxies: Sequence[str] = (), **settings: Any
) -> uvicorn.Config:
    """
    Return the configuration of a server that logs errors only.

    The headers ``X-Forwarded-*`` count only if they come from *trusted_proxies*,
    which are addresses and networks.
    """
    return uvicorn.Config(
        app,
        loop="none",
        ws="none",
        lifespan="off",
        # The program configures logging.
        log_config=None,
        # Clients cause all lower levels, and could fill the log with them.
        log_level="error",
        access_log=False,
        server_header=False,
        **forwarding_of(trusted_proxies),
        **settings,
    )


def forwarding_of(trusted_proxies: Sequence[str]) -> dict[str, Any]:
    """Return the settings of uvicorn for ``X-Forwarded-*``; it trusts this machine."""
    return {
        "proxy_headers": bool(trusted_proxies),
        # Without a value, uvicorn takes a variable of the environment.
        "forwarded_allow_ips": list(trusted_proxies),
    }


def listener_at(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """
    Return a socket that listens at *host*, a name or an address.

    With *reuse_port*, other processes with the same user may listen there, too.

    Raises:
        OSError: The address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, reuse_port=reuse_port)


@asynccontextmanager
async def serving(
    config: uvicorn.Config, *listeners: socket.socket, tick_s: float = TICK_S
) -> AsyncIterator[None]:
    """
    Serve on *listeners* during the body, and close them.

    The server does not handle signals.  At the end, it waits for running requests as
    long as the configuration says.  It updates the date of its answers every *tick_s*.
    """
    server = _Server(config, tick_s)
    # Accepted connections inherit it.  asyncio does not set it for such a socket, and
    # the body of a response would wait 40 ms for the client's acknowledgement.
    with ExitStack() as stack:
        for listener in listeners:
            stack.enter_context(listener)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with task_scope() as tasks:
            running = tasks.start(server.serve([*listeners]), "http server")
            listening = tasks.start(server.is_listening.wait())
            both: list[asyncio.Future[Any]] = [running, listening]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            try:
                yield
            finally:
                server.stop()
                # The server must end by itself to close its connections.
                await asyncio.wait([running])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, tick_s: float) -> None:
        super().__init__(config)
        self.is_listening = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._tick_s = tick_s

    def stop(self) -> None:
        self.should_exit = True
        self._is_stopping.set()

    async def main_loop(self) -> None:
        # The loop of uvicorn would wake up ten times a second, and notice the end up to
        # 0.1 s late.
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(self._tick_s):
                    await self._is_stopping.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_listening.set()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()
