"""The active consumer of exclusive and failover subscriptions; see also scenarios."""

from __future__ import annotations

import pytest

from pydanube.model.errors import ConsumerBusy
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.effects import BecomeActive, BecomeStandby, SaveCursor
from pydanube_broker.dispatch.single_active import (
    ExclusiveSubscription,
    FailoverSubscription,
)

ANNA, BEN, CARLA, DORA = 1, 2, 3, 4


def test_exclusive_subscription_refuses_a_second_consumer_and_is_unchanged():
    machine = ExclusiveSubscription(Cursor(0))
    assert machine.on_consumer_joined(ANNA, 0.0) == []
    with pytest.raises(ConsumerBusy):
        machine.on_consumer_joined(BEN, 0.0)
    assert list(machine.consumers) == [ANNA]
    machine.on_consumer_left(ANNA, 0.0)
    assert machine.on_consumer_joined(BEN, 0.0) == []


def test_first_standby_takes_over():
    machine = FailoverSubscription(Cursor(0))
    assert machine.on_consumer_joined(ANNA, 0.0) == [BecomeActive(ANNA)]
    assert machine.on_consumer_joined(BEN, 0.0) == [BecomeStandby(BEN)]
    assert machine.on_consumer_joined(CARLA, 0.0) == [BecomeStandby(CARLA)]
    assert list(machine.consumers) == [ANNA, BEN, CARLA]
    assert machine.on_consumer_left(ANNA, 0.0) == [BecomeActive(BEN)]
    assert machine.active == BEN
    assert machine.on_consumer_left(CARLA, 0.0) == []
    assert machine.on_consumer_left(BEN, 0.0) == []
    assert machine.active is None


def test_idle_consumer_is_replaced_at_once_by_a_better_one():
    machine = FailoverSubscription(Cursor(0))
    machine.on_consumer_joined(ANNA, 0.0, priority=1)
    assert machine.on_consumer_joined(BEN, 0.0, priority=0) == [
        BecomeStandby(ANNA),
        BecomeActive(BEN),
    ]
    assert machine.on_consumer_joined(CARLA, 0.0, priority=0) == [BecomeStandby(CARLA)]


def test_consumer_with_the_best_priority_that_joined_first_takes_over():
    machine = FailoverSubscription(Cursor(0))
    machine.on_consumer_joined(ANNA, 0.0)
    machine.on_consumer_joined(BEN, 0.0, priority=2)
    machine.on_consumer_joined(CARLA, 0.0, priority=1)
    machine.on_consumer_joined(DORA, 0.0, priority=1)
    machine.on_consumer_left(ANNA, 0.0)
    assert machine.active == CARLA
    machine.on_consumer_left(CARLA, 0.0)
    assert machine.active == DORA


def test_switch_waits_for_messages_in_flight():
    machine = FailoverSubscription(Cursor(0))
    machine.on_consumer_joined(ANNA, 0.0, priority=1)
    machine.on_credit(ANNA, 100, 1000, 0.0)
    machine.on_available(0, 5, 10, 0.0)
    machine.on_consumer_joined(BEN, 0.0)
    machine.on_credit(BEN, 7, 1000, 0.0)
    assert (machine.active, machine.demand()) == (ANNA, 0)
    machine.on_ack([(0, 4)], 0.0)
    assert machine.active == ANNA
    assert machine.on_ack([(4, 5)], 0.0) == [
        SaveCursor(),
        BecomeStandby(ANNA),
        BecomeActive(BEN),
    ]
    assert machine.demand() == 7


def test_seek_completes_a_switch():
    machine = FailoverSubscription(Cursor(0))
    machine.on_consumer_joined(ANNA, 0.0, priority=1)
    machine.on_credit(ANNA, 100, 1000, 0.0)
    machine.on_available(0, 5, 10, 0.0)
    machine.on_consumer_joined(BEN, 0.0)
    assert machine.on_seek(0, 0.0) == [BecomeStandby(ANNA), BecomeActive(BEN)]


def test_credit_of_a_standby_creates_no_demand():
    machine = FailoverSubscription(Cursor(0))
    machine.on_consumer_joined(ANNA, 0.0)
    machine.on_consumer_joined(BEN, 0.0)
    assert machine.on_credit(BEN, 100, 100, 0.0) == []
    assert machine.demand() == 0
    machine.on_consumer_left(ANNA, 0.0)
    assert machine.demand() == 100


def test_machine_awaits_the_credit_that_a_consumer_has_given_before():
    machine = FailoverSubscription(Cursor(0))
    assert not machine.awaits_credit(10)
    machine.on_consumer_joined(ANNA, 0.0)
    machine.on_credit(ANNA, 30, 1000, 0.0)
    machine.on_available(0, 20, 100, 0.0)
    assert machine.awaits_credit(20)
    # While limits decide, or another consumer is to become active, it awaits none.
    machine.set_paused(True, 0.0)
    assert not machine.awaits_credit(20)
    machine.set_paused(False, 0.0)
    machine.on_consumer_joined(BEN, 0.0, priority=-1)
    assert not machine.awaits_credit(20)
    machine.on_consumer_left(BEN, 0.0)
    assert machine.awaits_credit(20)
    machine.stop_awaiting_credit()
    assert not machine.awaits_credit(20)
    machine.on_credit(ANNA, 20, 1000, 0.0)
    machine.on_available(20, 40, 100, 0.0)
    assert machine.awaits_credit(20)
    # Another connection may give less.
    machine.on_consumer_replaced(ANNA, 0.0)
    assert not machine.awaits_credit(20)
