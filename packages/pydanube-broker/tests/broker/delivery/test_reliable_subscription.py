"""Reliable subscriptions: times, failures, limits, gaps and corrupt segments."""

import asyncio
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from pydanube.model.errors import ObjectsUnavailable, OffsetDropped
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
from pydanube_broker.broker.delivery.reliable_subscription import SHARES_WAIT_S
from support.drivers.running import using
from support.fakes.brokers import (
    A_NOW_US,
    A_TOPIC,
    RELIABLE,
)
from support.fakes.compacted import compact
from support.fakes.readers import (
    S,
    a_while,
    attach,
    awaits_credit,
    forget_frame,
    publish,
    stop_clock,
    stored,
    subscribe,
)
from support.fakes.storages import seal, until

SKIPPING = TopicPolicy(on_corruption=CorruptionPolicy.SKIP)
NO_DELAY = FailurePolicy(redelivery_delay_s=0.0)


def in_ms(milliseconds):
    return A_NOW_US + 1000 * milliseconds


@pytest.fixture
def type_():
    return SubscriptionType.SHARED


@pytest.fixture
def failure_policy():
    return NO_DELAY


@pytest.fixture
async def subscription(broker, topic, type_, failure_policy):
    subscription = await subscribe(broker, type_=type_)
    await broker.subscriptions.change_settings(
        A_TOPIC, S, failure_policy=failure_policy
    )
    return subscription


async def test_delayed_message_is_delivered_at_its_time_and_blocks_no_other(
    topic, subscription
):
    reader, _ = attach(subscription)
    await publish(topic, b"a", b"b", b"c", deliver_at=[in_ms(60), None, in_ms(-5)])
    assert await reader.offsets(2) == [1, 2]
    assert subscription.describe(3).delayed == 1
    assert await reader.offsets(3) == [1, 2, 0]
    assert reader.got[2].attempt == 1


async def test_delay_applies_to_sealed_messages(broker, topic, subscription):
    await publish(topic, b"a", deliver_at=[in_ms(60)])
    await publish(topic, b"b")
    await seal(broker.storage, topic.topic_id)
    reader, _ = attach(subscription)
    assert await reader.offsets(2) == [1, 0]


async def test_expired_message_is_not_delivered_and_counts_as_done(
    broker, topic, subscription
):
    await publish(topic, *[b"x"] * 4, expires_at=[in_ms(-1), None] * 2)
    reader, _ = attach(subscription)
    assert await reader.offsets(2) == [1, 3]
    facts = subscription.describe(4)
    assert (facts.cursor, facts.done) == (1, ((2, 3),))
    assert facts.counts.expired == broker.counts.expired == 2


async def test_message_expires_while_it_waits_for_a_consumer_with_credit(
    topic, subscription
):
    await publish(topic, b"a", b"b", expires_at=[None, in_ms(30)])
    reader, consumer = attach(subscription, messages=1)
    await reader.first(1)
    subscription.ack([(0, 1)], 0)
    await until(lambda: not subscription.backlog(2))
    subscription.credit(consumer, 1, 1)
    await a_while()
    assert len(reader.got) == 1
    assert subscription.describe(2).counts.expired == 1


@pytest.mark.parametrize("sealed", [False, True])
@using(policy=TopicPolicy(ttl_s=60.0))
async def test_topic_ttl_applies_to_all_messages(broker, topic, subscription, sealed):
    old, young = A_NOW_US - 90 * 10**6, A_NOW_US - 30 * 10**6
    await publish(topic, b"old", b"old", time=old)
    await publish(topic, b"old", b"young", publish_times=[old, young])
    await publish(topic, b"young", time=young)
    if sealed:
        await seal(broker.storage, topic.topic_id)
    reader, _ = attach(subscription)
    assert await reader.offsets(2) == [3, 4]
    assert subscription.describe(5).counts.expired == 3


async def test_nack_delay_is_respected_and_counted(topic, subscription):
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


