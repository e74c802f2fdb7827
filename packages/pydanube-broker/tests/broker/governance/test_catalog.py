"""The records of topics in a cluster; tests of topics cover those of one broker."""

import asyncio
from functools import partial

import pytest

from pydanube.model.errors import MetadataUnavailable, Unavailable
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.governance.namespaces import Namespaces
from pydanube_broker.cluster.pure.shard_topics import shard_of
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import NamespaceRecord
from support.fakes.brokers import A_TOPIC, RELIABLE
from support.fakes.memory_store import MemoryStore

PARTS = [A_TOPIC.partition(number) for number in range(3)]


@pytest.fixture
async def store():
    store = MemoryStore()
    await store.put(keys.NAMESPACES.key("default"), NamespaceRecord(created_at=0))
    return store


@pytest.fixture
async def catalog_of(store):
    async with asyncio.TaskGroup() as tasks:
        namespaces = Namespaces(store, opened={}, lock=None, wall_clock_us=lambda: 0)
        yield lambda shard_count: Catalog(
            store, namespaces, lambda: 7, tasks=tasks, shard_count=shard_count
        )


async def shard_topics(store):
    return {
        keys.SHARD_TOPICS.name_of(path): stored.value
        for path, stored in await store.scan(keys.SHARD_TOPICS)
    }


async def test_a_topic_is_created_in_a_shard(store, catalog_of):
    catalog = catalog_of(16)
    await catalog.create(A_TOPIC, RELIABLE)
    shard = shard_of(A_TOPIC, 16)
    assert (await catalog.find(A_TOPIC)).value.shard == shard
    assert await shard_topics(store) == {f"{shard}/1": str(A_TOPIC)}


async def test_partitions_have_shards_of_their_own(store, catalog_of):
    catalog = catalog_of(16)
    await catalog.create_partitioned(A_TOPIC, 3, RELIABLE, exist_ok=False)
    shards = [(await catalog.find(name)).value.shard for name in PARTS]
    assert shards == [shard_of(name, 16) for name in PARTS]
    assert await shard_topics(store) == {
        f"{shard}/{number}": str(name)
        for number, (shard, name) in enumerate(zip(shards, PARTS, strict=True), 1)
    }


async def test_a_topic_keeps_its_shard_when_there_are_more_shards(store, catalog_of):
    await catalog_of(2).create(A_TOPIC, RELIABLE)
    catalog = catalog_of(1000)
    assert shard_of(A_TOPIC, 2) != shard_of(A_TOPIC, 1000)
    await catalog.configure(A_TOPIC, seal_bytes=100_000)
    assert (await catalog.find(A_TOPIC)).value.shard == shard_of(A_TOPIC, 2)


async def test_a_deleted_topic_leaves_its_shard(store, catalog_of):
    catalog = catalog_of(16)
    await catalog.create(A_TOPIC, RELIABLE)
    shard = shard_of(A_TOPIC, 16)
    await catalog.remove([(A_TOPIC, await catalog.get_topic(A_TOPIC))], None)
    assert await shard_topics(store) == {}
    deleted = await store.get(keys.deleted_topic(A_TOPIC))
    assert deleted.value.shard == shard


async def test_the_name_of_a_deleted_topic_is_taken_until_it_is_forgotten(
    store, catalog_of
):
    catalog = catalog_of(16)
    for name in (A_TOPIC, PARTS[1]):
        record = await catalog.create(name, RELIABLE)
        await catalog.remove([(name, await catalog.get_topic(name))], None)
        await store.delete(keys.partitioned_topic(A_TOPIC))
        for create in (
            partial(catalog.create, name, RELIABLE),
            partial(catalog.create_partitioned, A_TOPIC, 3, RELIABLE, exist_ok=True),
        ):
            with pytest.raises(Unavailable, match="cannot be created again yet"):
                await create()
            if name is A_TOPIC:
                break
        await catalog.forget_content(record.topic_id, name)
    await catalog.create_partitioned(A_TOPIC, 3, RELIABLE, exist_ok=False)


async def test_topics_of_a_standalone_broker_have_no_shard(store, catalog_of):
    catalog = catalog_of(None)
    await catalog.create(A_TOPIC, RELIABLE)
    assert (await catalog.find(A_TOPIC)).value.shard is None
    assert await shard_topics(store) == {}


async def test_deletion_of_many_partitions_that_was_interrupted_is_finished(world):
    async with world.broker() as broker:
        await broker.topics.create_partitioned(A_TOPIC, 60, RELIABLE)
    broken = [0]

    async def fail():
        broken[0] += 1
        if broken[0] == 2:
            raise MetadataUnavailable("on purpose")

    async with world.broker() as broker:
        for name in map(A_TOPIC.partition, range(60)):
            await broker.topics.get(name)
        world.store.concurrent_actions = [fail, fail]
        with pytest.raises(MetadataUnavailable):
            await broker.topics.delete(A_TOPIC)
        assert len(await broker.catalog.partitions_of(A_TOPIC)) == 35
    async with world.broker() as broker:
        await broker.topics.delete(A_TOPIC)
        assert await broker.catalog.names() == []
        await broker.topics.create_partitioned(A_TOPIC, 60, RELIABLE)
    assert len(await world.store.scan(keys.TOPICS)) == 60
