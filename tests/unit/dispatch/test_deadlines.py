"""A queue by time, in any order of adding."""

from __future__ import annotations

import random

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.deadlines import Deadlines, Expiries


def drain(deadlines):
    return [deadlines.pop() for _ in range(len(deadlines))]


def test_earliest_deadline_is_first_in_any_order_of_adding():
    deadlines = Deadlines()
    times = [float(number) for number in range(200)]
    random.Random(4711).shuffle(times)
    for time in times:
        deadlines.add(time, 1, 2)
    assert deadlines.first() == (0.0, 1, 2)
    assert [time for time, _, _ in drain(deadlines)] == sorted(times)
    assert deadlines.first() is None


def test_deadlines_added_in_order_need_no_heap():
    deadlines = Deadlines()
    for time in (1.0, 2.0, 2.0, 3.0):
        deadlines.add(time, 0, 1)
    assert not deadlines._others


def test_deadlines_can_be_iterated_and_replaced():
    deadlines = Deadlines()
    for time in (3.0, 1.0, 2.0):
        deadlines.add(time, 0, 1)
    assert sorted(time for time, _, _ in deadlines) == [1.0, 2.0, 3.0]
    deadlines.replace(each for each in list(deadlines) if each[0] > 1.0)
    assert drain(deadlines) == [(2.0, 0, 1), (3.0, 0, 1)]


def test_clear_removes_all_deadlines():
    deadlines = Deadlines()
    deadlines.add(2.0, 0, 1)
    deadlines.add(1.0, 0, 1)
    deadlines.clear()
    assert (len(deadlines), deadlines.first()) == (0, None)


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


def test_clear_removes_all_expiring_ranges():
    expiries = Expiries(Cursor(0))
    expiries.add(1.0, 0, 5)
    assert expiries
    expiries.clear()
    assert expiries.next_time() is None
    assert not expiries
