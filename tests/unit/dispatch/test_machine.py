"""What holds for subscriptions of every type."""

from __future__ import annotations

import random

import pytest

from pydanube.dispatch import machine_for
from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.effects import Deliver, SaveCursor
from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import RangeSet

PLENTY = 1 << 40
ANNA = 1


@pytest.fixture(params=SubscriptionType, ids=lambda kind: kind.value)
def machine_of(request):
    """A function that makes a machine in which Anna has plenty of credit."""

    def make(cursor=None, *, credit=PLENTY, **options):
        machine = machine_for(request.param, cursor or Cursor(0), **options)
        machine.on_consumer_came(ANNA, 0.0)
        machine.on_credit(ANNA, credit, PLENTY, 0.0)
        return machine

    return make


def test_a_whole_batch_is_one_delivery_charged_with_its_bytes(machine_of):
    machine = machine_of(credit=100)
    (delivery,) = machine.on_available(0, 10, 777, 0.0)
    assert delivery == Deliver(ANNA, 0, 10, 1)
    assert delivery.byte_count == 777
    assert machine.credit_of(ANNA) == (90, PLENTY - 777)


def test_a_difference_in_bytes_can_be_settled(machine_of):
    machine = machine_of()
    machine.on_available(0, 10, 700, 0.0)
    machine.on_credit(ANNA, 0, -50, 0.0)
    assert machine.credit_of(ANNA)[1] == PLENTY - 750


def test_the_first_batch_may_begin_before_the_cursor(machine_of):
    machine = machine_of(Cursor(5))
    assert machine.next_offset == 5
    assert machine.on_available(0, 10, 100, 0.0) == [Deliver(ANNA, 5, 10, 1)]
    assert machine.next_offset == 10


def test_a_batch_that_is_known_is_ignored(machine_of):
    machine = machine_of()
    machine.on_available(0, 10, 100, 0.0)
    assert machine.on_available(0, 10, 100, 0.0) == []
    assert machine.in_flight_count == 10


def test_a_batch_that_leaves_messages_out_is_our_bug(machine_of):
    with pytest.raises(AssertionError, match="left out"):
        machine_of().on_available(1, 10, 100, 0.0)


def test_the_cursor_is_saved_once_a_fact_and_only_if_it_changed(machine_of):
    machine = machine_of()
    machine.on_available(0, 10, 100, 0.0)
    assert machine.on_ack([(0, 1), (3, 4), (5, 6)], 0.0) == [SaveCursor()]
    assert machine.on_ack([(0, 1), (3, 4)], 0.0) == []
    assert machine.on_ack([], 0.0) == []
    assert machine.on_ack_through(1, 0.0) == []


def test_reading_ahead_ends_where_credit_ends(machine_of):
    machine = machine_of(credit=15)
    assert machine.wanted() == 15
    machine.on_available(0, 10, 100, 0.0)
    assert machine.wanted() == 5
    machine.on_available(10, 20, 100, 0.0)
    assert machine.wanted() == 0
    machine.on_credit(ANNA, 7, 0, 0.0)
    assert machine.ready_count == 0
    assert machine.wanted() == 2


def test_without_byte_credit_nothing_is_wanted(machine_of):
    machine = machine_of(credit=15)
    machine.on_credit(ANNA, 0, -PLENTY, 0.0)
    assert machine.wanted() == 0


def test_a_consumer_that_holds_the_first_message_for_ever_costs_little(machine_of):
    """It stops nothing, and what is done behind it is one range."""
    machine = machine_of(ack_timeout_s=1e9)
    machine.on_available(0, 1, 1, 0.0)
    for base in range(1, 20_000, 10):
        machine.on_available(base, base + 10, 1, float(base))
        machine.on_ack([(base, base + 10)], float(base))
    assert list(machine.cursor.done) == [(1, machine.next_offset)]
    assert machine.in_flight_count == 1
    assert len(machine._flights._bases) < 100
    assert len(machine._flights._deadlines) < 100


def test_acks_full_of_gaps_stop_reading_before_memory_grows(machine_of):
    machine = machine_of(done_ranges_max=50)
    for _ in range(1000):
        base = machine.next_offset
        if not machine.wanted():
            break
        machine.on_available(base, base + 10, 100, 0.0)
        machine.on_ack(
            [(offset, offset + 1) for offset in range(base, base + 10, 2)], 0.0
        )
    assert 50 <= len(machine.cursor.done) < 60
    assert machine.next_offset < 200
    machine.on_ack_through(machine.next_offset, 0.0)
    assert machine.wanted() > 0


def test_a_cursor_recovered_full_of_gaps_comes_to_its_end(machine_of):
    """Its gaps are not in hand, so somebody must bring them."""
    done = RangeSet((offset, offset + 1) for offset in range(1, 100, 2))
    machine = machine_of(Cursor(0, done), done_ranges_max=5)
    while machine.cursor.offset < 100:
        assert machine.wanted() > 0
        base = machine.next_offset
        effects = machine.on_available(base, base + 20, 100, 0.0)
        while effects:
            delivered = [(e.base, e.end) for e in effects if isinstance(e, Deliver)]
            effects = machine.on_ack(delivered, 0.0)
    assert machine.ready_count == machine.in_flight_count == 0


def test_acks_in_any_order_leave_one_number(machine_of):
    machine = machine_of()
    for base in range(0, 5000, 100):
        machine.on_available(base, base + 100, 100, 0.0)
    offsets = list(range(5000))
    random.Random(4711).shuffle(offsets)
    for offset in offsets:
        machine.on_ack([(offset, offset + 1)], 0.0)
    assert machine.cursor.offset == 5000
    assert not machine.cursor.done
    assert machine.in_flight_count == machine.ready_count == 0


def test_acks_inside_a_batch_leave_nothing_but_the_cursor(machine_of):
    """A flight is not cut by acks; only the done ranges say what is left."""
    machine = machine_of()
    machine.on_available(0, 10_000, 100, 0.0)
    machine.on_ack([(offset, offset + 1) for offset in range(1, 10_000, 2)], 0.0)
    assert len(machine._flights._bases) == 1
    assert machine.in_flight_count == 5000


def test_backlog_counts_what_is_not_done(machine_of):
    machine = machine_of()
    machine.on_available(0, 10, 100, 0.0)
    machine.on_ack([(0, 2), (5, 6)], 0.0)
    assert machine.backlog(20) == 17


def test_nobody_comes_twice(machine_of):
    machine = machine_of()
    machine.on_consumer_gone(ANNA, 0.0)
    machine.on_consumer_came(ANNA, 0.0)
    assert machine.credit_of(ANNA) == (0, 0)
    assert machine.consumers == (ANNA,)


def test_acks_of_a_consumer_that_outlived_the_broker_spare_the_deliveries():
    machine = machine_for(SubscriptionType.SHARED, Cursor(0, None))

    effects = machine.on_ack([(0, 5), (7, 8), (9, 99)], 0.0, end_offset=10)

    assert effects == [SaveCursor()]
    assert (machine.cursor.offset, list(machine.cursor.done)) == (5, [(7, 8), (9, 10)])
    assert (machine.next_offset, machine.backlog(10)) == (5, 3)
    machine.on_consumer_came(1, 0.0)
    machine.on_credit(1, 10, 1000, 0.0)
    delivered = machine.on_available(0, 10, 100, 0.0)
    assert [(each.base, each.end) for each in delivered] == [(5, 7), (8, 9)]
