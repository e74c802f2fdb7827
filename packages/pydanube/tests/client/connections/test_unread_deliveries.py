import time
from dataclasses import dataclass
from functools import partial

import pytest

from pydanube.client.connections.unread_deliveries import (
    PACE_S,
    HandOutPace,
    UnreadDeliveries,
)
from pydanube.model.policy import FailurePolicy, SubscriptionType
from support.drivers.running import TOPIC, nothing_comes, published, received
from support.fakes.guarded_clusters import eventually

AT_ONCE = FailurePolicy(redelivery_delay_s=0.0)
"""A failure policy without delays."""

SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED
TYPES_OF_ONE = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


@dataclass(eq=False)
class Delivery:
    """A batch that arrived, without its messages."""

    count: int
    deadline: float | None = None


def unread_of(type_, ack_timeout_s=10.0):
    """Deliveries of 2, 3 and 4 messages that arrived at 0, 1 and 2."""
    unread = UnreadDeliveries(type_)
    unread.ack_timeout_s = ack_timeout_s
    for at in range(3):
        delivery = Delivery(2 + at)
        unread.set_deadline(delivery, float(at))
        unread.waiting.append(delivery)
    return unread


def counts(batches):
    return [each.count for each in batches]


@pytest.mark.parametrize("type_", [SHARED, KEY_SHARED])
def test_delivery_is_not_late_before_its_ack_timeout(type_):
    assert unread_of(type_).drop_late(9.9) is None


def test_late_deliveries_are_dropped_and_others_stay():
    unread = unread_of(SHARED)
    late = unread.drop_late(11.0)
    assert (late.message_count, counts(late.waiting)) == (5, [2, 3])
    assert (late.released, counts(unread.batches)) == ((), [4])
    assert unread.drop_late(11.0) is None


def test_rest_of_the_current_delivery_is_dropped_without_its_credit():
    unread = unread_of(SHARED)
    unread.start_next()
    unread.start_next()
    unread.position = 2
    late = unread.drop_late(11.0)
    # Its credit is free since its first message was handed out.
    assert (late.message_count, late.waiting) == (1, [])
    assert (unread.current, counts(unread.batches)) == (None, [4])


def test_delivery_that_was_handed_out_completely_is_not_counted():
    unread = unread_of(SHARED)
    unread.position = unread.start_next().count
    assert unread.drop_late(10.0) is None


def test_deliveries_behind_a_late_one_are_released_to_keep_the_order_of_keys():
    unread = unread_of(KEY_SHARED)
    unread.awaiting_schema.append(Delivery(5, 12.5))
    late = unread.drop_late(10.0)
    assert (late.message_count, counts(late.waiting)) == (2, [2])
    assert (counts(late.released), unread.batches) == ([3, 4, 5], [])


@pytest.mark.parametrize("type_", TYPES_OF_ONE)
def test_only_consumer_of_messages_hands_out_late_ones_in_their_order(type_):
    unread = unread_of(type_)
    unread.change_ack_timeout(1.0, 2.0)
    assert unread.drop_late(100.0) is None
    assert counts(unread.batches) == [2, 3, 4]


def test_nothing_is_late_without_an_ack_timeout():
    assert unread_of(SHARED, ack_timeout_s=None).drop_late(1e9) is None


def test_shorter_ack_timeout_applies_to_deliveries_that_arrived_before():
    unread = unread_of(SHARED)
    unread.change_ack_timeout(3.0, 8.0)
    # The first one is late at 10 already; the others have 3 s from now.
    assert [each.deadline for each in unread.batches] == [10.0, 11.0, 11.0]


def test_longer_ack_timeout_applies_to_later_deliveries_only():
    unread = unread_of(SHARED)
    unread.change_ack_timeout(30.0, 3.0)
    unread.waiting.append(Delivery(1))
    unread.set_deadline(unread.waiting[-1], 3.0)
    assert [each.deadline for each in unread.batches] == [10.0, 11.0, 12.0, 33.0]


def test_ack_timeout_may_end_and_begin_while_deliveries_wait():
    unread = unread_of(SHARED)
    unread.change_ack_timeout(None, 3.0)
    assert unread.drop_late(1e9) is None
    unread.change_ack_timeout(5.0, 20.0)
    assert [each.deadline for each in unread.batches] == [25.0, 25.0, 25.0]


def test_extension_gives_each_delivery_the_whole_timeout_again():
    unread = unread_of(SHARED)
    unread.extend(5.0)
    assert [each.deadline for each in unread.batches] == [15.0, 15.0, 15.0]
    unread.extend(4.0)
    assert [each.deadline for each in unread.batches] == [15.0, 15.0, 15.0]


def test_slow_program_gets_one_message_between_looks_at_the_clock():
    pace = HandOutPace(64)
    fast = [pace.next_count(10.0 + n * PACE_S / 2) for n in range(9)]
    assert fast == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    slow = [pace.next_count(20.0 + n * PACE_S * 2) for n in range(3)]
    assert slow == [1, 1, 1]


# With a broker.


def numbers(count, base=0):
    return [str(n).encode() for n in range(base, base + count)]


SLOW = {"subscription": "s", "type": "shared", "start": "earliest"}


def held_by(consumer):
    """The number of messages that wait in *consumer*."""
    return sum(batch.count for batch in consumer._unread.batches)