async def test_message_that_is_acked_before_its_redelivery_is_sent_stays_done(
    topic, subscription
):
    reader, consumer = attach(subscription)
    await publish(topic, b"a", b"b", b"c")
    await reader.first(3)
    subscription.nack([(0, 3)])
    subscription.ack([(0, 1), (2, 3)], 0)
    assert await reader.first(4) == [*reader.got[:3], (1, b"b", 2)]
    await a_while()
    assert len(reader.got) == 4
    assert subscription.flow_of(consumer)[:2] == (1, 996)


@pytest.mark.parametrize(
    "type_", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED]
)
async def test_message_that_fails_before_its_redelivery_is_sent_is_sent_once(
    topic, subscription
):
    reader, consumer = attach(subscription)
    await publish(topic, b"a", b"b", b"c")
    await reader.first(3)
    subscription.nack([(0, 3)])
    # Late, as after an ack timeout: it is about a delivery that the consumer has not.
    subscription.nack([(1, 2)])
    got = await reader.first(6)
    await a_while()
    assert sorted(got[3:]) == [(0, b"a", 2), (1, b"b", 3), (2, b"c", 2)]
    assert len(reader.got) == 6
    assert subscription.flow_of(consumer)[:2] == (3, 994)


@pytest.mark.parametrize("delay_s", [float("nan"), -1.0])
async def test_invalid_nack_delay_means_no_delay(topic, subscription, delay_s):
    reader, _ = attach(subscription)
    await publish(topic, b"a")
    await reader.first(1)
    subscription.nack([(0, 1)], delay_s=delay_s)
    assert [each.attempt for each in await reader.first(2)] == [1, 2]


@using(failure_policy=replace(NO_DELAY, ack_timeout_s=0.02))
async def test_unacknowledged_message_times_out_and_is_redelivered(
    broker, topic, subscription
):
    reader, _ = attach(subscription)
    await publish(topic, b"a", b"b")
    await reader.first(2)
    subscription.ack([(1, 2)], 0)
    assert [each.attempt for each in await reader.first(3)] == [1, 1, 2]
    counts = subscription.describe(2).counts
    assert (counts.timed_out, counts.nacked, counts.redelivered) == (1, 0, 1)
    assert broker.counts.timed_out == 1


@using(failure_policy=replace(NO_DELAY, ack_timeout_s=0.02))
async def test_message_that_is_not_sent_does_not_time_out(topic, subscription):
    reader, consumer = attach(subscription)
    await publish(topic, b"a", b"b")
    await reader.first(2)
    # As if the messages were read from an object store that is slow.
    subscription.hold()
    subscription.nack([(0, 1)])
    subscription.extend(consumer, [(1, 2)], 0.04)
    await until(lambda: subscription.describe(2).counts.timed_out)
    subscription.release()
    assert sorted((await reader.first(4))[2:4]) == [(0, b"a", 2), (1, b"b", 2)]


async def test_unacked_message_limits_are_respected(broker, topic, subscription):
    limits = DispatchLimits(unacked_messages_max=5, unacked_messages_max_per_consumer=3)
    await broker.subscriptions.change_settings(A_TOPIC, S, limits=limits)
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


async def test_dispatch_rate_delays_messages_and_loses_none(
    broker, topic, subscription
):
    await broker.topics.configure(
        A_TOPIC, limits=NamespacePolicy(max_subscription_dispatch_rate=50)
    )
    reader, _ = attach(subscription)
    await publish(topic, *[b"x"] * 60)
    await a_while()
    assert 50 <= len(reader.got) < 60
    assert await reader.offsets(60) == list(range(60))
    await publish(topic, *[b"x"] * 200)
    await broker.topics.configure(A_TOPIC, limits=None)
    assert await reader.offsets(260) == list(range(260))


async def test_lower_priority_numbers_are_served_first(topic, subscription):
    second, _ = attach(subscription, "second", priority=2)
    first, _ = attach(subscription, "first", messages=3, priority=1)
    await publish(topic, *[b"x"] * 5)
    assert await first.offsets(3) == [0, 1, 2]
    assert await second.offsets(2) == [3, 4]


