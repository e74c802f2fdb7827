"""Requests about storage reach all brokers of a cluster."""

import pytest

import pydanube
from pydanube.cluster.shard_topics import shard_of
from pydanube.model.descriptions import SegmentsVerified
from pydanube.model.names import TopicName
from support.broker_clusters import SHARDS
from support.running import TOPIC
from support.worlds.current import memory_broker

PARTITIONS = 6
BOTH = "danube://a,b"


@pytest.fixture
async def client(cluster):
    async with pydanube.connect(BOTH) as client:
        await client.create_topic(TOPIC, partitions=PARTITIONS)
        for partition in await client.partitions(TOPIC):
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
    pages = [await client.verify_segments(topic, count=True)]
    while pages[-1].after:
        pages.append(await client.verify_segments(topic, after=pages[-1].after))
    return pages


@pytest.mark.parametrize("topic", [None, TOPIC])
async def test_uploads_and_evictions_concern_all_owners(cluster, client, topic):
    await client.upload_segments(topic)
    described = await client.describe_storages()
    uploads = {broker: each.uploads for broker, each in described.items()}
    assert uploads == partitions_of(cluster)
    count, byte_count = await client.evict_segments(topic)
    assert count == PARTITIONS
    assert byte_count == sum(each.local_bytes for each in described.values()) > 0


@pytest.mark.parametrize("topic", [None, TOPIC])
async def test_each_broker_verifies_what_it_serves(cluster, client, topic):
    cluster.cluster.remote.refuses_segments = True
    for partition in await client.partitions(TOPIC):
        with pytest.raises(pydanube.ObjectsUnavailable):
            await client.upload_segments(partition)
    first, second = await verified(client, topic)
    counts = {"a": first.segment_count, "b": second.segment_count}
    assert counts == partitions_of(cluster)
    assert first.after == "b@"
    # The local copies of the other broker are not missing.
    assert first.damaged == second.damaged == ()


async def test_verification_skips_a_broker_that_has_stopped(client):
    assert (await client.verify_segments(after="a0@7/8")).after == ""
    assert await client.verify_segments(after="c@7/8") == SegmentsVerified()


async def test_a_broker_outside_of_a_cluster_has_no_name():
    async with memory_broker() as broker, broker.connect() as client:
        assert list(await client.describe_storages()) == [""]
        assert await client.running_brokers() == []
