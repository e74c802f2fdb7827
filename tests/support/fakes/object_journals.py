"""The list of an object journal's sessions, and an unreliable way to its objects."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import (
    MetadataUnavailable,
    ObjectsUnavailable,
    RevisionConflict,
)
from pydanube.model.retry import RetryPolicy
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.journal_format import Batch
from pydanube_broker.storage.config import JournalConfig, ObjectJournalConfig
from pydanube_broker.storage.journal.object_journal import open_object_journal
from support.fakes.batches import frame_of
from support.fakes.brokers import BrokerWorld

if TYPE_CHECKING:
    from random import Random

    from pydanube.objects.store import Objects
    from pydanube_broker.storage.journal.journal_sessions import JournalSession

JOURNAL_ID = b"cluster id, 16 B"
CONFIG = JournalConfig(file_bytes_max=1024)
LIMITS = ObjectJournalConfig(linger_ms=0)


class Batches:
    """Batches of topic 1, each with one message."""

    def __init__(self, base=0):
        self.base = base

    def next(self, size=100):
        frame = frame_of([b"x" * size])
        frame.stamp(self.base, 1)
        self.base += 1
        return Batch(1, frame)


async def append_each(journal, batches, count):
    """Append *count* batches, each in a group of its own."""
    for _ in range(count):
        journal.append(batches.next(), None)
        await journal.sync()


async def put_each(journal, batches, count, told):
    """Begin to put *count* batches, each in a group of its own."""
    for _ in range(count):
        batch = batches.next()
        base = batch.frame.base
        journal.append(batch, lambda error, base=base: told.append((base, error)))
        await turns()


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


class MemorySessions:
    """A list of sessions in memory."""

    def __init__(self) -> None:
        self.sessions: tuple[JournalSession, ...] = ()
        self.is_failing = False
        """Whether the next change is made, and its answer lost."""

    async def load(self):
        return self.sessions

    async def replace(self, expected, new):
        if self.sessions != expected:
            raise RevisionConflict("the list of sessions has changed")
        self.sessions = new
        if self.is_failing:
            self.is_failing = False
            raise MetadataUnavailable("on purpose")


class Link:
    """
    The way of one process to an object store, which may be unreliable.

    A request takes some turns of the loop.  At ``error_rate`` it fails; then it has
    been executed, or is executed later, or never.
    """

    supports_listing = True
    supports_put_if_absent = True

    def __init__(self, objects: Objects, rng: Random, error_rate: float = 0.0) -> None:
        self.is_cut = False
        """Whether the process is dead: nothing is executed any more."""
        self.error_rate = error_rate
        self._objects = objects
        self._rng = rng
        self._late: list[tuple[str, bytes]] = []

    async def put_if_absent(self, name, data):
        await self._travel()
        if self._rng.random() < self.error_rate:
            match self._rng.randrange(3):
                case 0:
                    await self._objects.put_if_absent(name, data)
                case 1:
                    self._late.append((name, bytes(data)))
            raise ObjectsUnavailable("on purpose")
        stored = await self._objects.put_if_absent(name, data)
        await self._travel()
        return stored

    async def read(self, name, begin=0, end=None):
        return await self._ask(lambda: self._objects.read(name, begin, end))

    async def delete(self, name):
        await self._ask(lambda: self._objects.delete(name))

    async def names(self, prefix, **limits):
        return await self._ask(lambda: self._objects.names(prefix, **limits))

    async def execute_late(self) -> None:
        """Execute some of the requests that failed before."""
        while self._late and self._rng.random() < 0.7:
            name, data = self._late.pop(self._rng.randrange(len(self._late)))
            await self._objects.put_if_absent(name, data)

    async def _ask(self, work) -> Any:
        await self._travel()
        if self._rng.random() < self.error_rate:
            raise ObjectsUnavailable("on purpose")
        answer = await work()
        await self._travel()
        return answer

    async def _travel(self) -> None:
        for _ in range(self._rng.randrange(6)):
            await asyncio.sleep(0)
        if self.is_cut:
            raise ObjectsUnavailable("the process is dead")


class GatedObjects(MemoryObjects):
    """Objects whose puts wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[str, asyncio.Event] = {}
        """The puts that wait, by the last digits of their names."""
        self.is_open = True

    @contextmanager
    def closed(self):
        """Let puts wait during the body, and let those through that wait at its end."""
        self.is_open = False
        try:
            yield
        finally:
            self.is_open = True
            while self.waiting:
                self.waiting.popitem()[1].set()

    async def put_if_absent(self, name, data):
        if not self.is_open:
            gate = self.waiting[name[-3:]] = asyncio.Event()
            await gate.wait()
        return await super().put_if_absent(name, data)

    def let_through(self, number: int) -> None:
        self.waiting.pop(f"{number:03d}").set()

    @property
    def stored(self):
        """The objects by name."""
        return self._objects


@asynccontextmanager
async def object_journal(objects, sessions, *, config=CONFIG, limits=LIMITS, **options):
    """Open an object journal without pauses."""
    options.setdefault("retries", RetryPolicy(first_s=0.0, max_s=0.0))
    options.setdefault("journal_id", JOURNAL_ID)
    async with open_object_journal(
        objects, sessions, config, limits, **options
    ) as journal:
        yield journal


def object_journal_world() -> BrokerWorld:
    """Return a world whose journal and metadata survive the loss of its disk."""
    world, objects, sessions = BrokerWorld(), MemoryObjects(), MemorySessions()

    @asynccontextmanager
    async def new_journal(_, config, **__):
        async with object_journal(objects, sessions, config=config) as journal:
            yield journal

    world.new_journal = new_journal
    return world
