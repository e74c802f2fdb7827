"""When messages expire, and what may be forgotten of that."""

from __future__ import annotations

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.expiries import Expiries


def test_ranges_expire_in_the_order_of_time():
    expiries = Expiries(Cursor(0))
    expiries.add(9.0, 0, 5)
    expiries.add(7.0, 5, 8)
    assert expiries.next_time() == 7.0
    assert expiries.pop_expired(6.9) is None
    assert expiries.pop_expired(9.0) == (5, 8)
    assert expiries.pop_expired(9.0) == (0, 5)
    assert expiries.pop_expired(9.0) is None
    assert not expiries


def test_what_is_done_does_not_expire():
    cursor = Cursor(0)
    expiries = Expiries(cursor)
    expiries.add(1.0, 0, 5)
    expiries.add(2.0, 5, 8)
    cursor.mark(0, 5)
    assert expiries.next_time() == 2.0
    cursor.mark(6, 8)
    assert expiries.pop_expired(2.0) == (5, 8)


def test_what_was_done_in_time_is_forgotten_long_before_it_would_expire():
    """A week to live for each of a million messages must not be a million entries."""
    cursor = Cursor(0)
    expiries = Expiries(cursor)
    expiries.add(5e9, 0, 1)
    for base in range(1, 5000):
        expiries.add(1e9 + base, base, base + 1)
        cursor.mark(base, base + 1)
    assert len(expiries._deadlines) < 200
    assert expiries.next_time() == 5e9


def test_nothing_expires_after_all_was_forgotten():
    expiries = Expiries(Cursor(0))
    expiries.add(1.0, 0, 5)
    assert expiries
    expiries.clear()
    assert expiries.next_time() is None
    assert not expiries
