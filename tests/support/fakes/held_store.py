"""A metadata store whose answers tests can delay."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.fakes.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


class HeldStore(MemoryStore):
    """A metadata store that some reads and changes reach late."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}

    @contextmanager
    def holding(self, path: str) -> Iterator[asyncio.Event]:
        """Hold the next read of this key or prefix; yield an event that it sets."""
        waiting, released = asyncio.Event(), asyncio.Event()
        self._held[path] = waiting, released
        try:
            yield waiting
        finally:
            self._held.pop(path, None)
            released.set()

    def holding_change(self, path: str) -> AbstractContextManager[asyncio.Event]:
        """Hold the next change of this key; yield an event that it sets."""
        return self.holding(_change_of(path))

    async def _change(self, comparisons, operations):
        for each in operations:
            await self._wait(_change_of(each.key.path))
        return await super()._change(comparisons, operations)

    async def _get(self, path):
        await self._wait(path)
        return await super()._get(path)

    async def _scan(self, prefix, after, limit):
        await self._wait(prefix)
        return await super()._scan(prefix, after, limit)

    async def _wait(self, path):
        if path in self._held:
            waiting, released = self._held.pop(path)
            waiting.set()
            await released.wait()


def _change_of(path: str) -> str:
    return f"change of {path}"
