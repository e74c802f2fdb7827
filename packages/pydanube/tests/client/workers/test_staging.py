"""Parts are staged, and published by one commit."""

import asyncio
import pickle
from types import SimpleNamespace

import pyarrow as pa
import pytest

import pydanube
from pydanube.client.workers.staging import INFLIGHT_BYTES_MAX, PIECES_BYTES_MAX
from pydanube.model.schemas import SchemaReference
from support.drivers.running import TOPIC
from support.fakes.schemas import AN_ORDER, new_schema
from support.fakes.served_clusters import ServedCluster
from support.fakes.storages import until

OTHER = "/default/others"


def batch(*payloads, **columns):
    return pa.record_batch({"payload": list(payloads), **columns})


async def payloads(client, topic=TOPIC):
    return [m.payload async for found in client.read(topic) for m in found]


async def part_of(staging, *contents, name="0", topic=TOPIC):
    part = staging.part(name)
    for each in contents:
        await part.write(topic, batch(each))
    return await part.finish()


async def test_parts_of_several_writers_are_published_by_one_commit(client):
    await client.topics.create(TOPIC)
    staging = client.staging("query", 0)
    assert not await staging.is_committed()
    parts = [await part_of(staging, b"a", b"b"), await part_of(staging, b"c")]
    facts = await staging.describe()
    assert (facts.part_count, facts.committed_version) == (2, None)
    assert facts.byte_count == sum(part.byte_count for part in parts)
    assert await payloads(client) == []
    # Spark pickles parts.
    parts = pickle.loads(pickle.dumps(parts))
    commit = await staging.commit(parts)
    assert (commit.message_count, commit.is_repeat) == (3, False)
    assert await payloads(client) == [b"a", b"b", b"c"]
    assert await staging.is_committed()
    assert (await staging.commit(parts)).is_repeat
    assert not await client.staging("query", 1).is_committed()


async def test_part_has_every_column_of_the_envelope(client):
    await client.topics.create(TOPIC)
    staging = client.staging("query", 0)
    part = staging.part("0", compression="zstd")
    attributes = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
    times = pa.array([1_700_000_000_000_000], pa.timestamp("us", tz="UTC"))
    await part.write(
        TOPIC,
        batch(b"x", key=[b"k"], attributes=attributes, publish_time=times),
    )
    await staging.commit([await part.finish()])
    [message] = [m async for found in client.read(TOPIC) for m in found]
    assert (message.payload, message.key) == (b"x", "k")
    assert message.attributes == {"a": "b"}
    assert message.publish_time.timestamp() == 1_700_000_000
    assert message.producer == "staged/query"


async def test_messages_of_a_base_name_are_routed_as_a_producer_routes_them(client):
    await client.topics.create(TOPIC, partitions=3)
    await client.topics.create(OTHER, partitions=3)
    keys = [f"k{n}".encode() for n in range(20)]
    async with client.producer(OTHER) as producer:
        await producer.send_batch(pa.table({"payload": keys, "key": keys}))
    staging = client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, pa.table({"payload": keys, "key": keys}))
    await part.write(f"{TOPIC}-part-1", batch(b"there"))
    await staging.commit([await part.finish()])
    for number in range(3):
        found = await payloads(client, f"{TOPIC}-part-{number}")
        if number == 1:
            assert found.pop() == b"there"
        assert found == await payloads(client, f"{OTHER}-part-{number}")


async def test_parts_without_keys_begin_with_different_partitions(client):
    await client.topics.create(TOPIC, partitions=4)
    staging = client.staging("query", 0)
    parts = [await part_of(staging, b"m", name=str(n)) for n in range(16)]
    await staging.commit(parts)
    counts = [
        len(await payloads(client, f"{TOPIC}-part-{number}")) for number in range(4)
    ]
    assert sum(counts) == 16
    assert min(counts) > 0


