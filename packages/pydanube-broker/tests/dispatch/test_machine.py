"""Behaviour of subscriptions of every type."""

from __future__ import annotations

import random

import pytest

from pydanube.model.policy import (
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionType,
)
from pydanube.model.ranges import RangeSet
from pydanube_broker.dispatch import MACHINES
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.effects import Deliver, Drop, Park, SaveCursor
from pydanube_broker.dispatch.message_spans import BatchKeys, DeliveryWindow

PLENTY = 1 << 40
ANNA = 1


# Key-shared subscriptions are tested in a file of their own.
KINDS = [
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.FAILOVER,
    SubscriptionType.SHARED,
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.value)
def machine_of(request):
    """Return a function that creates a machine in which Anna has plenty of credit."""

    def make(cursor=None, *, credit=PLENTY, **options):
        machine = MACHINES[request.param](cursor or Cursor(0), **options)
        machine.on_consumer_joined(ANNA, 0.0)
        machine.on_credit(ANNA, credit, PLENTY, 0.0)
        return machine

    return make


def credit_of(machine):
    """Return the credit of ANNA in messages and bytes."""
    credit = machine.consumers[ANNA]
    return credit.messages, credit.byte_count


def deadline_of(machine):
    """Return the deadline of a delivery made now."""
    base = machine.next_offset
    machine.on_available(base, base + 10, 100, 0.0)
    return machine.next_deadline()


def test_whole_batch_is_one_delivery_charged_with_its_bytes(machine_of):
    machine = machine_of(credit=100)
    (delivery,) = machine.on_available(0, 10, 777, 0.0)
    assert delivery == Deliver(ANNA, 0, 10, 1)
    assert delivery.byte_count == 777
    assert credit_of(machine) == (90, PLENTY - 777)


def test_negative_credit_corrects_the_charged_bytes(machine_of):
    machine = machine_of()
    machine.on_available(0, 10, 700, 0.0)
    machine.on_credit(ANNA, 0, -50, 0.0)
    assert credit_of(machine)[1] == PLENTY - 750


def test_first_batch_may_begin_below_the_cursor(machine_of):
    machine = machine_of(Cursor(5))
    assert machine.next_offset == 5
    assert machine.on_available(0, 10, 100, 0.0) == [Deliver(ANNA, 5, 10, 1)]
    assert machine.next_offset == 10


def test_known_batch_is_ignored(machine_of):
    machine = machine_of()
    machine.on_available(0, 10, 100, 0.0)
    assert machine.on_available(0, 10, 100, 0.0) == []
    assert machine.in_flight.count == 10


def test_batch_that_skips_messages_fails_an_assertion(machine_of):
    with pytest.raises(AssertionError, match="left out"):
        machine_of().on_available(1, 10, 100, 0.0)


def test_cursor_is_saved_once_per_event_and_only_if_changed(machine_of):
    machine = machine_of()
    machine.on_available(0, 10, 100, 0.0)
    assert machine.on_ack([(0, 1), (3, 4), (5, 6)], 0.0) == [SaveCursor()]
    assert machine.on_ack([(0, 1), (3, 4)], 0.0) == []
    assert machine.on_ack([], 0.0) == []
    assert machine.on_ack([(0, 1)], 0.0) == []


def test_demand_ends_where_credit_ends(machine_of):
    machine = machine_of(credit=15)
    assert machine.demand() == 15
    machine.on_available(0, 10, 100, 0.0)
    assert machine.demand() == 5
    machine.on_available(10, 20, 100, 0.0)
    assert machine.demand() == 0
    machine.on_credit(ANNA, 7, 0, 0.0)
    assert machine.ready_count == 0
    assert machine.demand() == 2


def test_demand_is_zero_without_byte_credit(machine_of):
    machine = machine_of(credit=15)
    machine.on_credit(ANNA, 0, -PLENTY, 0.0)
    assert machine.demand() == 0


def test_unacked_first_message_takes_little_memory(machine_of):
    """It delays no other, and the done messages above it are one range."""
    machine = machine_of(failure_policy=FailurePolicy(ack_timeout_s=1e9))
    machine.on_available(0, 1, 1, 0.0)
    for base in range(1, 20_000, 10):
        machine.on_available(base, base + 10, 1, float(base))
        machine.on_ack([(base, base + 10)], float(base))
    assert list(machine.cursor.done) == [(1, machine.next_offset)]
    assert machine.in_flight.count == 1
    assert len(machine.in_flight._bases) < 100
    assert len(machine.in_flight._deadlines) < 100


