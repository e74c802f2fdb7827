"""Partitions, delays and settings survive a kill of the broker."""

import asyncio
from collections import defaultdict

import pytest

import pydanube
from pydanube import FailurePolicy, NamespacePolicy, PoisonPolicy
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC = "/default/kill-parts"
KEYS = 20
KILLS = 4


async def publish(client, stop, done, acknowledged):
    """Publish numbers with keys until stopped; record the acknowledged ones."""
    number = 0
    async with client.producer(TOPIC, name="p") as producer:
        while not stop.is_set():
            batch = range(number, number + 200)
            pending = [
                (n, producer.send_nowait(str(n), key=f"k{n % KEYS}")) for n in batch
            ]
            for n, each in pending:
                acknowledged[n] = await each
            number = batch.stop
    done.set()


async def until_acknowledged(acknowledged, count):
    """Wait for messages: only the publisher knows when."""
    while len(acknowledged) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def consume(client, acknowledged, done, seen):
    """Consume until all acknowledged messages have arrived."""
    async with client.consumer(
        TOPIC, subscription="s", name="c", start="earliest"
    ) as consumer:
        while not done.is_set() or len(seen) < len(acknowledged):
            batch = await consumer.receive_batch(timeout_s=0.5)
            for message in batch:
                seen[int(message.payload)].append(message.id)
            await consumer.ack(batch)


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


@pytest.mark.soak
async def test_partitioned_topic_loses_nothing_when_its_broker_is_killed(broker):
    acknowledged, seen = {}, defaultdict(list)
    stop, done = asyncio.Event(), asyncio.Event()
    async with pydanube.connect(broker.url) as client, asyncio.TaskGroup() as tasks:
        await client.topics.create(TOPIC, partitions=3)
        tasks.create_task(publish(client, stop, done, acknowledged))
        tasks.create_task(consume(client, acknowledged, done, seen))
        for number in range(KILLS):
            await until_acknowledged(acknowledged, 300 * number)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        await until_acknowledged(acknowledged, 300 * KILLS)
        stop.set()
    # All messages arrived from their partition, and each key in its order.
    for number, message_id in acknowledged.items():
        assert set(seen[number]) == {message_id}
    for key in range(KEYS):
        ids = [acknowledged[n] for n in sorted(acknowledged) if n % KEYS == key]
        assert len({each.topic for each in ids}) == 1
        offsets = [each.offset for each in ids]
        assert offsets == sorted(offsets)


async def test_settings_and_delayed_messages_survive_a_kill(broker):
    policy = FailurePolicy(
        redeliveries_max=3,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/dead",
    )
    limits = NamespacePolicy(max_message_size=1000)
    async with pydanube.connect(broker.url) as client:
        await client.namespaces.create("shop", policy=limits)
        await client.topics.create("/shop/t", partitions=2, ttl_s=3600)
        await client.subscriptions.create("/shop/t", "s", start="earliest")
        await client.subscriptions.configure("/shop/t", "s", failure_policy=policy)
        await client.subscriptions.configure("/shop/t", "s", is_paused=True)
        async with client.producer("/shop/t") as producer:
            await producer.send_batch([b"far"], deliver_after_s=3600)
            await producer.send_batch([b"soon"], deliver_after_s=0.2)
    broker.kill()
    broker.start()
    async with pydanube.connect(broker.url) as client:
        facts = await client.namespaces.describe("shop")
        assert (facts.policy, facts.topic_count) == (limits, 2)
        settings = await client.subscriptions.settings("/shop/t", "s")
        assert (settings.failure_policy, settings.is_paused) == (policy, True)
        topic = await client.topics.describe("/shop/t-part-1")
        assert (topic.policy.ttl_s, topic.limits) == (3600.0, limits)
        await client.subscriptions.configure("/shop/t", "s", is_paused=False)
        async with client.consumer("/shop/t", subscription="s") as consumer:
            message = await consumer.receive(timeout_s=60)
            assert message.payload == b"soon"
            await consumer.ack(message)
            with pytest.raises(pydanube.TimedOut):
                await consumer.receive(timeout_s=0.2)
