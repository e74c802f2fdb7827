"""A broker that stops waits until others serve its shards."""

from __future__ import annotations

import pytest

from pydanube.model.clusters import BrokerMode
from pydanube_broker.cluster.leaving import leave
from pydanube_broker.cluster.session import open_cluster_session
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    SessionRecord,
    ShardRecord,
    ShardState,
)
from support.fakes.broker_clusters import BrokerCluster
from support.fakes.memory_store import MemoryStore
from support.fakes.storages import until

RECORD = SessionRecord(broker_id="b", addresses={}, started_at=0)
OTHER = SessionRecord(broker_id="other", addresses={}, started_at=0)
OWNED = ShardRecord(state=ShardState.OPEN, epoch=1, owner="own", source="own")


async def leave_alone(store: MemoryStore, timeout_s: float) -> None:
    """Leave without a controller."""
    async with open_cluster_session(
        store, RECORD, ttl_s=60.0, new_id=lambda: "own"
    ) as session:
        await leave(session, store, timeout_s)


async def is_leaving(store: MemoryStore) -> bool:
    return bool(await store.scan(keys.LEAVING))


async def test_shards_are_served_by_others_before_the_session_ends() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as first:
        await until(lambda: first.takeovers.owners.counts.served)
        async with cluster.broker("b") as second:
            await leave(first.session, cluster.store)
            found = await cluster.store.scan(keys.SHARDS)
            owners = {stored.value.owner for _, stored in found}
            assert first.session.session_id not in owners
            await until(lambda: len(second.broker.shards.served) == len(found))
            assert not first.session.is_over
            assert second.takeovers.owners.counts.lost_sessions == 0


async def test_last_broker_does_not_wait() -> None:
    store = MemoryStore()
    await store.put(keys.SHARDS.key(0), OWNED)
    await leave_alone(store, 60.0)
    await store.put(keys.SESSIONS.key("other"), OTHER)
    drained = BrokerModeRecord(mode=BrokerMode.DRAINED, changed_at=0)
    await store.put(keys.BROKER_MODES.key("other"), drained)
    await leave_alone(store, 60.0)
    assert not await is_leaving(store)


async def test_broker_without_shards_does_not_wait() -> None:
    store = MemoryStore()
    await store.put(keys.SESSIONS.key("other"), OTHER)
    await leave_alone(store, 60.0)


async def test_waiting_ends_without_a_controller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    await store.put(keys.SHARDS.key(0), OWNED)
    await store.put(keys.SESSIONS.key("other"), OTHER)
    await leave_alone(store, 0.0)
    assert "not all shards have moved" in caplog.text
