"""The cursor advances over done messages, and keeps the done ranges above it."""

from __future__ import annotations

from pydanube.model.ranges import RangeSet
from pydanube_broker.dispatch.cursor import Cursor


def test_a_note_is_that_of_the_offset_at_which_it_was_set():
    cursor = Cursor(3, note="a")
    assert cursor.note == "a"
    cursor.note = "b"
    cursor.mark(4, 5)
    assert cursor.note == "b"
    cursor.mark(3, 4)
    assert cursor.note == ""


def test_cursor_advances_only_over_a_prefix():
    cursor = Cursor(0)
    assert cursor.mark(2, 4) == 2
    assert (cursor.offset, list(cursor.done)) == (0, [(2, 4)])
    assert cursor.mark(0, 2) == 2
    assert (cursor.offset, list(cursor.done)) == (4, [])


def test_marking_twice_counts_once():
    cursor = Cursor(5)
    assert cursor.mark(0, 5) == 0
    assert cursor.mark(7, 9) == 2
    assert cursor.mark(6, 10) == 2
    assert cursor.mark(0, 20) == 11
    assert cursor.offset == 20


def test_mark_bits_marks_many_ranges():
    cursor = Cursor(5)
    assert cursor.mark_bits(0, 0b1010_1100_0000) == 4
    assert (cursor.offset, list(cursor.done)) == (5, [(6, 8), (9, 10), (11, 12)])
    assert cursor.mark_bits(5, 0b1) == 1
    assert cursor.mark_bits(5, 0b1001_1000) == 2
    assert (cursor.offset, list(cursor.done)) == (10, [(11, 13)])


def test_done_ranges_below_the_offset_are_dropped():
    cursor = Cursor(5, RangeSet([(1, 3), (4, 7), (9, 10)]))
    assert (cursor.offset, list(cursor.done)) == (7, [(9, 10)])


def test_seek_drops_the_done_ranges():
    cursor = Cursor(5, RangeSet([(7, 9)]))
    assert cursor.seek(5)
    assert (cursor.offset, list(cursor.done)) == (5, [])
    assert not cursor.seek(5)
    assert cursor.seek(2)
    assert cursor.offset == 2


def test_end_of_open_skips_done_messages():
    cursor = Cursor(5, RangeSet([(7, 9), (12, 20)]))
    ends = [cursor.end_of_open(count, 100) for count in (0, 1, 2, 3, 5, 6)]
    assert ends == [5, 6, 7, 10, 12, 21]
    assert cursor.end_of_open(6, 15) == 12
    assert cursor.end_of_open(1000, 100) == 100
    assert cursor.end_of_open(3, 0) == 5


def test_open_messages_are_those_not_done():
    cursor = Cursor(5, RangeSet([(7, 9), (12, 20)]))
    assert cursor.open_count(0, 15) == 2 + 3
    assert cursor.open_count(0, 5) == 0
    assert cursor.first_open(0, 15) == (5, 7)
    assert cursor.first_open(7, 15) == (9, 12)
    assert cursor.first_open(13, 20) is None
    assert [cursor.skip_done(offset) for offset in (0, 6, 7, 11, 12, 20, 25)] == [
        5, 6, 9, 11, 20, 20, 25,
    ]  # fmt: skip


def test_backlog_counts_open_messages_below_the_end():
    cursor = Cursor(5, RangeSet([(7, 9)]))
    assert cursor.backlog(10) == 3
    assert cursor.backlog(3) == 0


def test_repr_shows_offset_and_done_ranges():
    assert repr(Cursor(5, RangeSet([(7, 9)]))) == "Cursor(5, RangeSet([(7, 9)]))"
