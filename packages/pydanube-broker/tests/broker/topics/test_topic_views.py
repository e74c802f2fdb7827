"""Looks at topics that do not open them."""

from dataclasses import replace

import pytest

from pydanube.model.errors import InvalidRequest, SubscriptionNotFound, TopicNotFound
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import (
    NamespacePolicy,
    Retention,
    SubscriptionSettings,
    TopicPolicy,
)
from support.fakes.brokers import A_TOPIC, NON_RELIABLE, RELIABLE, BrokerWorld
from support.fakes.readers import S, publish, subscribe
from support.fakes.storages import seal

OTHER = SubscriptionName("other")


def named(name):
    return TopicName.parse(f"/default/{name}")


@pytest.fixture
def world():
    return BrokerWorld()


async def sealed(broker, name=A_TOPIC, policy=RELIABLE):
    """Create a topic with segments of two messages each."""
    topic = await broker.topics.create(name, policy)
    for _ in range(3):
        await publish(topic, b"a", b"b")
        await seal(broker.storage, topic.topic_id)
    return topic


async def fill(broker):
    """Create topics in several states, all of whose messages are in segments."""
    topic = await sealed(broker)
    await subscribe(broker)
    await subscribe(broker, name=OTHER)
    await broker.subscriptions.mark_done(A_TOPIC, S, [(0, 3), (4, 5)])
    await broker.subscriptions.change_settings(A_TOPIC, OTHER, is_paused=True)
    await broker.holds.add(topic.log, "lake", "registered")
    await sealed(
        broker, named("dropped"), TopicPolicy(retention=Retention(bytes_max=1))
    )
    await broker.topics.apply_retention(named("dropped"))
    await broker.topics.create(named("empty"), RELIABLE)
    await broker.topics.create_partitioned(named("parts"), 2, RELIABLE)
    limits = NamespacePolicy(max_subscriptions_per_topic=3)
    await broker.topics.configure(named("parts"), limits=limits)
    return [
        A_TOPIC,
        *map(named, ("dropped", "empty", "parts-part-0", "parts-part-1")),
    ]


async def written(world, broker):
    """Return what changes with every write, and how many topics are open."""
    revision, journal = await world.store.revision(), broker.storage.journal
    return revision, journal.durable_end, len(broker.topics.opened)


async def describe(broker, name):
    async with broker.views.viewing(name) as topic:
        return topic.describe(), topic.segments, topic.offsets()


async def test_looking_at_idle_topics_opens_none_and_writes_nothing(world):
    async with world.broker() as broker:
        names = await fill(broker)
        await broker.topics.create(named("direct"), NON_RELIABLE)
    async with world.broker() as broker:
        before = await written(world, broker)
        assert before[-1] == 0
        looks = await broker.views.look_at([*names, named("direct"), named("none")])
        assert sorted(looks.found) == sorted([*names, named("direct")])
        for name in names:
            assert (await describe(broker, name))[1:] == looks.found[name][::-1]
            async with broker.views.viewing_reliable(name) as topic:
                await topic.find_offsets([0])
        assert await written(world, broker) == before
        assert not broker.storage.logs
        assert not broker.storage.memory.unsealed


async def test_idle_topics_look_as_when_they_are_open(world):
    async with world.broker() as broker:
        names = await fill(broker)
    async with world.broker() as broker:
        idle = [await describe(broker, name) for name in names]
        for name, (description, segments, offsets) in zip(names, idle, strict=True):
            topic = await broker.topics.get(name)
            opened = topic.describe()
            assert replace(description, epoch=opened.epoch) == opened
            assert (segments, offsets) == (topic.segments, topic.offsets())
            assert await describe(broker, name) == (opened, segments, offsets)
    paused, read = {S: False, OTHER: True}, {S: (3, 2), OTHER: (0, 6)}
    for each in idle[0][0].subscriptions:
        assert each.settings == SubscriptionSettings(
            is_paused=paused[each.subscription]
        )
        assert (each.cursor, each.backlog) == read[each.subscription]


async def test_times_are_found_in_idle_topics(world):
    async with world.broker() as broker:
        topic = await sealed(broker)
        times = [topic.log.estimate_time(offset) for offset in range(6)]
    async with world.broker() as broker:
        async with broker.views.viewing_reliable(A_TOPIC) as topic:
            found, base, end = await topic.find_offsets([times[0], times[-1] + 1])
        assert (found[0], found[1], base, end) == (0, 6, 0, 6)
        assert not broker.topics.opened


async def test_topic_with_unsealed_messages_is_opened_when_it_is_looked_at(world):
    async with world.broker() as broker:
        await publish(await broker.topics.create(A_TOPIC, RELIABLE), b"a")
    async with world.broker() as broker:
        [(found, _)] = (await broker.views.look_at([A_TOPIC])).found.values()
        assert (found.end_offset, found.sealed_offset) == (1, 0)
        assert A_TOPIC in broker.topics.opened


async def test_looking_for_what_does_not_exist_fails_as_for_open_topics(world):
    async with world.broker() as broker:
        await sealed(broker)
        await broker.topics.create(named("direct"), NON_RELIABLE)
    async with world.broker() as broker:
        with pytest.raises(TopicNotFound):
            await describe(broker, named("none"))
        async with broker.views.viewing(A_TOPIC) as topic:
            with pytest.raises(SubscriptionNotFound):
                topic.find_subscription(S)
        with pytest.raises(InvalidRequest, match="is not reliable"):
            async with broker.views.viewing_reliable(named("direct")):
                pass


async def test_topic_that_is_opened_and_used_meanwhile_is_not_mixed_with_its_past(
    world,
):
    async with world.broker() as broker:
        await sealed(broker)
        await subscribe(broker)
    async with world.broker() as broker:
        scan, began = world.store.scan, []

        async def opening_meanwhile(prefix, **page):
            if "/subscriptions/" in prefix.path and not began:
                began.append(prefix)
                await publish(await broker.topics.get(A_TOPIC), b"a", b"b")
                await broker.subscriptions.mark_done(A_TOPIC, S, [(0, 8)])
            return await scan(prefix, **page)

        world.store.scan = opening_meanwhile
        description, _, offsets = await describe(broker, A_TOPIC)
        assert offsets.end_offset == description.end_offset == 8
        assert description.subscriptions[0].backlog == 0
