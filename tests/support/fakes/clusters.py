"""Clusters of sessions without messages, over a store that is late and fails."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import MetadataUnavailable, ObjectsUnavailable
from pydanube_broker.cluster.controller import Controller
from pydanube_broker.cluster.pure.directions import Director
from pydanube_broker.cluster.session import open_cluster_session
from pydanube_broker.cluster.shard_owners import ShardOwners
from pydanube_broker.cluster.takeover import Takeovers
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionJournalRecord, SessionRecord
from pydanube_broker.metadata.store import MetadataStore

if TYPE_CHECKING:
    from random import Random

    from support.fakes.memory_store import MemoryStore

TTL_S = 2.0
LATE_S = 0.05
"""The longest time that a request or a change of a watch takes."""
CUT_OFF_S = 0.5
"""The time after which a request without an answer fails."""


class LateStore(MetadataStore):
    """
    The way of one process to a store: late, and with changes of unknown outcome.

    The keys of a process that is dead stay until their TTL has passed.
    """

    def __init__(self, store: MemoryStore, rng: Random) -> None:
        self.is_dead = False
        self.is_mute = False
        """Whether requests do not arrive."""
        self.is_deaf = False
        """Whether answers and changes of watches do not arrive."""
        self.error_rate = 0.0
        self.has_session = False
        """Whether requests may fail; without a session, a broker does not start."""
        self._store = store
        self._rng = rng

    async def revision(self):
        return await self._store.revision()

    @asynccontextmanager
    async def open_session(self, ttl_s):
        opened = self._store.open_session(ttl_s)
        session = await opened.__aenter__()
        session._clock = asyncio.get_running_loop().time
        try:
            yield session
        finally:
            session.end()
            later_s = ttl_s if self.is_dead else 0.0
            loop = asyncio.get_running_loop()
            loop.call_later(later_s, self._store.lose, session)

    async def _get(self, path):
        await self._travel()
        found = await self._store._get(path)
        await self._return()
        return found

    async def _scan(self, prefix, after, limit):
        await self._travel()
        found = await self._store._scan(prefix, after, limit)
        await self._return()
        return found

    async def _change(self, comparisons, operations):
        await self._travel()
        changed = await self._store._change(comparisons, operations)
        await self._travel(self.is_deaf)
        return changed

    @asynccontextmanager
    async def _watch(self, prefix):
        async def late(raw):
            async for changes in raw:
                await asyncio.sleep(self._rng.random() * LATE_S)
                while self.is_deaf:  # noqa: ASYNC110 (a poll is enough here)
                    await asyncio.sleep(LATE_S)
                yield changes

        async with self._store._watch(prefix) as raw:
            yield late(raw)

    async def _travel(self, is_lost=None):
        await asyncio.sleep(self._rng.random() * LATE_S)
        if self.is_mute if is_lost is None else is_lost:
            await asyncio.sleep(CUT_OFF_S)
            raise MetadataUnavailable("cut off on purpose")
        if self.has_session and self._rng.random() < self.error_rate:
            raise MetadataUnavailable("on purpose")

    async def _return(self):
        if self.is_deaf:
            await asyncio.sleep(CUT_OFF_S)
            raise MetadataUnavailable("cut off on purpose")


class Ledger:
    """Which session serves each shard, in all of the cluster."""

    def __init__(self) -> None:
        self.serving: dict[int, str] = {}
        self.epochs: dict[int, int] = {}


class QuickHost:
    """Carries out the steps of takeovers at random speed, and checks their order."""

    def __init__(self, session_id: str, ledger: Ledger, rng: Random) -> None:
        self.error_rate = 0.0
        self._session_id = session_id
        self._ledger = ledger
        self._rng = rng

    async def prepare(self, source):
        await self._work()

    async def fence(self, source):
        await self._work()

    async def read(self, shard, source, epoch):
        assert (source is None) == (epoch == 0)
        await self._work()

    async def adopt(self, shard, epoch):
        await self._work()

    async def serve(self, shard, epoch):
        await self._work()
        ledger = self._ledger
        assert shard not in ledger.serving, f"{shard} is served twice"
        assert epoch > ledger.epochs.get(shard, 0)
        ledger.serving[shard], ledger.epochs[shard] = self._session_id, epoch

    def refuse_messages(self, shard):
        assert self._ledger.serving[shard] == self._session_id

    async def append_left(self, shard, epoch):
        await self._work()

    def keep_sources(self, sources):
        pass

    def note_source(self, shard, epoch):
        pass

    def stop(self, shard):
        assert self._ledger.serving.pop(shard, self._session_id) == self._session_id

    async def _work(self):
        await asyncio.sleep(self._rng.random() * LATE_S)
        if self._rng.random() < self.error_rate:
            raise ObjectsUnavailable("on purpose")


class Member:
    """One run of a broker that takes part in a cluster."""

    def __init__(
        self,
        link: MetadataStore,
        broker_id: str,
        session_id: str,
        ledger: Ledger,
        rng: Random,
        ttl_s: float = TTL_S,
    ) -> None:
        self.broker_id = broker_id
        self.ttl_s = ttl_s
        self.session_id = session_id
        self.link = link
        self.host = QuickHost(session_id, ledger, rng)
        self.controller: Controller | None = None
        self.takeovers: Takeovers | None = None

    async def run(self) -> None:
        """Take part until cancelled."""
        loop = asyncio.get_running_loop()
        record = SessionRecord(
            broker_id=self.broker_id, addresses={}, started_at=int(loop.time() * 1e6)
        )
        journal = SessionJournalRecord(kind="object", broker_id="b", prefix="", first=1)
        await self.link.put(keys.SESSION_JOURNALS.key(self.session_id), journal)
        async with (
            open_cluster_session(
                self.link, record, ttl_s=self.ttl_s, new_id=lambda: self.session_id
            ) as session,
            task_scope() as tasks,
        ):
            self.link.has_session = True
            self.controller = Controller(
                session,
                self.link,
                Director(),
                clock=loop.time,
                wall_clock_us=lambda: int(loop.time() * 1e6),
            )
            self.takeovers = Takeovers(
                session, self.link, self.host, ShardOwners(session)
            )
            tasks.run(self.controller.run(), "control")
            await self.takeovers.run()
