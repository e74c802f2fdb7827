"""Locks that several tasks share, and locks for each of many names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Name = TypeVar("Name", bound=Hashable)


class SharedLock:
    """
    A lock that one task holds alone (``async with lock``), or several tasks share.

    Ordering: Tasks get the lock in the order in which they asked for it, so a task that
        wants it alone waits only for those that came before.  A task that has a share
        must not ask again.
    """

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._unshared = asyncio.Event()
        self._unshared.set()
        self._share_count = 0

    async def __aenter__(self) -> None:
        await self._gate.acquire()
        try:
            await self._unshared.wait()
        except BaseException:
            self._gate.release()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._gate.release()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Share the lock during the body with others that do so."""
        async with self._gate:
            self._share_count += 1
            self._unshared.clear()
        try:
            yield
        finally:
            self._share_count -= 1
            if not self._share_count:
                self._unshared.set()


class NamedLocks(Generic[Name]):
    """A lock for each name; it exists only while somebody uses it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()

    def __iter__(self) -> Iterator[Name]:
        """Return an iterator over the names whose locks somebody uses."""
        return iter(list(self._locks))

    def __contains__(self, name: Name) -> bool:
        """Return whether somebody uses the lock of *name*."""
        return name in self._locks

    def of(self, name: Name) -> asyncio.Lock:
        """Return the lock of *name*."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


class NamedSemaphores(Generic[Name]):
    """A semaphore for each name; it exists only while somebody uses it."""

    def __init__(self, count: int) -> None:
        """Let *count* tasks pass for each name."""
        self._count = count
        self._semaphores: WeakValueDictionary[Name, asyncio.Semaphore] = (
            WeakValueDictionary()
        )

    def of(self, name: Name) -> asyncio.Semaphore:
        """Return the semaphore of *name*."""
        found = self._semaphores.get(name)
        if found is None:
            found = self._semaphores[name] = asyncio.Semaphore(self._count)
        return found
