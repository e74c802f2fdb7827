"""A write buffer that saves system calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

Buffer = bytes | bytearray | memoryview

GATHERED_BYTES_MAX = 256 * 1024
"""The buffer is flushed before the end of the turn when it has this size."""


class WriteBuffer:
    """
    Combines the writes to a transport in one turn of the event loop.

    Each write to a socket is a system call, which costs as much as the rest of sending
    a small frame.  The first write in a turn is sent at once, so that a single frame is
    not delayed.  The others are sent together at the end of the turn.

    Ordering: Bytes are sent in the order in which they were written.

    Bounds: ``GATHERED_BYTES_MAX``; the transport buffers the rest.
    """

    __slots__ = (
        "_byte_count",
        "_is_in_turn",
        "_loop",
        "_parts",
        "_transport",
        "writes",
    )

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.writes = 0
        """The number of turns of the loop in which something was written."""
        self._transport = transport
        self._loop = loop
        self._is_in_turn = False
        self._parts: list[Buffer] = []
        self._byte_count = 0

    def write(self, data: Buffer) -> None:
        """Send *data*, which must not be changed afterwards."""
        if not self._is_in_turn:
            self._begin_turn()
            self._transport.write(data)
            return
        self._parts.append(data)
        self._byte_count += len(data)
        if self._byte_count >= GATHERED_BYTES_MAX:
            self.flush()

    def writelines(self, parts: Iterable[Buffer]) -> None:
        """Send *parts* in order."""
        if not self._is_in_turn:
            self._begin_turn()
            self._transport.writelines(parts)
            return
        for part in parts:
            self._parts.append(part)
            self._byte_count += len(part)
        if self._byte_count >= GATHERED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the buffered data to the transport."""
        if self._parts:
            parts, self._parts, self._byte_count = self._parts, [], 0
            if not self._transport.is_closing():
                self._transport.writelines(parts)

    def close(self) -> None:
        """Close the transport after sending the data written before."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close the transport at once and drop data that was not sent."""
        self._transport.abort()

    def _begin_turn(self) -> None:
        self._is_in_turn = True
        self.writes += 1
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_in_turn = False
        self.flush()