async def test_flow_of_is_in_flight_count_and_credit(topic, subscription):
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


async def test_description_has_backlog_size_and_age(broker, topic, subscription):
    for second in range(4):
        await publish(topic, bytes(1000), time=A_NOW_US + second)
    await seal(broker.storage, topic.topic_id)
    for second in range(4, 8):
        await publish(topic, bytes(1000), time=A_NOW_US + second)
    whole = subscription.describe(8)
    assert whole.backlog == 8
    assert whole.backlog_bytes == topic.log.segment_bytes + topic.log.tail.byte_count
    assert whole.oldest_publish_time == A_NOW_US
    subscription.ack([(0, 6), (7, 8)], 0)
    less = subscription.describe(8)
    assert (less.backlog, less.backlog_bytes) == (1, topic.log.tail.byte_count // 4)
    assert less.oldest_publish_time == A_NOW_US + 6
    subscription.ack([(6, 7)], 0)
    nothing = subscription.describe(8)
    assert (nothing.backlog, nothing.backlog_bytes) == (0, 0)
    assert nothing.oldest_publish_time is None


async def test_description_works_after_retention_passed_the_cursor(
    broker, topic, subscription
):
    for at in range(3):
        await publish(topic, bytes(1000), time=A_NOW_US + at)
        await seal(broker.storage, topic.topic_id)
    topic.log.on_dropped(2)
    facts = subscription.describe(3)
    assert (facts.cursor, facts.backlog) == (0, 3)
    assert facts.oldest_publish_time == A_NOW_US + 2
    reader, _ = attach(subscription)
    while reader.reason is None:
        await a_while()
    assert isinstance(reader.reason, OffsetDropped)


async def test_messages_around_dropped_ones_are_delivered(broker, topic, subscription):
    for at in range(3):
        await publish(topic, b"%d" % at)
        await seal(broker.storage, topic.topic_id)
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


async def test_description_shows_a_bounded_number_of_ranges(topic, subscription):
    await publish(topic, *[b"x"] * 3000)
    subscription.ack([(at, at + 1) for at in range(1, 3000, 2)], 0)
    facts = subscription.describe(3000)
    assert facts.done == tuple((at, at + 1) for at in range(1, 2001, 2))
    assert facts.backlog == 1500


async def test_concurrent_cursor_saves_share_a_journal_entry(
    broker, topic, subscription
):
    await publish(topic, *[b"x"] * 100)
    reader, _ = attach(subscription)
    await reader.first(100)
    told = []
    entries = broker.storage.journal.byte_count
    for offset in range(100):
        subscription.ack([(offset, offset + 1)], 0)
        subscription.save_cursor_now(told.append)
    while len(told) < 100:
        await a_while()
    assert told == [None] * 100
    # One small entry, and not a hundred.
    assert broker.storage.journal.byte_count - entries < 1000


async def test_idle_subscription_has_no_task_and_takes_little_memory(broker):
    await broker.topics.create(A_TOPIC, RELIABLE)
    await subscribe(broker)
    tasks = len(asyncio.all_tasks())
    tracemalloc.start()
    for number in range(300):
        await broker.subscriptions.open(
            A_TOPIC,
            SubscriptionName(f"s-{number}"),
            SubscriptionType.SHARED,
            Start.LATEST,
        )
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(asyncio.all_tasks()) == tasks
    assert taken / 300 < 20 * 1024


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("sealed", [False, True])
@using(type_=SubscriptionType.KEY_SHARED)
async def test_messages_of_a_key_go_to_one_consumer_in_few_batches(
    broker, topic, subscription, sealed, codec
):
    keys = [b"k%d" % (at % 20) for at in range(1000)]
    await publish(topic, *[b"%d" % at for at in range(1000)], keys=keys, codec=codec)
    if sealed:
        await seal(broker.storage, topic.topic_id)
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


@using(type_=SubscriptionType.KEY_SHARED)
async def test_messages_without_a_key_are_ordered_by_producer(topic, subscription):
    readers = [attach(subscription, name)[0] for name in ("one", "two")]
    for number in range(10):
        for producer in ("web-1", "web-2", "web-3", "web-4"):
            await publish(topic, b"%d" % number, producer=producer)
    await until(lambda: sum(len(each.got) for each in readers) == 40)
    producers = [{frame.header.producer for frame in each.frames} for each in readers]
    assert producers[0].isdisjoint(producers[1])


@using(type_=SubscriptionType.KEY_SHARED)
async def test_messages_that_match_no_filter_wait_for_a_matching_consumer(
    topic, subscription
):
    reader, _ = attach(subscription, "eu", key_filters=["eu-*"])
    await publish(topic, b"a", b"b", b"c", keys=[b"eu-1", b"us-1", b"eu-2"])
    assert await reader.offsets(2) == [0, 2]
    subscription.ack([(0, 1), (2, 3)], 0)
    await a_while()
    assert subscription.describe(3).backlog == 1
    other, _ = attach(subscription, "all")
    assert await other.offsets(1) == [1]


@using(type_=SubscriptionType.KEY_SHARED)
async def test_blocked_key_blocks_no_other(broker, topic, subscription):
    policy = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.BLOCK)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=policy)
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


