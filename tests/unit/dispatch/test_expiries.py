"""Ranges expire in order of time, and done ranges are removed early."""

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


def test_done_messages_do_not_expire():
    cursor = Cursor(0)
    expiries = Expiries(cursor)
    expiries.add(1.0, 0, 5)
    expiries.add(2.0, 5, 8)
    cursor.mark(0, 5)
    assert expiries.next_time() == 2.0
    cursor.mark(6, 8)
    assert expiries.pop_expired(2.0) == (5, 8)


def test_done_ranges_are_removed_before_they_expire():
    """A million messages that live for a week must not leave a million entries."""
    cursor = Cursor(0)
    expiries = Expiries(cursor)
    expiries.add(5e9, 0, 1)
    for base in range(1, 5000):
        expiries.add(1e9 + base, base, base + 1)
        cursor.mark(base, base + 1)
    assert len(expiries._deadlines) < 200
    assert expiries.next_time() == 5e9


def test_clear_removes_all_ranges():
    expiries = Expiries(Cursor(0))
    expiries.add(1.0, 0, 5)
    assert expiries
    expiries.clear()
    assert expiries.next_time() is None
    assert not expiries
