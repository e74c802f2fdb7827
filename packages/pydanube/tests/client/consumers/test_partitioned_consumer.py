"""A consumer of a partitioned topic gets the messages of all partitions."""

from collections import defaultdict

import pytest

import pydanube
from pydanube.client.connections import channel
from pydanube.client.consumers.consumer import TopicConsumer
from pydanube.client.consumers.partitioned_consumer import (
    ROUND_ROBIN_MESSAGES,
    PartitionedConsumer,
)
from support.drivers.running import TOPIC, nothing_comes, published
from support.fakes.corrupt_objects import seal_and_damage

PARTS = [f"{TOPIC}-part-{n}" for n in range(4)]
EARLIEST = {"subscription": "s", "start": "earliest"}


async def spread(client, count, partitions=4, base=0):
    """Publish *count* numbers with different keys to a partitioned topic."""
    async with client.producer(TOPIC, partitions=partitions) as producer:
        for n in range(base, base + count):
            producer.send_nowait(str(n), key=f"key-{n % 50}")
        await producer.flush()


async def take(consumer, count):
    return [await consumer.receive(timeout_s=60) for _ in range(count)]


async def test_plain_topic_has_a_plain_consumer(client):
    await published(client, b"m")
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        assert isinstance(consumer, TopicConsumer)


async def test_messages_of_all_partitions_arrive_in_the_order_of_each(client):
    await spread(client, 1000)
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        assert isinstance(consumer, PartitionedConsumer)
        assert consumer.topics == consumer.partitions == PARTS
        offsets, numbers = defaultdict(list), []
        async for message in consumer:
            offsets[message.topic].append(message.offset)
            numbers.append(int(message.payload))
            await consumer.ack(message)
            if len(numbers) == 1000:
                break
        assert sorted(numbers) == list(range(1000))
        assert set(offsets) == set(PARTS)
        for found in offsets.values():
            assert found == list(range(len(found)))
    for name in PARTS:
        facts = await client.subscriptions.describe(name, "s")
        assert facts.backlog == 0


async def test_batch_is_of_one_partition_and_acknowledged_there(client):
    await spread(client, 1000)
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        count, topics = 0, []
        while count < 1000:
            batch = await consumer.receive_batch(max_messages=100, timeout_s=60)
            assert {message.topic for message in batch} == {batch.topic}
            assert batch.to_arrow().num_rows == len(batch) <= 100
            await consumer.ack(batch)
            topics.append(batch.topic)
            count += len(batch)
        assert set(topics[:4]) == set(PARTS)
        nothing = await consumer.receive_batch(timeout_s=0.01)
        assert len(nothing) == 0
        await consumer.ack(nothing)
        await consumer.flush()
        cursors = [
            (await client.subscriptions.describe(name, "s")).cursor for name in PARTS
        ]
        assert sum(cursors) == 1000


async def test_partitions_are_served_round_robin(client):
    await client.topics.create(TOPIC, partitions=2)
    await published(client, *[b"many"] * 5000, topic=PARTS[0])
    await published(client, b"few", topic=PARTS[1])
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        messages = await take(consumer, 2 * ROUND_ROBIN_MESSAGES)
        assert b"few" in [message.payload for message in messages]


async def test_messages_of_several_partitions_are_acked_and_nacked_together(client):
    await spread(client, 40)
    quick = pydanube.FailurePolicy(redelivery_delay_s=0.01)
    await client.subscriptions.configure(TOPIC, "s", failure_policy=quick)
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        messages = await take(consumer, 40)
        await consumer.ack(messages[:20])
        await consumer.ack([message.id for message in messages[20:39]])
        await consumer.nack(messages[39], reason="no")
        [again] = await take(consumer, 1)
        assert again.id == messages[39].id
        assert (again.attempt, again.redeliveries) == (2, 1)
        await consumer.ack_cumulative(again)
        await consumer.flush()
    facts = [await client.subscriptions.describe(name, "s") for name in PARTS]
    assert sum(each.backlog for each in facts) == 0


async def test_message_of_another_topic_cannot_be_acknowledged(client):
    await spread(client, 4)
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        stranger = pydanube.MessageId("/default/other", 0)
        with pytest.raises(pydanube.InvalidRequest, match="not a partition"):
            await consumer.ack([stranger])


async def test_messages_are_acknowledged_all_or_none_if_one_is_foreign(client):
    await spread(client, 8, partitions=2)
    reading = {"subscription": "other", "start": "earliest"}
    async with (
        client.consumer(TOPIC, **EARLIEST) as consumer,
        client.consumer(TOPIC, **reading) as other,
    ):
        own = [await consumer.receive(timeout_s=60) for _ in range(8)]
        foreign = await other.receive(timeout_s=60)
        for answer in (consumer.ack, consumer.nack):
            for mixed in ([*own, foreign], iter([foreign, *own])):
                with pytest.raises(pydanube.InvalidRequest, match="subscription o"):
                    await answer(mixed)
        with pytest.raises(pydanube.InvalidRequest, match="subscription other"):
            await consumer.ack_cumulative(foreign)
        with pytest.raises(pydanube.InvalidRequest, match="subscription other"):
            await consumer.ack(foreign)
    for name in await client.topics.partitions(TOPIC):
        facts = await client.subscriptions.describe(name, EARLIEST["subscription"])
        assert facts.cursor == 0


