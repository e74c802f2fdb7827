"""Sets of offsets; tests/properties/test_ranges.py compares them with sets."""

from __future__ import annotations

import pytest

from pydanube.model.ranges import RangeSet


def test_ranges_that_touch_become_one():
    ranges = RangeSet([(0, 2), (4, 6)])
    assert ranges.add(2, 4) == 2
    assert list(ranges) == [(0, 6)]
    assert ranges.count == 6


def test_a_range_is_cut_in_two():
    ranges = RangeSet([(0, 10)])
    assert ranges.remove(3, 5) == 2
    assert list(ranges) == [(0, 3), (5, 10)]


@pytest.mark.parametrize(("base", "end"), [(5, 5), (7, 3)])
def test_an_empty_range_is_nothing(base, end):
    ranges = RangeSet([(0, 10)])
    assert ranges.add(base, end) == ranges.remove(base, end) == 0
    assert ranges.intersection(base, end) == ranges.gaps(base, end) == []
    assert ranges.first_gap(base, end) is None
    assert list(ranges) == [(0, 10)]


def test_a_million_offsets_are_two_numbers():
    ranges = RangeSet((offset, offset + 100) for offset in range(0, 1_000_000, 100))
    assert list(ranges) == [(0, 1_000_000)]


def test_every_offset_of_the_wire_format_fits():
    ranges = RangeSet([(2**64 - 2, 2**64 - 1)])
    assert 2**64 - 2 in ranges
    with pytest.raises(OverflowError):
        ranges.add(0, 2**64)


def test_a_set_can_be_changed_while_it_is_read():
    ranges = RangeSet([(0, 1), (5, 6)])
    for base, end in ranges:
        ranges.remove(base, end)
    assert not ranges
