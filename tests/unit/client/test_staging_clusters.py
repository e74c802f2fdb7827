"""Parts are staged at the owners of topics, and survive the loss of these brokers."""

import pyarrow as pa
import pytest

import pydanube
from pydanube.client.staging import PIECES_BYTES_MAX
from support.running import TOPIC
from support.served_clusters import ServedCluster
from support.storages import until

PARTITIONS = 6
KEYS = [b"k%d" % number for number in range(30)]


@pytest.fixture
async def cluster():
    async with ServedCluster().running("a", "b") as cluster:
        yield cluster


@pytest.fixture
async def client(cluster):
    async with pydanube.connect("danube://a,b") as client:
        await client.create_topic(TOPIC, partitions=PARTITIONS)
        yield client


def batch(number):
    """Messages for all partitions."""
    payloads = [b"%s %d" % (key, number) for key in KEYS]
    return pa.record_batch({"payload": payloads, "key": KEYS})


async def by_key(client):
    """The numbers of the messages of each key, in their order."""
    found = {key: [] for key in KEYS}
    async for each in client.read(TOPIC):
        for message in each:
            key, number = message.payload.split()
            found[key].append(int(number))
    return found


def expected(count):
    return {key: list(range(count)) for key in KEYS}


async def written(part):
    await until(lambda: not part.inflight_bytes)


async def test_part_for_topics_of_several_brokers_is_committed(cluster, client):
    staging = client.staging("query", 0)
    part = staging.part("0")
    for number in range(3):
        await part.write(TOPIC, batch(number))
    named = await part.finish()
    assert len(named.pieces) == PARTITIONS
    assert named.byte_count == sum(each.byte_count for each in named.pieces) > 0
    assert await by_key(client) == expected(0)
    assert (await staging.commit([named])).message_count == 3 * len(KEYS)
    assert await by_key(client) == expected(3)
    assert (await staging.commit([named])).is_repeat
    assert await staging.is_committed()


@pytest.mark.parametrize("broker_id", ["a", "b"])
async def test_part_is_staged_again_where_a_broker_is_lost(cluster, client, broker_id):
    staging = client.staging("query", 0)
    finished, part = staging.part("0"), staging.part("1")
    await finished.write(TOPIC, batch(0))
    parts = [await finished.finish()]
    await part.write(TOPIC, batch(1))
    await written(part)
    cluster.kill(broker_id)
    await part.write(TOPIC, batch(2))
    parts.append(await part.finish())
    assert (await staging.commit(parts)).message_count == 3 * len(KEYS)
    assert await by_key(client) == expected(3)


async def test_part_continues_when_its_topics_move(cluster, client):
    staging = client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, batch(0))
    await written(part)
    await cluster.drain("a")
    await part.write(TOPIC, batch(1))
    named = await part.finish()
    await cluster.activate("a")
    await cluster.drain("b")
    await staging.commit([named])
    assert await by_key(client) == expected(2)


async def test_commit_continues_at_another_broker(cluster, client):
    staging = client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, batch(0))
    named = await part.finish()
    broker_id = cluster.connects[0]
    cluster.kill(broker_id)
    await staging.commit([named])
    assert await by_key(client) == expected(1)


async def test_piece_that_cannot_be_stored_is_staged_again(cluster, client):
    staging = client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, batch(0))
    cluster.cluster.remote.part_failures = 2
    named = await part.finish()
    assert cluster.cluster.remote.part_failures == 0
    await staging.commit([named])
    assert await by_key(client) == expected(1)


@pytest.mark.slow
async def test_large_pieces_are_finished_early(cluster, client):
    staging = client.staging("query", 0)
    part = staging.part("0")
    content = pa.record_batch({"payload": [bytes(1024 * 1024)] * 8})
    topic = f"{TOPIC}-part-0"
    for _ in range(9):
        await part.write(topic, content)
        assert sum(each.kept_bytes for each in part._stages.values()) < PIECES_BYTES_MAX
    named = await part.finish()
    assert len(named.pieces) == 3
    assert (await staging.commit([named])).message_count == named.message_count
    facts = await client.describe_topic(topic)
    assert facts.end_offset == named.message_count


async def test_aborted_version_can_be_staged_again(cluster, client):
    staging = client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, batch(9))
    named = await part.finish()
    open_part = staging.part("1")
    await open_part.write(TOPIC, batch(8))
    await open_part.abort()
    members = cluster.cluster.members.values()
    await until(lambda: not any(len(each.broker.staging.parts) for each in members))
    await staging.abort()
    assert cluster.cluster.remote.staged() == []
    with pytest.raises(pydanube.StagedPartNotFound):
        await staging.commit([named])
    part = staging.part("2")
    await part.write(TOPIC, batch(0))
    await staging.commit([await part.finish()])
    assert await by_key(client) == expected(1)


async def test_transaction_is_refused(client):
    with pytest.raises(pydanube.InvalidRequest, match="do not commit transactions"):
        async with client.transaction("t"):
            pass
