"""A remote object store that counts requests, waits, or does not answer."""

from __future__ import annotations

import asyncio
import random

from pydanube.model.errors import ObjectsUnavailable
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from support.fakes.storages import FlakyObjects, World, open_topic, publish, seal, until

LARGE = 64 * 1024
"""The size of a message that has a row group of its own."""

COUNT = 12
"""The number of messages of a large segment."""


def incompressible(seed, count=COUNT, size=LARGE):
    """Payloads that compression does not make smaller."""
    chance = random.Random(seed)
    return [chance.randbytes(size) for _ in range(count)]


class RemoteObjects(MemoryObjects):
    """Objects in memory that are read like those of a remote store."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, int, int | None]] = []
        """The ranges that were requested, in order."""
        self.is_away = False
        """Whether it refuses to answer."""
        self.open_door = asyncio.Event()
        """While it is not set, requests wait."""
        self.open_door.set()
        self.under_way = 0
        self.under_way_max = 0
        """The most requests that were under way at the same time."""

    async def read(self, name, begin=0, end=None):
        self.requests.append((name, begin, end))
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            await asyncio.sleep(0)
            await self.open_door.wait()
        finally:
            self.under_way -= 1
        if self.is_away:
            raise ObjectsUnavailable("the store is away on purpose")
        return await super().read(name, begin, end)

    def open(self, name):
        raise AssertionError(f"{name} is opened as a file, which is slow")

    def damage(self, name, position):
        """Flip a bit."""
        content = bytearray(self._objects[name])
        content[position] ^= 1
        self._objects[name] = memoryview(bytes(content))

    def shorten(self, name, byte_count):
        """Cut bytes off the end."""
        self._objects[name] = self._objects[name][:-byte_count]


class TieredWorld(World):
    """A world with a remote store, to which tests move segments."""

    def __init__(self) -> None:
        super().__init__()
        self.local = FlakyObjects()
        self.remote = RemoteObjects()
        self.objects = TieredObjects(self.local, self.remote)

    async def move_to_remote(self, log, count=None):
        """Copy the first *count* segments, or all, to the remote store; evict them."""
        await self.objects.list_local()
        for entry in log.segments[:count]:
            name = entry.object_name
            await self.remote.put(name, await self.local.read(name))
            await self.objects.evict(name)


async def sealed_topic(storage, *segments):
    """Open a topic with *segments*, which are lists of payloads."""
    log = await open_topic(storage)
    for payloads in segments:
        for payload in payloads:
            await publish(log, payload)
        await seal(storage, log.topic_id)
    return log


async def settle(storage):
    """Return when everything is read that was to be read ahead."""
    cache = storage.cache
    await until(
        lambda: (
            not cache._loading
            and all(each.done_at is not None for each in cache._ahead.values())
        )
    )


def row_groups_ahead(storage):
    """The row groups that were requested ahead and are not decoded yet."""
    return set(storage.cache._ahead)


def age_row_groups_ahead(storage, seconds):
    """Make it so long ago that they were requested."""
    for each in storage.cache._ahead.values():
        each.done_at -= seconds


def expect_local(world, entry):
    """Let the broker believe that there is a local copy, as between two steps."""
    world.objects._local_names.add(entry.object_name)
