"""The metadata store of a broker, and its claim on a cluster."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.model.errors import ClusterInUse, InvalidConfig, SessionLost
from pydanube_broker.cluster.controller import create_shards
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import ActiveBrokerRecord
from pydanube_broker.servers.directories.metadata import (
    claim_cluster,
    refuse_cluster,
    watching_session,
)
from pydanube_zookeeper.config import ZookeeperConfig
from support.fakes.memory_store import MemoryStore

REMOTE = ZookeeperConfig(cluster_name="blue")


def record_of(host: str) -> ActiveBrokerRecord:
    return ActiveBrokerRecord(
        session_id="s", host=host, process_id=7, data_dir="/data", started_at=0
    )


async def claim(store, session, host, patience_s=60.0):
    return await claim_cluster(
        store, session, record_of(host), remote=REMOTE, patience_s=patience_s
    )


async def test_the_first_broker_claims_the_cluster_until_its_session_ends():
    store = MemoryStore()
    async with store.open_session(10.0) as session:
        revision = await claim(store, session, "one")
        stored = await store.get(keys.ACTIVE_BROKER)
        assert (stored.value, stored.revision) == (record_of("one"), revision)
    assert await store.get(keys.ACTIVE_BROKER) is None


async def test_a_second_broker_is_refused_and_told_about_the_first_one():
    store = MemoryStore()
    async with store.open_session(10.0) as first, store.open_session(10.0) as second:
        await claim(store, first, "one")
        with pytest.raises(
            ClusterInUse,
            match=r"'blue' in ZooKeeper is in use by the broker on one \(process 7, "
            r"data directory /data\); stop it, or choose another name "
            r"\(metadata.zookeeper.cluster_name\)",
        ):
            await claim(store, second, "two", patience_s=0.01)


async def test_a_broker_waits_for_the_session_of_one_that_was_killed():
    store = MemoryStore()
    async with store.open_session(10.0) as dead, store.open_session(10.0) as session:
        await claim(store, dead, "one")
        async with asyncio.TaskGroup() as group:
            claiming = group.create_task(claim(store, session, "two"))
            async with store.watch(keys.ACTIVE) as watch:
                await anext(watch)
            store.lose(dead)
        stored = await store.get(keys.ACTIVE_BROKER)
        assert stored.revision == claiming.result()
        assert stored.value.host == "two"


async def wait_while_losing(store, session):
    async with watching_session(session):
        store.lose(session)
        await asyncio.Future()


async def test_losing_the_session_ends_the_body():
    store = MemoryStore()
    async with store.open_session(10.0) as session:
        with pytest.raises(ExceptionGroup) as failed:
            await wait_while_losing(store, session)
        assert failed.group_contains(SessionLost, match="session_ttl_s")


async def test_a_body_without_a_session_is_not_disturbed():
    async with watching_session(None):
        pass


async def test_the_metadata_of_a_cluster_is_refused():
    store = MemoryStore()
    await refuse_cluster(store, REMOTE)
    await create_shards(store, 1)
    with pytest.raises(
        InvalidConfig, match=r"'blue' in ZooKeeper .* set cluster\.enabled"
    ):
        await refuse_cluster(store, REMOTE)
