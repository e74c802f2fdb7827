"""Deliveries of shared subscriptions; see also the scenarios."""

from __future__ import annotations

from collections import Counter

import pytest

from pydanube.model.policy import DispatchLimits
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.shared import SharedSubscription

PLENTY = 1 << 40


def shared_by(*credits_):
    machine = SharedSubscription(Cursor(0))
    for consumer, messages in enumerate(credits_):
        machine.on_consumer_joined(consumer, 0.0)
        machine.on_credit(consumer, messages, PLENTY, 0.0)
    return machine


def counts(effects):
    counted = Counter()
    for effect in effects:
        counted[effect.consumer] += effect.end - effect.base
    return dict(counted)


@pytest.mark.parametrize("batch_count", [1, 2, 3, 6, 36])
def test_messages_are_spread_evenly_for_any_batch_size(batch_count):
    machine = shared_by(100, 100, 100)
    effects = []
    for base in range(0, 36, batch_count):
        effects += machine.on_available(base, base + batch_count, 100, 0.0)
    assert counts(effects) == {0: 12, 1: 12, 2: 12}


def test_of_several_batches_each_consumer_gets_whole_ones():
    machine = shared_by(100, 100, 100)
    effects = []
    for base in range(0, 70, 10):
        effects += machine.on_available(base, base + 10, 100, 0.0, following=60 - base)
    # The last one, behind which nothing waits, is divided.
    bounds = [(each.base, each.end) for each in effects]
    assert bounds[:6] == [(base, base + 10) for base in range(0, 60, 10)]
    assert bounds[6:] == [(60, 64), (64, 68), (68, 70)]
    assert counts(effects[:6]) == {0: 20, 1: 20, 2: 20}


def test_messages_that_follow_without_demand_do_not_count():
    machine = shared_by(6, 6, 6)
    effects = machine.on_available(0, 9, 100, 0.0, following=100)
    assert counts(effects) == {0: 3, 1: 3, 2: 3}


def test_whole_batches_that_return_are_divided():
    machine = shared_by(100, 100, 100)
    machine.on_available(0, 30, 100, 0.0, following=60)
    assert counts(machine.on_consumer_left(0, 0.0)) == {1: 15, 2: 15}


def test_after_a_seek_a_batch_is_divided():
    machine = shared_by(100, 100)
    machine.on_available(0, 30, 100, 0.0, following=30)
    machine.on_seek(0, 0.0)
    assert counts(machine.on_available(0, 30, 100, 0.0)) == {1: 15, 0: 15}


def test_messages_beyond_the_credit_of_one_go_to_others():
    machine = shared_by(1, 100, 100)
    assert counts(machine.on_available(0, 30, 100, 0.0)) == {0: 1, 1: 19, 2: 10}


def test_messages_wait_without_credit():
    machine = shared_by(1, 2)
    assert counts(machine.on_available(0, 30, 100, 0.0)) == {0: 1, 1: 2}
    assert machine.ready_count == 27
    assert counts(machine.on_credit(0, 100, 0, 0.0)) == {0: 27}


def test_messages_of_a_leaving_consumer_go_to_the_others():
    machine = shared_by(100, 100, 100)
    machine.on_available(0, 30, 100, 0.0)
    assert counts(machine.on_consumer_left(1, 0.0)) == {0: 5, 2: 5}
    assert list(machine.consumers) == [0, 2]


def test_charges_of_the_parts_add_up_to_the_batch():
    machine = shared_by(100, 100, 100)
    effects = machine.on_available(0, 10, 1003, 0.0)
    assert sum(effect.byte_count for effect in effects) == 1003


def test_lower_priority_receives_only_the_rest():
    machine = SharedSubscription(Cursor(0))
    for consumer, priority in enumerate([1, 0, 0, 1]):
        machine.on_consumer_joined(consumer, 0.0, priority=priority)
        machine.on_credit(consumer, 5, PLENTY, 0.0)
    assert machine.demand() == 20
    assert counts(machine.on_available(0, 4, 100, 0.0)) == {1: 2, 2: 2}
    assert counts(machine.on_available(4, 16, 100, 0.0)) == {1: 3, 2: 3, 0: 3, 3: 3}
    assert list(machine.consumers) == [0, 1, 2, 3]


def test_last_consumer_of_a_priority_leaves_no_queue():
    machine = SharedSubscription(Cursor(0))
    for consumer in range(100):
        machine.on_consumer_joined(consumer, 0.0, priority=-consumer)
        machine.on_credit(consumer, 1, 1, 0.0)
        machine.on_consumer_left(consumer, 0.0)
    assert not machine._queues


def test_consumer_that_acknowledges_nothing_is_skipped():
    machine = shared_by(100, 100)
    machine.set_limits(DispatchLimits(unacked_messages_max_per_consumer=3), 0.0)
    assert counts(machine.on_available(0, 6, 100, 0.0)) == {0: 3, 1: 3}
    machine.on_ack([(3, 6)], 0.0)
    assert counts(machine.on_available(6, 9, 100, 0.0)) == {1: 3}
    assert (machine.consumers[0].unacked, machine.consumers[1].unacked) == (3, 3)
    assert machine.demand() == 0


def test_consumer_whose_credit_is_removed_is_skipped():
    machine = shared_by(100, 100)
    machine.on_credit(0, 0, -PLENTY, 0.0)
    assert counts(machine.on_available(0, 10, 100, 0.0)) == {1: 10}
