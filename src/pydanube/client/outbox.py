"""What leaves on a connection, with few calls of the system."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    Buffer = bytes | bytearray | memoryview

GATHERED_BYTES_MAX = 256 * 1024
"""So much does not wait for the end of the turn."""


class Outbox:
    """
    Gathers what is written in one turn of the loop.

    Each write to a socket costs a call of the system, and as much as all the rest of
    sending a small frame.  What is written first in a turn leaves at once: nobody waits
    for whatever may follow.  The rest leaves together at the end of the turn.

    Ordering: Bytes leave in the order in which they were written.

    Bounds: ``GATHERED_BYTES_MAX``; beyond that the transport has them.
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
        """In how many turns of the loop something was written."""
        self._transport = transport
        self._loop = loop
        self._is_in_turn = False
        self._parts: list[Buffer] = []
        self._byte_count = 0

    def write(self, data: Buffer) -> None:
        """Send *data*, which must not change any more."""
        if not self._is_in_turn:
            self._begin_turn()
            self._transport.write(data)
            return
        self._parts.append(data)
        self._byte_count += len(data)
        if self._byte_count >= GATHERED_BYTES_MAX:
            self.flush()

    def writelines(self, parts: Iterable[Buffer]) -> None:
        """Send *parts*, one behind the other."""
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
        """Hand over to the transport what has gathered."""
        if self._parts:
            parts, self._parts, self._byte_count = self._parts, [], 0
            if not self._transport.is_closing():
                self._transport.writelines(parts)

    def close(self) -> None:
        """Close the transport; what was written before is still sent."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close the transport at once; what is not sent yet is lost."""
        self._transport.abort()

    def _begin_turn(self) -> None:
        self._is_in_turn = True
        self.writes += 1
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_in_turn = False
        self.flush()
