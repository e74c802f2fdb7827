"""Promises of the broker that cannot be tested through a client alone."""

import logging

import pytest

import pydanube
from pydanube.model.errors import InvalidName, MetadataUnavailable
from pydanube.model.names import NamespaceName, SubscriptionName, TopicName
from pydanube.model.policy import (
    FailurePolicy,
    NamespacePolicy,
    Retention,
    SubscriptionType,
    TopicPolicy,
)
from pydanube_broker.broker.serving import producers
from pydanube_broker.testing import memory_broker
from support.drivers.running import TOPIC, published
from support.fakes.batches import frame_of
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld, Outcome
from support.fakes.readers import S, a_while, attach, publish, subscribe
from support.fakes.storages import seal

SHOP = NamespaceName("shop")
PARTS = TopicName.parse("/shop/parts")


@pytest.fixture
async def memory():
    """Run a broker with its native server."""
    async with memory_broker() as memory:
        yield memory


@pytest.fixture
async def client(memory):
    async with memory.connect() as client:
        yield client


@pytest.mark.parametrize("reliable", [True, False])
async def test_sessions_of_idle_producers_are_bounded(
    memory, client, monkeypatch, reliable
):
    monkeypatch.setattr(producers, "IDLE_PRODUCERS_MAX", 3)
    await client.topics.create(TOPIC, reliable=reliable)
    for number in range(10):
        async with client.producer(TOPIC, name=f"p-{number}") as producer:
            await producer.send(b"x")
    topic = await memory.broker.topics.get(TopicName.parse(TOPIC))
    assert len(topic.sessions) <= 4
    if reliable:
        await memory.broker.storage.journal.sync()
        state = memory.broker.storage.find_state(topic.topic_id)
        assert len(state.producers) <= 4
        assert "p-9" in state.producers


async def test_closed_anonymous_producer_leaves_no_session(memory, client):
    await published(client, b"x")
    topic = await memory.broker.topics.get(TopicName.parse(TOPIC))
    assert topic.sessions == {}
    await memory.broker.storage.journal.sync()
    state = memory.broker.storage.find_state(topic.topic_id)
    assert state.producers == {}


async def test_fully_sealed_topic_continues_at_its_end_offset(memory, client):
    await published(client, b"a", b"b")
    topic = await memory.broker.topics.get(TopicName.parse(TOPIC))
    await seal(memory.broker.storage, topic.topic_id)
    facts = await client.topics.describe(TOPIC)
    assert (facts.sealed_offset, facts.segment_count) == (2, 1)
    assert facts.tail_bytes == 0
    segments = await client.storage.segments(TOPIC)
    assert [(s.base, s.end, s.count) for s in segments.segments] == [(0, 2, 2)]
    read = [p async for b in client.read(TOPIC) for p in b.payloads]
    assert read == [b"a", b"b"]
    await published(client, b"c")
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        got = [(await consumer.receive(timeout_s=60)).payload for _ in range(3)]
    assert got == [b"a", b"b", b"c"]


async def test_subscription_overtaken_by_retention_fails_once_and_continues(
    memory, client
):
    await client.topics.create(TOPIC, retention=Retention(bytes_max=1))
    await client.subscriptions.create(TOPIC, "s", start="earliest")
    topic = await memory.broker.topics.get(TopicName.parse(TOPIC))
    storage = memory.broker.storage
    for payload in (b"a", b"b", b"c"):
        await published(client, payload)
        await seal(storage, topic.topic_id)
    await storage.sealer.apply_retention(storage.logs[topic.topic_id])
    assert (await client.topics.describe(TOPIC)).base_offset == 2
    with pytest.raises(pydanube.OffsetDropped, match="next offset that exists is 2"):
        async with client.consumer(TOPIC, subscription="s") as consumer:
            await consumer.receive(timeout_s=60)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        assert (await consumer.receive(timeout_s=60)).offset == 2
    with pytest.raises(pydanube.OffsetDropped):
        [batch async for batch in client.read(TOPIC, start=0)]


async def test_overtaken_subscription_gets_no_acknowledged_messages_again(
    memory, client
):
    await client.topics.create(TOPIC)
    await client.subscriptions.create(TOPIC, "s", start="earliest")
    topic = await memory.broker.topics.get(TopicName.parse(TOPIC))
    storage = memory.broker.storage
    for number in range(5):
        await published(client, b"%d" % number)
        await seal(storage, topic.topic_id)
    name = SubscriptionName("s")
    await memory.broker.subscriptions.mark_done(topic.name, name, [(2, 3)])
    kept_bytes = sum(segment.byte_count for segment in topic.segments[1:])
    await client.topics.configure(TOPIC, retention=Retention(bytes_max=kept_bytes))
    await client.topics.apply_retention(TOPIC)
    assert topic.log.base_offset == 1
    with pytest.raises(pydanube.OffsetDropped):
        async with client.consumer(TOPIC, subscription="s") as consumer:
            await consumer.receive(timeout_s=60)
    async with client.consumer(TOPIC, subscription="s") as consumer:
        received = [await consumer.receive(timeout_s=60) for _ in range(3)]
    assert [message.offset for message in received] == [1, 3, 4]


