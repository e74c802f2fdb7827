"""The contents of deleted topics are removed; until then, their names are taken."""

import asyncio

import pytest

from pydanube.model.errors import ObjectsUnavailable, Unavailable
from pydanube.model.names import TopicName
from pydanube.model.retry import RetryPolicy
from pydanube_broker.broker.topics import deleted_topics
from pydanube_broker.metadata import keys
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld
from support.fakes.guarded_clusters import eventually
from support.fakes.readers import a_while, publish, stored
from support.fakes.storages import FlakyObjects, seal

BESIDE = TopicName.parse("/default/beside")


class GatedObjects(FlakyObjects):
    """Objects that are deleted only while the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.is_waiting = asyncio.Event(), asyncio.Event()

    async def delete(self, name):
        self.is_waiting.set()
        await self.gate.wait()
        await super().delete(name)


class CountingObjects(FlakyObjects):
    """Objects that count the attempts to delete one."""

    deletions = 0

    async def delete(self, name):
        self.deletions += 1
        await super().delete(name)


class LongRetries(RetryPolicy):
    """Retries after a very long time."""

    def delay_s(self, failures, random=None):
        return 1e6


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch):
    """Make the pauses after failures very short."""
    monkeypatch.setattr(deleted_topics, "RETRIES", RetryPolicy(0.001, 0.002))


async def sealed(broker, *payloads):
    """Create a topic with one segment."""
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    await publish(topic, *payloads)
    await seal(broker.storage, topic.topic_id)
    return topic


async def until_forgotten(world):
    while await world.store.scan(keys.DELETED_TOPICS):
        await a_while()


async def test_a_name_is_taken_until_the_contents_of_its_topic_are_removed():
    world = BrokerWorld(objects=FlakyObjects())
    async with world.broker() as broker:
        await sealed(broker, b"old")
        world.objects.failing.add("orders")
        with pytest.raises(ObjectsUnavailable):
            await broker.topics.delete(A_TOPIC)
        with pytest.raises(Unavailable, match="are still being removed"):
            await broker.topics.create(A_TOPIC, RELIABLE)
        world.objects.failing.clear()
        await until_forgotten(world)
        topic = await sealed(broker, b"new")
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        assert [each[0] for each in await stored(topic)] == [b"new"]


async def test_a_deletion_that_was_interrupted_keeps_the_name_taken():
    world = BrokerWorld(objects=FlakyObjects())
    async with world.broker() as broker:
        await sealed(broker, b"old")
        world.objects.failing.add("orders")
        with pytest.raises(ObjectsUnavailable):
            await broker.topics.delete(A_TOPIC)
    async with world.broker() as broker:
        with pytest.raises(Unavailable, match="are still being removed"):
            await broker.topics.create(A_TOPIC, RELIABLE)
        world.objects.failing.clear()
        await until_forgotten(world)
    assert not world.objects.stored


async def test_takeover_does_not_wait_for_the_pause_after_a_failure(monkeypatch):
    monkeypatch.setattr(deleted_topics, "RETRIES", LongRetries(0.001, 1.0))
    world = BrokerWorld(objects=CountingObjects())
    async with world.broker() as broker:
        await sealed(broker, b"old")
        world.objects.failing.add("orders")
        with pytest.raises(ObjectsUnavailable):
            await broker.topics.delete(A_TOPIC)
        await eventually(lambda: world.objects.deletions > 1)
        await a_while()
        world.objects.failing.clear()
        # As a takeover does.
        broker.topics.leftovers.set()
        await until_forgotten(world)
        await broker.topics.create(A_TOPIC, RELIABLE)


async def test_other_topics_are_used_while_contents_are_removed():
    world = BrokerWorld(objects=GatedObjects())
    async with world.broker() as broker, asyncio.TaskGroup() as tasks:
        await sealed(broker, b"old")
        deletion = tasks.create_task(broker.topics.delete(A_TOPIC))
        await world.objects.is_waiting.wait()
        await broker.topics.create(BESIDE, RELIABLE)
        await broker.topics.delete(BESIDE)
        assert not deletion.done()
        world.objects.gate.set()
    assert await world.store.scan(keys.DELETED_TOPICS) == []
