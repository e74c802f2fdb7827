"""The listener of a gRPC server in the broker's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydanube.aio.tasks import task_scope
from pydanube_broker.broker.broker import Broker
from pydanube_broker.servers.grpc.connection import GrpcProtocol
from pydanube_broker.servers.grpc.grpc_server import GrpcServer
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.servers.grpc.standard import standard_services
from pydanube_broker.servers.settings.addresses import binding
from pydanube_broker.servers.settings.tls import PLAIN_REFUSED, ServerTls, over_tls
from pydanube_broker.wire.grpc.http2 import Http2Connection
from pydanube_broker.wire.grpc.http2_frames import ErrorCode

STOP_S = 1.0
"""The time that running calls have to end when the broker stops."""


class Listener:
    """A bound port, which accepts connections when its services are known."""

    def __init__(self) -> None:
        self._listening: list[asyncio.Server] = []
        self._server: GrpcServer

    async def bind(
        self, host: str, port: int, tls: ServerTls | None, own_port: int | None = None
    ) -> None:
        """
        Bind the port; a connection is accepted when ``serving`` has begun.

        With *own_port*, the port is shared with other processes, and that one is not.
        """
        refusing = Http2Connection()
        refusing.go_away(ErrorCode.INADEQUATE_SECURITY, PLAIN_REFUSED)
        factory = over_tls(
            lambda: GrpcProtocol(self._server),
            tls,
            protocol="h2",
            # Without the settings, with which a connection begins: clients then wait
            # before they try again.
            plain_answer=refusing.take_output()[-1],
        )
        for each in [port] if own_port is None else [port, own_port]:
            listening = await asyncio.get_running_loop().create_server(
                factory,
                host,
                each,
                backlog=1024,
                reuse_port=own_port is not None,
                start_serving=False,
            )
            self._listening.append(listening)

    @property
    def port(self) -> int:
        """The bound port."""
        port: int = self._listening[0].sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Release the port."""
        for each in self._listening:
            each.close()

    @asynccontextmanager
    async def serving(
        self, services: Sequence[Service], broker: Broker | None = None, **limits: Any
    ) -> AsyncIterator[GrpcServer]:
        """
        Serve *services*, health and reflection during the body.

        *broker* decides what clients may call; see ``GrpcServer`` for *limits*.

        At the end, new calls are refused with UNAVAILABLE, and running calls have
        ``STOP_S`` to end.
        """
        health, standard = standard_services([service.name for service in services])
        async with task_scope() as tasks:
            self._server = server = GrpcServer(
                [*services, *standard], tasks, broker=broker, **limits
            )
            for each in self._listening:
                await each.start_serving()
            try:
                yield server
            finally:
                self.close()
                health.close()
                await server.close(STOP_S)


@asynccontextmanager
async def open_listener(
    host: str,
    port: int,
    *,
    name: str,
    flag: str,
    tls: ServerTls | None = None,
    own_port: int | None = None,
) -> AsyncIterator[Listener]:
    """
    Bind a port for the body (0: any free port), and *own_port* as ``Listener.bind``.

    Errors contain *name*, the name of the server, and *flag*, the option for the port.

    Raises:
        InvalidConfig: The address is not available.
    """
    listener = Listener()
    with binding(host, port, name, flag):
        await listener.bind(host, port, tls, own_port)
    try:
        yield listener
    finally:
        listener.close()
