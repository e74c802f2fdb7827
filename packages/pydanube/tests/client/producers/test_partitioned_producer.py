"""A producer of a partitioned topic publishes to all partitions."""

import asyncio
from collections import Counter

import pyarrow as pa
import pytest

import pydanube
from pydanube.client.connections import channel
from pydanube.client.producers.partitioned_producer import PartitionedProducer
from pydanube.client.producers.producer import Producer
from pydanube.client.pure.routing import fnv1a_64
from support.drivers.running import TOPIC
from support.fakes.readers import a_while

PARTS = [f"{TOPIC}-part-{n}" for n in range(4)]


async def contents(client):
    """Return the keys and payloads of each partition, in order."""
    found = {}
    for name in await client.topics.partitions(TOPIC):
        found[name] = [
            (message.key, message.payload)
            async for batch in client.read(name)
            for message in batch
        ]
    return found


async def test_plain_topic_has_a_plain_producer(client):
    async with client.producer(TOPIC) as producer:
        assert isinstance(producer, Producer)
        await producer.send(b"m")
    assert await client.topics.partitions(TOPIC) == [TOPIC]
    assert await client.topics.partitions("/default/none") == []


async def test_single_messages_go_to_partitions_round_robin(client):
    await client.topics.create(TOPIC, partitions=4)
    async with client.producer(TOPIC) as producer:
        assert isinstance(producer, PartitionedProducer)
        ids = [await producer.send(str(n)) for n in range(8)]
    assert Counter(each.topic for each in ids) == dict.fromkeys(PARTS, 2)
    assert sorted(each.offset for each in ids) == [0, 0, 0, 0, 1, 1, 1, 1]


async def test_messages_that_are_sent_together_stay_in_one_batch(client):
    await client.topics.create(TOPIC, partitions=4)
    async with client.producer(TOPIC) as producer:
        pending = [producer.send_nowait(str(n)) for n in range(100)]
        await producer.flush()
        topics = {(await each).topic for each in pending}
    assert len(topics) == 1
    assert len((await contents(client))[topics.pop()]) == 100


@pytest.mark.slow
async def test_stream_of_messages_is_spread_evenly_in_large_batches(client):
    count = 200_000
    await client.topics.create(TOPIC, partitions=4)
    async with client.producer(TOPIC) as producer:
        for _ in range(count):
            if not producer.has_capacity:
                await producer.wait_for_capacity()
            producer.send_nowait(b"x" * 10)
        await producer.flush()
    ends = [(await client.topics.describe(name)).end_offset for name in PARTS]
    assert sum(ends) == count
    assert max(ends) - min(ends) < count * 0.15


async def test_all_send_methods_route_a_key_to_the_same_partition(client):
    await client.topics.create(TOPIC, partitions=4)
    keys = [f"user-{n}" for n in range(20)]
    async with client.producer(TOPIC) as producer:
        for key in keys:
            sent = await producer.send(b"0", key=key)
            assert sent.topic == PARTS[fnv1a_64(key.encode()) % 4]
        for key in keys:
            producer.send_nowait(b"1", key=key.encode())
        await producer.flush()
        table = pa.table({"payload": [b"2"] * 20, "key": keys})
        ids = await producer.send_batch(table)
        assert [each.topic for each in ids] == [
            PARTS[fnv1a_64(key.encode()) % 4] for key in keys
        ]
    for found in (await contents(client)).values():
        for key in {key for key, _ in found}:
            assert [p for k, p in found if k == key] == [b"0", b"1", b"2"]


async def test_batch_ids_name_partition_and_offset_of_each_message(client):
    await client.topics.create(TOPIC, partitions=4)
    async with client.producer(TOPIC) as producer:
        keys = [f"k{n % 7}" for n in range(50)]
        payloads = [str(n) for n in range(50)]
        ids = await producer.send_batch(pa.table({"payload": payloads, "key": keys}))
        assert await producer.send_batch([]) == []
    found = await contents(client)
    for n, each in enumerate(ids):
        assert found[each.topic][each.offset] == (keys[n], str(n).encode())


async def test_batches_without_keys_go_to_partitions_round_robin(client):
    await client.topics.create(TOPIC, partitions=4)
    async with client.producer(TOPIC) as producer:
        ids = [await producer.send_batch([b"a", b"b"]) for _ in range(4)]
    assert [{each.topic for each in batch} for batch in ids] == [{p} for p in PARTS]


async def test_producer_may_create_the_partitions(client):
    async with client.producer(TOPIC, partitions=2) as producer:
        assert producer.partitions == PARTS[:2]
    async with client.producer(TOPIC, partitions=3) as producer:
        assert producer.partitions == PARTS[:2]


