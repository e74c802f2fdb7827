"""The listener of a gRPC server in the broker's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydanube.aio.tasks import task_scope
from pydanube.broker.broker import Broker
from pydanube.servers.addresses import binding
from pydanube.servers.grpc.connection import GrpcProtocol
from pydanube.servers.grpc.grpc_server import GrpcServer
from pydanube.servers.grpc.services import Service
from pydanube.servers.grpc.standard import standard_services
from pydanube.servers.tls import PLAIN_REFUSED, ServerTls, over_tls
from pydanube.wire.grpc.http2 import Http2Connection
from pydanube.wire.grpc.http2_frames import ErrorCode

STOP_S = 1.0
"""The time that running calls have to end when the broker stops."""


class Listener:
    """A bound port, which accepts connections when its services are known."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self.listening: asyncio.Server
        self.server: GrpcServer
        self._limits = limits

    @property
    def port(self) -> int:
        """The bound port."""
        port: int = self.listening.sockets[0].getsockname()[1]
        return port

    @asynccontextmanager
    async def serving(
        self, services: Sequence[Service], broker: Broker | None = None
    ) -> AsyncIterator[GrpcServer]:
        """
        Serve *services*, health and reflection during the body.

        *broker* decides what clients may call.

        At the end, new calls are refused with UNAVAILABLE, and running calls have
        ``STOP_S`` to end.
        """
        health, standard = standard_services([service.name for service in services])
        async with task_scope() as tasks:
            self.server = GrpcServer(
                [*services, *standard], tasks, broker=broker, **self._limits
            )
            await self.listening.start_serving()
            try:
                yield self.server
            finally:
                self.listening.close()
                health.close()
                await self.server.close(STOP_S)


@asynccontextmanager
async def open_listener(
    host: str,
    port: int,
    *,
    name: str,
    flag: str,
    tls: ServerTls | None = None,
    **limits: Any,
) -> AsyncIterator[Listener]:
    """
    Bind a port for the body (0: any free port); see ``GrpcServer`` for *limits*.

    Errors contain *name*, the name of the server, and *flag*, the option for the port.

    Raises:
        InvalidConfig: The address is not available.
    """
    loop = asyncio.get_running_loop()
    listener = Listener(limits)
    refusing = Http2Connection()
    refusing.go_away(ErrorCode.INADEQUATE_SECURITY, PLAIN_REFUSED)
    factory = over_tls(
        lambda: GrpcProtocol(listener.server),
        tls,
        protocol="h2",
        # Without the settings, with which a connection begins: clients then wait before
        # they try again.
        plain_answer=refusing.take_output()[-1],
    )
    with binding(host, port, name, flag):
        listener.listening = await loop.create_server(
            factory, host, port, backlog=1024, start_serving=False
        )
    try:
        yield listener
    finally:
        listener.listening.close()
