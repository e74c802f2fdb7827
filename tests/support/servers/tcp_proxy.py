"""A proxy between a client and a server that loses requests or answers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING

from pydanube.aio.tasks import TaskScope, task_scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_READ_BYTES = 64 * 1024


class Fault(Enum):
    """How a proxy treats its connections."""

    NONE = "none"
    REFUSE = "refuse"
    """Close each connection at once, before anything reaches the server."""
    LOSE_ANSWER = "lose answer"
    """Deliver the request, and close the connection when the answer begins."""
    STALL = "stall"
    """Deliver the request, and keep the answer."""


class Way:
    """One direction, which loses nothing: what comes while it is cut arrives later."""

    def __init__(self) -> None:
        self._is_whole = asyncio.Event()
        self._is_whole.set()

    def cut(self) -> None:
        self._is_whole.clear()

    def mend(self) -> None:
        self._is_whole.set()

    async def travel(self) -> None:
        await self._is_whole.wait()


class TcpProxy:
    """A proxy in front of a server on this machine."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.fault = Fault.NONE
        self.fault_count = 0
        """How many requests had a fault."""
        self.faults_max: int | None = None
        """After so many faults there are none; None: no limit."""
        self.request_bytes_min = 0
        """Answers to smaller requests are delivered."""
        self.requests = Way()
        self.answers = Way()
        self._server_port = server_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_closed = False
        self._had_fault = asyncio.Event()

    def accept(
        self,
        scope: TaskScope,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Copy between a client and the server until one of them, or *scope*, ends."""
        if self._is_closed:
            writer.close()
            return
        # Noted here: a task that is cancelled before its first step does nothing.
        self._writers.add(writer)
        scope.run(self._serve(reader, writer))

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if self.fault is Fault.REFUSE:
                self._count()
                return
            # Neither way alone makes a connection.
            await self.requests.travel()
            await self.answers.travel()
            upstream = await asyncio.open_connection("127.0.0.1", self._server_port)
            self._writers.add(upstream[1])
            try:
                request = _Request()
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._copy_requests(reader, upstream[1], request))
                    group.create_task(self._copy_answers(upstream[0], writer, request))
            finally:
                self._writers.discard(upstream[1])
                upstream[1].close()
        except* (OSError, _Cut):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _copy_requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: _Request,
    ) -> None:
        while data := await reader.read(_READ_BYTES):
            request.byte_count += len(data)
            await self.requests.travel()
            writer.write(data)
            await writer.drain()
        raise _Cut

    async def _copy_answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: _Request,
    ) -> None:
        while data := await reader.read(_READ_BYTES):
            if request.byte_count >= self.request_bytes_min:
                if self.fault is Fault.LOSE_ANSWER:
                    self._count()
                    raise _Cut
                if self.fault is Fault.STALL:
                    self._count()
                    await asyncio.Future()
            request.byte_count = 0
            await self.answers.travel()
            writer.write(data)
            await writer.drain()
        raise _Cut

    def cut(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()

    def close(self) -> None:
        """
        End all connections, also those that are just being made.

        What a side has not read is lost: nobody would be left to send it.
        """
        self._is_closed = True
        for writer in self._writers:
            writer.transport.abort()

    async def wait_for_fault(self) -> None:
        """Return when a connection has had a fault."""
        await self._had_fault.wait()

    def _count(self) -> None:
        self.fault_count += 1
        self._had_fault.set()
        if self.fault_count == self.faults_max:
            self.fault = Fault.NONE


class _Request:
    """The request that a connection transfers."""

    def __init__(self) -> None:
        self.byte_count = 0


class _Cut(Exception):
    """A side closed the connection, or a fault does."""


@asynccontextmanager
async def tcp_proxy(server_port: int) -> AsyncIterator[TcpProxy]:
    """Run a proxy in front of *server_port*."""
    proxy = TcpProxy(server_port)
    async with task_scope() as scope:
        server = await asyncio.start_server(
            lambda reader, writer: proxy.accept(scope, reader, writer),
            "127.0.0.1",
            0,
        )
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            proxy.close()
