"""Who is active in a failover subscription; see also the scenarios."""

from __future__ import annotations

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.effects import BecomeActive, BecomeStandby
from pydanube.dispatch.failover import FailoverSubscription

ANNA, BEN, CARLA = 1, 2, 3


def test_the_standby_that_came_first_takes_over():
    machine = FailoverSubscription(Cursor(0))
    assert machine.on_consumer_came(ANNA, 0.0) == [BecomeActive(ANNA)]
    assert machine.on_consumer_came(BEN, 0.0) == [BecomeStandby(BEN)]
    assert machine.on_consumer_came(CARLA, 0.0) == [BecomeStandby(CARLA)]
    assert machine.consumers == (ANNA, BEN, CARLA)
    assert machine.on_consumer_gone(ANNA, 0.0) == [BecomeActive(BEN)]
    assert machine.active == BEN
    assert machine.on_consumer_gone(CARLA, 0.0) == []
    assert machine.on_consumer_gone(BEN, 0.0) == []
    assert machine.active is None


def test_credit_of_a_standby_reads_nothing_ahead():
    machine = FailoverSubscription(Cursor(0))
    machine.on_consumer_came(ANNA, 0.0)
    machine.on_consumer_came(BEN, 0.0)
    assert machine.on_credit(BEN, 100, 100, 0.0) == []
    assert machine.wanted() == 0
    machine.on_consumer_gone(ANNA, 0.0)
    assert machine.wanted() == 100
