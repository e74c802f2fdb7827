"""Clusters of whole brokers without servers, in one process, on stores in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from pydanube.model.clusters import BrokerMode
from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    JournalFailed,
    MetadataUnavailable,
    ObjectsUnavailable,
    Unavailable,
)
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.batches import decode
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.broker_opening import open_broker
from pydanube_broker.broker.delivery.internal_batches import InternalBatch
from pydanube_broker.broker.manifest import SharedManifest
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.cluster.controller import create_shards
from pydanube_broker.cluster.overview import STREAM
from pydanube_broker.cluster.pure.placement import PlacementLimits
from pydanube_broker.cluster.session import ClusterSession, open_cluster_session
from pydanube_broker.cluster.session_journals import OwnSessionJournal
from pydanube_broker.cluster.shard_owners import ShardOwners
from pydanube_broker.cluster.takeover import Takeovers
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    SessionRecord,
)
from pydanube_broker.operations.at_owner import operate_for_peer
from pydanube_broker.servers.membership import serving_shards
from pydanube_broker.storage.config import ObjectJournalConfig, StorageConfig
from pydanube_broker.storage.files import MemoryFiles
from pydanube_broker.storage.journal.group_files import GroupFiles
from pydanube_broker.storage.journal.object_journal import ROOT, open_object_journal
from pydanube_broker.storage.journal.object_recovery import FIRST_SESSION, prefix_of
from pydanube_broker.storage.journal.staged_objects import ROOT as STAGED
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from pydanube_broker.storage.segments.merging import MergingTimes
from pydanube_broker.storage.storage_opening import open_storage
from support.fakes.brokers import A_NOW_US
from support.fakes.memory_store import MemoryStore
from support.fakes.object_journals import JOURNAL_ID
from support.fakes.storages import until

if TYPE_CHECKING:
    from pathlib import Path

    from pydanube_broker.metadata.store import MetadataStore

T = TypeVar("T")

SHARDS = 4


class SharedObjects(MemoryObjects):
    """The remote object store of a cluster, with segments and journals."""

    refuses_segments = False
    """Whether segments cannot be uploaded."""

    _held: asyncio.Event | None = None
    _waiting: asyncio.Event | None = None
    _journals_held: asyncio.Event | None = None

    part_reads_left: int | None = None
    """How many reads of staged parts still succeed; None: all."""

    async def read(self, name: str, begin: int = 0, end: int | None = None) -> Any:
        if self.part_reads_left is not None and name.startswith(STAGED):
            if not self.part_reads_left:
                raise ObjectsUnavailable("on purpose")
            self.part_reads_left -= 1
        found = await super().read(name, begin, end)
        if self._held is not None and name.startswith(STAGED):
            assert self._waiting is not None
            self._waiting.set()
            await self._held.wait()
        return found

    @contextmanager
    def holding_part_reads(self) -> Iterator[asyncio.Event]:
        """Delay reads of staged parts; yields an event that one of them sets."""
        self._held, waiting = asyncio.Event(), asyncio.Event()
        self._waiting = waiting
        yield waiting
        self._held.set()

    def staged(self) -> list[str]:
        """The names of the staged parts."""
        return [each for each in self._objects if each.startswith(STAGED)]

    def segments(self) -> list[str]:
        """The names of the segments."""
        return [each for each in self._objects if each.endswith(".parquet")]

    part_failures = 0
    """How many of the next puts of staged parts fail."""

    async def put_if_absent(self, name: str, data: Any) -> bool:
        if self._journals_held is not None:
            await self._journals_held.wait()
        return await super().put_if_absent(name, data)

    def lose_journal(self, prefix: str) -> None:
        """Lose all objects of a journal that there are now."""
        for name in [each for each in self._objects if each.startswith(prefix)]:
            del self._objects[name]

    @contextmanager
    def holding_journals(self) -> Iterator[None]:
        """Let no group of a journal arrive while the body runs."""
        self._journals_held = asyncio.Event()
        yield
        self._journals_held.set()

    async def put(self, name: str, data: Any) -> None:
        if self.part_failures and name.startswith(STAGED):
            self.part_failures -= 1
            raise ObjectsUnavailable("on purpose")
        if self.refuses_segments and not name.startswith(ROOT):
            raise ObjectsUnavailable("on purpose")
        await super().put(name, data)


@dataclass(frozen=True)
class Member:
    """A running broker of a cluster."""

    broker: Broker
    session: ClusterSession
    takeovers: Takeovers
    local: MemoryObjects
    """The segments on its disk."""
    tasks: asyncio.TaskGroup
    """Its requests from other brokers."""


class MemberPeers:
    """
    The way from one broker to the others, without sockets.

    Requests are copied, as sockets do it, and the other broker handles them in a task
    of its own: it goes on if the sender is gone.
    """

    def __init__(self, cluster: BrokerCluster, broker_id: str) -> None:
        self._cluster = cluster
        self._broker_id = broker_id

    async def append(self, peer, topic, source, batches) -> None:
        member = self._cluster.members.get(peer.broker_id)
        if member is None or self._cluster.is_cut(self._broker_id, peer.broker_id):
            raise ConnectionLost(f"{peer.broker_id} cannot be reached")
        copies = [
            InternalBatch(list(each.positions), decode(bytearray(each.frame.buffer)))
            for each in batches
        ]
        task = member.tasks.create_task(
            _outcome(partial(member.broker.internal.append, topic, source, copies))
        )
        error = await asyncio.shield(task)
        if self._cluster.answers_left is not None:
            if not self._cluster.answers_left:
                raise ConnectionLost(f"the answer of {peer.broker_id} was lost")
            self._cluster.answers_left -= 1
        if error is not None:
            raise error

    async def operate(self, peer, kind, message):
        member = self._cluster.members.get(peer.broker_id)
        if member is None or self._cluster.is_cut(self._broker_id, peer.broker_id):
            raise ConnectionLost(f"{peer.broker_id} cannot be reached")
        data = message.SerializeToString()
        task = member.tasks.create_task(
            _answer(partial(operate_for_peer, member.broker, kind, data))
        )
        answer = await asyncio.shield(task)
        if isinstance(answer, BrokerError):
            raise answer
        return answer


async def _answer(request: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await request()
    except BrokerError as error:
        return error


async def _outcome(request: Callable[[], Awaitable[None]]) -> BrokerError | None:
    try:
        await request()
    except BrokerError as error:
        return error
    return None


@asynccontextmanager
async def open_member(
    broker_id: str,
    *,
    store: MetadataStore,
    remote: Any,
    started_at: int,
    settings: dict[str, Any],
    ttl_s: float = 60.0,
    wall_clock_us: Callable[[], int] = lambda: A_NOW_US,
    new_session_id: Callable[[], str] | None = None,
    clock: Callable[[], float] | None = None,
    peers: Any = None,
    addresses: Mapping[str, str] = MappingProxyType({}),
    limits: PlacementLimits | None = None,
    journals: Path | None = None,
    merging: MergingTimes | None = None,
    **options: Any,
) -> AsyncIterator[Member]:
    """
    Run a broker of a cluster, whose journal and segments are in *remote*.

    With *journals*, it is one of the processes of a broker, whose journals are there.

    *addresses* are those of further listeners.  By *limits*, it balances.

    *settings* are those of its storage, and *options* those of ``open_broker``.
    """
    record = SessionRecord(
        broker_id=broker_id,
        addresses={STREAM: f"danube://{broker_id}:6651", **addresses},
        started_at=started_at,
    )
    local = MemoryObjects()
    clock = clock or asyncio.get_running_loop().time
    ids = {} if new_session_id is None else {"new_id": new_session_id}

    @asynccontextmanager
    async def new_journal(_, config, *, reserve, clock):
        objects, session_id = remote, bytes.fromhex(session.session_id)
        with ExitStack() as stack:
            if journals is not None:
                objects = GroupFiles(journals)
                prefix = prefix_of(ROOT, FIRST_SESSION, session_id)
                stack.enter_context(objects.open_session(prefix))
            async with open_object_journal(
                objects,
                OwnSessionJournal(session, store, kind="object"),
                config,
                ObjectJournalConfig(linger_ms=0, in_flight_max=1 if journals else 4),
                journal_id=JOURNAL_ID,
                reserve=reserve,
                new_session_id=lambda: session_id,
                clock=clock,
                close_s=1.0,
            ) as journal:
                yield journal

    async def claim_remote(_: bool) -> None:
        pass

    async with (
        open_cluster_session(store, record, ttl_s=ttl_s, **ids) as session,
        open_storage(
            StorageConfig(**{"seal_interval_s": 3600.0, **settings}),
            files=MemoryFiles(),
            objects=TieredObjects(local, remote),
            manifest=SharedManifest(store),
            claim_remote=claim_remote,
            new_journal=new_journal,
            clock=clock,
            wall_clock=wall_clock_us,
            merging=merging or MergingTimes(),
        ) as opened,
        open_broker(
            store,
            opened,
            new_broker_id=lambda: broker_id,
            wall_clock_us=wall_clock_us,
            clock=clock,
            shards=Shards(SHARDS, owners := ShardOwners(session), limits),
            peers=peers,
            **options,
        ) as broker,
        serving_shards(
            session,
            store,
            broker,
            owners,
            journal_id=JOURNAL_ID,
            journal_objects=remote if journals is None else GroupFiles(journals),
            wall_clock_us=wall_clock_us,
        ) as takeovers,
        asyncio.TaskGroup() as tasks,
    ):
        yield Member(broker, session, takeovers, local, tasks)


class BrokerCluster:
    """The metadata store and the object store of a cluster, and its brokers."""

    def __init__(
        self, wall_clock_us: Callable[[], int] = lambda: A_NOW_US, **options: Any
    ) -> None:
        """*options* are those of ``open_broker``."""
        self.store = MemoryStore()
        self.remote = SharedObjects()
        self.wall_clock_us = wall_clock_us
        self._options = options
        self.own_options: dict[str, dict[str, Any]] = {}
        """Further options of single brokers."""
        self.members: dict[str, Member] = {}
        """The running brokers."""
        self.answers_left: int | None = None
        """How many answers between brokers still arrive; None: all."""
        self._cuts: set[tuple[str, str]] = set()
        self._started_at = A_NOW_US

    @contextmanager
    def cutting(self, sender: str, receiver: str) -> Iterator[None]:
        """Let no request of *sender* reach *receiver* while the body runs."""
        self._cuts.add((sender, receiver))
        yield
        self._cuts.discard((sender, receiver))

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Return whether requests of *sender* do not reach *receiver*."""
        return (sender, receiver) in self._cuts

    @asynccontextmanager
    async def broker(self, broker_id: str, **storage: Any) -> AsyncIterator[Member]:
        """Run a broker, with these settings of its storage."""
        try:
            async with self._open(broker_id, storage) as member:
                yield member
        except* JournalFailed:
            # Another broker has fenced it, unless the test has run into its time limit:
            # the group of tasks does not raise the cancellation besides its errors.
            task = asyncio.current_task()
            if broker_id in self.members or (task is not None and task.cancelling()):
                raise
        finally:
            self.members.pop(broker_id, None)

    @asynccontextmanager
    async def _open(self, broker_id, storage):
        async with self._member(broker_id, self.store, storage) as member:
            yield member

    @asynccontextmanager
    async def _member(self, broker_id, store, storage, **places):
        await create_shards(store, SHARDS)
        self._started_at += 1
        opening = open_member(
            broker_id,
            store=store,
            remote=self.remote,
            **places,
            started_at=self._started_at,
            settings=storage,
            wall_clock_us=self.wall_clock_us,
            peers=MemberPeers(self, broker_id),
            **self._options,
            **self.own_options.get(broker_id, {}),
        )
        async with opening as member:
            self.members[broker_id] = member
            yield member

    def lose(self, broker_id: str) -> None:
        """End the session of a broker as the metadata store does after its TTL."""
        self.store.lose(self.members.pop(broker_id).session.lease)

    async def set_mode(self, broker_id: str, mode: BrokerMode) -> None:
        """Drain or activate a broker."""
        record = BrokerModeRecord(mode=mode, changed_at=A_NOW_US)
        await self.store.put(keys.BROKER_MODES.key(broker_id), record)

    @contextmanager
    def holding_commits(self, broker_id: str) -> Iterator[None]:
        """Let a broker carry out no commit while the body runs."""
        commits = self.members[broker_id].broker.staging.commits
        carry_out, waiting = commits._carry_out, asyncio.Event()

        async def wait(*arguments: Any) -> None:
            await waiting.wait()
            await carry_out(*arguments)

        commits._carry_out = wait
        yield
        commits._carry_out = carry_out
        waiting.set()

    def lose_answer(self, broker_id: str, *, is_made: bool) -> None:
        """Let a broker not learn whether its next change of a query was made."""
        commits = self.members[broker_id].broker.staging.commits
        write = commits.write

        async def fail(*arguments: Any) -> None:
            commits.write = write
            if is_made:
                await write(*arguments)
            raise MetadataUnavailable("on purpose")

        commits.write = fail

    async def ask(self, request: Callable[[Broker], Awaitable[T]]) -> T:
        """Make a request of the owner: try all brokers, as clients do."""
        while True:
            for member in list(self.members.values()):
                with suppress(Unavailable):
                    return await request(member.broker)
                await asyncio.sleep(0)

    async def settled(self, *broker_ids: str) -> None:
        """Return when *broker_ids* together serve all shards, and all know that."""
        await until(lambda: sum(map(len, map(self.served, broker_ids))) == SHARDS)
        await until(lambda: all(map(_knows_owners, self.members.values())))

    def served(self, broker_id: str) -> set[int]:
        """Return the shards that a broker serves."""
        shards = self.members[broker_id].broker.shards
        assert shards is not None
        return set(shards.served)


def _knows_owners(member: Member) -> bool:
    shards = member.broker.shards
    assert shards is not None
    return all(shards.serves(each) or shards.url_of(each) for each in range(SHARDS))
