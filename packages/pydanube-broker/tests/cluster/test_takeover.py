"""Takeovers: failing steps are repeated, and a failed journal ends the session."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import JournalFailed, ObjectsUnavailable
from pydanube.model.retry import RetryPolicy
from pydanube_broker.cluster.pacing import (
    FIRST_MAX,
    HANDOVERS_MAX,
    MESSAGES_PER_S_MAX,
    SHARDS_MAX,
    TAIL_BYTES_MAX,
    TOPICS_MAX,
)
from pydanube_broker.cluster.pure.moves import NO_LOAD
from pydanube_broker.cluster.session import open_cluster_session
from pydanube_broker.cluster.shard_owners import ShardOwners
from pydanube_broker.cluster.takeover import EMPTY_HANDOVERS_MAX, Takeovers
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    LoadRecord,
    SessionJournalRecord,
    SessionRecord,
    ShardLoad,
    ShardRecord,
    ShardState,
)
from support.fakes.clusters import Ledger, QuickHost
from support.fakes.memory_store import MemoryStore
from support.fakes.storages import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

RECORD = SessionRecord(broker_id="b", addresses={}, started_at=0)
LOST = ShardRecord(
    state=ShardState.OPEN, epoch=4, owner="lost", source="lost", source_epoch=4
)
RELEASED = replace(
    LOST, state=ShardState.RELEASED, owner=None, has_left=True, target="own"
)
OTHER = SessionRecord(broker_id="other", addresses={}, started_at=0)
SHARD = keys.SHARDS.key(0)


class FailingHost(QuickHost):
    """Fails while it has errors to raise, and reads while it may."""

    def __init__(self) -> None:
        super().__init__("own", Ledger(), Random(0))
        self.errors: list[Exception] = []
        self.calls: list[str] = []
        self.may_read = asyncio.Event()
        self.may_read.set()

    @property
    def serving(self) -> dict[int, str]:
        return self._ledger.serving

    async def prepare(self, source: str) -> None:
        self.calls.append(f"prepare {source}")

    async def fence(self, source: str) -> None:
        self.calls.append(f"fence {source}")
        if self.errors:
            raise self.errors.pop()

    async def read(self, shard: int, source: str | None, epoch: int) -> None:
        self.calls.append(f"read {shard} {source} {epoch}")
        await self.may_read.wait()

    async def append_left(self, shard: int, epoch: int) -> None:
        self.calls.append(f"left {shard} {epoch}")
        if self.errors:
            raise self.errors.pop()

    async def _work(self) -> None:
        await asyncio.sleep(0)


@pytest.fixture
def host() -> FailingHost:
    return FailingHost()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@asynccontextmanager
async def taking_over(store: MemoryStore, host: FailingHost) -> AsyncIterator:
    """Run the takeovers of the session "own"; yield its session and the task."""
    async with (
        open_cluster_session(store, RECORD, ttl_s=2.0, new_id=lambda: "own") as session,
        task_scope() as tasks,
    ):
        retries = RetryPolicy(first_s=0.0, max_s=0.0)
        takeovers = Takeovers(
            session, store, host, ShardOwners(session), retries=retries
        )
        yield session, takeovers, tasks.run(takeovers.run())


async def record_of(store: MemoryStore) -> ShardRecord:
    return (await store.get(SHARD)).value


async def ask_to_leave(store: MemoryStore) -> None:
    closing = replace(await record_of(store), state=ShardState.CLOSING, target="other")
    await store.put(SHARD, closing)


async def put_lost(store: MemoryStore) -> None:
    journal = SessionJournalRecord(kind="object", broker_id="b", prefix="p/", first=3)
    await store.put(keys.SESSION_JOURNALS.key("lost"), journal)
    await store.put(SHARD, replace(LOST, target="own"))


async def test_a_lost_session_is_frozen_fenced_and_read(
    store: MemoryStore, host: FailingHost
) -> None:
    await put_lost(store)
    async with taking_over(store, host):
        await until(lambda: host.serving)
        assert host.calls == ["fence lost", "read 0 lost 4"]
        journal = await store.get(keys.SESSION_JOURNALS.key("lost"))
        assert journal.value.is_frozen
        assert (await store.get(keys.SHARD_EPOCHS.key(0))).value == 5
        assert await record_of(store) == ShardRecord(
            state=ShardState.OPEN, epoch=5, owner="own", source="own", source_epoch=5
        )


async def test_a_takeover_of_many_shards_is_logged_once(
    store: MemoryStore, host: FailingHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pydanube_broker.cluster.takeover")
    await put_lost(store)
    for shard in range(1, 30):
        await store.put(keys.SHARDS.key(shard), replace(LOST, target="own"))
    async with taking_over(store, host) as (_, takeovers, _):
        await until(lambda: len(host.serving) == 30)
        await until(lambda: takeovers.owners.counts.takeovers)
        counts = takeovers.owners.counts
        assert (counts.takeovers, counts.served, counts.lost_sessions) == (1, 30, 1)
        lost, taken_over = (record.getMessage() for record in caplog.records)
        assert lost.startswith("session lost has ended")
        assert taken_over.startswith("took over 30 shards in ")
        assert taken_over.endswith("this broker serves 30 now, 0 wait")
        await ask_to_leave(store)
        await until(lambda: len(host.serving) == 29)
        await until(lambda: len(caplog.records) == 3)
        assert caplog.messages[2].startswith("1 shards have left this broker")


async def test_so_many_shards_are_claimed_as_the_event_loop_bears(
    store: MemoryStore, host: FailingHost
) -> None:
    await put_lost(store)
    count = SHARDS_MAX + 10
    for shard in range(1, count):
        await store.put(keys.SHARDS.key(shard), replace(LOST, target="own"))
    host.may_read.clear()
    async with taking_over(store, host) as (_, takeovers, _):
        # All of them have begun that may, and the others wait.
        await until(lambda: sum("read" in each for each in host.calls) >= FIRST_MAX)
        for _ in range(count):
            await asyncio.sleep(0)
        assert FIRST_MAX <= takeovers.owners.counts.claims <= SHARDS_MAX
        host.may_read.set()
        await until(lambda: len(host.serving) == count)
        assert takeovers.owners.counts.claims == count


async def test_a_step_that_fails_is_repeated_and_named(
    store: MemoryStore, host: FailingHost
) -> None:
    host.errors = [ObjectsUnavailable("the store is away")] * 3
    await put_lost(store)
    async with taking_over(store, host) as (_, takeovers, _):
        await until(lambda: takeovers.owners.waits)
        assert takeovers.owners.waits == {0: "the store is away"}
        await until(lambda: host.serving)
        assert takeovers.owners.waits == {}
        assert takeovers.owners.counts.failures == 3


async def test_an_unexpected_error_of_a_shard_does_not_end_the_session(
    store: MemoryStore, host: FailingHost
) -> None:
    host.errors = [KeyError("topic")]
    await put_lost(store)
    async with taking_over(store, host) as (session, takeovers, _):
        await until(lambda: takeovers.owners.waits)
        assert takeovers.owners.waits == {0: "unexpected error: KeyError('topic')"}
        await until(lambda: host.serving)
        assert takeovers.owners.waits == {}
        assert not session.is_over


async def test_without_a_record_of_its_journal_a_source_is_a_problem(
    store: MemoryStore, host: FailingHost
) -> None:
    await put_lost(store)
    await store.delete(keys.SESSION_JOURNALS.key("lost"))
    async with taking_over(store, host) as (_, takeovers, _):
        await until(lambda: takeovers.owners.waits)
        assert "no record of the journal of session lost" in takeovers.owners.waits[0]
        assert host.calls == []


async def test_an_owner_leaves_and_releases(
    store: MemoryStore, host: FailingHost
) -> None:
    await store.put(SHARD, ShardRecord(target="own"))
    async with taking_over(store, host) as (_, takeovers, _):
        await until(lambda: host.serving)
        await ask_to_leave(store)
        await until(lambda: takeovers.owners.counts.released)
        assert host.calls == ["read 0 None 0", "left 0 1"]
        assert not host.serving
        left = await record_of(store)
        assert (left.state, left.owner, left.source, left.has_left) == (
            ShardState.RELEASED,
            None,
            "own",
            True,
        )
        await until(lambda: not takeovers.machines)


@pytest.mark.parametrize(
    ("topic_count", "load", "limit"),
    [
        (0, NO_LOAD, EMPTY_HANDOVERS_MAX),
        (1, NO_LOAD, HANDOVERS_MAX),
        (TOPICS_MAX // 4, NO_LOAD, 4),
        (TOPICS_MAX * 2, NO_LOAD, 1),
        (1, ShardLoad(tail_bytes=TAIL_BYTES_MAX // 2), 2),
        (1, ShardLoad(messages_per_s=MESSAGES_PER_S_MAX), 1),
    ],
)
async def test_only_so_many_owners_are_asked_to_leave_at_the_same_time(
    store: MemoryStore,
    host: FailingHost,
    topic_count: int,
    load: ShardLoad,
    limit: int,
) -> None:
    await store.put(keys.SESSIONS.key("lost"), OTHER)
    shards, has_topics = range(limit + 2), topic_count > 0
    loads = LoadRecord(measured_at=1, shards=dict.fromkeys(shards, load))
    await store.put(keys.LOADS.key("lost"), loads)
    for shard in shards:
        for number in range(topic_count):
            await store.put(keys.SHARD_TOPICS.key(shard, number), f"t{number}")
        await store.put(keys.SHARDS.key(shard), replace(LOST, target="own"))

    async def states() -> list[ShardState]:
        found = [await store.get(keys.SHARDS.key(shard)) for shard in shards]
        return [each.value.state for each in found]

    async with taking_over(store, host) as (_, takeovers, _):
        prepared = len(shards) if has_topics else 0
        await until(lambda: host.calls.count("prepare lost") == prepared)
        while (await states()).count(  # noqa: ASYNC110
            ShardState.CLOSING
        ) < limit:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        before = await states()
        assert before.count(ShardState.CLOSING) == limit
        assert before.count(ShardState.OPEN) == 2
        leaving = before.index(ShardState.CLOSING)
        await store.put(keys.SHARDS.key(leaving), RELEASED)
        await until(lambda: takeovers.owners.counts.served == 1)
        while (await states()).count(  # noqa: ASYNC110
            ShardState.CLOSING
        ) < limit:
            await asyncio.sleep(0)
        assert f"read {leaving} lost 4" in host.calls
        assert takeovers.owners.owns(leaving)


async def put_moves(
    store: MemoryStore, shards: Iterable[int], *, have_topics: bool
) -> None:
    """Let the session get the shards of another, which runs."""
    for shard in shards:
        if have_topics:
            await store.put(keys.SHARD_TOPICS.key(shard, shard), f"t{shard}")
        await store.put(keys.SHARDS.key(shard), replace(LOST, target="own"))


async def closing(store: MemoryStore) -> list[int]:
    """Return the shards whose owners were asked to leave, after all that follows."""
    for _ in range(100):
        await asyncio.sleep(0)
    return [
        int(keys.SHARDS.name_of(path))
        for path, stored in await store.scan(keys.SHARDS)
        if stored.value.state is ShardState.CLOSING
    ]


async def test_shards_without_topics_move_after_those_with_topics(
    store: MemoryStore, host: FailingHost
) -> None:
    await store.put(keys.SESSIONS.key("lost"), OTHER)
    with_topics, empty = range(HANDOVERS_MAX + 1), range(10, 14)
    async with taking_over(store, host):
        await put_moves(store, with_topics, have_topics=True)
        assert len(await closing(store)) == HANDOVERS_MAX
        await put_moves(store, empty, have_topics=False)
        for moved in range(len(with_topics)):
            leaving = await closing(store)
            assert len(leaving) == min(HANDOVERS_MAX, len(with_topics) - moved)
            assert {*leaving} <= {*with_topics}
            if moved == with_topics[-1]:
                host.may_read.clear()
            await store.put(keys.SHARDS.key(leaving[0]), RELEASED)
        await put_moves(store, late := range(20, 22), have_topics=False)
        assert await closing(store) == []
        host.may_read.set()
        assert await closing(store) == [*empty, *late]


async def test_shards_with_topics_wait_only_for_the_moves_that_have_begun(
    store: MemoryStore, host: FailingHost
) -> None:
    await store.put(keys.SESSIONS.key("lost"), OTHER)
    with_topics, empty = 0, range(10, 10 + EMPTY_HANDOVERS_MAX + 2)
    async with taking_over(store, host):
        await put_moves(store, empty, have_topics=False)
        leaving = await closing(store)
        assert len(leaving) == EMPTY_HANDOVERS_MAX
        await put_moves(store, [with_topics], have_topics=True)
        while len(leaving) >= HANDOVERS_MAX:
            assert await closing(store) == leaving
            await store.put(keys.SHARDS.key(leaving.pop()), RELEASED)
        assert await closing(store) == [with_topics, *leaving]


async def test_shards_without_topics_move_after_a_move_with_topics_is_cancelled(
    store: MemoryStore, host: FailingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(keys.SESSIONS.key("lost"), OTHER)
    get, gets, may_look = store.get, [], asyncio.Event()

    async def slow_get(path: str) -> object:
        gets.append(path)
        if path == SHARD and gets.count(SHARD) == 2:
            await may_look.wait()
        return await get(path)

    monkeypatch.setattr(store, "get", slow_get)
    async with taking_over(store, host):
        await put_moves(store, [0], have_topics=True)
        await put_moves(store, [1], have_topics=False)
        assert await closing(store) == []
        await store.put(SHARD, replace(LOST, target=None))
        may_look.set()
        assert await closing(store) == [1]


async def test_a_failed_journal_ends_the_session_and_all_serving(
    store: MemoryStore, host: FailingHost
) -> None:
    await store.put(SHARD, ShardRecord(target="own"))
    await store.put(keys.SHARDS.key(1), ShardRecord(target="own"))
    async with taking_over(store, host) as (session, _, running):
        await until(lambda: len(host.serving) == 2)
        host.errors = [JournalFailed("fenced")]
        await ask_to_leave(store)
        await running
        assert session.is_over
        assert not host.serving
