"""A receive buffer for clients with callbacks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

PAYLOADS_MAX = 50_000
"""The number of buffered messages above which clients that can wait do so."""


class Inbox:
    """Received payloads with their tokens for acknowledgement."""

    def __init__(self) -> None:
        self._payloads: list[bytes] = []
        self._tokens: list[Any] = []
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(self, payload: bytes, token: Any = None) -> None:
        """Add a message."""
        self._payloads.append(payload)
        if token is not None:
            self._tokens.append(token)
        if not self._arrived.is_set():
            self._arrived.set()
        if len(self._payloads) >= PAYLOADS_MAX:
            self._has_room.clear()

    def put_many(self, payloads: Sequence[bytes], token: Any) -> None:
        """Add messages that are acknowledged together."""
        self._payloads += payloads
        self._tokens.append(token)
        self._arrived.set()
        if len(self._payloads) >= PAYLOADS_MAX:
            self._has_room.clear()

    @property
    def is_full(self) -> bool:
        """Return whether to wait for ``room``."""
        return len(self._payloads) >= PAYLOADS_MAX

    async def room(self) -> None:
        """Wait while the inbox is full."""
        await self._has_room.wait()

    async def take(self, timeout_s: float) -> tuple[list[bytes], list[Any]]:
        """Wait for messages and take all of them; none after the timeout."""
        if not self._payloads:
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
            except TimeoutError:
                return [], []
        taken = self._payloads, self._tokens
        self._payloads, self._tokens = [], []
        self._has_room.set()
        return taken
