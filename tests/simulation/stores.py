"""The object store and the metadata store: durable, slow, sometimes unavailable."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import MetadataUnavailable, ObjectsUnavailable
from pydanube.objects.memory import MemoryObjects
from pydanube.objects.store import Objects
from support.fakes.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from simulation.loop import Host, SimulatedLoop


class Service:
    """
    A service that outlives the processes that use it.

    ``error_rate`` is the fraction of requests that fail.  Half of them are executed
    nevertheless: the answer was lost, not the request.
    """

    def __init__(
        self,
        name: str,
        rng: Random,
        loop: SimulatedLoop,
        note: Callable[[str], None],
    ) -> None:
        self.name = name
        self.error_rate = 0.0
        self.error_count = 0
        """The number of requests that have failed."""
        self.failed_at = float("-inf")
        """When the last one of them failed."""
        self.delay_s_max = 0.004
        self._rng = rng
        self._loop = loop
        self._note = note

    async def ask(
        self,
        host: Host,
        what: str,
        work: Callable[[], Awaitable[Any]],
        error: Callable[[str], Exception],
        *,
        thread: object = None,
    ) -> Any:
        """Do *work* for *host*; requests of the same *thread* are executed in order."""
        rng = self._rng
        done_at = self._loop.free_at(thread, rng.random() * self.delay_s_max)
        fails = rng.random() < self.error_rate
        is_done_anyway = rng.random() < 0.5
        try:
            await _sleep_until(done_at)
        except asyncio.CancelledError:
            if host.is_alive and is_done_anyway and not fails:
                self._note(f"{what}, for a cancelled caller")
                await work()
            raise
        if not host.is_alive:
            raise error(f"{host.name} is dead")
        if fails:
            self.error_count += 1
            self.failed_at = self._loop.time()
            self._note(f"{what} fails{', but is done' if is_done_anyway else ''}")
            if is_done_anyway:
                await work()
            raise error("on purpose")
        self._note(what)
        return await work()


async def _sleep_until(when: float) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(max(0.0, when - loop.time()))


class ProcessObjects(Objects):
    """The object store, as the process *host* reaches it."""

    supports_listing = True

    def __init__(self, host: Host, service: Service, objects: MemoryObjects) -> None:
        self._host = host
        self._service = service
        self._objects = objects

    async def put(self, name, data):
        kept = bytes(data)
        await self._ask(f"put {name}", lambda: self._objects.put(name, kept))

    def open(self, name):
        if not self._host.is_alive:
            raise OSError(f"{self._host.name} is dead")
        if self._service.name == "remote" and self._service.error_rate == 1.0:
            raise OSError(errno.EIO, "the remote store does not answer")
        return self._objects.open(name)

    async def read(self, name, begin=0, end=None):
        return await self._ask(
            f"read {name}", lambda: self._objects.read(name, begin, end)
        )

    async def delete(self, name):
        await self._ask(f"delete {name}", lambda: self._objects.delete(name))

    async def names(self, prefix, **limits):
        return await self._ask(
            f"list {prefix}", lambda: self._objects.names(prefix, **limits)
        )

    async def stat(self, name):
        return await self._ask(f"stat {name}", lambda: self._objects.stat(name))

    def url(self, name):
        return self._objects.url(name)

    async def _ask(self, what, work):
        return await self._service.ask(self._host, what, work, ObjectsUnavailable)


class ProcessMetadata:
    """The metadata store, as the process *host* reaches it; one request at a time."""

    def __init__(self, host: Host, service: Service, store: MemoryStore) -> None:
        self._host = host
        self._service = service
        self._store = store

    async def revision(self):
        return await self._ask("revision", self._store.revision)

    async def get(self, key):
        return await self._ask(f"get {key.path}", lambda: self._store.get(key))

    async def get_each(self, keys):
        paths = ", ".join(each.path for each in keys)
        return await self._ask(f"get {paths}", lambda: self._store.get_each(keys))

    async def scan_each(self, prefixes):
        paths = ", ".join(each.path for each in prefixes)
        return await self._ask(f"scan {paths}", lambda: self._store.scan_each(prefixes))

    async def scan(self, prefix, **page):
        return await self._ask(
            f"scan {prefix.path}", lambda: self._store.scan(prefix, **page)
        )

    async def scan_valid(self, prefix, **page):
        return await self._ask(
            f"scan {prefix.path}", lambda: self._store.scan_valid(prefix, **page)
        )

    async def paths(self, prefix):
        return await self._ask(f"scan {prefix.path}", lambda: self._store.paths(prefix))

    @property
    def damaged(self):
        return self._store.damaged

    async def put(self, key, value, *, expected=None):
        return await self._ask(
            f"put {key.path}",
            lambda: self._store.put(key, value, expected=expected),
        )

    async def delete(self, key, *, expected=None):
        return await self._ask(
            f"delete {key.path}", lambda: self._store.delete(key, expected=expected)
        )

    async def transaction(self, comparisons, operations):
        paths = ", ".join(each.key.path for each in operations)
        return await self._ask(
            f"change {paths}", lambda: self._store.transaction(comparisons, operations)
        )

    def watch(self, prefix):
        return self._store.watch(prefix)

    async def _ask(self, what, work):
        return await self._service.ask(
            self._host, what, work, MetadataUnavailable, thread=self._host
        )
