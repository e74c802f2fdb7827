"""The quotas in the metadata store, and what they do to topics and subscriptions."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.model.errors import InvalidRequest, NotFound, QuotaExceeded
from pydanube.model.names import NamespaceName, SubscriptionName, TopicName
from pydanube.model.policy import Start, SubscriptionType, TopicPolicy
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.security.quotas import Quota, QuotaTarget
from pydanube_broker.broker.governance import quotas as quotas_module
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import QuotaRecord
from pydanube_broker.metadata.store import Changes
from support.fakes.batches import frame_of
from support.fakes.brokers import Outcome
from support.fakes.storages import seal, until

BILLING = QuotaTarget.parse("user:billing")
SHOP = QuotaTarget.parse("/shop")
ORDERS = TopicName.parse("/shop/orders")


@pytest.fixture
async def shop(broker):
    """Create a namespace; return the quotas of the broker."""
    await broker.namespaces.create(NamespaceName("shop"))
    return broker.quotas


def quotas_of(world, **limits):
    """Return quotas beside those of the broker, with the same metadata store."""
    return quotas_module.Quotas(
        world.store,
        opened={},
        clock=asyncio.get_running_loop().time,
        wall_clock_us=lambda: 1,
        **limits,
    )


async def create(broker, name):
    return await broker.topics.create(TopicName.parse(name), TopicPolicy())


async def subscribe(broker, name):
    await broker.subscriptions.open(
        ORDERS, SubscriptionName(name), SubscriptionType.SHARED, Start.EARLIEST
    )


async def test_quota_is_there_after_a_restart(world):
    name = QuotaTarget.parse("user:spiffe://shop/billing")
    async with world.broker() as broker:
        await broker.quotas.set(name, Quota(connections=2))
        await broker.quotas.set(BILLING, Quota(bytes_in_per_s=2048))
        await broker.quotas.remove(BILLING)
    async with world.broker() as broker:
        assert broker.quotas.quotas == {name: Quota(connections=2)}
        principal = Principal("spiffe://shop/billing", "certificate")
        assert broker.quotas.of_principal(principal).quota.connections == 2


async def test_change_applies_to_a_client_that_is_connected(shop):
    meter = shop.of_principal(Principal("billing", "token"))
    assert meter.bytes_in is None
    await shop.set(BILLING, Quota(bytes_in_per_s=2048))
    assert meter.bytes_in is not None
    assert shop.of_principal(Principal("billing", "api_key")) is meter
    await shop.remove(BILLING)
    assert meter.bytes_in is None


async def test_default_applies_to_principals_without_a_quota(world):
    async with world.broker(default_quota=Quota(connections=5)) as broker:
        quotas = broker.quotas
        await quotas.set(BILLING, Quota(requests_per_s=1))
        assert quotas.of_principal(ANONYMOUS).quota == Quota(connections=5)
        billing = Principal("billing", "token")
        assert quotas.of_principal(billing).quota == Quota(requests_per_s=1)
        assert quotas.describe(QuotaTarget.parse("anonymous")).is_default
        await quotas.remove(BILLING)
        assert quotas.of_principal(billing).quota == Quota(connections=5)


async def test_superusers_have_no_quota(world):
    root = Principal("root", "certificate")
    default = Quota(connections=1)
    async with world.broker(default_quota=default, is_superuser=root.__eq__) as broker:
        meter = broker.quotas.of_principal(root)
        for _ in range(3):
            meter.connect()
        assert broker.quotas.own_target(root) is None


async def test_quota_that_does_not_exist_is_not_removed(shop):
    with pytest.raises(NotFound, match="has no quota"):
        await shop.remove(BILLING)


async def test_quotas_are_bounded(world):
    quotas = quotas_of(world, quotas_max=1)
    await quotas.set(BILLING, Quota(connections=1))
    await quotas.set(BILLING, Quota(connections=2))
    with pytest.raises(QuotaExceeded, match="there are 1 quotas"):
        await quotas.set(QuotaTarget.parse("user:shop"), Quota(connections=1))


async def test_invalid_quota_is_refused(shop):
    with pytest.raises(InvalidRequest):
        await shop.set(SHOP, Quota(connections=1))


async def test_record_that_the_broker_does_not_understand_is_left_out(world):
    record = QuotaRecord(target="galaxy:1", created_at=1, connections=1)
    await world.store.put(keys.QUOTAS.key("x"), record)
    async with world.broker() as broker:
        assert not broker.quotas.quotas


async def test_another_broker_follows_changes(world, broker, shop):
    other = quotas_of(world)
    async with quotas_module.following_quotas(other):
        meter = other.of_principal(Principal("billing", "token"))
        await shop.set(BILLING, Quota(connections=7))
        await until(lambda: meter.quota.connections == 7)


async def test_idle_principals_are_forgotten_and_connected_ones_are_not(world):
    quotas = quotas_of(world, meters_max=2)
    connected = quotas.of_principal(Principal("a", "token"))
    connected.connect()
    idle = quotas.of_principal(Principal("b", "token"))
    quotas.of_principal(Principal("c", "token"))
    assert quotas.of_principal(Principal("a", "token")) is connected
    assert quotas.of_principal(Principal("b", "token")) is not idle


# Topics.


async def test_topics_of_a_namespace_are_limited(broker, shop):
    await create(broker, "/shop/a")
    await shop.set(SHOP, Quota(topics=2))
    await create(broker, "/shop/b")
    with pytest.raises(QuotaExceeded, match="the quota topics of /shop is 2, and 2"):
        await create(broker, "/shop/c")
    await create(broker, "/default/c")
    # An existing topic is none that is created.
    await broker.topics.create(TopicName.parse("/shop/b"), TopicPolicy(), exist_ok=True)
    await broker.topics.delete(TopicName.parse("/shop/a"))
    await create(broker, "/shop/c")


async def test_partitions_count_as_topics(broker, shop):
    await shop.set(SHOP, Quota(topics=3))
    with pytest.raises(QuotaExceeded):
        await broker.topics.create_partitioned(ORDERS, 4, TopicPolicy())
    await broker.topics.create_partitioned(ORDERS, 3, TopicPolicy())
    with pytest.raises(QuotaExceeded):
        await broker.topics.add_partitions(ORDERS, 4)


# Subscriptions.


async def test_subscriptions_of_a_namespace_are_limited(broker, shop):
    await create(broker, "/shop/orders")
    await subscribe(broker, "a")
    await shop.set(SHOP, Quota(subscriptions=2))
    await subscribe(broker, "b")
    with pytest.raises(QuotaExceeded, match="the quota subscriptions of /shop is 2"):
        await subscribe(broker, "c")
    await subscribe(broker, "b")
    await broker.subscriptions.delete(ORDERS, SubscriptionName("a"))
    await subscribe(broker, "c")
    await shop.measure()
    assert shop.describe(SHOP).used["subscriptions"] == 2


# Storage and rates.


async def published(broker, topic, size=2000):
    """Publish one message; return the bytes that the log has for it."""
    _, session = await broker.producers.open(topic.name, "p", policy=None)
    before = topic.log.tail.byte_count
    outcome = Outcome()
    frame = frame_of(
        [bytes(size)],
        producer=session.name,
        producer_id=session.producer_id,
        producer_epoch=session.epoch,
        base_sequence=session.next_sequence,
    )
    topic.publish(session, frame, outcome)
    await outcome.offset()
    return topic.log.tail.byte_count - before


@pytest.mark.parametrize("target", ["/shop", "/shop/orders"])
async def test_stored_bytes_are_limited(broker, shop, target):
    topic = await create(broker, "/shop/orders")
    await published(broker, topic)
    await shop.set(QuotaTarget.parse(target), Quota(storage_bytes=1000))
    assert shop.describe(QuotaTarget.parse(target)).used["storage_bytes"] > 0
    topic.pacing.add("storage_bytes", 1000)
    with pytest.raises(QuotaExceeded, match="storage_bytes"):
        await published(broker, topic)
    await shop.remove(QuotaTarget.parse(target))
    await published(broker, topic)


async def test_sealed_messages_are_measured(broker, shop):
    topic = await create(broker, "/shop/orders")
    await published(broker, topic)
    await seal(broker.storage, topic.topic_id)
    await shop.set(SHOP, Quota(storage_bytes=10**6))
    sealed = sum(each.byte_count for each in topic.segments)
    assert sealed > 0
    assert shop.describe(SHOP).used["storage_bytes"] == sealed


async def test_quotas_of_topic_and_namespace_delay_publishing(broker, shop):
    topic = await create(broker, "/shop/orders")
    now = asyncio.get_running_loop().time()
    await shop.set(SHOP, Quota(bytes_in_per_s=1024))
    topic.pacing.count(1, 11 * 1024, are_stored=True)
    assert 9 < topic.publish_delay_s(now) <= 11
    other = await create(broker, "/shop/other")
    assert other.publish_delay_s(now) > 9
    elsewhere = await create(broker, "/default/other")
    assert elsewhere.publish_delay_s(now) == 0
    await shop.remove(SHOP)
    assert topic.publish_delay_s(now) == 0


async def test_partitions_share_the_quota_of_their_topic(broker, shop):
    await broker.topics.create_partitioned(ORDERS, 2, TopicPolicy())
    await shop.set(QuotaTarget.parse("/shop/orders"), Quota(bytes_in_per_s=1024))
    one = await broker.topics.get(TopicName.parse("/shop/orders-part-0"))
    other = await broker.topics.get(TopicName.parse("/shop/orders-part-1"))
    one.pacing.count(1, 11 * 1024, are_stored=True)
    assert other.publish_delay_s(asyncio.get_running_loop().time()) > 9


# Many quotas, and many topics.


async def test_late_report_of_a_watch_does_not_bring_a_removed_quota_back(shop, world):
    reported = await world.store.put(
        keys.QUOTAS.key("user%3Abilling"),
        QuotaRecord(target="user:billing", created_at=1, connections=1),
    )
    stored = dict(await world.store.scan(keys.QUOTAS))
    await shop.remove(BILLING)
    shop.on_changes(Changes(reported, stored), are_all=False)
    assert not shop.quotas


async def test_damaged_record_leaves_its_quota_in_force(shop, world):
    await shop.set(BILLING, Quota(connections=1))
    revision, path = (
        await world.store.revision(),
        keys.QUOTAS.key("user%3Abilling").path,
    )
    shop.on_changes(Changes(revision, {}, frozenset([path])), are_all=True)
    assert shop.quotas == {BILLING: Quota(connections=1)}


async def test_quota_of_a_partitioned_topic_counts_its_partitions(broker, shop):
    await broker.topics.create_partitioned(ORDERS, 3, TopicPolicy())
    for partition in (0, 2):
        name = ORDERS.partition(partition)
        size = await published(broker, await broker.topics.get(name))
    await shop.set(QuotaTarget.parse(str(ORDERS)), Quota(storage_bytes=1 << 20))
    used = shop.describe(QuotaTarget.parse(str(ORDERS))).used["storage_bytes"]
    assert used == 2 * size
