"""One broker that stops or crashes between the steps of clients, and recovers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.native.frames import batch_bytes_max
from pydanube_broker.broker.broker_opening import open_broker
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.native.server import NativeServer, open_native_server
from pydanube_broker.servers.settings.config import ListenConfig
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.files import Files, MemoryFiles
from pydanube_broker.storage.storage_opening import open_storage
from pydanube_broker.testing import BrokerClock
from support.fakes.memory_store import MemoryStore
from support.worlds.broker import WorldBroker
from support.worlds.chance import Chance
from support.worlds.steps import Step


class Disk:
    """Everything that survives a broker."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.journal = MemoryFiles()
        self.staged = MemoryFiles()
        self.objects = MemoryObjects()

    def copy(self) -> Disk:
        """Return what a crash at this moment leaves."""
        found = Disk()
        found.store.copy_from(self.store)
        found.journal = _copy(self.journal)
        found.staged = _copy(self.staged)
        found.objects._objects.update(self.objects._objects)
        return found


def _copy(files: Files) -> MemoryFiles:
    found = MemoryFiles()
    for name in files.names():
        found.create(name).write([files.map(name)])
    return found


class RestartingBroker(WorldBroker):
    """A broker that starts again whenever it has stopped."""

    def __init__(
        self,
        clock: BrokerClock,
        tasks: TaskScope,
        chance: Chance,
        storage: StorageConfig | None,
        listen: ListenConfig | None,
        authenticator: Authenticator | None,
        options: dict[str, Any],
    ) -> None:
        super().__init__(clock, tasks, chance)
        self._disk = Disk()
        self._storage = storage or StorageConfig()
        self._listen = listen
        self._authenticator = authenticator
        self._options = options
        self._server: NativeServer | None = None
        self._is_running = asyncio.Event()
        self._end = asyncio.Event()

    @property
    def servers(self) -> Iterable[NativeServer]:
        return [] if self._server is None else [self._server]

    async def find_server(self) -> NativeServer:
        await self._is_running.wait()
        assert self._server is not None
        return self._server

    async def run(self) -> None:
        """Run the broker again and again."""
        while True:
            disk, self._end = self._disk, asyncio.Event()
            async with (
                open_storage(
                    self._storage,
                    files=disk.journal,
                    objects=disk.objects,
                    manifest=MetadataManifest(disk.store),
                    wall_clock=self.clock.wall_us,
                ) as storage,
                open_broker(
                    disk.store,
                    storage,
                    new_broker_id=lambda: uuid.uuid4().hex,
                    wall_clock_us=self.clock.wall_us,
                    clock=self.clock.now,
                    staging_files=disk.staged,
                    **self._options,
                ) as broker,
                open_native_server(broker, self._listen, self._authenticator) as server,
            ):
                self._server = server
                self._is_running.set()
                await self._end.wait()
                self._server = None

    async def on_step(self, server: NativeServer, step: Step) -> None:
        if not self.is_open or not self._is_running.is_set():
            return
        if not self._chance.is_due():
            return
        if not await self.may_break(step) or not self._is_running.is_set():
            self._chance.postpone()
            return
        self._is_running.clear()
        is_crash = self._chance.rng.random() < 0.5
        self._chance.note("the broker crashes" if is_crash else "the broker restarts")
        if is_crash:
            self._disk = self._disk.copy()
        self.break_connections(server, is_stop=not is_crash)
        self._end.set()
        await self._is_running.wait()


@asynccontextmanager
async def restarting_world(
    chance: Chance,
    *,
    storage: StorageConfig | None = None,
    listen: ListenConfig | None = None,
    authenticator: Authenticator | None = None,
    **options: Any,
) -> AsyncIterator[RestartingBroker]:
    """Run the broker; the options are those of ``memory_broker``."""
    options["batch_bytes_max"] = batch_bytes_max(
        (listen or ListenConfig()).frame_bytes_max
    )
    async with task_scope() as tasks:
        world = RestartingBroker(
            BrokerClock(), tasks, chance, storage, listen, authenticator, options
        )
        tasks.run(world.run())
        await world.find_server()
        with world.redirect(world.url):
            try:
                yield world
            finally:
                world.is_open = False
