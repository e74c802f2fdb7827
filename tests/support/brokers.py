"""Brokers without servers, over a store and a storage that outlive them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from pydanube.broker.broker import open_broker
from pydanube.broker.manifest import MetadataManifest
from pydanube.metadata.memory import MemoryStore
from pydanube.model.errors import MetadataUnavailable
from pydanube.model.names import TopicName
from pydanube.model.policy import DispatchMode, TopicPolicy
from pydanube.storage.config import StorageConfig
from pydanube.storage.files import MemoryFiles
from pydanube.storage.objects import MemoryObjects
from pydanube.storage.storage import open_storage

A_TOPIC = TopicName.parse("/default/orders")
A_NOW_US = 1_700_000_000_000_000
RELIABLE = TopicPolicy()
NON_RELIABLE = TopicPolicy(dispatch=DispatchMode.NON_RELIABLE)
TEST_TIMEOUT_S = 30


class MeddledStore(MemoryStore):
    """A store in which others act in the worst moment: between reading and writing."""

    def __init__(self) -> None:
        super().__init__()
        self.meddling = []
        """What happens before the next transactions, one thing before each."""
        self.failing = set()
        """Prefixes that cannot be scanned."""

    async def transaction(self, comparisons, operations):
        """See MetadataStore."""
        if self.meddling:
            await self.meddling.pop(0)()
        return await super().transaction(comparisons, operations)

    async def scan(self, prefix, **page):
        """See MetadataStore."""
        if any(prefix.path.startswith(each) for each in self.failing):
            raise MetadataUnavailable(f"{prefix}: on purpose")
        return await super().scan(prefix, **page)


class BrokerWorld:
    """What outlives a broker: its journal, its segments, the metadata store."""

    def __init__(self, store=None, objects=None, **storage) -> None:
        self.store = store or MeddledStore()
        self.files = MemoryFiles()
        self.objects = objects or MemoryObjects()
        self._config = StorageConfig(**{"seal_interval_s": 3600.0, **storage})
        self.staged = MemoryFiles()

    @asynccontextmanager
    async def broker(self, **options):
        """A broker of this world; there is one at a time."""
        async with (
            open_storage(
                self._config,
                files=self.files,
                objects=self.objects,
                manifest=MetadataManifest(self.store),
            ) as storage,
            open_broker(
                self.store,
                storage,
                new_broker_id=lambda: "b-1",
                wall_clock_us=lambda: A_NOW_US,
                staging_files=self.staged,
                **options,
            ) as broker,
        ):
            yield broker


def with_world(test, *worlds) -> None:
    """Run *test* with a world of its own, or these."""

    async def run() -> None:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await test(*(worlds or [BrokerWorld()]))

    try:
        asyncio.run(run())
    except BaseExceptionGroup as group:
        raise _first(group) from None


def with_bare_broker(test, **options) -> None:
    """Run *test* with a broker that has no servers."""

    async def run(world) -> None:
        async with world.broker(**options) as broker:
            await test(broker)

    with_world(run)


def _first(group):
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


class Outcome:
    """A ``done`` callback that remembers what it was told, and can be awaited."""

    def __init__(self) -> None:
        self._future = asyncio.get_running_loop().create_future()

    def __call__(self, offset, error) -> None:
        assert not self._future.done(), "told twice"
        self._future.set_result((offset, error))

    @property
    def is_known(self) -> bool:
        return self._future.done()

    async def offset(self) -> int:
        """The offset; raises what went wrong."""
        offset, error = await self._future
        if error is not None:
            raise error
        return offset

    async def error(self):
        """What went wrong, or None."""
        return (await self._future)[1]


class Port:
    """A consumer's far end that keeps what it is sent."""

    def __init__(self) -> None:
        self.frames = []
        self.reason = None

    def deliver(self, frame, attempt, *args, **kwargs) -> None:
        self.frames.append(frame)

    def set_active(self, *, is_active) -> None:
        pass

    def close(self, reason) -> None:
        self.reason = reason
