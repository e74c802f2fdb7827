"""A queue by time, in any order of adding."""

from __future__ import annotations

import random

from pydanube.dispatch.deadlines import Deadlines


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