# Gaps that compaction leaves.


@dataclass
class Compacted:
    kept: Sequence[int] = (1, 4, 5, 9)
    count: int = 10
    rows_max: int = 3


@pytest.fixture
def compacted():
    return Compacted()


@pytest.fixture
async def gappy_subscription(world, broker, topic, type_, compacted):
    """Subscribe to a topic of which compaction has kept some offsets, and a tail."""
    payloads = [b"%d" % at for at in range(compacted.count)]
    keys = [b"k%d" % (at % 3) for at in range(compacted.count)]
    await publish(topic, *payloads, keys=keys)
    await seal(broker.storage, topic.topic_id)
    subscription = await subscribe(broker, type_=type_)
    await compact(
        broker.storage,
        world.objects,
        topic.log,
        lambda at: at in compacted.kept,
        rows_max=compacted.rows_max,
    )
    await publish(topic, b"tail", keys=[b"k0"])
    return subscription


EVERY_TYPE = pytest.mark.parametrize("type_", list(SubscriptionType))


@EVERY_TYPE
async def test_gaps_are_skipped_and_other_messages_delivered_once(gappy_subscription):
    assert gappy_subscription.backlog(11) == 5
    reader, consumer = attach(gappy_subscription)
    assert await reader.offsets(5) == [1, 4, 5, 9, 10]
    assert {each.attempt for each in reader.got} == {1}
    facts = gappy_subscription.describe(11)
    assert (facts.in_flight, facts.backlog) == (5, 5)
    assert gappy_subscription.flow_of(consumer)[:2] == (5, 995)
    gappy_subscription.ack([(1, 2), (4, 6), (9, 11)], 0)
    facts = gappy_subscription.describe(11)
    assert (facts.cursor, facts.done, facts.backlog) == (11, (), 0)


@EVERY_TYPE
async def test_gaps_take_no_credit(gappy_subscription):
    reader, consumer = attach(gappy_subscription, messages=2)
    assert await reader.offsets(2) == [1, 4]
    await a_while()
    assert len(reader.got) == 2
    gappy_subscription.credit(consumer, 2, 0)
    assert await reader.offsets(4) == [1, 4, 5, 9]


@EVERY_TYPE
async def test_failed_message_that_is_compacted_away_is_acknowledged(
    world, broker, type_
):
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    await publish(topic, b"a", b"b", b"c", keys=[b"k"] * 3)
    await seal(broker.storage, topic.topic_id)
    subscription = await subscribe(broker, type_=type_)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=NO_DELAY)
    reader, consumer = attach(subscription)
    await reader.first(3)
    await compact(broker.storage, world.objects, topic.log, lambda at: at == 2)
    forget_frame(subscription)
    subscription.nack([(0, 3)])
    assert [each[::2] for each in (await reader.first(4))[3:]] == [(2, 2)]
    facts = subscription.describe(3)
    assert (facts.cursor, facts.in_flight, facts.backlog) == (2, 1, 1)
    assert subscription.flow_of(consumer)[:2] == (1, 996)


