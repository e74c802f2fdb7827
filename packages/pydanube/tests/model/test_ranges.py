"""Sets of offsets; tests/properties/test_ranges.py compares them with sets."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from pydanube.model.ranges import RangeSet


def test_touching_ranges_become_one():
    ranges = RangeSet([(0, 2), (4, 6)])
    assert ranges.add(2, 4) == 2
    assert list(ranges) == [(0, 6)]
    assert ranges.count == 6


def test_remove_splits_a_range():
    ranges = RangeSet([(0, 10)])
    assert ranges.remove(3, 5) == 2
    assert list(ranges) == [(0, 3), (5, 10)]


@pytest.mark.parametrize(("base", "end"), [(5, 5), (7, 3)])
def test_empty_range_is_ignored(base, end):
    ranges = RangeSet([(0, 10)])
    assert ranges.add(base, end) == ranges.remove(base, end) == 0
    assert ranges.intersection(base, end) == ranges.gaps(base, end) == []
    assert ranges.first_gap(base, end) is None
    assert list(ranges) == [(0, 10)]


def test_million_successive_offsets_are_one_range():
    ranges = RangeSet((offset, offset + 100) for offset in range(0, 1_000_000, 100))
    assert list(ranges) == [(0, 1_000_000)]


def test_every_offset_of_the_wire_format_fits():
    ranges = RangeSet([(2**64 - 2, 2**64 - 1)])
    assert 2**64 - 2 in ranges
    with pytest.raises(OverflowError):
        ranges.add(0, 2**64)


def test_set_can_be_changed_during_iteration():
    ranges = RangeSet([(0, 1), (5, 6)])
    for base, end in ranges:
        ranges.remove(base, end)
    assert not ranges


def test_refused_range_changes_nothing():
    ranges = RangeSet([(0, 2)])
    with pytest.raises(OverflowError):
        ranges.add(-1, 5)
    with pytest.raises(OverflowError):
        ranges.add_bits(2**64 - 3, 0b1111)
    assert list(ranges) == [(0, 2)]


def test_long_range_replaces_all_ranges_within():
    ranges = RangeSet((offset, offset + 2) for offset in range(0, 300_000, 3))
    assert len(ranges) == 100_000
    assert ranges.add(100, 250_001) == 83_300
    assert len(ranges) == 100_000 - 83_300
    assert ranges.find(5_000) == (99, 250_001)


@pytest.mark.slow
def test_unordered_offsets_take_less_than_a_byte_each():
    offsets = list(range(140_000))
    random.Random(4711).shuffle(offsets)
    tracemalloc.start()
    try:
        ranges = RangeSet()
        for offset in offsets:
            ranges.add(offset, offset + 1)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert list(ranges) == [(0, 140_000)]
    assert peak_bytes < 140_000


@pytest.mark.slow
def test_distant_ranges_take_two_numbers_each():
    bases = list(range(0, 10**8, 10**4))
    random.Random(4711).shuffle(bases)
    tracemalloc.start()
    try:
        ranges = RangeSet((base, base + 100) for base in bases)
        bytes_each = tracemalloc.get_traced_memory()[1] / len(bases)
    finally:
        tracemalloc.stop()
    assert len(ranges) == len(bases)
    assert bytes_each < 2 * 16
