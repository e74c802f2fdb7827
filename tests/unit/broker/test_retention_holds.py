"""Who holds a topic is remembered, and keeps its segments and the topic itself."""

import pytest

from pydanube.broker.retention_holds import HOLDS_MAX
from pydanube.model.errors import InvalidRequest, NotFound, TopicHeld, TopicNotFound
from pydanube.storage.replacement import Replacement
from support.brokers import (
    A_NOW_US,
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    with_bare_broker,
    with_world,
)
from support.compacted import offer
from support.readers import publish


def test_a_held_topic_is_not_deleted_without_force():
    async def test(broker):
        await broker.create_topic(A_TOPIC, RELIABLE)
        await broker.hold_topic(A_TOPIC, "lake", "a table")
        with pytest.raises(TopicHeld, match="held by lake"):
            await broker.delete_topic(A_TOPIC)
        await broker.delete_topic(A_TOPIC, force=True)
        # Another one of the name is not held.
        topic = await broker.create_topic(A_TOPIC, RELIABLE)
        assert await broker.holds_of(topic) == ()
        await broker.delete_topic(A_TOPIC)

    with_bare_broker(test)


def test_holds_outlive_the_broker():
    async def test(world):
        async with world.broker() as broker:
            await broker.create_topic(A_TOPIC, RELIABLE)
            await broker.hold_topic(A_TOPIC, "lake", "a table")
            await broker.hold_topic(A_TOPIC, "lake", "another table")
            await broker.hold_topic(A_TOPIC, "audit", "")
        async with world.broker() as broker:
            topic = await broker.topic(A_TOPIC)
            assert topic.log.holds == {"audit", "lake"}
            audit, lake = await broker.holds_of(topic)
            assert (audit.name, audit.reason) == ("audit", "")
            assert (lake.reason, lake.created_at) == ("another table", A_NOW_US)
            await broker.release_topic(A_TOPIC, "lake")
            assert topic.log.holds == {"audit"}
            with pytest.raises(NotFound, match="not held by 'lake'"):
                await broker.release_topic(A_TOPIC, "lake")

    with_world(test)


def test_only_topics_with_segments_are_held_and_by_so_many():
    async def test(broker):
        with pytest.raises(TopicNotFound):
            await broker.hold_topic(A_TOPIC, "lake", "")
        await broker.create_topic(A_TOPIC, RELIABLE)
        for number in range(HOLDS_MAX):
            await broker.hold_topic(A_TOPIC, f"h{number}", "")
        await broker.hold_topic(A_TOPIC, "h0", "again")
        with pytest.raises(InvalidRequest, match="held by 100 others"):
            await broker.hold_topic(A_TOPIC, "one more", "")

    with_bare_broker(test)


def test_a_topic_that_stores_nothing_cannot_be_held():
    async def test(broker):
        await broker.create_topic(A_TOPIC, NON_RELIABLE)
        with pytest.raises(InvalidRequest):
            await broker.hold_topic(A_TOPIC, "lake", "")

    with_bare_broker(test)


def test_segments_are_replaced_only_of_the_topic_that_was_meant():
    async def test(world):
        async with world.broker() as broker:
            topic = await broker.create_topic(A_TOPIC, RELIABLE)
            for _ in range(2):
                await publish(topic, b"a", b"b")
                await broker.storage.seal(topic.topic_id)
            offered = await offer(
                world.objects, topic.log, topic.segments, lambda at: at != 1
            )
            old = [each.object_name for each in topic.segments]
            with pytest.raises(TopicNotFound, match="created again"):
                await broker.replace_segments(A_TOPIC, 99, old, [offered])
            assert isinstance(offered, Replacement)
            removed = await broker.replace_segments(
                A_TOPIC, topic.topic_id, old, [offered]
            )
            assert removed == 1
            assert topic.describe().message_count == 3
        async with world.broker() as broker:
            topic = await broker.topic(A_TOPIC)
            (segment,) = topic.segments
            assert (segment.count, segment.checksum) == (3, offered.checksum)

    with_world(test)
