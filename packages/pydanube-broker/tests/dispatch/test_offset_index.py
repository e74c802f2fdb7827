"""Ranges are found by offset, also after others were removed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pydanube_broker.dispatch.offset_index import OffsetIndex


@dataclass
class Numbers:
    base: int
    end: int


@pytest.fixture
def index():
    index = OffsetIndex()
    for base in (20, 0, 10):
        index.insert(Numbers(base, base + 5))
    return index


def bases(ranges):
    return [each.base for each in ranges]


def test_range_is_found_by_offsets_inside_it(index):
    assert index.find_containing(12, 15) == Numbers(10, 15)
    assert index.find_containing(12, 16) is None
    assert index.find_containing(7, 8) is None
    assert bases(index.overlapping(3, 21)) == [0, 10, 20]
    assert index.overlapping(5, 10) == []
    assert (sorted(bases(index)), len(index)) == ([0, 10, 20], 3)


def test_removed_range_may_be_replaced_by_smaller_ones(index):
    index.delete(index.find_containing(10, 11))
    assert index.overlapping(5, 20) == []
    index.insert(Numbers(13, 15))
    index.insert(Numbers(10, 12))
    assert bases(index.overlapping(0, 25)) == [0, 10, 13, 20]


def test_removed_ranges_do_not_accumulate(index):
    for base in range(100, 2000):
        index.insert(Numbers(base, base + 1))
        index.delete(index.find_containing(base, base + 1))
    assert len(index._bases) < 100
    index.clear()
    assert list(index) == []
