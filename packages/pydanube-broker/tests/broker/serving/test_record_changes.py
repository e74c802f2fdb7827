"""Changes of records are applied, and one that fails concerns only its topic."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import Corrupt, NotOwner, TopicNotFound
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import NamespacePolicy, SubscriptionSettings
from pydanube_broker.cluster.pure.shard_topics import shard_of
from pydanube_broker.cluster.shard_moves import move_shard
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import Prefix, key_of
from support.fakes.broker_clusters import SHARDS, BrokerCluster
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld
from support.fakes.held_store import HeldStore
from support.fakes.readers import attach, publish, stored, subscribe
from support.fakes.storages import until

SHARD = shard_of(A_TOPIC, SHARDS)
LIMITS = NamespacePolicy(max_publish_rate=3)


def topic_beside(name):
    """The name of another topic in the same shard."""
    names = (TopicName.parse(f"{name}{number}") for number in range(1000))
    return next(each for each in names if shard_of(each, SHARDS) == SHARD)


BESIDE = topic_beside(A_TOPIC)


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def cluster(stack):
    """Two brokers; the shard is served by the first."""
    cluster = BrokerCluster()
    cluster.store = HeldStore()
    for name in "ab":
        await stack.enter_async_context(cluster.broker(name))
    await cluster.settled("a", "b")
    await moved(cluster, "a")
    return cluster


async def moved(cluster, name):
    await move_shard(cluster.store, SHARD, name)
    await until(lambda: SHARD in cluster.served(name))
    await cluster.settled("a", "b")


def broker(cluster, name):
    return cluster.members[name].broker


async def opened(cluster, name="a"):
    """Both topics of the shard, with a message that a subscription acknowledges."""
    topics = broker(cluster, name).topics
    found = [await topics.create(each, RELIABLE) for each in (A_TOPIC, BESIDE)]
    for topic in found:
        await publish(topic, b"x")
        subscription = await subscribe(broker(cluster, name), topic=topic.name)
        reader, _ = attach(subscription)
        await reader.first(1)
        subscription.ack([(0, 1)], 0)
    return found


async def payloads(topic):
    return [each[0] for each in await stored(topic)]


async def test_topic_that_is_deleted_while_it_leaves_does_not_end_the_broker(cluster):
    a, b = broker(cluster, "a"), broker(cluster, "b")
    await opened(cluster)
    key = keys.topic(A_TOPIC)
    record = (await cluster.store.get(key)).value
    with cluster.store.holding(key.path) as is_applying:
        await cluster.store.put(key, replace(record, limits=LIMITS))
        # The first broker reads what has changed.
        await is_applying.wait()
        await moved(cluster, "b")
        await b.topics.delete(A_TOPIC, force=True)
    await moved(cluster, "a")
    with pytest.raises(TopicNotFound):
        await a.topics.get(A_TOPIC)
    assert await payloads(await a.topics.get(BESIDE)) == [b"x"]
    assert a.topics.failures.count == 0


async def test_topic_that_leaves_while_it_is_deleted_is_removed_by_the_next_owner(
    cluster,
):
    a, b = broker(cluster, "a"), broker(cluster, "b")
    topic, _ = await opened(cluster)
    remove = a.catalog.remove

    async def move_and_remove(*arguments):
        await moved(cluster, "b")
        await remove(*arguments)

    a.catalog.remove = move_and_remove
    await a.topics.delete(A_TOPIC, force=True)
    assert await cluster.store.scan(keys.DELETED_TOPICS) == []
    for each in (a, b):
        assert topic.topic_id not in each.storage.logs
    assert b.storage.find_state(topic.topic_id) is None
    assert await payloads(await b.topics.get(BESIDE)) == [b"x"]


async def test_topic_that_is_deleted_during_a_takeover_leaves_nothing(cluster):
    a, b = broker(cluster, "a"), broker(cluster, "b")
    topic, _ = await opened(cluster)
    open_recovered = b.topics.open_recovered

    async def delete_and_open(names):
        if A_TOPIC in names:
            assert b.storage.must_be_opened(topic.topic_id)
            # The first owner has removed the record just before its shard left.
            stored = await a.catalog.get_topic(A_TOPIC)
            await a.catalog.remove([(A_TOPIC, stored)], None)
            await cluster.store.delete(keys.deleted_topic(A_TOPIC))
        return await open_recovered(names)

    b.topics.open_recovered = delete_and_open
    await moved(cluster, "b")
    await until(lambda: not b.storage.must_be_opened(topic.topic_id))
    assert b.storage.find_state(topic.topic_id) is None
    assert await payloads(await b.topics.get(BESIDE)) == [b"x"]


async def test_change_that_fails_closes_only_its_topic(cluster, caplog):
    a, b = broker(cluster, "a"), broker(cluster, "b")
    topic, beside = await opened(cluster)

    def fail(*_, **__):
        raise KeyError("on purpose")

    topic.set_limits = fail
    for each in (A_TOPIC, BESIDE):
        await b.topics.configure(each, limits=LIMITS)
    await until(lambda: beside.limits.max_publish_rate == 3)
    assert A_TOPIC not in a.topics.opened
    assert a.topics.failures.count == 1
    assert f"{A_TOPIC}: applying its record failed unexpectedly" in caplog.text
    again = await a.topics.get_reliable(A_TOPIC)
    assert again is not topic
    assert again.limits.max_publish_rate == 3
    assert await payloads(again) == [b"x"]
    assert (await subscribe(a)).cursor_offset == 1
    assert await publish(again, b"y") == 1


async def test_topic_that_cannot_be_opened_keeps_no_other_from_being_served(cluster):
    await opened(cluster)
    b = broker(cluster, "b")
    load = b.holds.load

    async def fail_once(topic_log):
        if topic_log.name == str(A_TOPIC):
            b.holds.load = load
            raise KeyError("on purpose")
        await load(topic_log)

    b.holds.load = fail_once
    await moved(cluster, "b")
    await until(lambda: b.topics.failures.count == 1)
    assert BESIDE in b.topics.opened
    assert await payloads(await b.topics.get(A_TOPIC)) == [b"x"]


async def test_topic_that_cannot_be_closed_keeps_no_other_from_leaving(cluster):
    a, b = broker(cluster, "a"), broker(cluster, "b")
    topic, beside = await opened(cluster)
    close = topic.close

    def fail(reason):
        close(reason)
        raise KeyError("on purpose")

    topic.close = fail
    await moved(cluster, "b")
    assert not a.topics.opened
    assert beside.gone is not None
    assert a.topics.failures.count == 1
    assert await payloads(await b.topics.get(A_TOPIC)) == [b"x"]


def damaged(path):
    return key_of(path, str), "damaged"


PREFIXES = [each for each in vars(keys).values() if isinstance(each, Prefix)]


@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda each: each.path.strip("/"))
async def test_damaged_record_ends_no_broker(cluster, prefix):
    a, b = broker(cluster, "a"), broker(cluster, "b")
    await opened(cluster)
    for name in ("x", "4711", "x/y", "4711/x"):
        await cluster.store.put(*damaged(prefix.key(name).path))
    # The brokers have seen it when they have applied a later change.
    key = keys.topic(A_TOPIC)
    record = (await cluster.store.get(key)).value
    await cluster.store.put(key, replace(record, limits=LIMITS))
    await until(lambda: a.topics.opened[A_TOPIC].limits == LIMITS)
    await moved(cluster, "b")
    assert await payloads(await b.topics.get(BESIDE)) == [b"x"]
    assert {A_TOPIC, BESIDE} <= set(await a.catalog.names())


async def test_damaged_record_closes_its_topic_until_it_is_repaired(cluster):
    a = broker(cluster, "a")
    await opened(cluster)
    key = keys.topic(A_TOPIC)
    record = (await cluster.store.get(key)).value
    await cluster.store.put(*damaged(key.path))
    await until(lambda: A_TOPIC not in a.topics.opened)
    with pytest.raises(Corrupt, match=key.path):
        await a.topics.get(A_TOPIC)
    (problem,) = a.problems
    assert key.path in problem
    assert len(a.damaged_records) == 1
    assert await payloads(await a.topics.get(BESIDE)) == [b"x"]
    await cluster.store.put(key, record)
    assert await payloads(await a.topics.get(A_TOPIC)) == [b"x"]
    assert a.problems == []
    assert a.topics.failures.count == 0


async def test_damaged_record_of_a_namespace_leaves_its_topics_open(cluster):
    a = broker(cluster, "a")
    topic, _ = await opened(cluster)
    key = keys.NAMESPACES.key(A_TOPIC.namespace)
    await cluster.store.put(*damaged(key.path))
    await until(lambda: len(a.damaged_records) == 1)
    await publish(topic, b"y")
    assert await payloads(await a.topics.get(A_TOPIC)) == [b"x", b"y"]


async def test_damaged_record_of_a_shard_leaves_the_shard_where_it_is(cluster):
    a = broker(cluster, "a")
    await opened(cluster)
    key = keys.SHARDS.key(SHARD)
    record = (await cluster.store.get(key)).value
    await cluster.store.put(*damaged(key.path))
    await until(lambda: len(a.damaged_records) == 1)
    # Others still move.
    other = next(each for each in range(SHARDS) if each != SHARD)
    for name in "ba":
        await move_shard(cluster.store, other, name)
        await until(lambda: other in cluster.served(name))  # noqa: B023
    assert await payloads(await a.topics.get(A_TOPIC)) == [b"x"]
    await cluster.store.put(key, record)
    await moved(cluster, "b")
    assert not a.problems


async def test_broker_starts_beside_a_damaged_record_and_keeps_the_messages():
    world = BrokerWorld()
    async with world.broker() as a:
        for each in (A_TOPIC, BESIDE):
            await publish(await a.topics.create(each, RELIABLE), b"x")
    key = keys.topic(A_TOPIC)
    record = (await world.store.get(key)).value
    await world.store.put(*damaged(key.path))
    async with world.broker() as a:
        assert await payloads(await a.topics.get(BESIDE)) == [b"x"]
        with pytest.raises(Corrupt):
            await a.topics.get(A_TOPIC)
    await world.store.put(key, record)
    async with world.broker() as a:
        assert await payloads(await a.topics.get(A_TOPIC)) == [b"x"]


@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda each: each.path.strip("/"))
async def test_broker_starts_beside_any_damaged_record(prefix):
    world = BrokerWorld()
    async with world.broker() as a:
        await publish(await a.topics.create(A_TOPIC, RELIABLE), b"x")
    for name in ("x", "4711", "x/y", "4711/x"):
        await world.store.put(*damaged(prefix.key(name).path))
    async with world.broker() as a:
        assert await payloads(await a.topics.get(A_TOPIC)) == [b"x"]


# Changes that are on their way while the shard moves.

PAUSED = SubscriptionSettings(is_paused=True)
READERS = SubscriptionName("s")


async def held_while_moved(cluster, path, change):
    """Return the error of a *change* that arrives when the shard has moved."""
    async with task_scope() as tasks:
        with cluster.store.holding_change(path) as is_changing:
            changing = tasks.start(change)
            await is_changing.wait()
            await moved(cluster, "b")
            await broker(cluster, "b").topics.get(A_TOPIC)
        with pytest.raises(NotOwner) as raised:
            await changing
    return raised.value


async def test_settings_that_arrive_after_a_move_are_refused(cluster):
    topic, _ = await opened(cluster)
    key = keys.SETTINGS.key(topic.topic_id, READERS)
    change = broker(cluster, "a").subscriptions.change_settings(
        A_TOPIC, READERS, is_paused=True
    )
    await held_while_moved(cluster, key.path, change)
    assert await cluster.store.get(key) is None
    # The next owner, which clients are told to ask, applies it once.
    subscriptions = broker(cluster, "b").subscriptions
    await subscriptions.change_settings(A_TOPIC, READERS, is_paused=True)
    assert await subscriptions.settings(A_TOPIC, READERS) == PAUSED


async def test_settings_that_arrive_before_the_next_owner_reads_are_applied(cluster):
    await opened(cluster)
    await broker(cluster, "a").subscriptions.change_settings(
        A_TOPIC, READERS, is_paused=True
    )
    await moved(cluster, "b")
    topic = await broker(cluster, "b").topics.get(A_TOPIC)
    assert topic.subscriptions[READERS].settings == PAUSED


async def test_deletion_of_a_subscription_that_arrives_after_a_move_is_refused(
    cluster,
):
    topic, _ = await opened(cluster)
    key = keys.SUBSCRIPTIONS.key(topic.topic_id, READERS)
    change = broker(cluster, "a").subscriptions.delete(A_TOPIC, READERS, force=True)
    await held_while_moved(cluster, key.path, change)
    assert await cluster.store.get(key) is not None
    await moved(cluster, "a")
    assert READERS in (await broker(cluster, "a").topics.get(A_TOPIC)).subscriptions


async def test_hold_that_arrives_after_a_move_is_refused(cluster):
    topic, _ = await opened(cluster)
    key = keys.HOLDS.key(topic.topic_id, "table")
    change = broker(cluster, "a").holds.add(topic.log, "table", "on purpose")
    await held_while_moved(cluster, key.path, change)
    assert await cluster.store.get(key) is None


async def test_release_of_a_hold_that_arrives_after_a_move_is_refused(cluster):
    topic, _ = await opened(cluster)
    key = keys.HOLDS.key(topic.topic_id, "table")
    holds = broker(cluster, "a").holds
    await holds.add(topic.log, "table", "on purpose")
    change = holds.remove(topic.log, "table")
    await held_while_moved(cluster, key.path, change)
    assert await cluster.store.get(key) is not None


async def test_change_of_a_namespace_reaches_topics_that_are_being_opened(cluster):
    topic, _ = await opened(cluster)
    await moved(cluster, "b")
    b = broker(cluster, "b")
    await b.shard_serving.close_failed(A_TOPIC)
    reading = keys.SUBSCRIPTIONS.within(topic.topic_id)
    async with task_scope() as tasks:
        with cluster.store.holding(reading.path) as is_opening:
            opening = tasks.start(b.topics.get(A_TOPIC))
            await is_opening.wait()
            namespaces = broker(cluster, "a").namespaces
            await namespaces.configure(A_TOPIC.namespace, policy=LIMITS)
            for _ in range(20):
                await asyncio.sleep(0)
        found = await opening
    await until(lambda: found.limits == LIMITS)