async def test_batch_of_several_partitions_is_acknowledged_in_each(client):
    await spread(client, 8, partitions=2)
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        messages = [await consumer.receive(timeout_s=60) for _ in range(8)]
        await consumer.ack(pydanube.MessageBatch.of(TOPIC, messages))
    for name in await client.topics.partitions(TOPIC):
        facts = await client.subscriptions.describe(name, EARLIEST["subscription"])
        assert facts.backlog == 0


async def test_partition_that_is_added_is_consumed_from_its_beginning(client):
    await spread(client, 10, partitions=1)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        assert await nothing_comes(consumer)
        await client.topics.add_partitions(TOPIC, 2)
        await published(client, b"early", topic=PARTS[1])
        await consumer._discover_partitions()
        assert consumer.partitions == PARTS[:2]
        [message] = await take(consumer, 1)
        assert (message.topic, message.payload) == (PARTS[1], b"early")
        await consumer.ack(message)


async def test_added_partitions_are_discovered_at_the_interval(client, monkeypatch):
    monkeypatch.setattr(channel, "PARTITIONS_LOOKUP_INTERVAL_S", 0.01)
    await client.topics.create(TOPIC, partitions=1)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        await client.topics.add_partitions(TOPIC, 3)
        await published(client, b"m", topic=PARTS[2])
        [message] = await take(consumer, 1)
        assert message.topic == PARTS[2]


async def test_seek_moves_all_partitions_but_not_to_an_offset(client):
    await spread(client, 100)
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        await take(consumer, 100)
        await consumer.seek("earliest")
        assert sorted(int(m.payload) for m in await take(consumer, 100)) == list(
            range(100)
        )
        await consumer.seek("latest")
        assert await nothing_comes(consumer)
        with pytest.raises(pydanube.InvalidRequest, match="one partition"):
            await consumer.seek(7)
    with pytest.raises(pydanube.InvalidRequest, match="one partition"):
        async with client.consumer(TOPIC, subscription="t", start=5):
            pass


async def test_consumers_share_partitions(client):
    await client.topics.create(TOPIC, partitions=4)
    options = {"subscription": "s", "type": "shared", "start": "earliest"}
    async with (
        client.consumer(TOPIC, **options) as one,
        client.consumer(TOPIC, **options) as two,
    ):
        await spread(client, 400)
        found = [0, 0]
        while sum(found) < 400:
            for index, consumer in enumerate((one, two)):
                batch = await consumer.receive_batch(timeout_s=0.1)
                found[index] += len(batch)
                await consumer.ack(batch)
        assert min(found) > 100


async def test_second_consumer_of_an_exclusive_subscription_is_refused(client):
    await client.topics.create(TOPIC, partitions=2)
    async with client.consumer(TOPIC, subscription="s"):
        with pytest.raises(pydanube.ConsumerBusy):
            async with client.consumer(TOPIC, subscription="s"):
                pass


async def test_failed_partition_fails_the_consumer_after_its_messages(client):
    await client.topics.create(TOPIC, partitions=2)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        await client.topics.delete(TOPIC, force=True)
        for _ in range(2):
            with pytest.raises(pydanube.TopicNotFound):
                await consumer.receive(timeout_s=60)


async def test_closing_ends_the_iteration(client):
    await spread(client, 10)
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        count = 0
        async for message in consumer:
            count += 1
            await consumer.ack(message)
            if count == 10:
                await consumer.aclose()
        assert count == 10


async def test_broken_connection_loses_no_messages(broker, client):
    await spread(client, 300)
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        seen = set()
        while len(seen) < 300:
            message = await consumer.receive(timeout_s=60)
            seen.add(message.payload)
            await consumer.ack(message)
            if len(seen) == 100:
                for connection in list(broker.server.connections):
                    connection.abort()


async def test_receive_times_out(client):
    await client.topics.create(TOPIC, partitions=2)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        with pytest.raises(pydanube.TimedOut):
            await consumer.receive(timeout_s=0.01)


async def test_consumer_with_the_smallest_prefetch_gets_all_messages(client):
    await spread(client, 60)
    async with client.consumer(TOPIC, **EARLIEST, prefetch_messages=1) as consumer:
        seen = {(await take(consumer, 1))[0].payload for _ in range(60)}
        assert len(seen) == 60


async def test_corrupt_segment_of_one_partition_fails_the_consumer(broker, client):
    await spread(client, 20, partitions=2)
    name = await seal_and_damage(broker, PARTS[1])
    async with client.consumer(TOPIC, **EARLIEST) as consumer:
        with pytest.raises(pydanube.CorruptSegment, match=name):
            [message async for message in consumer]