def test_acks_with_gaps_stop_demand_before_memory_grows(machine_of):
    machine = machine_of(done_ranges_max=50)
    for _ in range(1000):
        base = machine.next_offset
        if not machine.demand():
            break
        machine.on_available(base, base + 10, 100, 0.0)
        machine.on_ack(
            [(offset, offset + 1) for offset in range(base, base + 10, 2)], 0.0
        )
    assert 50 <= len(machine.cursor.done) < 60
    assert machine.next_offset < 200
    machine.on_ack([(0, machine.next_offset)], 0.0)
    assert machine.demand() > 0


def test_recovered_cursor_with_many_gaps_can_be_completed(machine_of):
    """Its gaps are not tracked, so the machine must request them."""
    done = RangeSet((offset, offset + 1) for offset in range(1, 100, 2))
    machine = machine_of(Cursor(0, done), done_ranges_max=5)
    while machine.cursor.offset < 100:
        assert machine.demand() > 0
        base = machine.next_offset
        effects = machine.on_available(base, base + 20, 100, 0.0)
        while effects:
            delivered = [(e.base, e.end) for e in effects if isinstance(e, Deliver)]
            effects = machine.on_ack(delivered, 0.0)
    assert machine.ready_count == machine.in_flight.count == 0


def test_acks_in_any_order_leave_a_single_offset(machine_of):
    machine = machine_of()
    for base in range(0, 5000, 100):
        machine.on_available(base, base + 100, 100, 0.0)
    offsets = list(range(5000))
    random.Random(4711).shuffle(offsets)
    for offset in offsets:
        machine.on_ack([(offset, offset + 1)], 0.0)
    assert machine.cursor.offset == 5000
    assert not machine.cursor.done
    assert machine.in_flight.count == machine.ready_count == 0


def test_acks_inside_a_batch_change_only_the_cursor(machine_of):
    """Acks do not split spans in flight; the done ranges show which are left."""
    machine = machine_of()
    machine.on_available(0, 10_000, 100, 0.0)
    machine.on_ack([(offset, offset + 1) for offset in range(1, 10_000, 2)], 0.0)
    assert len(machine.in_flight._bases) == 1
    assert machine.in_flight.count == 5000


def test_ack_timeout_is_thirty_seconds_by_default(
    machine_of,
):
    assert deadline_of(machine_of()) == 30.0
    assert deadline_of(machine_of(failure_policy=FailurePolicy(ack_timeout_s=7.0))) == 7
    patient = FailurePolicy(ack_timeout_s=None)
    assert deadline_of(machine_of(failure_policy=patient)) is None


def test_ack_timeout_is_kept_when_the_policy_changes(machine_of):
    machine = machine_of()
    machine.set_ack_timeout(5.0, 0.0)
    machine.set_failure_policy(FailurePolicy(ack_timeout_s=9.0), 0.0)
    assert deadline_of(machine) == 5.0


def test_ack_timeout_shortens_that_of_messages_in_flight(machine_of):
    machine = machine_of()
    assert deadline_of(machine) == 30.0
    assert machine.set_ack_timeout(5.0, 10.0) == []
    assert machine.next_deadline() == 15.0
    machine.set_ack_timeout(50.0, 12.0)
    assert (machine.next_deadline(), machine.ack_timeout_s) == (15.0, 50.0)


def test_changed_policy_shortens_the_timeout_of_messages_in_flight(machine_of):
    machine = machine_of()
    assert deadline_of(machine) == 30.0
    machine.set_failure_policy(FailurePolicy(ack_timeout_s=5.0), 10.0)
    assert machine.next_deadline() == 15.0


def test_the_same_ack_timeout_again_leaves_extended_ones_as_they_are(machine_of):
    machine = machine_of()
    assert deadline_of(machine) == 30.0
    machine.on_extend(ANNA, [(0, 10)], 10.0, ack_timeout_s=600.0)
    machine.set_failure_policy(FailurePolicy(redeliveries_max=7), 20.0)
    assert machine.next_deadline() == 610.0


