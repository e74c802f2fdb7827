"""Giving up the journals of a broker that shards wait for."""

import pytest

from pydanube_broker.cluster.lost_journals import give_up_journals
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    SessionJournalRecord,
    SessionRecord,
    ShardRecord,
    ShardState,
)
from support.fakes.memory_store import MemoryStore


def journal(broker_id):
    return SessionJournalRecord(kind="object", prefix="p", first=1, broker_id=broker_id)


def session(broker_id):
    return SessionRecord(broker_id=broker_id, addresses={}, started_at=0)


@pytest.fixture
async def store():
    """Shards 0 and 1 wait for sessions of broker a; 2 for broker b; 3 is served."""
    store = MemoryStore()
    for name, broker_id in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")):
        await store.put(keys.SESSION_JOURNALS.key(name), journal(broker_id))
    await store.put(keys.SESSIONS.key("a3"), session("a"))
    opening = ShardState.OPENING
    for shard, record in enumerate(
        [
            ShardRecord(state=opening, epoch=2, owner="a3", source="a1"),
            ShardRecord(epoch=1, source="a2"),
            ShardRecord(epoch=1, source="b1"),
            ShardRecord(state=ShardState.OPEN, epoch=3, owner="a3", source="a3"),
        ]
    ):
        await store.put(keys.SHARDS.key(shard), record)
    for number in range(3):
        await store.put(keys.SHARD_TOPICS.key(1, number), f"/default/t{number}")
    return store


async def given_up(store):
    return {
        keys.SESSION_JOURNALS.name_of(path)
        for path, stored in await store.scan(keys.SESSION_JOURNALS)
        if stored.value.is_given_up
    }


async def test_shards_that_wait_for_a_broker_are_named_and_nothing_changes(store):
    found = await give_up_journals(store, "a", dry_run=True)
    assert [(each.shard, each.source, each.topic_count) for each in found] == [
        (0, "a", 0),
        (1, "a", 3),
    ]
    assert found[1].topics == ("/default/t0", "/default/t1", "/default/t2")
    assert await given_up(store) == set()


async def test_only_journals_of_ended_sessions_of_the_broker_are_given_up(store):
    await give_up_journals(store, "a", dry_run=False)
    assert await given_up(store) == {"a1", "a2"}
    stored = await store.get(keys.SESSION_JOURNALS.key("a1"))
    assert stored.value.is_frozen


async def test_a_broker_that_nobody_waits_for_has_nothing_to_give_up(store):
    assert await give_up_journals(store, "c", dry_run=False) == []
    assert await given_up(store) == set()