async def test_non_reliable_topic_may_have_partitions(client):
    async with client.producer(TOPIC, partitions=2, reliable=False) as producer:
        await producer.send(b"m")
    assert not (await client.topics.describe(PARTS[0])).policy.is_reliable


async def test_partitions_that_are_added_are_used(client):
    await client.topics.create(TOPIC, partitions=2)
    async with client.producer(TOPIC) as producer:
        await producer.send(b"before", key="k")
        await client.topics.add_partitions(TOPIC, 4)
        await producer._discover_partitions()
        assert producer.partitions == PARTS
        ids = [await producer.send(b"after") for _ in range(4)]
        assert {each.topic for each in ids} == set(PARTS)


async def test_added_partitions_are_discovered_at_the_interval(client, monkeypatch):
    monkeypatch.setattr(channel, "PARTITIONS_LOOKUP_INTERVAL_S", 0.01)
    await client.topics.create(TOPIC, partitions=1)
    async with client.producer(TOPIC) as producer:
        await client.topics.add_partitions(TOPIC, 2)
        while len(producer.partitions) < 2:
            await producer.send(b"m")


async def test_error_of_one_partition_is_raised(client):
    await client.topics.create(TOPIC, partitions=1)
    async with client.producer(TOPIC, name="me") as older:
        assert isinstance(older, PartitionedProducer)
        async with client.producer(PARTS[0], name="me"):
            with pytest.raises(pydanube.ProducerFenced):
                await older.send(b"1")


async def test_topic_of_another_kind_is_refused(client):
    await client.topics.create(TOPIC, partitions=2)
    with pytest.raises(pydanube.AlreadyExists):
        async with client.producer(TOPIC, reliable=False):
            pass
    # The producers that had been opened are closed.
    assert [(await client.topics.describe(p)).producers for p in PARTS[:2]] == [
        (),
        (),
    ]


async def test_producers_continue_after_a_broken_connection(broker):
    async with broker.connect() as client:
        await client.topics.create(TOPIC, partitions=3)
        async with client.producer(TOPIC) as producer:
            for n in range(30):
                producer.send_nowait(str(n))
                if n == 10:
                    for connection in list(broker.server.connections):
                        connection.abort()
            await producer.flush()
        found = await contents(client)
    sent = [payload for messages in found.values() for _, payload in messages]
    assert sorted(map(int, sent)) == list(range(30))


async def test_names_of_consumers_and_producers_are_the_same_in_every_partition(client):
    await client.topics.create(TOPIC, partitions=2)
    async with client.producer(TOPIC, name="web"):
        facts = [await client.topics.describe(name) for name in PARTS[:2]]
        assert [each.producers for each in facts] == [("web",), ("web",)]


async def test_exclusive_producers_of_all_partitions_do_not_deadlock(client):
    await client.topics.create(TOPIC, partitions=4)
    order = []

    async def lead(name):
        async with client.producer(
            TOPIC, name=name, access="exclusive_wait"
        ) as producer:
            order.append(name)
            await producer.send(name)
            order.append(name)

    async with asyncio.TaskGroup() as tasks:
        for name in ("one", "two", "three"):
            tasks.create_task(lead(name))
    assert len(order) == 6
    assert order[::2] == order[1::2]


async def test_exclusive_producer_has_added_partitions_before_those_that_wait(client):
    await client.topics.create(TOPIC, partitions=2)
    async with asyncio.TaskGroup() as tasks:

        async def stand_by():
            async with client.producer(
                TOPIC, name="b", access="exclusive_wait"
            ) as producer:
                for _ in range(8):
                    await producer.send(b"b")

        async with client.producer(
            TOPIC, name="a", access="exclusive_wait"
        ) as producer:
            await client.topics.add_partitions(TOPIC, 4)
            # It knows all partitions, and waits for the first one.
            tasks.create_task(stand_by())
            await a_while()
            await producer._discover_partitions()
            assert producer.partitions == PARTS
            for _ in range(8):
                await producer.send(b"a")
    for found in (await contents(client)).values():
        assert [payload for _, payload in found] == [b"a", b"a", b"b", b"b"]


async def test_exclusive_producer_excludes_others_from_each_partition(client):
    await client.topics.create(TOPIC, partitions=2)
    async with client.producer(TOPIC, access="exclusive"):
        for name in (TOPIC, PARTS[1]):
            with pytest.raises(pydanube.ProducerBusy):
                async with client.producer(name):
                    pass