def test_nack_of_messages_not_in_flight_is_ignored(machine_of):
    machine = machine_of(failure_policy=FailurePolicy(redeliveries_max=0))
    machine.on_available(0, 10, 100, 0.0, [DeliveryWindow(5, 10, due=50.0)])
    machine.on_ack([(0, 3)], 0.0)
    assert machine.on_nack([(0, 3), (5, 10), (10, 99), (9, 2)], 0.0) == []
    assert not machine.deferred.blocked.ranges()
    machine.on_nack([(3, 5)], 0.0)
    machine.on_nack([(3, 5)], 0.0)
    assert machine.deferred.blocked.ranges() == ((3, 5),)


def test_message_returned_by_a_leaving_consumer_has_not_failed(machine_of):
    policy = FailurePolicy(
        redeliveries_max=1, redelivery_delay_s=0.0, poison=PoisonPolicy.DROP
    )
    machine = machine_of(failure_policy=policy)
    machine.on_available(0, 1, 100, 0.0)
    for attempt in range(2, 6):
        machine.on_consumer_replaced(ANNA, 0.0)
        assert machine.on_credit(ANNA, 1, 100, 0.0) == [Deliver(ANNA, 0, 1, attempt)]
    machine.on_credit(ANNA, 1, 100, 0.0)
    assert machine.on_nack([(0, 1)], 0.0) == [SaveCursor(), Deliver(ANNA, 0, 1, 6)]
    assert machine.on_nack([(0, 1)], 0.0, reason="bad") == [
        Drop(0, 1, "bad"),
        SaveCursor(),
    ]


def test_delivery_window_applies_to_its_range_only(machine_of):
    machine = machine_of()
    windows = [
        DeliveryWindow(0, 2, due=5.0),
        DeliveryWindow(2, 4),
        DeliveryWindow(6, 8, expires=3.0),
    ]
    effects = machine.on_available(0, 10, 100, 0.0, windows)
    assert effects == [Deliver(ANNA, 2, 10, 1)]
    assert (machine.deferred.waiting.count, machine.next_deadline()) == (2, 3.0)
    assert machine.on_time(5.0) == [Deliver(ANNA, 0, 2, 1)]


def test_delivery_window_of_known_or_done_messages_is_ignored(machine_of):
    machine = machine_of(Cursor(2, RangeSet([(4, 6)])))
    windows = [
        DeliveryWindow(0, 3, expires=1.0),
        DeliveryWindow(3, 5, due=9.0),
        DeliveryWindow(5, 6, due=7.0),
    ]
    effects = machine.on_available(0, 8, 100, 2.0, windows)
    assert effects == [
        Drop(2, 3, "expired", is_expired=True),
        SaveCursor(),
        Deliver(ANNA, 6, 8, 1),
    ]
    assert (machine.deferred.waiting.count, machine.next_deadline()) == (1, 9.0)


def test_expired_messages_are_not_delivered_even_without_on_time(machine_of):
    machine = machine_of(credit=0)
    machine.on_available(0, 10, 100, 0.0, [DeliveryWindow(0, 5, expires=3.0)])
    assert machine.on_credit(ANNA, 100, 0, 3.0) == [
        Drop(0, 5, "expired", is_expired=True),
        SaveCursor(),
        Deliver(ANNA, 5, 10, 1),
    ]


def test_message_expires_at_the_exact_moment(machine_of):
    machine = machine_of()
    effects = machine.on_available(0, 10, 100, 3.0, [DeliveryWindow(0, 5, expires=3.0)])
    assert effects[0] == Drop(0, 5, "expired", is_expired=True)


def test_ordinary_deliveries_skip_the_slow_path(machine_of):
    machine = machine_of()
    machine.set_rate(5.0, 0.0)
    machine.set_limits(DispatchLimits(unacked_messages_max=50), 0.0)
    machine.on_available(0, 10, 100, 0.0, [DeliveryWindow(0, 2, due=9.0, expires=99.0)])
    machine.on_nack([(2, 4)], 0.0)
    assert machine._needs_slow_path
    machine.set_rate(None, 0.0)
    machine.set_limits(DispatchLimits(), 0.0)
    machine.on_ack([(0, 10)], 0.0)
    machine.next_deadline()
    machine.on_time(0.0)
    assert not machine._needs_slow_path


def test_messages_with_different_windows_are_one_delivery(machine_of):
    machine = machine_of()
    windows = [DeliveryWindow(o, o + 1, expires=100.0 + o) for o in range(10)]
    (delivery,) = machine.on_available(0, 10, 777, 0.0, windows)
    assert delivery == Deliver(ANNA, 0, 10, 1)
    assert delivery.byte_count == 777


