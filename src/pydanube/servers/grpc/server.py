"""A gRPC server in the broker's event loop: the base of both gRPC servers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidConfig
from pydanube.servers.grpc.connection import GrpcServer
from pydanube.servers.grpc.standard import standard_services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pydanube.servers.grpc.connection import GrpcProtocol
    from pydanube.servers.grpc.services import Service

STOP_S = 1.0
"""How long requests that are being answered may hold up the end of the broker."""


@asynccontextmanager
async def open_grpc_server(
    host: str, port: int, services: Sequence[Service], *, name: str, flag: str
) -> AsyncIterator[int]:
    """
    Serve *services* for the body; gives the port, a free one if it was 0.

    *name* is what the server is called in an error, *flag* the option that would
    choose another port.

    Raises:
        InvalidConfig: Nobody can listen there.
    """
    async with (
        open_listener(host, port, name=name, flag=flag) as listener,
        listener.serving(services),
    ):
        yield listener.port


class Listener:
    """A port that is ours; it is served when it is known what there is to serve."""

    def __init__(self, **limits: Any) -> None:
        """Serve within *limits*, arguments of ``GrpcServer``."""
        self.port = 0
        self._limits = limits
        self._listening: asyncio.Server
        self._server: GrpcServer

    async def open(self, host: str, port: int) -> None:
        """Take the port, and no connections yet."""
        self._listening = await asyncio.get_running_loop().create_server(
            self._new_connection, host, port, backlog=1024, start_serving=False
        )
        self.port = self._listening.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Give the port back."""
        self._listening.close()

    @asynccontextmanager
    async def serving(self, services: Sequence[Service]) -> AsyncIterator[GrpcServer]:
        """
        Serve *services*, health and reflection for the body.

        On leaving, new requests are refused with UNAVAILABLE, and those that are
        being answered have ``STOP_S`` left.
        """
        failure: BaseException | None = None
        health, standard = standard_services([service.name for service in services])
        async with asyncio.TaskGroup() as tasks:
            self._server = GrpcServer([*services, *standard], tasks, **self._limits)
            await self._listening.start_serving()
            try:
                yield self._server
            except BaseException as error:  # noqa: BLE001  # It is raised again below.
                # Not through the task group, which would wrap it.
                failure = error
            finally:
                self._listening.close()
                health.close()
                await self._server.close(STOP_S)
        if failure is not None:
            raise failure

    def _new_connection(self) -> GrpcProtocol:
        return self._server.new_connection()


@asynccontextmanager
async def open_listener(
    host: str, port: int, *, name: str, flag: str, **limits: Any
) -> AsyncIterator[Listener]:
    """
    Take a port for the body; see ``open_grpc_server``, and ``GrpcServer`` for *limits*.

    Raises:
        InvalidConfig: Nobody can listen there.
    """
    listener = Listener(**limits)
    try:
        await listener.open(host, port)
    except OSError as error:
        raise InvalidConfig(
            f"cannot listen on {host}:{port} for {name}: {error.strerror or error}; "
            f"choose another with {flag}"
        ) from error
    try:
        yield listener
    finally:
        listener.close()
