"""The listener of a gRPC server in the broker's event loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydanube.aio.tasks import task_scope
from pydanube.servers.addresses import binding
from pydanube.servers.grpc.connection import GrpcServer
from pydanube.servers.grpc.standard import standard_services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pydanube.servers.grpc.connection import GrpcProtocol
    from pydanube.servers.grpc.services import Service

STOP_S = 1.0
"""The time that running calls have to end when the broker stops."""


class Listener:
    """A bound port, which accepts connections when its services are known."""

    def __init__(self, **limits: Any) -> None:
        """Create a listener; *limits* are arguments of ``GrpcServer``."""
        self.port = 0
        self._limits = limits
        self._listening: asyncio.Server
        self._server: GrpcServer

    async def open(self, host: str, port: int) -> None:
        """Bind the port without accepting connections."""
        self._listening = await asyncio.get_running_loop().create_server(
            self._new_connection, host, port, backlog=1024, start_serving=False
        )
        self.port = self._listening.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Release the port."""
        self._listening.close()

    @asynccontextmanager
    async def serving(self, services: Sequence[Service]) -> AsyncIterator[GrpcServer]:
        """
        Serve *services*, health and reflection during the body.

        At the end, new calls are refused with UNAVAILABLE, and running calls have
        ``STOP_S`` to end.
        """
        health, standard = standard_services([service.name for service in services])
        async with task_scope() as tasks:
            self._server = GrpcServer([*services, *standard], tasks, **self._limits)
            await self._listening.start_serving()
            try:
                yield self._server
            finally:
                self._listening.close()
                health.close()
                await self._server.close(STOP_S)

    def _new_connection(self) -> GrpcProtocol:
        return self._server.new_connection()


@asynccontextmanager
async def open_listener(
    host: str, port: int, *, name: str, flag: str, **limits: Any
) -> AsyncIterator[Listener]:
    """
    Bind a port for the body (0: any free port); see ``GrpcServer`` for *limits*.

    Errors contain *name*, the name of the server, and *flag*, the option for the port.

    Raises:
        InvalidConfig: The address is not available.
    """
    listener = Listener(**limits)
    with binding(host, port, name, flag):
        await listener.open(host, port)
    try:
        yield listener
    finally:
        listener.close()
