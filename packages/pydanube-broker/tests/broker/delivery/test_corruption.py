"""Segments that cannot be read: their subscriptions stop, or skip them."""

import errno

import pytest

from pydanube.model.errors import CorruptSegment
from pydanube.model.names import SubscriptionName
from pydanube.model.policy import CorruptionPolicy, FailurePolicy, TopicPolicy
from pydanube_broker.broker.delivery.corruption import SKIP_ATTEMPTS_MIN
from support.drivers.running import using
from support.fakes.brokers import A_TOPIC, BrokerWorld
from support.fakes.corrupt_objects import (
    CorruptibleObjects,
    forget_segments,
    retry_reads_now,
)
from support.fakes.readers import S, a_while, attach, publish, subscribe
from support.fakes.storages import seal, until

SKIPPING = TopicPolicy(on_corruption=CorruptionPolicy.SKIP)
NO_DELAY = FailurePolicy(redelivery_delay_s=0.0)


@pytest.fixture
def objects():
    """Return objects that can be damaged."""
    return CorruptibleObjects()


@pytest.fixture
def world(objects):
    """Return a world whose segments have each message in a row group of its own."""
    return BrokerWorld(objects=objects, row_group_bytes=1)


@pytest.fixture
async def subscription(broker, topic):
    """Subscribe to a topic of the segments 0 … 2 and 2 … 4, and a tail 4 … 5."""
    for at in range(5):
        await publish(topic, b"%d" % at)
        if at in (1, 3):
            await seal(broker.storage, topic.topic_id)
    subscription = await subscribe(broker)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=NO_DELAY)
    return subscription


def name_of(topic, index):
    return topic.segments[index].object_name


def let_it_read_again(topic):
    """Let the next attempt be due now."""
    forget_segments(topic.log)
    retry_reads_now(topic.log)


async def test_corrupt_segment_stops_a_subscription_with_an_error_that_names_it(
    broker, topic, subscription, objects, caplog
):
    objects.damage(name_of(topic, 1))
    reader, _ = attach(subscription)
    assert await reader.offsets(2) == [0, 1]
    subscription.ack([(0, 2)], 0)
    await until(lambda: reader.reason is not None)
    assert isinstance(reader.reason, CorruptSegment)
    assert name_of(topic, 1) in str(reader.reason)
    assert "offsets 2 to 3" in str(reader.reason)
    facts = subscription.describe(5)
    assert facts.stopped_by == str(reader.reason)
    assert facts.cursor == 2
    assert subscription.is_stopped
    assert broker.storage.corrupt_segment_count == 1
    assert len(reader.got) == 2
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 2
    assert not any(each.exc_info for each in caplog.records)


async def test_stopped_subscription_reports_the_error_without_reading_again(
    topic, subscription, objects, caplog
):
    objects.damage(name_of(topic, 0))
    reader, _ = attach(subscription)
    await until(lambda: reader.reason is not None)
    opened = len(objects.opened)
    for _ in range(20):
        again, _ = attach(subscription)
        await until(lambda reader=again: reader.reason is not None)
        assert str(again.reason) == str(reader.reason)
    assert len(objects.opened) == opened
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 2


async def test_consumers_may_acknowledge_before_they_are_closed(
    topic, subscription, objects
):
    objects.damage(name_of(topic, 1))
    reader, _ = attach(subscription)
    await reader.first(2)
    await until(lambda: subscription.is_stopped)
    await a_while()
    assert reader.reason is None
    subscription.ack([(0, 1)], 0)
    await a_while()
    assert reader.reason is None
    subscription.ack([(1, 2)], 0)
    await until(lambda: reader.reason is not None)
    assert subscription.describe(5).cursor == 2


async def test_consumers_that_acknowledge_nothing_are_closed_after_the_grace_time(
    topic, subscription, objects
):
    objects.damage(name_of(topic, 1))
    reader, _ = attach(subscription)
    await reader.first(2)
    await until(lambda: subscription.is_stopped)
    subscription._corruption.close_at = 0.0
    subscription.on_policy_changed()
    await until(lambda: reader.reason is not None)
    assert isinstance(reader.reason, CorruptSegment)


