"""Retention holds are stored, and protect segments and topics."""

import pytest

from pydanube.model.errors import InvalidRequest, NotFound, TopicHeld, TopicNotFound
from pydanube_broker.broker.topics.retention_holds import HOLDS_MAX
from pydanube_broker.storage.segments.replacement import Replacement
from support.fakes.brokers import (
    A_NOW_US,
    A_TOPIC,
    RELIABLE,
)
from support.fakes.compacted import offer
from support.fakes.readers import publish
from support.fakes.storages import seal


async def test_held_topic_is_deleted_only_with_force(broker):
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    await broker.holds.add(topic.log, "lake", "a table")
    with pytest.raises(TopicHeld, match="held by lake"):
        await broker.topics.delete(A_TOPIC)
    await broker.topics.delete(A_TOPIC, force=True)
    # A new topic of the same name has no holds.
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    assert await broker.holds.list(topic.topic_id) == ()
    await broker.topics.delete(A_TOPIC)


async def test_holds_survive_a_restart(world):
    async with world.broker() as broker:
        log = (await broker.topics.create(A_TOPIC, RELIABLE)).log
        await broker.holds.add(log, "lake", "a table")
        await broker.holds.add(log, "lake", "another table")
        await broker.holds.add(log, "audit", "")
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        assert topic.log.holds == {"audit", "lake"}
        audit, lake = await broker.holds.list(topic.topic_id)
        assert (audit.name, audit.reason) == ("audit", "")
        assert (lake.reason, lake.created_at) == ("another table", A_NOW_US)
        await broker.holds.remove(topic.log, "lake")
        assert topic.log.holds == {"audit"}
        with pytest.raises(NotFound, match="no retention hold 'lake'"):
            await broker.holds.remove(topic.log, "lake")


async def test_expired_holds_are_removed(world):
    async with world.broker() as broker:
        log = (await broker.topics.create(A_TOPIC, RELIABLE)).log
        await broker.holds.add(log, "lake", "", expires_in_s=30)
        await broker.holds.add(log, "spark", "", expires_in_s=30)
        await broker.holds.add(log, "audit", "")
        world.now_us += 29_000_000
        assert await broker.holds.find_expired() == set()
        await broker.holds.add(log, "spark", "", expires_in_s=30)
    world.now_us += 1_000_000
    async with world.broker() as broker:
        expired = await broker.holds.find_expired()
        await broker.topics.remove_expired_holds(expired)
        topic = await broker.topics.get(A_TOPIC)
        assert expired == {topic.topic_id}
        assert topic.log.holds == {"audit", "spark"}
        left = await broker.holds.list(topic.topic_id)
        assert [hold.name for hold in left] == ["audit", "spark"]


async def test_number_of_holds_is_limited(broker):
    log = (await broker.topics.create(A_TOPIC, RELIABLE)).log
    for number in range(HOLDS_MAX):
        await broker.holds.add(log, f"h{number}", "")
    await broker.holds.add(log, "h0", "again")
    with pytest.raises(InvalidRequest, match="has 100 holds"):
        await broker.holds.add(log, "one more", "")


async def test_segments_are_replaced_only_if_topic_id_matches(world):
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        for _ in range(2):
            await publish(topic, b"a", b"b")
            await seal(broker.storage, topic.topic_id)
        offered = await offer(
            world.objects, topic.log, topic.segments, lambda at: at != 1
        )
        old = [each.object_name for each in topic.segments]
        with pytest.raises(TopicNotFound, match="created again"):
            await broker.topics.replace_segments(A_TOPIC, 99, old, [offered])
        assert isinstance(offered, Replacement)
        removed = await broker.topics.replace_segments(
            A_TOPIC, topic.topic_id, old, [offered]
        )
        assert removed == 1
        assert topic.describe().message_count == 3
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        (segment,) = topic.segments
        assert (segment.count, segment.checksum) == (3, offered.checksum)