def test_done_messages_with_an_expiry_take_no_memory(machine_of):
    machine = machine_of()
    for base in range(0, 50_000, 10):
        week = [DeliveryWindow(base, base + 10, expires=6e5 + base)]
        machine.on_available(base, base + 10, 1, float(base), week)
        machine.on_ack([(base, base + 10)], float(base))
    assert len(machine._expiries._entries) < 200
    assert machine.next_deadline() is None


def test_endless_nacks_stop_demand_before_memory_grows(machine_of):
    policy = FailurePolicy(redeliveries_max=1 << 40, redelivery_delay_s=60.0)
    machine = machine_of(failure_policy=policy, deferred_spans_max=50)
    for _ in range(1000):
        base = machine.next_offset
        if not machine.demand():
            break
        machine.on_available(base, base + 10, 100, 0.0)
        machine.on_nack(
            [(offset, offset + 1) for offset in range(base, base + 10)], 0.0
        )
    assert 50 <= machine.deferred.waiting.count < 60
    machine.on_time(60.0)
    assert machine.demand() > 0


def test_delayed_messages_stop_demand_only_at_the_limit(machine_of):
    machine = machine_of(deferred_spans_max=3)
    for base in (0, 10, 20):
        assert machine.demand() > 0
        machine.on_available(
            base, base + 10, 1, 0.0, [DeliveryWindow(base, base + 10, due=9.0)]
        )
    assert (machine.demand(), machine.next_deadline()) == (0, 9.0)
    assert machine.on_time(9.0)
    assert machine.demand() > 0


def test_demand_is_at_most_one_second_of_the_rate(machine_of):
    machine = machine_of()
    machine.set_rate(8.0, 0.0)
    assert machine.demand() == 8
    machine.on_available(0, 10, 100, 0.0)
    assert (machine.ready_count, machine.demand()) == (2, 6)


def test_rate_loses_nothing_and_is_never_exceeded(machine_of):
    machine = machine_of()
    machine.set_rate(50.0, 0.0)
    now, delivered = 0.0, []
    while len(delivered) < 400:
        base = machine.next_offset
        effects = machine.on_time(now)
        if machine.demand():
            effects += machine.on_available(base, base + 30, 100, now)
        for each in effects:
            delivered += range(each.base, each.end)
        assert len(delivered) <= 50 + 50 * now + 1
        machine.on_ack([(0, len(delivered))], now)
        now += 0.05
    assert delivered == list(range(len(delivered)))
    assert now == pytest.approx(400 / 50 - 1, abs=0.5)


def test_limits_can_change_at_any_time(machine_of):
    machine = machine_of(limits=DispatchLimits(unacked_messages_max=4))
    assert machine.demand() == 4
    machine.on_available(0, 10, 100, 0.0)
    assert (machine.in_flight.count, machine.demand()) == (4, 0)
    assert machine.set_limits(DispatchLimits(unacked_messages_max=2), 0.0) == []
    assert machine.on_ack([(0, 2)], 0.0) == [SaveCursor()]
    assert machine.on_ack([(2, 3)], 0.0) == [SaveCursor(), Deliver(ANNA, 4, 5, 1)]
    assert machine.set_limits(DispatchLimits(), 0.0) == [Deliver(ANNA, 5, 10, 1)]


def test_parked_before_a_seek_is_ignored_after_it(machine_of):
    policy = FailurePolicy(
        redeliveries_max=0,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/dead",
    )
    machine = machine_of(failure_policy=policy)
    machine.on_available(0, 10, 100, 0.0)
    effects = machine.on_nack([(0, 1)], 0.0)
    assert effects == [Park(0, 1, 1, "not processed"), SaveCursor()]
    assert machine.deferred.parked.count == 1
    machine.on_seek(0, 0.0)
    machine.on_available(0, 10, 100, 0.0)
    assert machine.on_parked(0, 1, 0.0) == []
    assert machine.on_park_failed(0, 1, 0.0, 9.0) == []
    assert (machine.cursor.offset, machine.in_flight.count) == (0, 10)


def test_only_key_shared_subscriptions_need_keys(machine_of):
    machine = machine_of()
    assert not machine.needs_keys
    keys = BatchKeys([b"a"], [0] * 10)
    assert machine.on_available(0, 10, 1, 0.0, keys=keys) == [Deliver(ANNA, 0, 10, 1)]