async def test_topic_policies_survive_a_restart(memory):
    policy = TopicPolicy()
    name = TopicName.parse(TOPIC)
    created = await memory.broker.topics.create(name, policy)
    assert (await memory.broker.topics.get(name)) is created
    assert created.policy == policy


async def test_topic_opens_after_an_opening_that_failed_half_way(world, broker):
    await broker.topics.create_partitioned(A_TOPIC, 1, RELIABLE)
    name = A_TOPIC.partition(0)
    world.store.failing.add("/subscriptions/")
    with pytest.raises(MetadataUnavailable):
        await broker.topics.get(name)
    world.store.failing.clear()
    topic = await broker.topics.get(name)
    topic.publish_unchecked(frame_of([b"x"]), outcome := Outcome())
    assert await outcome.offset() == 0
    await seal(broker.storage, topic.topic_id)
    await broker.topics.delete(A_TOPIC)


async def test_partitions_with_too_long_names_are_not_created(broker):
    name = TopicName.parse("/default/" + "a" * 248)
    with pytest.raises(InvalidName, match="256 bytes"):
        await broker.topics.create_partitioned(name, 11, RELIABLE)
    await broker.topics.create_partitioned(name, 10, RELIABLE)


async def test_changes_of_an_operator_are_logged(caplog):
    caplog.set_level(logging.INFO, "pydanube_broker")
    async with BrokerWorld().broker() as broker:
        await broker.namespaces.create(SHOP)
        await broker.namespaces.configure(
            SHOP, policy=NamespacePolicy(max_publish_rate=9)
        )
        await broker.topics.create_partitioned(PARTS, 3, TopicPolicy())
        topic = await broker.topics.create(A_TOPIC, TopicPolicy())
        await publish(topic, b"secret", b"payload")
        await seal(broker.storage, topic.topic_id)
        await publish(topic, b"more")
        await seal(broker.storage, topic.topic_id)
        found = await subscribe(broker, type_=SubscriptionType.EXCLUSIVE)
        await broker.subscriptions.seek(topic, found, 2)
        await broker.subscriptions.skip(A_TOPIC, S, 1)
        await broker.subscriptions.change_settings(A_TOPIC, S, is_paused=True)
        await broker.topics.configure(A_TOPIC, retention=Retention(bytes_max=1))
        await broker.topics.apply_retention(A_TOPIC)
        await broker.subscriptions.delete(A_TOPIC, S)
        await broker.topics.delete(PARTS)
        await broker.namespaces.delete(SHOP)
    assert [record.getMessage() for record in caplog.records] == [
        "created the namespace shop: defaults",
        "changed the settings of the namespace shop: policy=(max_publish_rate=9)",
        "created 3 reliable partitions, /shop/parts-part-0 to /shop/parts-part-2",
        "created the reliable topic /default/orders",
        "created the exclusive subscription s of /default/orders",
        "subscription s of /default/orders: moved from offset 0 to 2",
        "subscription s of /default/orders: skipped 1 messages",
        "changed the subscription s of /default/orders: is_paused=True",
        "changed the settings of /default/orders: retention=(bytes_max=1)",
        f"topic {A_TOPIC}: retention dropped 1 segments (2 messages) up to offset 1",
        "deleted the subscription s of /default/orders",
        "deleted /shop/parts",
        "deleted the namespace shop",
    ]


async def test_a_message_that_blocks_its_subscription_is_logged(caplog):
    caplog.set_level(
        logging.INFO, "pydanube_broker.broker.delivery.reliable_subscription"
    )
    async with BrokerWorld().broker() as broker:
        topic = await broker.topics.create(A_TOPIC, TopicPolicy())
        name = SubscriptionName("poisoned")
        policy = FailurePolicy(redeliveries_max=0)
        await broker.subscriptions.change_settings(A_TOPIC, name, failure_policy=policy)
        found = await subscribe(broker, name)
        reader, _ = attach(found)
        await publish(topic, b"bad")
        await reader.first(1)
        found.nack([(0, 1)])
        await a_while()
        found.ack([(0, 1)], 0)
        await a_while()
    blocked, again = caplog.records
    assert blocked.levelname == "WARNING"
    assert blocked.getMessage() == (
        f"subscription poisoned of {A_TOPIC} is blocked by message 0, which failed "
        "too often; acknowledge or skip it, or change the failure policy"
    )
    assert again.getMessage().endswith(
        "poisoned of /default/orders is no longer blocked"
    )
