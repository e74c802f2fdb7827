"""Who gets what in a shared subscription; see also the scenarios."""

from __future__ import annotations

from collections import Counter

import pytest

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.shared import SharedSubscription

PLENTY = 1 << 40


def shared_by(*credits_):
    machine = SharedSubscription(Cursor(0))
    for consumer, messages in enumerate(credits_):
        machine.on_consumer_came(consumer, 0.0)
        machine.on_credit(consumer, messages, PLENTY, 0.0)
    return machine


def counts(effects):
    counted = Counter()
    for effect in effects:
        counted[effect.consumer] += effect.end - effect.base
    return dict(counted)


@pytest.mark.parametrize("batch_count", [1, 2, 3, 6, 36])
def test_messages_are_spread_evenly_however_they_come(batch_count):
    machine = shared_by(100, 100, 100)
    effects = []
    for base in range(0, 36, batch_count):
        effects += machine.on_available(base, base + batch_count, 100, 0.0)
    assert counts(effects) == {0: 12, 1: 12, 2: 12}


def test_what_one_cannot_take_goes_to_the_others():
    machine = shared_by(1, 100, 100)
    assert counts(machine.on_available(0, 30, 100, 0.0)) == {0: 1, 1: 19, 2: 10}


def test_what_nobody_can_take_waits():
    machine = shared_by(1, 2)
    assert counts(machine.on_available(0, 30, 100, 0.0)) == {0: 1, 1: 2}
    assert machine.ready_count == 27
    assert counts(machine.on_credit(0, 100, 0, 0.0)) == {0: 27}


def test_what_a_leaver_had_is_shared_by_the_others():
    machine = shared_by(100, 100, 100)
    machine.on_available(0, 30, 100, 0.0)
    assert counts(machine.on_consumer_gone(1, 0.0)) == {0: 5, 2: 5}
    assert machine.consumers == (0, 2)


def test_charges_of_the_parts_add_up_to_the_batch():
    machine = shared_by(100, 100, 100)
    effects = machine.on_available(0, 10, 1003, 0.0)
    assert sum(effect.byte_count for effect in effects) == 1003


def test_credit_taken_away_takes_the_turn_away():
    machine = shared_by(100, 100)
    machine.on_credit(0, 0, -PLENTY, 0.0)
    assert counts(machine.on_available(0, 10, 100, 0.0)) == {1: 10}
