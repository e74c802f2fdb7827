"""Reliable subscriptions: times, failures, limits, gaps and corrupt segments."""

import asyncio
import errno
import tracemalloc
from dataclasses import replace

import pytest

from pydanube.broker.corruption import SKIP_ATTEMPTS_MIN
from pydanube.model.errors import CorruptSegment, OffsetDropped
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import (
    CorruptionPolicy,
    DispatchLimits,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    Start,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.wire.batches import Codec
from support.brokers import (
    A_NOW_US,
    A_TOPIC,
    RELIABLE,
    BrokerWorld,
    with_bare_broker,
    with_world,
)
from support.compacted import compact
from support.corrupt_objects import CorruptibleObjects
from support.readers import S, a_while, attach, publish, stored, subscribe
from support.storages import until

SKIPPING = TopicPolicy(on_corruption=CorruptionPolicy.SKIP)
NO_DELAY = FailurePolicy(redelivery_delay_s=0.0)


def in_ms(milliseconds):
    return A_NOW_US + 1000 * milliseconds


def with_subscription(test, policy=RELIABLE, failure_policy=NO_DELAY):
    async def run(broker):
        topic = await broker.topics.create(A_TOPIC, policy)
        subscription = await subscribe(broker)
        await broker.subscriptions.set_failure_policy(A_TOPIC, S, failure_policy)
        await test(broker, topic, subscription)

    with_bare_broker(run)


def test_delayed_message_is_delivered_at_its_time_and_blocks_no_other():
    async def test(broker, topic, subscription):
        reader, _ = attach(subscription)
        await publish(topic, b"a", b"b", b"c", deliver_at=[in_ms(60), None, in_ms(-5)])
        assert await reader.offsets(2) == [1, 2]
        assert subscription.describe(3).delayed == 1
        assert await reader.offsets(3) == [1, 2, 0]
        assert reader.got[2].attempt == 1

    with_subscription(test)


def test_delay_applies_to_sealed_messages():
    async def test(broker, topic, subscription):
        await publish(topic, b"a", deliver_at=[in_ms(60)])
        await publish(topic, b"b")
        await broker.storage.seal(topic.topic_id)
        reader, _ = attach(subscription)
        assert await reader.offsets(2) == [1, 0]

    with_subscription(test)


def test_expired_message_is_not_delivered_and_counts_as_done():
    async def test(broker, topic, subscription):
        await publish(topic, *[b"x"] * 4, expires_at=[in_ms(-1), None] * 2)
        reader, _ = attach(subscription)
        assert await reader.offsets(2) == [1, 3]
        facts = subscription.describe(4)
        assert (facts.cursor, facts.done) == (1, ((2, 3),))
        assert facts.counts.expired == broker.counts.expired == 2

    with_subscription(test)


def test_message_expires_while_it_waits_for_a_consumer_with_credit():
    async def test(broker, topic, subscription):
        await publish(topic, b"a", b"b", expires_at=[None, in_ms(30)])
        reader, consumer = attach(subscription, messages=1)
        await reader.first(1)
        subscription.ack([(0, 1)], 0)
        await until(lambda: not subscription.backlog(2))
        subscription.credit(consumer, 1, 1)
        await a_while()
        assert len(reader.got) == 1
        assert subscription.describe(2).counts.expired == 1

    with_subscription(test)


@pytest.mark.parametrize("sealed", [False, True])
def test_topic_ttl_applies_to_all_messages(sealed):
    async def test(broker, topic, subscription):
        old, young = A_NOW_US - 90 * 10**6, A_NOW_US - 30 * 10**6
        await publish(topic, b"old", b"old", time=old)
        await publish(topic, b"old", b"young", publish_times=[old, young])
        await publish(topic, b"young", time=young)
        if sealed:
            await broker.storage.seal(topic.topic_id)
        reader, _ = attach(subscription)
        assert await reader.offsets(2) == [3, 4]
        assert subscription.describe(5).counts.expired == 3

    with_subscription(test, TopicPolicy(ttl_s=60.0))


def test_nack_delay_is_respected_and_counted():
    async def test(broker, topic, subscription):
        reader, _ = attach(subscription)
        await publish(topic, b"a", b"b", b"c")
        await reader.first(3)
        subscription.nack([(0, 2), (50, 60)], delay_s=0.03, reason="later")
        assert subscription.describe(3).delayed == 2
        assert subscription.describe(3).in_flight == 1
        got = await reader.first(5)
        assert [(each.offset, each.attempt) for each in got[3:]] == [(0, 2), (1, 2)]
        counts = subscription.describe(3).counts
        assert (counts.nacked, counts.redelivered, counts.delivered) == (2, 2, 5)
        # A repeated nack has no effect.
        subscription.nack([(0, 1)])
        subscription.nack([(0, 1)])
        assert subscription.describe(3).counts.nacked <= 4

    with_subscription(test)


@pytest.mark.parametrize("delay_s", [float("nan"), -1.0])
def test_invalid_nack_delay_means_no_delay(delay_s):
    async def test(broker, topic, subscription):
        reader, _ = attach(subscription)
        await publish(topic, b"a")
        await reader.first(1)
        subscription.nack([(0, 1)], delay_s=delay_s)
        assert [each.attempt for each in await reader.first(2)] == [1, 2]

    with_subscription(test)


def test_unacknowledged_message_times_out_and_is_redelivered():
    policy = replace(NO_DELAY, ack_timeout_s=0.02)

    async def test(broker, topic, subscription):
        reader, _ = attach(subscription)
        await publish(topic, b"a", b"b")
        await reader.first(2)
        subscription.ack([(1, 2)], 0)
        assert [each.attempt for each in await reader.first(3)] == [1, 1, 2]
        counts = subscription.describe(2).counts
        assert (counts.timed_out, counts.nacked, counts.redelivered) == (1, 0, 1)
        assert broker.counts.timed_out == 1

    with_subscription(test, failure_policy=policy)


def test_unacked_message_limits_are_respected():
    async def test(broker, topic, subscription):
        limits = DispatchLimits(
            unacked_messages_max=5, unacked_messages_max_per_consumer=3
        )
        await broker.subscriptions.set_dispatch_limits(A_TOPIC, S, limits)
        one, _ = attach(subscription, "one")
        other, _ = attach(subscription, "other")
        await publish(topic, *[b"x"] * 20)
        await one.first(2)
        await other.first(2)
        await a_while()
        assert len(one.got) + len(other.got) == 5
        assert max(len(one.got), len(other.got)) == 3
        subscription.ack([(each.offset, each.offset + 1) for each in one.got], 0)
        await a_while()
        assert subscription.describe(20).in_flight == 5

    with_subscription(test)


def test_dispatch_rate_delays_messages_and_loses_none():
    async def test(broker, topic, subscription):
        await broker.topics.set_limits(
            A_TOPIC, NamespacePolicy(max_subscription_dispatch_rate=50)
        )
        reader, _ = attach(subscription)
        await publish(topic, *[b"x"] * 60)
        await a_while()
        assert 50 <= len(reader.got) < 60
        assert await reader.offsets(60) == list(range(60))
        await publish(topic, *[b"x"] * 200)
        await broker.topics.set_limits(A_TOPIC, None)
        assert await reader.offsets(260) == list(range(260))

    with_subscription(test)


def test_lower_priority_numbers_are_served_first():
    async def test(broker, topic, subscription):
        second, _ = attach(subscription, "second", priority=2)
        first, _ = attach(subscription, "first", messages=3, priority=1)
        await publish(topic, *[b"x"] * 5)
        assert await first.offsets(3) == [0, 1, 2]
        assert await second.offsets(2) == [3, 4]

    with_subscription(test)


def test_flow_of_is_in_flight_count_and_credit():
    async def test(broker, topic, subscription):
        reader, consumer = attach(subscription, messages=10)
        await publish(topic, b"a", b"b")
        await reader.first(2)
        in_flight, messages, byte_count = subscription.flow_of(consumer)
        assert (in_flight, messages) == (2, 8)
        assert byte_count > 0
        subscription.ack([(0, 1)], 0)
        assert subscription.flow_of(consumer)[:2] == (1, 8)
        subscription.detach(consumer)
        assert subscription.flow_of(consumer) == (0, 0, 0)

    with_subscription(test)


def test_description_has_backlog_size_and_age():
    async def test(broker, topic, subscription):
        for second in range(4):
            await publish(topic, bytes(1000), time=A_NOW_US + second)
        await broker.storage.seal(topic.topic_id)
        for second in range(4, 8):
            await publish(topic, bytes(1000), time=A_NOW_US + second)
        whole = subscription.describe(8)
        assert whole.backlog == 8
        assert whole.backlog_bytes == topic.log.segment_bytes + topic.log.tail_bytes
        assert whole.oldest_publish_time == A_NOW_US
        subscription.ack([(0, 6), (7, 8)], 0)
        less = subscription.describe(8)
        assert (less.backlog, less.backlog_bytes) == (1, topic.log.tail_bytes // 4)
        assert less.oldest_publish_time == A_NOW_US + 6
        subscription.ack([(6, 7)], 0)
        nothing = subscription.describe(8)
        assert (nothing.backlog, nothing.backlog_bytes) == (0, 0)
        assert nothing.oldest_publish_time is None

    with_subscription(test)


def test_description_works_after_retention_passed_the_cursor():
    async def test(broker, topic, subscription):
        for at in range(3):
            await publish(topic, bytes(1000), time=A_NOW_US + at)
            await broker.storage.seal(topic.topic_id)
        topic.log.on_dropped(2)
        facts = subscription.describe(3)
        assert (facts.cursor, facts.backlog) == (0, 3)
        assert facts.oldest_publish_time == A_NOW_US + 2
        reader, _ = attach(subscription)
        while reader.reason is None:
            await a_while()
        assert isinstance(reader.reason, OffsetDropped)

    with_subscription(test)


def test_messages_around_dropped_ones_are_delivered():
    async def test(broker, topic, subscription):
        for at in range(3):
            await publish(topic, b"%d" % at)
            await broker.storage.seal(topic.topic_id)
        topic.log.segments = (topic.log.segments[0], topic.log.segments[2])
        assert subscription.describe(3).backlog == 2
        reader, _ = attach(subscription)
        while reader.reason is None:
            await a_while()
        assert isinstance(reader.reason, OffsetDropped)
        assert await reader.offsets(1) == [0]
        again, _ = attach(subscription)
        assert await again.offsets(2) == [0, 2]
        assert again.reason is None
        subscription.ack([(0, 1), (2, 3)], 0)
        assert subscription.describe(3).cursor == 3

    with_subscription(test)


def test_description_shows_a_bounded_number_of_ranges():
    async def test(broker, topic, subscription):
        await publish(topic, *[b"x"] * 3000)
        subscription.ack([(at, at + 1) for at in range(1, 3000, 2)], 0)
        facts = subscription.describe(3000)
        assert facts.done == tuple((at, at + 1) for at in range(1, 2001, 2))
        assert facts.backlog == 1500

    with_subscription(test)


def test_concurrent_cursor_saves_share_a_journal_entry():
    async def test(broker, topic, subscription):
        await publish(topic, *[b"x"] * 100)
        reader, _ = attach(subscription)
        await reader.first(100)
        told = []
        entries = broker.storage.stats.journal_committed_bytes
        for offset in range(100):
            subscription.ack([(offset, offset + 1)], 0)
            subscription.save_cursor_now(told.append)
        while len(told) < 100:
            await a_while()
        assert told == [None] * 100
        # One small entry, and not a hundred.
        assert broker.storage.stats.journal_committed_bytes - entries < 1000

    with_subscription(test)


def test_idle_subscription_has_no_task_and_takes_little_memory():
    async def test(broker):
        await broker.topics.create(A_TOPIC, RELIABLE)
        await subscribe(broker)
        tasks = len(asyncio.all_tasks())
        tracemalloc.start()
        for number in range(300):
            await broker.subscriptions.create(
                A_TOPIC,
                SubscriptionName(f"s-{number}"),
                SubscriptionType.SHARED,
                Start.LATEST,
            )
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(asyncio.all_tasks()) == tasks
        assert taken / 300 < 20 * 1024

    with_bare_broker(test)


def with_keys(test):
    async def run(broker):
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        subscription = await subscribe(broker, type_=SubscriptionType.KEY_SHARED)
        await broker.subscriptions.set_failure_policy(A_TOPIC, S, NO_DELAY)
        await test(broker, topic, subscription)

    with_bare_broker(run)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("sealed", [False, True])
def test_messages_of_a_key_go_to_one_consumer_in_few_batches(sealed, codec):
    async def test(broker, topic, subscription):
        keys = [b"k%d" % (at % 20) for at in range(1000)]
        await publish(
            topic, *[b"%d" % at for at in range(1000)], keys=keys, codec=codec
        )
        if sealed:
            await broker.storage.seal(topic.topic_id)
        readers = [attach(subscription, name)[0] for name in ("one", "two", "three")]
        await until(lambda: sum(len(each.got) for each in readers) == 1000)
        seen = [{keys[got.offset] for got in each.got} for each in readers]
        assert sum(map(len, seen)) == 20
        assert all(seen)
        for each in readers:
            offsets = [got.offset for got in each.got]
            assert offsets == sorted(offsets)
            assert [got.payload for got in each.got] == [b"%d" % o for o in offsets]
            assert len(each.frames) <= 2
            subscription.ack([(o, o + 1) for o in offsets], 0)
        assert subscription.describe(1000).backlog == 0

    with_keys(test)


def test_messages_without_a_key_are_ordered_by_producer():
    async def test(broker, topic, subscription):
        readers = [attach(subscription, name)[0] for name in ("one", "two")]
        for number in range(10):
            for producer in ("web-1", "web-2", "web-3", "web-4"):
                await publish(topic, b"%d" % number, producer=producer)
        await until(lambda: sum(len(each.got) for each in readers) == 40)
        producers = [
            {frame.header.producer for frame in each.frames} for each in readers
        ]
        assert producers[0].isdisjoint(producers[1])

    with_keys(test)


def test_messages_that_match_no_filter_wait_for_a_matching_consumer():
    async def test(broker, topic, subscription):
        reader, _ = attach(subscription, "eu", key_filters=["eu-*"])
        await publish(topic, b"a", b"b", b"c", keys=[b"eu-1", b"us-1", b"eu-2"])
        assert await reader.offsets(2) == [0, 2]
        subscription.ack([(0, 1), (2, 3)], 0)
        await a_while()
        assert subscription.describe(3).backlog == 1
        other, _ = attach(subscription, "all")
        assert await other.offsets(1) == [1]

    with_keys(test)


def test_blocked_key_blocks_no_other():
    policy = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.BLOCK)

    async def test(broker, topic, subscription):
        await broker.subscriptions.set_failure_policy(A_TOPIC, S, policy)
        reader, _ = attach(subscription)
        await publish(topic, b"a", b"b", keys=[b"bad", b"good"])
        await reader.first(2)
        subscription.nack([(0, 1)])
        subscription.ack([(1, 2)], 0)
        await publish(topic, b"c", b"d", keys=[b"bad", b"good"])
        assert await reader.offsets(3) == [0, 1, 3]
        assert subscription.describe(4).blocked == ((0, 1),)
        await broker.subscriptions.mark_done(A_TOPIC, S, [(0, 1)])
        assert await reader.offsets(4) == [0, 1, 3, 2]

    with_keys(test)


# Gaps that compaction leaves.


def with_gaps(test, kept=(1, 4, 5, 9), count=10, rows_max=3, **options):
    """Run *test* with a compacted topic with the offsets *kept*, and a tail."""

    async def run(world):
        async with world.broker() as broker:
            topic = await broker.topics.create(A_TOPIC, RELIABLE)
            keys = [b"k%d" % (at % 3) for at in range(count)]
            await publish(topic, *map(str.encode, map(str, range(count))), keys=keys)
            await broker.storage.seal(topic.topic_id)
            subscription = await subscribe(broker, **options)
            await compact(
                broker.storage,
                world.objects,
                topic.log,
                lambda at: at in kept,
                rows_max=rows_max,
            )
            await publish(topic, b"tail", keys=[b"k0"])
            await test(broker, topic, subscription)

    with_world(run)


EVERY_TYPE = pytest.mark.parametrize("type_", list(SubscriptionType))


@EVERY_TYPE
def test_gaps_are_skipped_and_other_messages_delivered_once(type_):
    async def test(broker, topic, subscription):
        assert subscription.backlog(11) == 5
        reader, consumer = attach(subscription)
        assert await reader.offsets(5) == [1, 4, 5, 9, 10]
        assert {each.attempt for each in reader.got} == {1}
        facts = subscription.describe(11)
        assert (facts.in_flight, facts.backlog) == (5, 5)
        assert subscription.flow_of(consumer)[:2] == (5, 995)
        subscription.ack([(1, 2), (4, 6), (9, 11)], 0)
        facts = subscription.describe(11)
        assert (facts.cursor, facts.done, facts.backlog) == (11, (), 0)

    with_gaps(test, type_=type_)


@EVERY_TYPE
def test_gaps_take_no_credit(type_):
    async def test(broker, topic, subscription):
        reader, consumer = attach(subscription, messages=2)
        assert await reader.offsets(2) == [1, 4]
        await a_while()
        assert len(reader.got) == 2
        subscription.credit(consumer, 2, 0)
        assert await reader.offsets(4) == [1, 4, 5, 9]

    with_gaps(test, type_=type_)


@EVERY_TYPE
def test_failed_message_that_is_compacted_away_is_acknowledged(type_):
    async def test(world):
        async with world.broker() as broker:
            topic = await broker.topics.create(A_TOPIC, RELIABLE)
            await publish(topic, b"a", b"b", b"c", keys=[b"k"] * 3)
            await broker.storage.seal(topic.topic_id)
            subscription = await subscribe(broker, type_=type_)
            await broker.subscriptions.set_failure_policy(A_TOPIC, S, NO_DELAY)
            reader, consumer = attach(subscription)
            await reader.first(3)
            await compact(broker.storage, world.objects, topic.log, lambda at: at == 2)
            subscription._reader.keep(None)
            subscription.nack([(0, 3)])
            assert [each[::2] for each in (await reader.first(4))[3:]] == [(2, 2)]
            facts = subscription.describe(3)
            assert (facts.cursor, facts.in_flight, facts.backlog) == (2, 1, 1)
            assert subscription.flow_of(consumer)[:2] == (1, 996)

    with_world(test)


def test_all_failed_messages_may_be_compacted_away():
    async def test(world):
        async with world.broker() as broker:
            topic = await broker.topics.create(A_TOPIC, RELIABLE)
            await publish(topic, b"a", b"b", b"c")
            await broker.storage.seal(topic.topic_id)
            subscription = await subscribe(broker)
            await broker.subscriptions.set_failure_policy(A_TOPIC, S, NO_DELAY)
            reader, consumer = attach(subscription, messages=2)
            await reader.first(2)
            await compact(broker.storage, world.objects, topic.log, lambda at: at == 2)
            subscription._reader.keep(None)
            subscription.nack([(0, 2)])
            subscription.credit(consumer, 2, 0)
            assert (await reader.first(3))[2] == (2, b"c", 1)
            facts = subscription.describe(3)
            assert (facts.cursor, facts.in_flight) == (2, 1)

    with_world(test)


def test_parked_message_that_is_compacted_away_is_acknowledged():
    policy = FailurePolicy(
        redeliveries_max=0,
        redelivery_delay_s=0.0,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/letters",
    )

    async def test(world):
        async with world.broker() as broker:
            topic = await broker.topics.create(A_TOPIC, RELIABLE)
            await publish(topic, b"a", b"b", b"c")
            await broker.storage.seal(topic.topic_id)
            subscription = await subscribe(broker)
            await broker.subscriptions.set_failure_policy(A_TOPIC, S, policy)
            reader, _ = attach(subscription)
            await reader.first(3)
            await compact(broker.storage, world.objects, topic.log, lambda at: at == 2)
            subscription._reader.keep(None)
            subscription.nack([(0, 3)])
            await until(lambda: subscription.cursor_offset == 3)
            letters = await broker.topics.get(TopicName.parse("/default/letters"))
            (letter,) = await stored(letters)
            assert letter[0] == b"c"
            assert letter[1]["x-original-topic-offset"] == "2"

    with_world(test)


@pytest.mark.parametrize(
    ("count", "cursor"), [(0, 0), (1, 4), (2, 5), (3, 9), (4, 10), (5, 11), (99, 11)]
)
def test_skip_counts_only_existing_messages(count, cursor):
    async def test(broker, topic, subscription):
        await broker.subscriptions.skip(A_TOPIC, S, count)
        reader, _ = attach(subscription)
        left = [at for at in (1, 4, 5, 9, 10) if at >= cursor]
        assert await reader.offsets(len(left)) == left
        assert subscription.backlog(11) == len(left)

    with_gaps(test)


def test_seek_into_a_gap_continues_behind_it():
    async def test(broker, topic, subscription):
        await broker.subscriptions.seek(topic, subscription, 6)
        reader, _ = attach(subscription)
        assert await reader.offsets(2) == [9, 10]
        await broker.subscriptions.seek(topic, subscription, 2)
        assert await reader.offsets(6) == [9, 10, 4, 5, 9, 10]

    with_gaps(test)


def test_delivery_times_apply_to_the_remaining_messages():
    async def test(world):
        async with world.broker() as broker:
            topic = await broker.topics.create(A_TOPIC, RELIABLE)
            times = [in_ms(60), None, in_ms(60), in_ms(-5), None, None]
            await publish(topic, *[b"x"] * 6, deliver_at=times)
            await broker.storage.seal(topic.topic_id)
            subscription = await subscribe(broker)
            await compact(broker.storage, world.objects, topic.log, lambda at: at != 1)
            reader, _ = attach(subscription)
            assert await reader.offsets(5) == [3, 4, 5, 0, 2]

    with_world(test)


def test_pieces_between_gaps_are_delivered_together():
    async def test(broker, topic, subscription):
        reader, _ = attach(subscription)
        await reader.first(101)
        assert len(reader.frames) == 2

    with_gaps(test, kept=range(1, 200, 2), count=200, rows_max=1000)


# Segments that cannot be read.


def with_segments(test, policy=RELIABLE, *, sealed=2, row_group_bytes=1):
    """
    Run *test* with a topic of segments ``0 … 2`` and so on, each message in a row
    group of its own, and a message behind them that is not sealed.
    """
    objects = CorruptibleObjects()

    async def run(world):
        async with world.broker() as broker:
            topic = await broker.topics.create(A_TOPIC, policy)
            for at in range(sealed):
                for payload in (b"%d" % (2 * at), b"%d" % (2 * at + 1)):
                    await publish(topic, payload)
                await broker.storage.seal(topic.topic_id)
            await publish(topic, b"%d" % (2 * sealed))
            subscription = await subscribe(broker)
            await broker.subscriptions.set_failure_policy(A_TOPIC, S, NO_DELAY)
            await test(broker, topic, subscription, objects)

    world = BrokerWorld(objects=objects, row_group_bytes=row_group_bytes)
    with_world(run, world)


def name_of(topic, index):
    return topic.segments[index].object_name


def let_it_read_again(topic):
    """Let the next attempt be due now."""
    cache = topic.log._cache
    cache._cached.clear()
    for error in cache._failed.values():
        error.retry_at = 0.0


def test_corrupt_segment_stops_a_subscription_with_an_error_that_names_it(caplog):
    async def test(broker, topic, subscription, objects):
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
        assert broker.storage.stats.corrupt_segment_count == 1
        assert len(reader.got) == 2

    with_segments(test)
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 2
    assert not any(each.exc_info for each in caplog.records)


def test_stopped_subscription_reports_the_error_without_reading_again(
    caplog,
):
    async def test(broker, topic, subscription, objects):
        objects.damage(name_of(topic, 0))
        reader, _ = attach(subscription)
        await until(lambda: reader.reason is not None)
        opened = len(objects.opened)
        for _ in range(20):
            again, _ = attach(subscription)
            await until(lambda reader=again: reader.reason is not None)
            assert str(again.reason) == str(reader.reason)
        assert len(objects.opened) == opened

    with_segments(test)
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 2


def test_consumers_may_acknowledge_before_they_are_closed():
    async def test(broker, topic, subscription, objects):
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

    with_segments(test)


def test_consumers_that_acknowledge_nothing_are_closed_after_the_grace_time():
    async def test(broker, topic, subscription, objects):
        objects.damage(name_of(topic, 1))
        reader, _ = attach(subscription)
        await reader.first(2)
        await until(lambda: subscription.is_stopped)
        subscription._corruption.close_at = 0.0
        subscription.on_policy_changed()
        await until(lambda: reader.reason is not None)
        assert isinstance(reader.reason, CorruptSegment)

    with_segments(test)


@pytest.mark.parametrize("kind", ["damaged", "missing", "unreadable"])
def test_stopped_subscription_continues_after_the_segment_is_repaired(kind):
    async def test(broker, topic, subscription, objects):
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
        assert broker.storage.stats.corrupt_segment_count == 0

    with_segments(test)


def test_stopped_subscription_continues_after_a_seek_past_the_segment():
    async def test(broker, topic, subscription, objects):
        objects.damage(name_of(topic, 0))
        reader, _ = attach(subscription)
        await until(lambda: reader.reason is not None)
        await broker.subscriptions.seek(topic, subscription, 2)
        assert subscription.describe(5).stopped_by is None
        again, _ = attach(subscription)
        assert await again.offsets(3) == [2, 3, 4]

    with_segments(test)


def test_subscription_behind_a_corrupt_segment_is_not_affected():
    async def test(broker, topic, subscription, objects):
        objects.damage(name_of(topic, 0))
        other = await subscribe(broker, SubscriptionName("other"))
        await broker.subscriptions.seek(topic, other, 2)
        reader, _ = attach(other)
        stopped, _ = attach(subscription)
        await until(lambda: stopped.reason is not None)
        assert await reader.offsets(3) == [2, 3, 4]
        assert reader.reason is None

    with_segments(test)


def test_corrupt_row_group_is_skipped_and_counted_by_policy(caplog):
    async def test(broker, topic, subscription, objects):
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

    with_segments(test, SKIPPING)
    (skips,) = [each for each in caplog.records if "skips" in each.message]
    assert "1 messages from offset 1 to 2" in skips.message


def test_missing_segment_is_skipped_only_after_some_attempts():
    async def test(broker, topic, subscription, objects):
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

    with_segments(test, SKIPPING)


def test_unreadable_redelivery_is_skipped_by_policy():
    async def test(broker, topic, subscription, objects):
        reader, _ = attach(subscription)
        await reader.first(5)
        objects.damage(name_of(topic, 0))
        topic.log._cache._cached.clear()
        subscription.nack([(0, 2)])
        assert (await reader.offsets(6))[-1] == 1
        subscription.ack([(1, 5)], 0)
        await until(lambda: subscription.describe(5).cursor == 5)
        assert subscription.describe(5).skipped == ((0, 1),)
        assert subscription.describe(5).in_flight == 0

    with_segments(test, SKIPPING)


def test_changed_policy_lets_a_stopped_subscription_skip():
    async def test(broker, topic, subscription, objects):
        objects.damage(name_of(topic, 1))
        reader, _ = attach(subscription)
        await reader.first(2)
        await until(lambda: subscription.is_stopped)
        await broker.topics.set_on_corruption(A_TOPIC, CorruptionPolicy.SKIP)
        assert await reader.offsets(4) == [0, 1, 3, 4]
        assert topic.describe().policy.on_corruption is CorruptionPolicy.SKIP
        await broker.topics.set_on_corruption(A_TOPIC, CorruptionPolicy.STOP)
        assert topic.log.policy.on_corruption is CorruptionPolicy.STOP

    with_segments(test)