async def test_all_failed_messages_may_be_compacted_away(world, broker):
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    await publish(topic, b"a", b"b", b"c")
    await seal(broker.storage, topic.topic_id)
    subscription = await subscribe(broker)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=NO_DELAY)
    reader, consumer = attach(subscription, messages=2)
    await reader.first(2)
    await compact(broker.storage, world.objects, topic.log, lambda at: at == 2)
    forget_frame(subscription)
    subscription.nack([(0, 2)])
    subscription.credit(consumer, 2, 0)
    assert (await reader.first(3))[2] == (2, b"c", 1)
    facts = subscription.describe(3)
    assert (facts.cursor, facts.in_flight) == (2, 1)


async def test_parked_message_that_is_compacted_away_is_acknowledged(world, broker):
    policy = FailurePolicy(
        redeliveries_max=0,
        redelivery_delay_s=0.0,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/letters",
    )
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    await publish(topic, b"a", b"b", b"c")
    await seal(broker.storage, topic.topic_id)
    subscription = await subscribe(broker)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=policy)
    reader, _ = attach(subscription)
    await reader.first(3)
    await compact(broker.storage, world.objects, topic.log, lambda at: at == 2)
    forget_frame(subscription)
    subscription.nack([(0, 3)])
    await until(lambda: subscription.cursor_offset == 3)
    letters = await broker.topics.get(TopicName.parse("/default/letters"))
    (letter,) = await stored(letters)
    assert letter[0] == b"c"
    assert letter[1]["x-original-topic-offset"] == "2"


@pytest.mark.parametrize(
    ("count", "cursor"), [(0, 0), (1, 4), (2, 5), (3, 9), (4, 10), (5, 11), (99, 11)]
)
async def test_skip_counts_only_existing_messages(
    broker, gappy_subscription, count, cursor
):
    await broker.subscriptions.skip(A_TOPIC, S, count)
    reader, _ = attach(gappy_subscription)
    left = [at for at in (1, 4, 5, 9, 10) if at >= cursor]
    assert await reader.offsets(len(left)) == left
    assert gappy_subscription.backlog(11) == len(left)


async def test_seek_into_a_gap_continues_behind_it(broker, topic, gappy_subscription):
    await broker.subscriptions.seek(topic, gappy_subscription, 6)
    reader, _ = attach(gappy_subscription)
    assert await reader.offsets(2) == [9, 10]
    await broker.subscriptions.seek(topic, gappy_subscription, 2)
    assert await reader.offsets(6) == [9, 10, 4, 5, 9, 10]


async def test_delivery_times_apply_to_the_remaining_messages(world, broker):
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    times = [in_ms(60), None, in_ms(60), in_ms(-5), None, None]
    await publish(topic, *[b"x"] * 6, deliver_at=times)
    await seal(broker.storage, topic.topic_id)
    subscription = await subscribe(broker)
    await compact(broker.storage, world.objects, topic.log, lambda at: at != 1)
    reader, _ = attach(subscription)
    assert await reader.offsets(5) == [3, 4, 5, 0, 2]


@using(compacted=Compacted(kept=range(1, 200, 2), count=200, rows_max=1000))
async def test_pieces_between_gaps_are_delivered_together(gappy_subscription):
    reader, _ = attach(gappy_subscription)
    await reader.first(101)
    assert len(reader.frames) == 2


@pytest.mark.parametrize("type_", [SubscriptionType.KEY_SHARED], ids=["key_shared"])
async def test_batches_that_are_divided_by_key_become_few_deliveries(
    topic, subscription
):
    readers = [attach(subscription, name)[0] for name in ("anna", "ben")]
    subscription.hold()
    for batch in range(10):
        payloads = [b"%d-%d" % (batch, at) for at in range(20)]
        await publish(
            *(topic, *payloads),
            keys=[b"%d" % (at % 7) for at in range(20)],
            base_sequence=20 * batch,
        )
    subscription.release()
    await until(lambda: sum(len(each.got) for each in readers) == 200)
    assert [len(each.frames) for each in readers] == [1, 1]
    offsets = [each.offset for reader in readers for each in reader.got]
    assert sorted(offsets) == list(range(200))
    for got in (each for reader in readers for each in reader.got):
        assert got.payload == b"%d-%d" % divmod(got.offset, 20)


