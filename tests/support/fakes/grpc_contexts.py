"""The context of a call, without a connection."""

from __future__ import annotations

import asyncio
from typing import Any

from pydanube.security.principals import ANONYMOUS
from pydanube.wire.pb import danube_api_pb2 as pb


class CallContext:
    """Keeps what a service writes; a client that does not read blocks it."""

    def __init__(self, peer: str = "ipv4:127.0.0.1:1", *, reads: bool = True) -> None:
        self.written: list[Any] = []
        self.write_counts: list[int] = []
        self.has_metadata = asyncio.Event()
        self.principal = ANONYMOUS
        self._peer = peer
        self._may_write = asyncio.Event()
        self._wrote = asyncio.Event()
        if reads:
            self._may_write.set()

    def peer(self) -> str:
        """See connection.CallContext."""
        return self._peer

    async def send_initial_metadata(self) -> None:
        """See connection.CallContext."""
        self.has_metadata.set()

    async def write(self, message: Any) -> None:
        """See connection.CallContext."""
        self.written.append(message)
        await self._on_written()

    async def write_bytes(self, *messages: bytes) -> None:
        """See connection.CallContext."""
        self.write_counts.append(len(messages))
        self.written += map(pb.StreamMessage.FromString, messages)
        await self._on_written()

    async def _on_written(self) -> None:
        self._wrote.set()
        await self._may_write.wait()

    def read(self) -> None:
        """The client reads from now on."""
        self._may_write.set()

    async def until_written(self, count: int) -> None:
        """Wait until so many messages were written."""
        while len(self.written) < count:
            self._wrote.clear()
            await self._wrote.wait()


class Clock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
