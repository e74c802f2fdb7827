"""A bounded queue of batches between a source and the publisher."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Generic, TypeVar

from pydanube.connectors.failures import Transient
from pydanube.connectors.records import Batch, Record, Refusals

T = TypeVar("T")

BATCHES_MAX = 16
"""How many batches a source may be ahead of the publisher."""


class Channel(Generic[T]):
    """A queue that one task fills and another one empties, until it is closed."""

    def __init__(self, items_max: int = BATCHES_MAX) -> None:
        self._items: deque[T] = deque()
        self._items_max = items_max
        self._is_closed = False
        self._changed = asyncio.Event()

    async def put(self, item: T) -> None:
        """
        Add *item*; wait while the channel is full.

        Raises:
            Transient: The channel is closed.
        """
        while len(self._items) >= self._items_max and not self._is_closed:
            await self._wait()
        if self._is_closed:
            raise _stopping()
        self._items.append(item)
        self._wake()

    async def get(self) -> T | None:
        """Return the next item; None if the channel is closed and empty."""
        while not self._items:
            if self._is_closed:
                return None
            await self._wait()
        return self.get_nowait()

    def get_nowait(self) -> T | None:
        """Return the next item, or None if there is none yet."""
        if not self._items:
            return None
        self._wake()
        return self._items.popleft()

    def close(self) -> None:
        """Accept no more items."""
        self._is_closed = True
        self._wake()

    async def _wait(self) -> None:
        await self._changed.wait()

    def _wake(self) -> None:
        # Waiters look at the state again; each change has an event of its own.
        self._changed.set()
        self._changed = asyncio.Event()


class Inbox:
    """
    Records that other tasks deliver, such as the handlers of requests.

    Bounds: 1,000 deliveries wait; further ones wait for them.
    """

    def __init__(self, deliveries_max: int = 1000) -> None:
        self._channel: Channel[Batch] = Channel(deliveries_max)

    async def deliver(self, records: Sequence[Record]) -> Refusals:
        """
        Publish *records*, and return those that were refused.

        Durability: On return all others are on the broker's disk.

        Cancellation: They may or may not be published.

        Raises:
            Transient: They could not be published.
        """
        stored: asyncio.Future[Refusals] = asyncio.get_running_loop().create_future()

        def succeed(refusals: Refusals) -> None:
            if not stored.done():
                stored.set_result(refusals)

        def fail(error: Exception) -> None:
            if not stored.done():
                stored.set_exception(Transient(str(error)))

        await self._channel.put(Batch(records, on_stored=succeed, on_failed=fail))
        return await stored

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield what is delivered, for ``Source.batches``."""
        while (batch := await self._channel.get()) is not None:
            yield batch

    def close(self) -> None:
        """Accept no more deliveries, and fail those that wait."""
        self._channel.close()
        while (batch := self._channel.get_nowait()) is not None:
            batch.on_failed(_stopping())


def _stopping() -> Transient:
    return Transient("the connector is stopping")
