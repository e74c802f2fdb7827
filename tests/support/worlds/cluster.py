"""Three brokers of a cluster, whose shards move and whose sessions end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.client.connections.redirects import Redirect, redirecting
from pydanube.model.errors import InvalidRequest, JournalFailed
from pydanube.wire.native.frames import batch_bytes_max
from pydanube_broker.broker.governance.access_control import IsSuperuser
from pydanube_broker.cluster.shard_moves import move_shard
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.native.server import NativeServer, open_native_server
from pydanube_broker.servers.settings.config import ListenConfig
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.testing import BrokerClock
from support.fakes.broker_clusters import SHARDS, BrokerCluster
from support.worlds.broker import WorldBroker
from support.worlds.chance import Chance
from support.worlds.steps import Step

BROKERS = 3
PORT = 6651

Rest = Callable[[], Awaitable[None]]
"""What of an event takes time."""

_numbers = count(1)


class ClusterBroker(WorldBroker):
    """The brokers of a cluster, which change between the steps of clients."""

    def __init__(
        self,
        cluster: BrokerCluster,
        broker_ids: list[str],
        clock: BrokerClock,
        tasks: TaskScope,
        chance: Chance,
        listen: ListenConfig | None,
        authenticator: Authenticator | None,
        storage: dict[str, Any],
    ) -> None:
        super().__init__(clock, tasks, chance)
        self.cluster = cluster
        self.broker_ids = broker_ids
        self._listen = listen
        self._authenticator = authenticator
        self._storage = storage
        self._reachable: dict[str, NativeServer] = {}
        self._has_changed = asyncio.Event()
        # Set to end the session of a broker.
        self._ends: dict[str, asyncio.Event] = {}
        self._rests: asyncio.Queue[Rest] = asyncio.Queue()
        self._is_idle = True

    @property
    def servers(self) -> Iterable[NativeServer]:
        return list(self._reachable.values())

    async def find_server(self) -> NativeServer:
        while not self._reachable:
            await self._changed()
        return self._reachable[self._chance.choose(sorted(self._reachable))]

    async def run(self, broker_id: str) -> None:
        """Run a broker, which starts again when its session has ended."""
        while self.is_open:
            end = self._ends[broker_id] = asyncio.Event()
            try:
                await self._run_until(end, broker_id)
            except* JournalFailed:
                # Another broker may fence it while the test ends.
                if not end.is_set():
                    raise

    async def _run_until(self, end: asyncio.Event, broker_id: str) -> None:
        async with (
            self.cluster.broker(broker_id, **self._storage) as member,
            open_native_server(
                member.broker, self._listen, self._authenticator
            ) as server,
        ):
            self._reachable[broker_id] = server
            self._has_changed.set()
            try:
                await end.wait()
            finally:
                self._reachable.pop(broker_id, None)

    @contextmanager
    def redirected(self) -> Any:
        """Let clients reach the brokers at the addresses that the cluster tells."""
        with ExitStack() as stack:
            for each in self.broker_ids:
                redirect = Redirect(
                    (each, PORT), self._dial_to(each), self.clock.wall_ns
                )
                stack.enter_context(redirecting(redirect))
            yield

    def redirect(self, url: str | None = None) -> Any:
        """See ``MemoryBroker.redirect``; the brokers stay what they are."""

        @contextmanager
        def redirected() -> Any:
            with super(ClusterBroker, self).redirect(url), self.redirected():
                yield

        return redirected()

    def _dial_to(self, broker_id: str) -> Any:
        async def find() -> NativeServer:
            if broker_id not in self._reachable or not self.is_open:
                raise ConnectionRefusedError
            return self._reachable[broker_id]

        async def dial(factory: Any) -> Any:
            return await self._connect(find, factory)

        return dial

    async def on_step(self, _: NativeServer, step: Step) -> None:
        if not self.is_open or not self._chance.is_due():
            return
        if not self._is_idle:
            self._chance.postpone()
            return
        events: list[Callable[[], Rest | None]] = [self._move, self._move]
        if await self.may_break(step):
            events += [self._lose, self._cut]
        rest = self._chance.choose(events)()
        if rest is None:
            return
        self._is_idle = False
        self._rests.put_nowait(rest)
        if self._chance.rng.random() < 0.5:
            await self._rests.join()

    async def finish_events(self) -> None:
        """Do what of the events takes time, one after the other."""
        while True:
            await (await self._rests.get())()
            self._rests.task_done()
            self._is_idle = self._rests.empty()

    def _move(self) -> Rest:
        """Move a shard."""
        shard = self._chance.rng.randrange(SHARDS)
        target = self._chance.choose(self.broker_ids)
        self._chance.note(f"shard {shard} moves to {target}")
        return partial(self._ask_to_move, shard, target)

    async def _ask_to_move(self, shard: int, target: str) -> None:
        # It may be there, or on its way.
        with suppress(InvalidRequest):
            await move_shard(self.cluster.store, shard, target)

    def _lose(self) -> Rest | None:
        """End the session of a broker, which starts again."""
        running = sorted(self._reachable.keys() & self.cluster.members.keys())
        if len(running) < BROKERS:
            return None
        broker_id = self._chance.choose(running)
        self._chance.note(f"the session of {broker_id} ends")
        self.break_connections(self._reachable.pop(broker_id))
        self.cluster.lose(broker_id)
        self._ends[broker_id].set()
        return partial(self._has_started, broker_id)

    async def _has_started(self, broker_id: str) -> None:
        while broker_id not in self._reachable:
            await self._changed()

    def _cut(self) -> None:
        """Cut the connections of a broker."""
        broker_id = self._chance.choose(sorted(self._reachable))
        self._chance.note(f"the connections of {broker_id} break")
        self.break_connections(self._reachable[broker_id])

    async def _changed(self) -> None:
        self._has_changed.clear()
        await self._has_changed.wait()


@asynccontextmanager
async def cluster_world(chance: Chance, **options: Any) -> AsyncIterator[ClusterBroker]:
    """Run the cluster; the options are those of ``memory_broker``."""
    async with running_cluster(BrokerCluster, chance, **options) as world:
        yield world


@asynccontextmanager
async def running_cluster(
    new_cluster: Callable[..., BrokerCluster],
    chance: Chance,
    *,
    auto_create_topics: bool = True,
    storage: StorageConfig | None = None,
    listen: ListenConfig | None = None,
    is_superuser: IsSuperuser | None = None,
    audit_file: Path | None = None,
    authenticator: Authenticator | None = None,
) -> AsyncIterator[ClusterBroker]:
    """Run the cluster that *new_cluster* makes."""
    clock = BrokerClock()
    cluster = new_cluster(
        clock.wall_us,
        clock=clock.now,
        auto_create_topics=auto_create_topics,
        batch_bytes_max=batch_bytes_max((listen or ListenConfig()).frame_bytes_max),
        is_superuser=is_superuser,
        audit_file=audit_file,
    )
    settings = storage or StorageConfig()
    number = next(_numbers)
    broker_ids = [f"{letter}{number}" for letter in "abc"[:BROKERS]]
    async with task_scope() as tasks:
        world = ClusterBroker(
            cluster,
            broker_ids,
            clock,
            tasks,
            chance,
            listen,
            authenticator,
            {name: getattr(settings, name) for name in settings.__struct_fields__},
        )
        for each in broker_ids:
            tasks.run(world.run(each))
        tasks.run(world.finish_events())
        while len(world._reachable) < BROKERS:
            await world._changed()
        await cluster.settled(*broker_ids)
        with world.redirect(world.url):
            try:
                yield world
            finally:
                world.is_open = False