def test_consumer_cannot_join_twice(machine_of):
    machine = machine_of()
    machine.on_consumer_left(ANNA, 0.0)
    machine.on_consumer_joined(ANNA, 0.0)
    assert credit_of(machine) == (0, 0)
    assert list(machine.consumers) == [ANNA]


def test_acks_from_before_a_broker_restart_prevent_redelivery():
    machine = MACHINES[SubscriptionType.SHARED](Cursor(0, None))

    effects = machine.on_ack([(0, 5), (7, 8), (9, 99)], 0.0, end_offset=10)

    assert effects == [SaveCursor()]
    assert (machine.cursor.offset, list(machine.cursor.done)) == (5, [(7, 8), (9, 10)])
    assert (machine.next_offset, machine.cursor.backlog(10)) == (5, 3)
    machine.on_consumer_joined(1, 0.0)
    machine.on_credit(1, 10, 1000, 0.0)
    delivered = machine.on_available(0, 10, 100, 0.0)
    assert [(each.base, each.end) for each in delivered] == [(5, 7), (8, 9)]


# Messages that a commit holds.


@pytest.fixture(params=SubscriptionType, ids=lambda kind: kind.value)
def held(request):
    """Return a machine in which Anna has 0 … 10, and a commit holds 2 … 4 and 6."""
    policy = FailurePolicy(ack_timeout_s=5.0)
    machine = MACHINES[request.param](Cursor(0), failure_policy=policy)
    machine.on_consumer_joined(ANNA, 0.0)
    machine.on_credit(ANNA, PLENTY, PLENTY, 0.0)
    machine.on_available(0, 10, 100, 0.0, keys=BatchKeys([b"a", b"b"], [0, 1] * 5))
    assert machine.can_hold(HELD)
    machine.on_hold(HELD, 0.0)
    return machine


HELD = [(2, 4), (6, 7)]
OTHERS = {0, 1, 4, 5, 7, 8, 9}


def delivered(effects):
    """Return the delivered offsets, with the attempt."""
    return {
        (offset, each.attempt)
        for each in effects
        if isinstance(each, Deliver)
        for base, end in each.ranges()
        for offset in range(base, end)
    }


def test_only_messages_that_are_open_and_free_can_be_held(held):
    assert not held.can_hold([(2, 3)])
    assert not held.can_hold([(0, 3)])
    assert held.can_hold([(0, 2), (7, 10)])
    assert (held.in_flight.count, held.consumers[ANNA].unacked) == (7, 7)
    held.on_ack([(8, 9)], 0.0)
    assert not held.can_hold([(7, 10)])
    # The message after the last one is not tracked yet.
    assert not held.can_hold([(9, 11)])


def test_delayed_and_parked_messages_cannot_be_held():
    policy = FailurePolicy(
        redeliveries_max=0,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/dead",
    )
    machine = MACHINES[SubscriptionType.SHARED](Cursor(0), failure_policy=policy)
    machine.on_consumer_joined(ANNA, 0.0)
    machine.on_credit(ANNA, PLENTY, PLENTY, 0.0)
    machine.on_available(0, 3, 100, 0.0, [DeliveryWindow(2, 3, 50.0, None)])
    assert machine.can_hold([(0, 2)])
    assert not machine.can_hold([(2, 3)])
    machine.on_nack([(0, 1)], 0.0)
    assert not machine.can_hold([(0, 1)])
    assert machine.can_hold([(1, 2)])


