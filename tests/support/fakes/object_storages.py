"""Storages whose journal is in the remote store, and whose disk may be lost."""

from __future__ import annotations

from contextlib import asynccontextmanager

from pydanube.objects.memory import MemoryObjects
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.files import MemoryFiles
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from pydanube_broker.storage.storage_opening import open_storage
from support.fakes.object_journals import MemorySessions, object_journal
from support.fakes.storages import FlakyObjects
from support.fakes.upload_worlds import RemoteObjects, UploadWorld


class JournalRemote(RemoteObjects):
    """Remote objects whose gate lets the journal through."""

    async def put_if_absent(self, name, data):
        self._check()
        if name in self._objects:
            return False
        await MemoryObjects.put(self, name, data)
        return True


class ObjectWorld(UploadWorld):
    """An UploadWorld whose journal is an object journal in the remote store."""

    def __init__(self) -> None:
        super().__init__()
        self.remote = JournalRemote(lambda: self.wall)
        self.sessions = MemorySessions()
        self.close_s = 1.0
        """How long a storage waits for the remote store when it is closed."""

    def lose_disk(self) -> None:
        """Replace the local objects by an empty store."""
        self.objects = FlakyObjects()

    def opened_objects(self, remote=None):
        """Return the objects as a storage uses them that reaches *remote*."""
        return TieredObjects(self.objects, remote or self.remote)

    @asynccontextmanager
    async def storage(self, *, link=None, **config):
        """Open a storage that reaches the remote store through *link*."""
        config.setdefault("seal_pace", 0.0)
        config.setdefault("seal_interval_s", 3600.0)
        remote = link or self.remote

        @asynccontextmanager
        async def new_journal(files, config, *, reserve, clock):
            async with object_journal(
                remote, self.sessions, config=config, close_s=self.close_s
            ) as journal:
                yield journal

        async with open_storage(
            StorageConfig(**config),
            files=MemoryFiles(),
            objects=self.opened_objects(remote),
            manifest=self.manifest,
            clock=lambda: self.now,
            wall_clock=lambda: self.wall,
            claim_remote=self.claim_remote,
            new_journal=new_journal,
        ) as storage:
            yield storage
