"""What people see of the brokers of a cluster, and changes of their modes."""

import pytest

from pydanube.model.clusters import BrokerMode, ClusterBroker
from pydanube.model.errors import InvalidRequest
from pydanube_broker.cluster.overview import (
    STREAM,
    count_topics,
    describe,
    describe_cluster,
    set_broker_mode,
)
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    SessionRecord,
    ShardRecord,
    ShardState,
)
from support.fakes.memory_store import MemoryStore

NOW_US = 1_700_000_000_000_000


def session(broker_id):
    return SessionRecord(
        broker_id=broker_id,
        addresses={STREAM: f"danube://{broker_id}:6651"},
        started_at=NOW_US,
        zone="z",
    )


def described(*shards, modes=None, controller="s1"):
    found = describe(
        sessions={"s1": session("b"), "s2": session("a")},
        shards={str(number): record for number, record in enumerate(shards)},
        modes=modes or {},
        controller=controller,
    )
    return found, {each.broker_id: each for each in found.brokers}


@pytest.fixture
async def store():
    store = MemoryStore()
    for name in ("a", "b"):
        await store.put(keys.SESSIONS.key(f"session-{name}"), session(name))
    return store


async def mode_of(store, broker_id):
    return {
        each.broker_id: each.mode for each in (await describe_cluster(store)).brokers
    }[broker_id]


def test_brokers_are_described_by_name():
    found, brokers = described(
        ShardRecord(state=ShardState.OPEN, owner="s1"),
        ShardRecord(state=ShardState.OPEN, owner="s1", target="s2"),
        ShardRecord(state=ShardState.CLOSING, owner="s2", target="s1"),
    )
    assert [each.broker_id for each in found.brokers] == ["a", "b"]
    assert brokers["b"] == ClusterBroker(
        broker_id="b",
        url="danube://b:6651",
        is_controller=True,
        shard_count=2,
        incoming_count=1,
        started_at=NOW_US,
        zone="z",
        session_id="s1",
    )
    assert (brokers["a"].shard_count, brokers["a"].incoming_count) == (1, 1)
    assert not brokers["a"].is_controller
    assert (found.shard_count, found.unserved_count) == (3, 0)


def test_shards_without_a_present_owner_are_not_served():
    found, brokers = described(
        ShardRecord(),
        ShardRecord(state=ShardState.OPENING, owner="s2"),
        ShardRecord(state=ShardState.OPEN, owner="gone"),
    )
    assert found.unserved_count == 3
    assert (brokers["a"].shard_count, brokers["a"].incoming_count) == (0, 1)


def test_drained_brokers_that_do_not_run_are_listed():
    modes = {
        "b": BrokerModeRecord(mode=BrokerMode.DRAINING, changed_at=NOW_US),
        "c": BrokerModeRecord(mode=BrokerMode.DRAINED, changed_at=NOW_US),
        "d": BrokerModeRecord(mode=BrokerMode.ACTIVE, changed_at=NOW_US),
    }
    found, brokers = described(modes=modes, controller=None)
    assert [each.broker_id for each in found.brokers] == ["a", "b", "c"]
    assert brokers["a"].mode is BrokerMode.ACTIVE
    assert brokers["b"].mode is BrokerMode.DRAINING
    assert brokers["c"] == ClusterBroker(broker_id="c", mode=BrokerMode.DRAINED)


async def test_topics_of_brokers_are_counted_on_request(store):
    await store.put(keys.SESSIONS.key("s1"), session("mine"))
    open_shard = ShardRecord(state=ShardState.OPEN, owner="s1")
    for shard, topic_id in [(1, 5), (1, 6), (11, 7)]:
        await store.put(keys.SHARDS.key(shard), open_shard)
        await store.put(keys.SHARD_TOPICS.key(shard, topic_id), f"/default/{topic_id}")
    counted = (await describe_cluster(store, counts_topics=True)).brokers
    assert {each.broker_id: each.topic_count for each in counted}["mine"] == 3
    uncounted = (await describe_cluster(store)).brokers
    assert {each.topic_count for each in uncounted} == {None}


async def test_topics_of_a_session_are_counted(store):
    open_shard = ShardRecord(state=ShardState.OPEN, owner="session-a")
    await store.put(keys.SHARDS.key(1), open_shard)
    await store.put(keys.SHARDS.key(11), ShardRecord())
    for shard, topic_id in [(1, 5), (1, 6), (11, 7)]:
        name = f"/default/t{topic_id}"
        await store.put(keys.SHARD_TOPICS.key(shard, topic_id), name)
    assert await count_topics(store, "session-a") == 2
    assert await count_topics(store, "session-b") == 0


async def test_a_broker_is_drained_and_activated(store):
    await set_broker_mode(
        store, "a", BrokerMode.DRAINING, reason="disk", wall_clock_us=NOW_US
    )
    assert await mode_of(store, "a") is BrokerMode.DRAINING
    # Draining it again does not begin again.
    drained = BrokerModeRecord(mode=BrokerMode.DRAINED, changed_at=NOW_US)
    await store.put(keys.BROKER_MODES.key("a"), drained)
    await set_broker_mode(store, "a", BrokerMode.DRAINING, wall_clock_us=NOW_US)
    assert await mode_of(store, "a") is BrokerMode.DRAINED
    await set_broker_mode(store, "a", BrokerMode.ACTIVE, wall_clock_us=NOW_US)
    assert await mode_of(store, "a") is BrokerMode.ACTIVE


async def test_one_active_broker_remains(store):
    await set_broker_mode(store, "a", BrokerMode.DRAINING, wall_clock_us=NOW_US)
    with pytest.raises(InvalidRequest, match="b is the only active broker"):
        await set_broker_mode(store, "b", BrokerMode.DRAINING, wall_clock_us=NOW_US)
    with pytest.raises(InvalidRequest, match="no broker 'x'; it has a, b"):
        await set_broker_mode(store, "x", BrokerMode.DRAINING, wall_clock_us=NOW_US)
    with pytest.raises(InvalidRequest, match="drain it"):
        await set_broker_mode(store, "a", BrokerMode.DRAINED, wall_clock_us=NOW_US)