@pytest.mark.slow
async def test_batch_too_long_for_a_frame_is_split(client):
    await client.topics.create(TOPIC)
    staging = client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, batch(*[bytes(1024 * 1024)] * 10))
    named = await part.finish()
    assert named.batch_count > 1
    assert named.message_count == 10
    await staging.commit([named])
    assert len(await payloads(client)) == 10
    too_long = batch(bytes(9 * 1024 * 1024))
    with pytest.raises(pydanube.MessageTooLarge):
        await client.staging("query", 1).part("0").write(TOPIC, too_long)


async def test_lost_connection_does_not_lose_a_part(broker, client):
    await client.topics.create(TOPIC)
    staging = client.staging("query", 0)
    part = staging.part("0")
    expected = []
    for number in range(20):
        payload = b"%d" % number
        expected.append(payload)
        await part.write(TOPIC, batch(payload))
        if number % 7 == 3:
            broker.disconnect_all()
    named = await part.finish()
    broker.disconnect_all()
    assert named.message_count == 20
    await staging.commit([named])
    assert await payloads(client) == expected


async def test_part_continues_long_after_a_lost_connection(broker, client):
    await client.topics.create(TOPIC)
    staging = client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, batch(b"1"))
    [stage] = part._stages.values()
    broker.disconnect_all()
    await until(lambda: not stage.is_connected)
    loop = stage._loop
    # The caller computes its next messages.
    stage._loop = SimpleNamespace(
        time=lambda: loop.time() + 3600, create_future=loop.create_future
    )
    await part.write(TOPIC, batch(b"2"))
    await staging.commit([await part.finish()])
    assert await payloads(client) == [b"1", b"2"]


@pytest.mark.slow
async def test_waiting_write_continues_after_a_lost_connection(broker, client):
    await client.topics.create(TOPIC)
    staging = client.staging("query", 0)
    part = staging.part("0")
    big = batch(*[bytes(100_000)] * 40)
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(_write_all(part, big, 8))
        await until(lambda: part.inflight_bytes > 4_000_000 or writing.done())
        broker.disconnect_all()
    assert part.inflight_bytes < INFLIGHT_BYTES_MAX + 8 * 1024 * 1024
    named = await part.finish()
    assert (await staging.commit([named])).message_count == 320


async def _write_all(part, content, times):
    for _ in range(times):
        await part.write(TOPIC, content)


async def test_part_that_the_broker_has_lost_fails(broker, client):
    await client.topics.create(TOPIC)
    part = client.staging("query", 0).part("0")
    await part.write(TOPIC, batch(b"1"))
    await until(lambda: not part.inflight_bytes)
    broker.disconnect_all()
    [lost] = broker.broker.staging.parts
    broker.broker.staging.parts.drop(lost)
    await until(lambda: any(not each.is_connected for each in part._stages.values()))
    with pytest.raises(pydanube.StagedPartNotFound, match="stage the part again"):
        await part.write(TOPIC, batch(b"2"))
    with pytest.raises(pydanube.StagedPartNotFound):
        await part.write(TOPIC, batch(b"3"))


async def test_part_for_a_version_that_is_committed_is_refused(client):
    await client.topics.create(TOPIC)
    late = client.staging("query", 0).part("late")
    await late.write(TOPIC, batch(b"1"))
    await client.staging("query", 0).commit([])
    with pytest.raises(pydanube.StagingClosed):
        await late.write(TOPIC, batch(b"2"))
    with pytest.raises(pydanube.StagingClosed):
        await part_of(client.staging("query", 0), b"3")


async def test_messages_that_a_topic_does_not_accept_are_refused(client):
    await client.topics.create(TOPIC)
    await client.topics.create(OTHER, reliable=False)
    staging = client.staging("query", 0)
    with pytest.raises(pydanube.TopicNotFound):
        await staging.part("0").write("/default/none", batch(b"1"))
    with pytest.raises(pydanube.InvalidRequest, match="not reliable"):
        await staging.part("0").write(OTHER, batch(b"1"))
    with pytest.raises(pydanube.InvalidRequest, match="payload"):
        await staging.part("0").write(TOPIC, pa.record_batch({"value": [1]}))
    with pytest.raises(pydanube.InvalidName):
        client.staging("a/b", 0)
    with pytest.raises(pydanube.InvalidRequest):
        client.staging("query", -1)