@pytest.mark.parametrize("kind", ["damaged", "missing", "unreadable"])
async def test_stopped_subscription_continues_after_the_segment_is_repaired(
    broker, topic, subscription, objects, kind
):
    name = name_of(topic, 0)
    if kind == "damaged":
        objects.damage(name)
    elif kind == "missing":
        objects.errors[name] = FileNotFoundError(name)
    else:
        objects.errors[name] = OSError(errno.EIO, "I/O error")
    reader, _ = attach(subscription)
    await until(lambda: reader.reason is not None)
    assert {"damaged": "damaged", "missing": "is missing"}.get(
        kind, "I/O error"
    ) in str(reader.reason)
    objects.repair(name)
    let_it_read_again(topic)
    again, _ = attach(subscription)
    assert await again.offsets(5) == [0, 1, 2, 3, 4]
    facts = subscription.describe(5)
    assert facts.stopped_by is None
    assert facts.counts.skipped == 0
    assert broker.storage.corrupt_segment_count == 0


async def test_stopped_subscription_continues_after_a_seek_past_the_segment(
    broker, topic, subscription, objects
):
    objects.damage(name_of(topic, 0))
    reader, _ = attach(subscription)
    await until(lambda: reader.reason is not None)
    await broker.subscriptions.seek(topic, subscription, 2)
    assert subscription.describe(5).stopped_by is None
    again, _ = attach(subscription)
    assert await again.offsets(3) == [2, 3, 4]


async def test_subscription_behind_a_corrupt_segment_is_not_affected(
    broker, topic, subscription, objects
):
    objects.damage(name_of(topic, 0))
    other = await subscribe(broker, SubscriptionName("other"))
    await broker.subscriptions.seek(topic, other, 2)
    reader, _ = attach(other)
    stopped, _ = attach(subscription)
    await until(lambda: stopped.reason is not None)
    assert await reader.offsets(3) == [2, 3, 4]
    assert reader.reason is None


@using(policy=SKIPPING)
async def test_corrupt_row_group_is_skipped_and_counted_by_policy(
    broker, topic, subscription, objects, caplog
):
    objects.damage(name_of(topic, 0), row_group=1)
    reader, _ = attach(subscription)
    assert await reader.offsets(4) == [0, 2, 3, 4]
    facts = subscription.describe(5)
    assert facts.skipped == ((1, 2),)
    assert facts.counts.skipped == 1
    assert broker.counts.skipped == 1
    assert facts.stopped_by is None
    subscription.ack([(0, 1)], 0)
    assert subscription.describe(5).cursor == 2
    (skips,) = [each for each in caplog.records if "skips" in each.message]
    assert "1 messages from offset 1 to 2" in skips.message


@using(policy=SKIPPING)
async def test_missing_segment_is_skipped_only_after_some_attempts(
    topic, subscription, objects
):
    name = name_of(topic, 0)
    objects.errors[name] = FileNotFoundError(name)
    reader, _ = attach(subscription)
    for attempts in range(1, SKIP_ATTEMPTS_MIN):
        await until(lambda count=attempts: objects.opened.count(name) == count)
        await a_while()
        assert not reader.got
        let_it_read_again(topic)
        subscription.on_policy_changed()
    assert await reader.offsets(3) == [2, 3, 4]
    assert subscription.describe(5).skipped == ((0, 2),)
    assert reader.reason is None


@using(policy=SKIPPING)
async def test_unreadable_redelivery_is_skipped_by_policy(topic, subscription, objects):
    reader, _ = attach(subscription)
    await reader.first(5)
    objects.damage(name_of(topic, 0))
    forget_segments(topic.log)
    subscription.nack([(0, 2)])
    assert (await reader.offsets(6))[-1] == 1
    subscription.ack([(1, 5)], 0)
    await until(lambda: subscription.describe(5).cursor == 5)
    assert subscription.describe(5).skipped == ((0, 1),)
    assert subscription.describe(5).in_flight == 0


async def test_changed_policy_lets_a_stopped_subscription_skip(
    broker, topic, subscription, objects
):
    objects.damage(name_of(topic, 1))
    reader, _ = attach(subscription)
    await reader.first(2)
    await until(lambda: subscription.is_stopped)
    await broker.topics.configure(A_TOPIC, on_corruption=CorruptionPolicy.SKIP)
    assert await reader.offsets(4) == [0, 1, 3, 4]
    assert topic.describe().policy.on_corruption is CorruptionPolicy.SKIP
    await broker.topics.configure(A_TOPIC, on_corruption=CorruptionPolicy.STOP)
    assert topic.log.policy.on_corruption is CorruptionPolicy.STOP
