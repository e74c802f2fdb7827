"""
Connections without a socket, between two protocols on one event loop.

The same bytes are encoded and parsed as over TCP, so tests with a broker in the same
process also test the native protocol.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydanube_broker.servers.native.connection import NativeConnection
from pydanube_broker.servers.native.server import NativeServer

Buffer = bytes | bytearray | memoryview
Client = TypeVar("Client", bound=asyncio.BufferedProtocol)


class PipeEnd(asyncio.Transport):
    """One end of an in-process connection, which sends its data to the other end."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__({"peername": "in process"})
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._other: PipeEnd
        self._incoming: deque[Buffer] = deque()
        self._is_paused = False
        self._is_scheduled = False
        self._is_closing = False
        self._is_lost = False
        self._has_ended = False

    @staticmethod
    def connect(
        one: asyncio.BufferedProtocol, other: asyncio.BufferedProtocol
    ) -> tuple[PipeEnd, PipeEnd]:
        """Connect two protocols."""
        ends = PipeEnd(one), PipeEnd(other)
        ends[0]._other, ends[1]._other = ends[1], ends[0]  # noqa: SLF001
        one.connection_made(ends[0])
        other.connection_made(ends[1])
        return ends

    def write(self, data: Buffer) -> None:
        """The bytes are copied."""
        if data and not self._is_closing:
            self._other._take(bytes(data))  # noqa: SLF001

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        for data in list_of_data:
            self.write(data)

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        """There is no buffer to limit."""

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._schedule()

    def get_write_buffer_size(self) -> int:
        """The other end buffers the data."""
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Data written before still arrives."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose)
            self._other._schedule_loss()  # noqa: SLF001

    def abort(self) -> None:
        self.close()

    def end_at_once(self, last: bytes = b"") -> None:
        """Send *last*, and close; the other end knows both when this returns."""
        other = self._other
        self.write(last)
        other._is_paused = False  # noqa: SLF001
        other._has_ended = True  # noqa: SLF001
        other._hand_over()  # noqa: SLF001
        self.close()

    def _take(self, data: bytes) -> None:
        if not self._is_closing:
            self._incoming.append(data)
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and (self._incoming or self._has_ended):
            self._is_scheduled = True
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._is_scheduled = False
        while self._incoming and not self._is_paused and not self._is_closing:
            data = memoryview(self._incoming.popleft())
            while data and not self._is_closing:
                if self._is_paused:
                    self._incoming.appendleft(data)
                    break
                buffer: Any = self._protocol.get_buffer(len(data))
                count = min(len(buffer), len(data))
                buffer[:count] = data[:count]
                data = data[count:]
                self._protocol.buffer_updated(count)
        if self._has_ended and not self._is_paused and not self._is_closing:
            self._is_closing = True
            self._lose()

    def _schedule_loss(self) -> None:
        self._has_ended = True
        self._schedule()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._incoming.clear()
            self._protocol.connection_lost(None)


def dial_in_process(server: NativeServer) -> Callable[[Callable[[], Any]], Any]:
    """Return a function that connects a client to *server* without a socket."""

    async def dial(factory: Callable[[], Client]) -> Client:
        connection = factory()
        PipeEnd.connect(connection, NativeConnection(server))
        return connection

    return dial