async def test_payloads_are_checked_against_the_named_schema(broker, client):
    await client.topics.create(TOPIC)
    await broker.broker.registry.register("orders", new_schema())
    staging = client.staging("query", 0)
    part = staging.part("0")
    schema = SchemaReference(subject="orders")
    await part.write(TOPIC, batch(AN_ORDER), schema=schema)
    with pytest.raises(pydanube.InvalidRequest, match="one schema"):
        await part.write(TOPIC, batch(AN_ORDER))
    part = staging.part("1")
    await part.write(TOPIC, batch(AN_ORDER), schema=schema)
    await staging.commit([await part.finish()])
    [message] = [m async for found in client.read(TOPIC) for m in found]
    assert message.value == {"id": 1}
    other = SchemaReference(subject="orders", version=9)
    part = client.staging("query", 1).part("0")
    with pytest.raises(pydanube.SchemaNotFound):
        await part.write(TOPIC, batch(AN_ORDER), schema=other)


async def test_aborted_parts_are_dropped(client):
    await client.topics.create(TOPIC)
    staging = client.staging("query", 0)
    part = staging.part("0")
    await part.abort()
    part = staging.part("0")
    await part.write(TOPIC, batch(b"1"))
    await part.abort()
    with pytest.raises(pydanube.StagingClosed):
        await part.write(TOPIC, batch(b"2"))
    named = await part_of(staging, b"3")
    assert (await staging.describe()).part_count == 1
    await staging.abort()
    assert (await staging.describe()).part_count == 0
    with pytest.raises(pydanube.StagedPartNotFound):
        await staging.commit([named])
    await staging.commit([await part_of(staging, b"4")])
    await staging.abort()
    assert await payloads(client) == [b"4"]


async def test_part_without_messages_needs_no_broker(client):
    staging = client.staging("query", 0)
    empty = await staging.part("0").finish()
    assert (empty.batch_count, empty.message_count, empty.byte_count) == (0, 0, 0)
    assert (await staging.describe()).part_count == 0
    assert (await staging.commit([empty])).message_count == 0


async def test_part_whose_write_was_cancelled_cannot_be_used(client):
    await client.topics.create(TOPIC)
    part = client.staging("query", 0).part("0")
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(part.write(TOPIC, batch(b"1")))
        await asyncio.sleep(0)
        writing.cancel()
    with pytest.raises(pydanube.StagingClosed, match="writing the part failed"):
        await part.finish()


# In a cluster, parts are staged at the owners of topics.

PARTITIONS = 6
KEYS = [b"k%d" % number for number in range(30)]


@pytest.fixture
async def cluster():
    async with ServedCluster().running("a", "b") as cluster:
        yield cluster


@pytest.fixture
async def cluster_client(cluster):
    async with pydanube.connect("danube://a,b") as client:
        await client.topics.create(TOPIC, partitions=PARTITIONS)
        yield client


def keyed(number):
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


async def all_written(part):
    await until(lambda: not part.inflight_bytes)


async def test_part_for_topics_of_several_brokers_is_committed(cluster, cluster_client):
    staging = cluster_client.staging("query", 0)
    part = staging.part("0")
    for number in range(3):
        await part.write(TOPIC, keyed(number))
    named = await part.finish()
    assert len(named.pieces) == PARTITIONS
    assert named.byte_count == sum(each.byte_count for each in named.pieces) > 0
    assert await by_key(cluster_client) == expected(0)
    assert (await staging.commit([named])).message_count == 3 * len(KEYS)
    assert await by_key(cluster_client) == expected(3)
    assert (await staging.commit([named])).is_repeat
    assert await staging.is_committed()