@pytest.mark.parametrize("type_", [SubscriptionType.KEY_SHARED], ids=["key_shared"])
async def test_batches_that_wait_for_credit_become_few_deliveries(topic, subscription):
    anna, _ = attach(subscription, "anna")
    ben, consumer = attach(subscription, "ben", messages=0)

    async def bring(batches):
        subscription.hold()
        for batch in batches:
            keys = [b"%d" % (at % 7) for at in range(20)]
            await publish(topic, *keys, keys=keys, base_sequence=20 * batch)
        subscription.release()
        # The last seven messages have all keys.
        await until(lambda: anna.got and anna.got[-1].offset >= topic.end_offset - 7)

    await bring(range(10))
    await bring(range(10, 12))
    subscription.credit(consumer, 1000, 1 << 24)
    await until(lambda: len(anna.got) + len(ben.got) == 240)
    assert [len(anna.frames), len(ben.frames)] == [2, 2]
    offsets = [each.offset for reader in (anna, ben) for each in reader.got]
    assert sorted(offsets) == list(range(240))
    for got in (*anna.got, *ben.got):
        assert got.payload == b"%d" % (got.offset % 20 % 7)


@pytest.mark.parametrize("type_", [SubscriptionType.KEY_SHARED], ids=["key_shared"])
async def test_many_messages_wait_for_credit_before_they_are_divided_by_key(
    topic, subscription
):
    # Otherwise the wait could end first.
    stop_clock(subscription)
    anna, one = attach(subscription, "anna", messages=12_000)
    ben, two = attach(subscription, "ben", messages=12_000)

    async def bring(batches):
        subscription.hold()
        for batch in batches:
            keys = [b"%d" % (at % 7) for at in range(4096)]
            await publish(topic, *keys, keys=keys, base_sequence=4096 * batch)
        subscription.release()

    await bring(range(4))
    await until(lambda: len(anna.got) + len(ben.got) == 16_384)
    await bring(range(4, 8))
    await until(lambda: awaits_credit(subscription))
    await a_while()
    assert [len(anna.frames), len(ben.frames)] == [1, 1]
    subscription.credit(one, 12_000, 1 << 24)
    subscription.credit(two, 12_000, 1 << 24)
    await until(lambda: len(anna.got) + len(ben.got) == 32_768)
    assert [len(anna.frames), len(ben.frames)] == [2, 2]


@pytest.mark.parametrize("type_", [SubscriptionType.KEY_SHARED], ids=["key_shared"])
@pytest.mark.parametrize("leaves", [True, False])
async def test_consumer_without_credit_holds_others_up_once_and_briefly(
    topic, subscription, leaves
):
    stop_clock(subscription)
    anna, _ = attach(subscription, "anna", messages=1 << 20)
    ben, slow = attach(subscription, "ben", messages=12_000)
    keys = [b"%d" % (at % 7) for at in range(4096)]

    async def bring(batches):
        subscription.hold()
        for batch in batches:
            await publish(topic, *keys, keys=keys, base_sequence=4096 * batch)
        subscription.release()

    def anna_has_all():
        # The last seven messages have all keys.
        return anna.got and anna.got[-1].offset >= topic.end_offset - 7

    await bring(range(4))
    await until(lambda: len(anna.got) + len(ben.got) == 16_384)
    await bring(range(4, 8))
    await until(lambda: awaits_credit(subscription))
    await a_while()
    assert len(anna.frames) == 1
    if leaves:
        subscription.detach(slow)
        await until(lambda: {each.offset for each in anna.got} == {*range(32_768)})
    else:
        stop_clock(subscription, later_s=SHARES_WAIT_S)
        subscription.wake_up()
        await until(anna_has_all)
    await bring(range(8, 12))
    await until(anna_has_all)
    assert not awaits_credit(subscription)


