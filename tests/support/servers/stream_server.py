"""A server of a test, whose connections are all closed when it ends."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from pydanube.aio.tasks import task_scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def stream_server(handle: Handler) -> AsyncIterator[int]:
    """
    Serve each connection with *handle* while the body runs; the port of the server.

    ``asyncio.start_server`` starts a task for each connection.  One that is cancelled
    before its first step closes nothing, and a later test fails with a warning about
    an unclosed transport.  This server closes the connection when its task is done.
    """
    is_closed = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A peer that goes away is no fault.
        with suppress(ConnectionError):
            await handle(reader, writer)

    async with task_scope() as scope:

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if is_closed:
                writer.close()
                return
            task = scope.run(serve(reader, writer))
            task.add_done_callback(lambda _: writer.close())

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            is_closed = True
            server.close()