async def test_tasks_that_ask_for_the_progress_list_no_parts_of_others(
    cluster, cluster_client, monkeypatch
):
    staging = cluster_client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, keyed(0))
    named = await part.finish()
    remote, listed = cluster.cluster.remote, []
    names = remote.names

    async def listing(prefix, *more, **options):
        listed.append(prefix)
        return await names(prefix, *more, **options)

    monkeypatch.setattr(remote, "names", listing)
    assert not await staging.is_committed()
    assert not any(each.startswith(".staging/") for each in listed)
    assert (await staging.describe()).part_count == PARTITIONS
    assert any(each.startswith(".staging/") for each in listed)
    await staging.commit([named])
    assert await staging.is_committed()


@pytest.mark.parametrize("broker_id", ["a", "b"])
async def test_part_is_staged_again_where_a_broker_is_lost(
    cluster, cluster_client, broker_id
):
    staging = cluster_client.staging("query", 0)
    finished, part = staging.part("0"), staging.part("1")
    await finished.write(TOPIC, keyed(0))
    parts = [await finished.finish()]
    await part.write(TOPIC, keyed(1))
    await all_written(part)
    cluster.kill(broker_id)
    await part.write(TOPIC, keyed(2))
    parts.append(await part.finish())
    assert (await staging.commit(parts)).message_count == 3 * len(KEYS)
    assert await by_key(cluster_client) == expected(3)


async def test_part_continues_when_its_topics_move(cluster, cluster_client):
    staging = cluster_client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, keyed(0))
    await all_written(part)
    await cluster.drain("a")
    await part.write(TOPIC, keyed(1))
    named = await part.finish()
    await cluster.activate("a")
    await cluster.drain("b")
    await staging.commit([named])
    assert await by_key(cluster_client) == expected(2)


async def test_commit_continues_at_another_broker(cluster, cluster_client):
    staging = cluster_client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, keyed(0))
    named = await part.finish()
    broker_id = cluster.connects[0]
    cluster.kill(broker_id)
    await staging.commit([named])
    assert await by_key(cluster_client) == expected(1)


async def test_piece_that_cannot_be_stored_is_staged_again(cluster, cluster_client):
    staging = cluster_client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, keyed(0))
    cluster.cluster.remote.part_failures = 2
    named = await part.finish()
    assert cluster.cluster.remote.part_failures == 0
    await staging.commit([named])
    assert await by_key(cluster_client) == expected(1)


@pytest.mark.slow
async def test_large_pieces_are_finished_early(cluster, cluster_client):
    staging = cluster_client.staging("query", 0)
    part = staging.part("0")
    content = pa.record_batch({"payload": [bytes(1024 * 1024)] * 8})
    topic = f"{TOPIC}-part-0"
    for _ in range(9):
        await part.write(topic, content)
        assert sum(each.kept_bytes for each in part._stages.values()) < PIECES_BYTES_MAX
    named = await part.finish()
    assert len(named.pieces) == 3
    assert (await staging.commit([named])).message_count == named.message_count
    facts = await cluster_client.topics.describe(topic)
    assert facts.end_offset == named.message_count


async def test_aborted_version_can_be_staged_again(cluster, cluster_client):
    staging = cluster_client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, keyed(9))
    named = await part.finish()
    open_part = staging.part("1")
    await open_part.write(TOPIC, keyed(8))
    await open_part.abort()
    brokers = cluster.cluster.members.values()
    await until(lambda: not any(len(each.broker.staging.parts) for each in brokers))
    await staging.abort()
    assert cluster.cluster.remote.staged() == []
    with pytest.raises(pydanube.StagedPartNotFound):
        await staging.commit([named])
    part = staging.part("2")
    await part.write(TOPIC, keyed(0))
    await staging.commit([await part.finish()])
    assert await by_key(cluster_client) == expected(1)
