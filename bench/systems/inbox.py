"""What has arrived and was not looked at yet, for clients that call back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

PAYLOADS_MAX = 50_000
"""Whoever fills an inbox waits, if its client lets it, while so many are in it."""


class Inbox:
    """Payloads and what acknowledges them, until somebody takes all of it."""

    def __init__(self) -> None:
        self._payloads: list[bytes] = []
        self._tokens: list[Any] = []
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(self, payload: bytes, token: Any = None) -> None:
        """One message has come."""
        self._payloads.append(payload)
        if token is not None:
            self._tokens.append(token)
        if not self._arrived.is_set():
            self._arrived.set()
        if len(self._payloads) >= PAYLOADS_MAX:
            self._has_room.clear()

    def put_many(self, payloads: Sequence[bytes], token: Any) -> None:
        """Several messages have come, which are acknowledged together."""
        self._payloads += payloads
        self._tokens.append(token)
        self._arrived.set()
        if len(self._payloads) >= PAYLOADS_MAX:
            self._has_room.clear()

    @property
    def is_full(self) -> bool:
        """Whether it is time to wait for ``room``."""
        return len(self._payloads) >= PAYLOADS_MAX

    async def room(self) -> None:
        """Wait until it has been emptied, if it is full."""
        await self._has_room.wait()

    async def take(self, timeout_s: float) -> tuple[list[bytes], list[Any]]:
        """Everything that is here, as soon as something is; nothing if time is up."""
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
