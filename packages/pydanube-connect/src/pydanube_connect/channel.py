"""A bounded queue of batches between a source and the publisher."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from pydanube_connect.pure.failures import Transient
from pydanube_connect.pure.records import Batch, Record, Refusals

T = TypeVar("T")

IDLE_PASSES = 4
"""After how many passes of the event loop without an item nothing more has arrived."""


class Channel(Generic[T]):
    """
    A queue that one task fills and another one empties, until it is closed.

    Bounds: It is full with *count_max* messages or *bytes_max*, whichever is first; the
        last item that it accepts may exceed them.
    """

    def __init__(self, count_max: int, bytes_max: float) -> None:
        self._items: deque[tuple[T, int, int]] = deque()
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = self._byte_count = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    async def put(self, item: T, count: int = 1, byte_count: int = 0) -> None:
        """
        Add *item*, which has *count* messages; wait while the channel is full.

        Raises:
            Transient: The channel is closed.
        """
        while self._is_full and not self._is_closed:
            await self._wait()
        if self._is_closed:
            raise _stopping()
        self._items.append((item, count, byte_count))
        self._count += count
        self._byte_count += byte_count
        self._wake()

    async def take(self, wait_s: float = 0.0) -> list[T]:
        """
        Return all items; none if the channel is closed and empty.

        This waits for the first one, and then for *wait_s*, unless the channel is full.
        Even without a wait, it takes what the event loop has received already.
        """
        while not self._items and not self._is_closed:
            await self._wait()
        if wait_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while not self._is_full and not self._is_closed:
                        await self._wait()
        passes = 0
        while passes < IDLE_PASSES and not self._is_full and not self._is_closed:
            before = len(self._items)
            await asyncio.sleep(0)
            passes = passes + 1 if len(self._items) == before else 0
        return self.take_nowait()

    def take_nowait(self) -> list[T]:
        """Return all items."""
        items = [each for each, _, _ in self._items]
        self._items.clear()
        self._count = self._byte_count = 0
        self._wake()
        return items

    async def get(self) -> T | None:
        """Return the next item; None if the channel is closed and empty."""
        while not self._items:
            if self._is_closed:
                return None
            await self._wait()
        item, count, byte_count = self._items.popleft()
        self._count -= count
        self._byte_count -= byte_count
        self._wake()
        return item

    def close(self) -> None:
        """Accept no more items."""
        self._is_closed = True
        self._wake()

    @property
    def _is_full(self) -> bool:
        return self._count >= self._count_max or self._byte_count >= self._bytes_max

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
        self._channel: Channel[Batch] = Channel(deliveries_max, bytes_max=1)

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
        for batch in self._channel.take_nowait():
            batch.on_failed(_stopping())


async def take_arrived(queue: asyncio.Queue[T], items_max: int) -> list[T]:
    """Return what is in *queue*, and what the event loop has received already."""
    found: list[T] = []
    passes = 0
    while passes < IDLE_PASSES and len(found) < items_max:
        if queue.empty():
            passes += 1
            await asyncio.sleep(0)
        else:
            passes = 0
            found.append(queue.get_nowait())
    return found


def _stopping() -> Transient:
    return Transient("the connector is stopping")
