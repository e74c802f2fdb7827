"""A broker's session ends when its key is gone, or when its own clock says so."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import ClusterInUse, SessionLost
from pydanube_broker.cluster.session import ClusterSession, open_cluster_session
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.sqlite import open_sqlite
from support.fakes.memory_store import MemoryStore
from support.fakes.storages import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pydanube_broker.metadata.store import MetadataStore

RECORD = SessionRecord(
    broker_id="one", addresses={"native": "danube://one:6650"}, started_at=7
)


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[MetadataStore]:
    if request.param == "memory":
        yield MemoryStore()
        return
    async with open_sqlite(tmp_path / "metadata.sqlite") as opened:
        yield opened


async def test_the_key_of_a_session_is_there_while_it_lasts(
    store: MetadataStore,
) -> None:
    async with open_cluster_session(store, RECORD, ttl_s=2.0) as session:
        assert len(bytes.fromhex(session.session_id)) == 16
        stored = await store.get(session.key)
        assert (stored.value, stored.revision) == (RECORD, session.revision)
        session.check()
    assert await store.scan(keys.SESSIONS) == []
    assert session.is_over


async def test_a_session_is_over_when_its_key_is_gone(store: MetadataStore) -> None:
    async with open_cluster_session(store, RECORD, ttl_s=2.0) as session:
        await store.delete(session.key)
        await session.lease.lost.wait()
        with pytest.raises(SessionLost, match="of this broker in the cluster is over"):
            session.check()


async def test_a_session_whose_key_was_written_again_is_over(
    store: MetadataStore,
) -> None:
    async with open_cluster_session(store, RECORD, ttl_s=2.0) as session:
        await store.put(session.key, RECORD)
        await session.lease.lost.wait()
        with pytest.raises(SessionLost, match="of this broker in the cluster is over"):
            session.check()


async def test_a_second_process_with_the_name_of_a_broker_is_refused(
    store: MetadataStore,
) -> None:
    async with open_cluster_session(store, RECORD, ttl_s=2.0) as session:
        with pytest.raises(
            ClusterInUse, match=f"is the broker 'one'.*{session.key.path[-32:]}"
        ):
            async with open_cluster_session(store, RECORD, ttl_s=0.01):
                pass
        assert not session.is_over
        assert len(await store.scan(keys.SESSIONS)) == 1


async def test_a_broker_waits_for_the_end_of_its_earlier_session(
    store: MetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack, task_scope() as tasks:
        first = AsyncExitStack()
        await first.enter_async_context(open_cluster_session(store, RECORD, ttl_s=60.0))
        second = open_cluster_session(store, RECORD, ttl_s=60.0)
        waiting = tasks.start(stack.enter_async_context(second))
        await until(lambda: "waiting for the end of session" in caplog.text)
        assert not waiting.done()
        await first.aclose()
        session = await waiting
        stored = await store.get(keys.BROKER_SESSIONS.key("one"))
        assert stored.value == session.session_id


async def test_a_session_is_over_when_its_own_clock_says_so() -> None:
    now = 100.0
    lease = Session("s-1", valid_until=102.0, clock=lambda: now)
    session = ClusterSession("s", lease, 1, MemoryStore())
    session.check()
    now = 102.0
    # No event and no answer of the store says it.
    assert session.is_over
    with pytest.raises(SessionLost):
        session.check()


async def test_a_session_sees_the_others_come_and_go(store: MetadataStore) -> None:
    changed = asyncio.Event()
    async with open_cluster_session(store, RECORD, ttl_s=2.0) as session:
        session.watch_members(changed.set)
        other_record = replace(RECORD, broker_id="other")
        async with open_cluster_session(store, other_record, ttl_s=2.0) as other:
            while other.session_id not in session.members.values:
                await changed.wait()
                changed.clear()
        while other.session_id in session.members.values:
            await changed.wait()
            changed.clear()
        assert session.members.values.keys() == {session.session_id}