async def are_redelivered(client, count):
    """Whether the broker has delivered *count* messages again."""
    facts = await client.subscriptions.describe(TOPIC, "s")
    return facts.counts.redelivered >= count


async def passed_on(client, slow, count):
    """Wait until another consumer has processed *count* messages that *slow* has."""
    # It has no credit for a second delivery.
    await eventually(lambda: held_by(slow) == count)
    async with client.consumer(TOPIC, **SLOW) as other:
        for _ in range(count):
            message = await other.receive(timeout_s=60)
            await other.ack(message)
            assert message.attempt == 2


async def test_message_that_another_consumer_got_meanwhile_is_not_handed_out(client):
    await published(client, *numbers(5))
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    async with client.consumer(
        TOPIC, **SLOW, ack_timeout_s=0.05, prefetch_messages=5
    ) as slow:
        await passed_on(client, slow, 5)
        await published(client, b"new")
        message = await slow.receive(timeout_s=60)
        assert (message.payload, message.attempt) == (b"new", 1)
        assert client.counters().late == 5


async def test_credit_of_messages_that_came_too_late_is_returned(client):
    await published(client, *numbers(4))
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    async with client.consumer(
        TOPIC, **SLOW, ack_timeout_s=0.05, prefetch_messages=4
    ) as slow:
        await passed_on(client, slow, 4)
        await published(client, *numbers(8, base=4))
        # The first four have used all credit.
        batch = await slow.receive_batch(max_messages=1, timeout_s=60)
        await slow.ack(batch)
        assert [*batch.payloads, *await received(slow, 7)] == numbers(8, base=4)


async def test_rest_of_a_batch_is_not_handed_out_after_the_ack_timeout(client):
    await published(client, *numbers(3))
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    async with client.consumer(
        TOPIC, **SLOW, ack_timeout_s=0.5, prefetch_messages=3
    ) as slow:
        await eventually(lambda: held_by(slow) == 3)
        late_at = time.monotonic() + 0.5
        first = await anext(slow)
        await slow.ack(first)
        async with client.consumer(TOPIC, **SLOW) as other:
            # The credit of the whole batch is free, so both get some of the rest.
            await other.ack(await other.receive(timeout_s=60))
            # The broker counts from when it sends, the consumer from when it receives.
            await eventually(lambda: time.monotonic() > late_at)
            again = await slow.receive(timeout_s=60)
            assert (first.attempt, again.attempt > 1) == (1, True)


async def test_consumer_follows_a_changed_ack_timeout(client):
    await published(client, *numbers(3))
    async with client.consumer(TOPIC, **SLOW, prefetch_messages=3) as slow:
        assert slow.ack_timeout_s == 30.0
        policy = FailurePolicy(redelivery_delay_s=0.0, ack_timeout_s=0.05)
        await client.subscriptions.configure(TOPIC, "s", failure_policy=policy)
        await passed_on(client, slow, 3)
        assert slow.ack_timeout_s == 0.05
        await published(client, b"new")
        assert (await slow.receive(timeout_s=60)).payload == b"new"
        never = FailurePolicy(ack_timeout_s=None)
        await client.subscriptions.configure(TOPIC, "s", failure_policy=never)
        await eventually(lambda: slow.ack_timeout_s is None)


async def test_consumers_learn_the_ack_timeout_that_another_one_sets(client):
    await client.topics.create(TOPIC)
    async with (
        client.consumer(TOPIC, **SLOW) as one,
        client.consumer(TOPIC, **SLOW, ack_timeout_s=7.0) as two,
    ):
        assert two.ack_timeout_s == 7.0
        await eventually(lambda: one.ack_timeout_s == 7.0)


async def test_late_messages_of_a_key_come_again_in_their_order(client):
    await client.topics.create(TOPIC)
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    async with (
        client.producer(TOPIC) as producer,
        client.consumer(
            TOPIC, **{**SLOW, "type": "key_shared"}, ack_timeout_s=0.05
        ) as slow,
    ):
        await producer.send(b"0", key="k")
        await eventually(partial(are_redelivered, client, 1))
        # It arrives behind the first delivery, which is late, and before the second.
        await producer.send(b"1", key="k")
        found = []
        while b"1" not in found:
            message = await slow.receive(timeout_s=60)
            found.append(message.payload)
            await slow.ack(message)
        # An ack that takes longer than the timeout lets the first message come again.
        assert set(found[:-1]) == {b"0"}


async def test_exclusive_consumer_gets_late_messages_in_their_order(client):
    await published(client, *numbers(5))
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    options = {"subscription": "s", "start": "earliest", "ack_timeout_s": 0.05}
    async with client.consumer(TOPIC, **options) as slow:
        await eventually(partial(are_redelivered, client, 5))
        assert await received(slow, 5) == numbers(5)
        assert client.counters().late == 0


async def test_standby_hands_out_nothing_of_what_the_next_consumer_gets(client):
    await published(client, *numbers(3))
    await client.subscriptions.configure(TOPIC, "s", failure_policy=AT_ONCE)
    options = {"subscription": "s", "type": "failover", "start": "earliest"}
    async with client.consumer(
        TOPIC, **options, priority=1, ack_timeout_s=0.05
    ) as former:
        await eventually(lambda: held_by(former) == 3)
        async with client.consumer(TOPIC, **options, priority=0) as better:
            # It becomes active when the messages of the other one have timed out.
            assert await received(better, 3) == numbers(3)
            await eventually(lambda: not former.is_active)
            assert await nothing_comes(former)
