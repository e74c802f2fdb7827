"""Gates are closed for the keys that must wait, and for no others."""

from __future__ import annotations

import pytest

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.gates import Gates
from pydanube.dispatch.ready import ANYWHERE


@pytest.fixture
def gates():
    return Gates()


def opened(gates, released):
    """The keys of *released* for which nothing has to wait any more."""
    free = [gate for gate in released if gate.open_below == ANYWHERE]
    for gate in free:
        gates.open(gate)
    return [gate.key for gate in free]


def test_a_key_is_closed_from_the_first_held_message_on(gates):
    gates.hold(5, [b"a", b"b", b"b"])
    gates.hold(20, [b"a"])
    assert gates.closed_among([b"a", b"b", b"c"]) == {b"a", b"b"}
    assert gates[b"a"].open_below == 5
    assert gates[b"b"].open_below == 6
    assert opened(gates, gates.release(0, 6)) == []
    assert gates[b"a"].open_below == 20
    assert opened(gates, gates.release(7, 8)) == []
    assert gates[b"b"].open_below == 6
    assert opened(gates, gates.release(6, 100)) == [b"b", b"a"]
    assert not gates


def test_every_closing_is_noticed(gates):
    before = gates.closing_count
    gates.hold(5, [b"a"])
    assert gates.closing_count > before
    before = gates.closing_count
    gates.move([b"b"])
    assert gates.closing_count > before


def test_a_part_of_what_is_held_can_be_released(gates):
    gates.hold(10, [b"a"] * 10)
    (gate,) = gates.release(13, 15)
    assert list(gate.held) == [(10, 13), (15, 20)]
    (gate,) = gates.release(5, 11)
    assert gate.open_below == 11
    assert gates.release(0, 10) == gates.release(13, 15) == gates.release(20, 99) == []
    assert gates.release(11, 20) == [gate]
    assert not gate.held


def test_only_what_is_done_is_released(gates):
    cursor = Cursor(3)
    gates.hold(2, [b"a", b"b", b"c", b"c", b"c"])
    cursor.mark(5, 6)
    assert opened(gates, gates.release_done(0, 100, cursor)) == [b"a"]
    assert list(gates[b"c"].held) == [(4, 5), (6, 7)]
    assert gates[b"b"].open_below == 3
    cursor.mark(0, 100)
    assert opened(gates, gates.release_done(0, 100, cursor)) == [b"b", b"c"]


def test_a_moving_key_is_closed_until_nothing_of_it_is_in_flight(gates):
    gates.move([b"a", b"a", b"b"])
    assert gates[b"a"].open_below == 0
    assert opened(gates, gates.moved([b"a", b"c"])) == []
    assert opened(gates, gates.moved([b"a"])) == [b"a"]
    assert opened(gates, gates.moved([b"b"])) == [b"b"]


def test_a_key_may_be_moving_and_held(gates):
    gates.hold(5, [b"a"])
    gates.move([b"a"])
    (gate,) = gates.moved([b"a"])
    assert gate.open_below == 5
    gates.move([b"a", b"b"])
    gates.forget_moves()
    assert gate.open_below == 5
    assert len(gates) == 1
    gates.clear()
    assert not gates
    assert gates.release(0, 100) == []
