"""Requests about storage reach all brokers of a cluster."""

import pytest

import pydanube
from pydanube.model.descriptions import SegmentsVerified
from pydanube.model.names import TopicName
from pydanube_broker.cluster.pure.shard_topics import shard_of
from support.drivers.running import TOPIC
from support.fakes.broker_clusters import SHARDS
from support.worlds.current import memory_broker

PARTITIONS = 6
BOTH = "danube://a,b"


@pytest.fixture
async def client(cluster):
    async with pydanube.connect(BOTH) as client:
        await client.topics.create(TOPIC, partitions=PARTITIONS)
        for partition in await client.topics.partitions(TOPIC):
            async with client.producer(partition) as producer:
                await producer.send(b"x")
        yield client


def partitions_of(cluster):
    """Return the number of partitions that each broker serves."""
    names = [TopicName.parse(f"{TOPIC}-part-{each}") for each in range(PARTITIONS)]
    owners = [cluster.owner_of(shard_of(name, SHARDS)) for name in names]
    return {each: owners.count(each) for each in "ab"}


async def verified(client, topic=None):
    """Return the pages of a verification, until the last one."""
    pages = [await client.storage.verify(topic, count=True)]
    while pages[-1].after:
        pages.append(await client.storage.verify(topic, after=pages[-1].after))
    return pages


@pytest.mark.parametrize("topic", [None, TOPIC])
async def test_uploads_and_evictions_concern_all_owners(cluster, client, topic):
    await client.storage.upload(topic)
    described = await client.storage.describe_all()
    uploads = {broker: each.uploads for broker, each in described.items()}
    assert uploads == partitions_of(cluster)
    count, byte_count = await client.storage.evict(topic)
    assert count == PARTITIONS
    assert byte_count == sum(each.local_bytes for each in described.values()) > 0


@pytest.mark.parametrize("topic", [None, TOPIC])
async def test_each_broker_verifies_what_it_serves(cluster, client, topic):
    cluster.cluster.remote.refuses_segments = True
    for partition in await client.topics.partitions(TOPIC):
        with pytest.raises(pydanube.ObjectsUnavailable):
            await client.storage.upload(partition)
    first, second = await verified(client, topic)
    counts = {"a": first.segment_count, "b": second.segment_count}
    assert counts == partitions_of(cluster)
    assert first.after == "b@"
    # The local copies of the other broker are not missing.
    assert first.damaged == second.damaged == ()


async def test_verification_skips_a_broker_that_has_stopped(client):
    assert (await client.storage.verify(after="a0@7/8")).after == ""
    assert await client.storage.verify(after="c@7/8") == SegmentsVerified()


async def test_a_broker_outside_of_a_cluster_has_no_name():
    async with memory_broker() as broker, broker.connect() as client:
        assert list(await client.storage.describe_all()) == [""]
        assert await client.cluster.running_brokers() == []