@pytest.mark.parametrize("state", ["in flight", "waiting", "ready", "blocked"])
@pytest.mark.parametrize("kind", SubscriptionType, ids=lambda kind: kind.value)
def test_message_in_any_state_is_held_and_comes_back(kind, state):
    policy = FailurePolicy(
        redeliveries_max=0 if state == "blocked" else 5,
        redelivery_delay_s=5.0,
        poison=PoisonPolicy.BLOCK,
        ack_timeout_s=1.0,
    )
    machine = MACHINES[kind](Cursor(0), failure_policy=policy)
    keys = BatchKeys([b"a", b"b"], [0, 1])
    machine.on_consumer_joined(ANNA, 0.0)
    machine.on_credit(ANNA, 2, PLENTY, 0.0)
    machine.on_available(0, 2, 100, 0.0, keys=keys)
    now = 0.0
    if state != "in flight":
        machine.on_time(now := 1.0)
    if state == "ready":
        # The consumer has no credit.
        machine.on_time(now := 6.0)
        assert machine.ready_count == 2
    assert machine.can_hold([(0, 2)])
    machine.on_hold([(0, 2)], now)
    assert (machine.ready_count, machine.in_flight.count) == (0, 0)
    assert machine.deferred.held.count == machine.deferred.count == 2
    assert machine.consumers[ANNA].unacked == 0
    assert delivered(machine.on_credit(ANNA, 10, PLENTY, 100.0)) == set()
    again = delivered(machine.on_commit_refused([(0, 1)], 100.0))
    assert {offset for offset, _ in again} == (set() if state == "blocked" else {0})
    assert (machine.deferred.blocked.count > 0) == (state == "blocked")
    machine.on_commit([(1, 2)], 100.0)
    machine.on_ack([(0, 1)], 100.0)
    assert machine.cursor.offset == 2
    assert machine.deferred.count == machine.in_flight.count == 0
    # Nothing stays blocked.
    machine.on_available(2, 4, 100, 100.0, keys=keys)
    assert machine.in_flight.count == 2


def test_held_message_keeps_later_ones_of_its_key_from_a_new_owner():
    machine = MACHINES[SubscriptionType.KEY_SHARED](Cursor(0))
    machine.on_consumer_joined(ANNA, 0.0)
    machine.on_credit(ANNA, PLENTY, PLENTY, 0.0)
    machine.on_available(0, 1, 100, 0.0, keys=BatchKeys([b"a"], [0]))
    machine.on_hold([(0, 1)], 0.0)
    machine.on_consumer_left(ANNA, 0.0)
    machine.on_consumer_joined(2, 0.0)
    machine.on_credit(2, PLENTY, PLENTY, 0.0)
    keys = BatchKeys([b"a", b"b"], [0, 1])
    assert delivered(machine.on_available(1, 3, 100, 0.0, keys=keys)) == {(2, 1)}
    assert delivered(machine.on_commit_refused([(0, 1)], 0.0)) == {(0, 2), (1, 1)}


def test_held_messages_are_not_delivered_again(held):
    assert held.on_nack([(2, 4)], 0.0, delay_s=0.0) == []
    assert held.on_release(ANNA, [(2, 4)], 0.0) == []
    held.set_failure_policy(FailurePolicy(ack_timeout_s=1.0), 0.0)
    assert delivered(held.on_time(100.0)) <= {(offset, 2) for offset in OTHERS}
    held.on_time(200.0)
    held.on_consumer_left(ANNA, 200.0)
    held.on_consumer_joined(2, 200.0)
    again = delivered(held.on_credit(2, PLENTY, PLENTY, 300.0))
    assert {offset for offset, _ in again} & {2, 3, 6} == set()
    assert held.deferred.held.count == 3


def test_commit_makes_held_messages_done(held):
    assert SaveCursor() in held.on_commit(HELD, 0.0)
    assert list(held.cursor.done) == HELD
    assert held.in_flight.count == 7
    assert held.on_commit(HELD, 0.0) == []
    held.on_ack([(0, 10)], 0.0)
    assert held.cursor.offset == 10
    assert held.consumers[ANNA].unacked == 0


def test_refused_commit_makes_its_messages_ready_again(held):
    again = delivered(held.on_commit_refused(HELD, 0.0))
    assert again == {(2, 2), (3, 2), (6, 2)}
    assert held.in_flight.count == held.consumers[ANNA].unacked == 10
    # They time out as all others do.
    held.on_ack([(0, 2), (4, 6), (7, 10)], 0.0)
    held.on_time(100.0)
    assert held.in_flight.count == 0


def test_commit_makes_messages_done_that_are_not_tracked(held):
    held.on_commit([(5, 12), (15, 20)], 0.0)
    assert list(held.cursor.done) == [(5, 12), (15, 20)]
    assert held.next_offset == 12
    keys = BatchKeys([b"c"], [0] * 15)
    assert delivered(held.on_available(10, 25, 100, 0.0, keys=keys)) == {
        (offset, 1) for offset in (12, 13, 14, 20, 21, 22, 23, 24)
    }
    held.on_ack([(0, 25)], 0.0)
    assert held.cursor.offset == 25
    assert held.in_flight.count == 0
