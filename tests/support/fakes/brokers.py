"""Brokers without servers, on a store and a storage that survive them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from pydanube.model.errors import MetadataUnavailable
from pydanube.model.names import TopicName
from pydanube.model.policy import DispatchMode, TopicPolicy
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.broker.broker_opening import open_broker
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.files import MemoryFiles
from pydanube_broker.storage.journal.journal import open_journal
from pydanube_broker.storage.storage_opening import open_storage
from support.fakes.memory_store import MemoryStore

A_TOPIC = TopicName.parse("/default/orders")
A_NOW_US = 1_700_000_000_000_000
RELIABLE = TopicPolicy()
NON_RELIABLE = TopicPolicy(dispatch=DispatchMode.NON_RELIABLE)


class MeddledStore(MemoryStore):
    """A store that runs other actions between a caller's read and its transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.concurrent_actions = []
        """The actions to run before the next transactions, one before each."""
        self.failing = set()
        """Prefixes that cannot be scanned."""

    async def transaction(self, comparisons, operations):
        """See MetadataStore."""
        if self.concurrent_actions:
            await self.concurrent_actions.pop(0)()
        return await super().transaction(comparisons, operations)

    async def _scan(self, prefix, after, limit):
        if any(prefix.startswith(each) for each in self.failing):
            raise MetadataUnavailable(f"{prefix}: on purpose")
        return await super()._scan(prefix, after, limit)


class BrokerWorld:
    """A broker's journal, segments and metadata store, which survive it."""

    def __init__(self, store=None, objects=None, **storage) -> None:
        self.store = store or MeddledStore()
        self.files = MemoryFiles()
        self.objects = objects or MemoryObjects()
        self._config = StorageConfig(**{"seal_interval_s": 3600.0, **storage})
        self.staged = MemoryFiles()
        self.new_journal = open_journal
        self.now_us = A_NOW_US
        """The time in microseconds since 1970."""

    @asynccontextmanager
    async def broker(self, **options):
        """Run a broker of this world; one at a time."""
        async with (
            open_storage(
                self._config,
                files=self.files,
                objects=self.objects,
                manifest=MetadataManifest(self.store),
                new_journal=self.new_journal,
            ) as storage,
            open_broker(
                self.store,
                storage,
                new_broker_id=lambda: "b-1",
                wall_clock_us=lambda: self.now_us,
                staging_files=self.staged,
                **options,
            ) as broker,
        ):
            yield broker


class Outcome:
    """A ``done`` callback that stores its arguments and can be awaited."""

    def __init__(self) -> None:
        self._future = asyncio.get_running_loop().create_future()

    def __call__(self, offset, error) -> None:
        assert not self._future.done(), "told twice"
        self._future.set_result((offset, error))

    @property
    def is_known(self) -> bool:
        return self._future.done()

    async def offset(self) -> int:
        """Return the offset, or raise the error."""
        offset, error = await self._future
        if error is not None:
            raise error
        return offset

    async def error(self):
        """Return the error, or None."""
        return (await self._future)[1]


class Port:
    """A consumer port that stores the received frames."""

    def __init__(self) -> None:
        self.frames = []
        self.reason = None

    def deliver(self, frame, attempt, *args, **kwargs) -> None:
        self.frames.append(frame)

    def set_state(self, *, is_active, ack_timeout_s) -> None:
        pass

    def close(self, reason) -> None:
        self.reason = reason
