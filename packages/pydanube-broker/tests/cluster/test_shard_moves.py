"""Administrators move single shards, and ask the controller to balance."""

from __future__ import annotations

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.clusters import BrokerLoad, BrokerMode, ShardMove
from pydanube.model.errors import InvalidRequest
from pydanube_broker.cluster.controller import Controller
from pydanube_broker.cluster.pure.directions import Director
from pydanube_broker.cluster.pure.placement import PlacementLimits
from pydanube_broker.cluster.session import open_cluster_session
from pydanube_broker.cluster.shard_moves import (
    measure_balance,
    move_shard,
    plan_rebalance,
    rebalance_some,
    request_rebalance,
)
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    SessionRecord,
    ShardRecord,
    ShardState,
)
from support.fakes.memory_store import MemoryStore
from support.fakes.storages import until

LIMITS = PlacementLimits()


async def store_of(owners: str, *brokers: str) -> MemoryStore:
    """Return a store in which the session ``x-1`` of broker ``x`` owns shards."""
    store = MemoryStore()
    for broker in brokers:
        record = SessionRecord(broker_id=broker, addresses={}, started_at=0)
        await store.put(keys.SESSIONS.key(f"{broker}-1"), record)
    for shard, owner in enumerate(owners):
        session = f"{owner}-1"
        record = ShardRecord(
            state=ShardState.OPEN, epoch=1, owner=session, source=session
        )
        await store.put(keys.SHARDS.key(shard), record)
        await store.put(keys.SHARD_TOPICS.key(shard, 10 + shard), f"/default/t{shard}")
    return store


async def record_of(store: MemoryStore, shard: int) -> ShardRecord:
    return (await store.get(keys.SHARDS.key(shard))).value


async def test_shard_moves_with_all_its_topics() -> None:
    store = await store_of("ab", "a", "b")
    await store.put(keys.SHARD_TOPICS.key(0, 20), "/default/another")
    assert await move_shard(store, 0, "b") == ShardMove(
        shard=0,
        source="a",
        target="b",
        topics=("/default/another", "/default/t0"),
        topic_count=2,
    )
    record = await record_of(store, 0)
    assert (record.state, record.owner, record.target) == (
        *(ShardState.OPEN, "a-1", "b-1"),
    )
    # Asking again changes nothing.
    revision = await store.revision()
    assert (await move_shard(store, 0, "b")).source == "b"
    assert await store.revision() == revision


async def test_shard_moves_to_the_broker_with_the_fewest_shards_by_default() -> None:
    store = await store_of("aabbc", "a", "b", "c")
    assert (await move_shard(store, 0)).target == "c"
    assert (await move_shard(store, 4)).target == "a"


async def test_move_to_a_broker_that_cannot_take_it_is_refused() -> None:
    store = await store_of("a", "a", "b")
    with pytest.raises(InvalidRequest, match=r"no broker 'x'.*these run: a, b"):
        await move_shard(store, 0, "x")
    draining = BrokerModeRecord(mode=BrokerMode.DRAINING, changed_at=0)
    await store.put(keys.BROKER_MODES.key("b"), draining)
    with pytest.raises(InvalidRequest, match="danube brokers undrain b"):
        await move_shard(store, 0, "b")
    with pytest.raises(InvalidRequest, match="no other broker"):
        await move_shard(store, 0)


async def test_takeover_is_not_interrupted_by_a_move() -> None:
    store = await store_of("a", "a", "b")
    opening = ShardRecord(state=ShardState.OPENING, epoch=2, owner="a-1")
    await store.put(keys.SHARDS.key(0), opening)
    with pytest.raises(InvalidRequest, match="being taken over by a"):
        await move_shard(store, 0, "b")
    assert await record_of(store, 0) == opening


async def test_plan_levels_small_differences_and_changes_nothing() -> None:
    # The controller alone does not begin below 20 %.
    store = await store_of("a" * 11 + "b" * 9, "a", "b")
    revision = await store.revision()
    (move,) = await plan_rebalance(store, LIMITS)
    assert (move.source, move.target) == ("a", "b")
    assert move.topics == (f"/default/t{move.shard}",)
    assert await store.revision() == revision
    even = await store_of("ab", "a", "b")
    assert await plan_rebalance(even, LIMITS) == []


async def test_so_many_shards_move_as_a_rebalance_may_move() -> None:
    store = await store_of("aaaaaa", "a", "b")
    planned = await plan_rebalance(store, LIMITS)
    assert len(planned) == 3
    assert await rebalance_some(store, LIMITS, 2) == planned[:2]
    records = [await record_of(store, shard) for shard in range(6)]
    assert [each.target for each in records].count("b-1") == 2
    assert await rebalance_some(store, LIMITS, 0) == []


async def test_balance_is_that_of_active_brokers() -> None:
    store = await store_of("aaab", "a", "b")
    assert await measure_balance(store) == [
        BrokerLoad(broker_id="a", load_percent=75.0, topic_count=3),
        BrokerLoad(broker_id="b", load_percent=25.0, topic_count=1),
    ]


async def test_controller_balances_once_for_each_request() -> None:
    store = await store_of("a" * 11 + "b" * 9, "a", "b")
    record = SessionRecord(broker_id="c", addresses={}, started_at=0)
    draining = BrokerModeRecord(mode=BrokerMode.DRAINED, changed_at=0)
    await store.put(keys.BROKER_MODES.key("c"), draining)
    async with (
        open_cluster_session(store, record, ttl_s=2.0) as session,
        task_scope() as tasks,
    ):
        controller = Controller(
            *(session, store, Director()), clock=lambda: 0.0, wall_clock_us=lambda: 0
        )
        tasks.run(controller.run())
        await until(lambda: controller.is_controller)
        await request_rebalance(store, 7)
        await until(lambda: controller.counts.moves)
        while await store.get(keys.REBALANCE) is not None:
            await until(lambda: True)
        assert controller.counts.moves == 1
        tasks.cancel()