async def test_of_several_batches_each_consumer_gets_whole_ones(topic, subscription):
    readers = [attach(subscription, name)[0] for name in ("anna", "ben")]
    subscription.hold()
    for batch in range(4):
        await publish(topic, *[b"x"] * 10, base_sequence=10 * batch)
    subscription.release()
    await until(lambda: sum(len(each.got) for each in readers) == 40)
    assert [len(each.got) for each in readers] == [20, 20]
    assert [len(each.frames) for each in readers] == [2, 2]


@pytest.fixture
async def history(broker, topic, subscription):
    """The subscription, before two segments with 20 messages each."""
    for batch in range(2):
        await publish(topic, *[b"x"] * 20, base_sequence=20 * batch)
        await seal(broker.storage, topic.topic_id)
    return subscription


@pytest.mark.parametrize("type_", [SubscriptionType.FAILOVER], ids=["failover"])
async def test_batch_of_a_segment_waits_for_credit_instead_of_being_divided(history):
    # Otherwise the wait could end first.
    stop_clock(history)
    reader, consumer = attach(history, messages=30)
    await reader.first(20)
    await a_while()
    history.credit(consumer, 20, 1)
    assert await reader.offsets(40) == list(range(40))
    assert [frame.count for frame in reader.frames] == [20, 20]


@pytest.mark.parametrize("type_", [SubscriptionType.KEY_SHARED], ids=["key_shared"])
async def test_wait_of_one_consumer_for_credit_does_not_hold_up_a_second(history):
    stop_clock(history)
    first, consumer = attach(history, messages=28)
    await first.first(20)
    await until(lambda: awaits_credit(history))
    second, _ = attach(history, "second", messages=100)
    # Few messages are divided at once, of which the first has credit for eight.
    await until(lambda: len(first.got) + len(second.got) >= 28)
    assert not awaits_credit(history)
    history.credit(consumer, 20, 1 << 20)
    await until(lambda: len(first.got) + len(second.got) == 40)


@pytest.mark.parametrize("type_", [SubscriptionType.FAILOVER], ids=["failover"])
async def test_batch_of_a_segment_is_divided_if_no_credit_comes(history):
    reader, consumer = attach(history, messages=30)
    await reader.first(30)
    assert [frame.count for frame in reader.frames] == [20, 10]
    history.credit(consumer, 15, 1)
    assert await reader.offsets(40) == list(range(40))
    assert [frame.count for frame in reader.frames] == [20, 10, 10]


@pytest.mark.parametrize("type_", [SubscriptionType.FAILOVER], ids=["failover"])
async def test_read_that_fails_while_credit_is_awaited_is_not_repeated_at_once(
    topic, history
):
    stop_clock(history)
    reader, _ = attach(history, messages=30)
    await reader.first(20)
    await until(lambda: awaits_credit(history))
    reads = []
    error = ObjectsUnavailable("the store is away")
    error.retry_at = asyncio.get_running_loop().time() + 3600.0

    async def read(offset, **_):
        reads.append(offset)
        raise error

    topic.log.read = read
    forget_frame(history)
    # The time for which it waits for credit is over.
    stop_clock(history, later_s=10.0)
    history.nack([(0, 10)])
    await until(lambda: reads)
    for _ in range(10):
        await a_while()
    assert len(reads) < 5
    assert reader.reason is None


@pytest.mark.parametrize("type_", [SubscriptionType.FAILOVER], ids=["failover"])
async def test_batch_with_gaps_does_not_wait_if_there_is_credit_for_its_messages(
    world, broker, topic, history
):
    await compact(
        broker.storage,
        world.objects,
        topic.log,
        lambda at: at < 20 or at % 4 == 3,
        rows_max=20,
    )
    # The wait does not end.
    stop_clock(history)
    reader, _ = attach(history, messages=30)
    assert await reader.offsets(25) == [*range(20), 23, 27, 31, 35, 39]
