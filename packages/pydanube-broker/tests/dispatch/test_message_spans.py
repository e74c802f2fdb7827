"""Spans by offset and by deadline, and expiry times."""

from __future__ import annotations

from pydanube_broker.dispatch import message_spans
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.message_spans import (
    Batch,
    Expiries,
    MessageSpan,
    MessageSpans,
)

BATCH = Batch(0, 100, 1000)


def span(base, end, time=None, consumer=1):
    return MessageSpan(
        base, end, 1, BATCH, consumer=consumer, time=time, open_count=end - base
    )


def places(spans):
    return [(each.base, each.end, each.open_count) for each in spans]


def test_charges_of_parts_add_up_to_the_whole():
    batch = Batch(10, 17, 100)
    parts = [batch.charge(offset, offset + 1) for offset in range(10, 17)]
    assert sum(parts) == 100
    assert batch.charge(10, 17) == 100
    assert max(parts) - min(parts) <= 1


def test_part_has_the_state_of_the_whole():
    whole = MessageSpan(
        0, 10, 3, BATCH, failures=2, expires=9.0, reason="bad", consumer=7, time=5.0
    )
    part = whole.part(2, 4)
    assert (part.base, part.end, part.open_count) == (2, 4, 0)
    assert (part.attempt, part.batch, part.failures) == (3, BATCH, 2)
    assert (part.expires, part.reason, part.consumer, part.time) == (9.0, "bad", 7, 5.0)
    assert part.is_like(whole)


def test_spans_in_different_states_are_not_alike():
    one = span(0, 1)
    others = [
        MessageSpan(1, 2, 1, Batch(0, 100, 1000)),
        MessageSpan(1, 2, 2, BATCH),
        MessageSpan(1, 2, 1, BATCH, failures=1),
        MessageSpan(1, 2, 1, BATCH, expires=1.0),
    ]
    assert one.is_like(MessageSpan(1, 2, 1, BATCH))
    assert not any(one.is_like(other) for other in others)


def test_span_is_found_by_any_of_its_offsets():
    in_flight = MessageSpans(Cursor(0))
    for base in (20, 0, 10):
        in_flight.add(span(base, base + 5))
    assert in_flight.find_containing(12, 15).base == 10
    assert in_flight.find_containing(12, 16) is None
    assert in_flight.find_containing(7, 8) is None
    assert [each.base for each in in_flight.overlapping(3, 21)] == [0, 10, 20]
    assert in_flight.overlapping(5, 10) == []
    assert (in_flight.count, len(in_flight)) == (15, 3)


def test_span_is_removed_when_all_messages_are_done():
    in_flight = MessageSpans(Cursor(0))
    in_flight.add(one := span(0, 10, time=5.0))
    in_flight.mark_done(one, 4)
    assert (in_flight.count, in_flight.next_time()) == (6, 5.0)
    in_flight.mark_done(one, 6)
    assert (in_flight.count, in_flight.next_time()) == (0, None)
    assert in_flight.find_containing(0, 1) is None


def test_withdraw_from_the_middle_leaves_the_ends():
    in_flight = MessageSpans(Cursor(0))
    in_flight.add(span(0, 10, time=5.0))
    assert places(in_flight.withdraw(3, 6)) == [(3, 6, 3)]
    assert in_flight.count == 7
    assert in_flight.find_containing(0, 3).time == 5.0
    assert in_flight.find_containing(6, 10).time == 5.0
    assert in_flight.find_containing(3, 4) is None
    assert places(in_flight.withdraw(0, 100)) == [(0, 3, 3), (6, 10, 4)]
    assert not in_flight.count


def test_extending_the_middle_leaves_the_ends(monkeypatch):
    in_flight = MessageSpans(Cursor(0))
    in_flight.add(span(0, 10, time=5.0))
    in_flight.extend([(3, 6)], 2, 9.0)
    in_flight.extend([(3, 6)], 1, 4.0)
    assert [each.base for each in in_flight.overlapping(0, 10)] == [0]
    in_flight.extend([(3, 6)], 1, 9.0)
    assert places(in_flight.withdraw_due(5.0)) == [(0, 3, 3), (6, 10, 4)]
    monkeypatch.setattr(message_spans, "EXTENDED_SPANS_MAX", 1)
    in_flight.extend([(4, 5)], 1, 11.0)
    assert places(in_flight.withdraw_due(11.0)) == [(3, 6, 3)]


def test_withdraw_skips_done_messages():
    cursor = Cursor(0)
    in_flight = MessageSpans(cursor)
    in_flight.add(one := span(0, 10))
    in_flight.mark_done(one, cursor.mark(3, 6))
    assert in_flight.withdraw(3, 6) == []
    assert in_flight.count == 7
    assert in_flight.ranges() == ((0, 3), (6, 10))


def test_ranges_merges_neighbours():
    blocked = MessageSpans(Cursor(0))
    for base in (4, 0, 2, 8):
        blocked.add(span(base, base + 2))
    assert blocked.ranges() == ((0, 6), (8, 10))


def test_withdraw_due_returns_due_spans_earliest_first():
    in_flight = MessageSpans(Cursor(0))
    in_flight.add(span(0, 10, time=7.0))
    in_flight.add(span(10, 20, time=5.0))
    in_flight.add(span(20, 30, time=9.0))
    assert in_flight.withdraw_due(4.9) == []
    assert places(in_flight.withdraw_due(7.0)) == [(10, 20, 10), (0, 10, 10)]
    assert in_flight.next_time() == 9.0


def test_withdraw_from_returns_the_spans_of_a_consumer():
    in_flight = MessageSpans(Cursor(0))
    in_flight.add(span(0, 10, consumer=1))
    in_flight.add(span(10, 20, consumer=2))
    assert places(in_flight.withdraw_from(2)) == [(10, 20, 10)]
    assert in_flight.count == 10


def test_limit_times_moves_or_removes_deadlines():
    in_flight = MessageSpans(Cursor(0))
    in_flight.add(span(0, 1, time=5.0))
    in_flight.add(span(1, 2, time=9.0))
    in_flight.add(span(2, 3))
    in_flight.limit_times(7.0)
    assert [each.time for each in in_flight.overlapping(0, 3)] == [5.0, 7.0, 7.0]
    assert len(in_flight.withdraw_due(7.0)) == 3
    in_flight.add(span(0, 1, time=5.0))
    in_flight.limit_times(None)
    assert in_flight.next_time() is None


def test_removed_spans_do_not_accumulate():
    """A span that stays must not keep stale entries of all later ones."""
    cursor = Cursor(0)
    in_flight = MessageSpans(cursor)
    in_flight.add(span(0, 1, time=0.5))
    for base in range(1, 2000):
        in_flight.add(one := span(base, base + 1, time=float(base)))
        in_flight.mark_done(one, cursor.mark(base, base + 1))
    assert len(in_flight._bases) < 100
    assert len(in_flight._deadlines) < 100
    assert in_flight.next_time() == 0.5


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
    assert len(expiries._entries) < 200
    assert expiries.next_time() == 5e9


def test_clear_removes_all_expiring_ranges():
    expiries = Expiries(Cursor(0))
    expiries.add(1.0, 0, 5)
    assert expiries
    expiries.clear()
    assert expiries.next_time() is None
    assert not expiries
