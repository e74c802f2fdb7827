"""The order of deliveries in subscriptions that ignore keys."""

from __future__ import annotations

from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.message_spans import Batch, MessageSpan
from pydanube_broker.dispatch.ready import ReadySpans

BATCH = Batch(0, 100, 1000)


def span(base, end, attempt=1, batch=BATCH, **state):
    return MessageSpan(base, end, attempt, batch, **state)


def drain(ready):
    return places(iter(ready.take, None))


def places(spans):
    return [(each.base, each.end, each.attempt) for each in spans]


def test_redeliveries_come_first_by_offset():
    ready = ReadySpans(Cursor(0))
    ready.add_new(span(50, 60))
    ready.put_back(span(20, 30, attempt=2))
    ready.put_back(span(0, 10, attempt=3))
    assert drain(ready) == [(0, 10, 3), (20, 30, 2), (50, 60, 1)]


def test_delayed_first_delivery_takes_its_place_by_offset():
    ready = ReadySpans(Cursor(0))
    ready.add_new(span(10, 20))
    ready.add_new(span(30, 40))
    ready.put_back(span(20, 30))
    ready.put_back(span(0, 10))
    assert drain(ready) == [(0, 10, 1), (10, 20, 1), (20, 30, 1), (30, 40, 1)]


def test_equal_neighbours_are_merged():
    ready = ReadySpans(Cursor(0))
    other = Batch(30, 40, 10)
    for each in (span(10, 20, 2), span(0, 10, 2), span(20, 30, 3)):
        ready.put_back(each)
    ready.put_back(span(30, 40, 3, other))
    assert drain(ready) == [(0, 20, 2), (20, 30, 3), (30, 40, 3)]


def test_different_neighbours_are_not_merged():
    ready = ReadySpans(Cursor(0))
    ready.put_back(span(0, 10, 2, failures=1))
    ready.put_back(span(10, 20, 2))
    ready.put_back(span(20, 30, 2, expires=5.0))
    assert drain(ready) == [(0, 10, 2), (10, 20, 2), (20, 30, 2)]


def test_done_messages_are_not_ready():
    cursor = Cursor(5)
    ready = ReadySpans(cursor)
    ready.add_new(span(0, 20))
    ready.add_new(span(20, 30))
    cursor.mark(7, 9)
    cursor.mark(18, 30)
    assert drain(ready) == [(5, 7, 1), (9, 18, 1)]


def test_first_deliveries_end_holds_back_first_deliveries():
    ready = ReadySpans(Cursor(0))
    ready.add_new(span(20, 30))
    ready.put_back(span(0, 10, attempt=2))
    ready.put_back(span(10, 20))
    assert ready.take(0).base == 0
    assert ready.take(0) is None
    assert ready.take(20).base == 10
    assert ready.take(20) is None
    assert ready.take().base == 20


def test_held_back_span_whose_beginning_is_done_stays_ready():
    cursor = Cursor(0)
    ready = ReadySpans(cursor)
    ready.add_new(span(0, 10))
    cursor.mark(0, 5)
    assert ready.take(5) is None
    assert places([ready.take(6)]) == [(5, 10, 1)]


def test_withdraw_finds_a_range_in_any_list():
    cursor = Cursor(0)
    ready = ReadySpans(cursor)
    ready.add_new(span(40, 50))
    ready.add_new(span(50, 60))
    ready.put_back(span(0, 10, attempt=2))
    ready.put_back(span(20, 30))
    cursor.mark(52, 53)
    taken = ready.withdraw(5, 55)
    assert places(taken) == [
        (5, 10, 2),
        (20, 30, 1),
        (40, 50, 1),
        (50, 55, 1),
    ]
    assert sum(each.open_count for each in taken) == 5 + 10 + 10 + 4
    assert drain(ready) == [(0, 5, 2), (55, 60, 1)]


def test_withdraw_removes_the_middle_of_a_span_repeatedly():
    ready = ReadySpans(Cursor(0))
    ready.add_new(span(0, 10))
    assert places(ready.withdraw(4, 6)) == [(4, 6, 1)]
    assert places(ready.withdraw(3, 7)) == [(3, 4, 1), (6, 7, 1)]
    assert ready.withdraw(3, 7) == []
    assert drain(ready) == [(0, 3, 1), (7, 10, 1)]


def test_withdraw_skips_done_messages():
    cursor = Cursor(0)
    ready = ReadySpans(cursor)
    ready.add_new(span(0, 10))
    cursor.mark(2, 8)
    assert ready.withdraw(2, 8) == []
    assert drain(ready) == [(0, 2, 1), (8, 10, 1)]


def test_clear_removes_all_spans():
    ready = ReadySpans(Cursor(0))
    ready.add_new(span(10, 20))
    ready.put_back(span(0, 10, attempt=2))
    ready.put_back(span(20, 30))
    assert len(ready) == 3
    ready.clear()
    assert len(ready) == 0
    assert ready.take() is None
