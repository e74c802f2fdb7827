"""Blocks of a range set; tests/properties/test_ranges.py compares sets of them."""

from __future__ import annotations

import pytest

from pydanube.model.range_blocks import (
    RANGES_MAX,
    SPAN_MAX,
    Dense,
    Sparse,
    bits_of,
    range_count_of,
    ranges_of_bits,
)

RANGES = [(10, 12), (20, 21), (22, 30), (1000, 1700), (1702, 1703)]


@pytest.fixture(params=[Sparse.of, Dense.of], ids=["sparse", "dense"])
def block(request):
    return request.param(RANGES)


def listed(block):
    return block.intersection(block.first, block.end)


def test_blocks_contain_the_ranges_they_were_created_with(block):
    assert listed(block) == RANGES
    assert (block.first, block.end, block.range_count) == (10, 1703, len(RANGES))


def test_blocks_find_ranges_from_within_and_between(block):
    found = [block.find(offset) for offset in (0, 11, 12, 21, 25, 1500, 1702, 1703)]
    assert found == [
        (10, 12), (10, 12), (20, 21), (22, 30), (22, 30), (1000, 1700), (1702, 1703),
        None,
    ]  # fmt: skip


def test_blocks_cut_ranges_to_the_requested_bounds(block):
    assert block.intersection(11, 23) == [(11, 12), (20, 21), (22, 23)]
    assert block.intersection(12, 20) == block.intersection(2000, 3000) == []
    assert block.count_in(11, 1001) == 1 + 1 + 8 + 1
    assert block.count_in(0, 10) == block.count_in(1703, 9999) == 0


def test_blocks_join_touching_ranges(block):
    assert block.add(21, 22) == 1
    assert block.add(1690, 1702) == 2
    assert listed(block) == [(10, 12), (20, 30), (1000, 1703)]
    assert block.range_count == 3
    assert block.add(25, 26) == block.add(1000, 1703) == 0
    assert block.range_count == 3


def test_blocks_grow_upwards(block):
    assert block.fits(1800, 1810)
    assert block.add(1800, 1810) == 10
    assert block.add(1900, 1901) == 1
    assert (block.end, block.range_count) == (1901, len(RANGES) + 2)
    assert listed(block) == [*RANGES, (1800, 1810), (1900, 1901)]


def test_blocks_split_and_shorten_ranges(block):
    assert block.remove(24, 26) == 2
    assert block.remove(0, 11) == 1
    assert block.remove(1600, 2000) == 100 + 1
    assert block.remove(12, 20) == block.remove(1703, 1800) == 0
    assert listed(block) == [(11, 12), (20, 21), (22, 24), (26, 30), (1000, 1600)]
    assert (block.first, block.end, block.range_count) == (11, 1600, 5)


def test_blocks_can_become_empty(block):
    assert block.remove(0, 5000) == 2 + 1 + 8 + 700 + 1
    assert block.range_count == 0


def test_blocks_convert_to_bits(block):
    bits = block.bits_from(5)
    assert ranges_of_bits(5, bits) == RANGES
    assert bits_of(RANGES, 5) == bits
    assert range_count_of(bits) == len(RANGES)


def test_add_bits_adds_to_a_dense_block():
    block = Dense.of(RANGES)
    assert block.add_bits(29, bits_of([(29, 31), (40, 45), (1600, 1702)], 29)) == 1 + 7
    assert listed(block) == [(10, 12), (20, 21), (22, 31), (40, 45), (1000, 1703)]
    assert block.range_count == 5
    assert block.add_bits(3000, 0b101) == 2
    assert (block.end, block.range_count) == (3003, 7)


def test_dense_block_refuses_offsets_beyond_its_span():
    block = Dense.of([(offset, offset + 1) for offset in range(1000, 3000, 2)])
    assert not block.fits(999, 1000)
    assert block.fits(1000 + SPAN_MAX - 1, 1000 + SPAN_MAX)
    assert not block.fits(1000 + SPAN_MAX, 1000 + SPAN_MAX + 1)
    few = Dense.of([(0, 1), (2, 3)])
    assert not few.fits(5000, 5001)


@pytest.mark.parametrize(("step", "is_dense"), [(2, True), (100, True), (150, False)])
def test_close_ranges_are_dense(step, is_dense):
    ranges = [(at * step, at * step + 1) for at in range(RANGES_MAX)]
    assert Sparse.of(ranges).is_dense == is_dense


def test_dense_block_with_few_ranges_is_not_dense():
    block = Dense.of([(offset, offset + 1) for offset in range(0, 10_000, 20)])
    block.remove(20, 8_000)
    assert block.is_dense
    block.remove(20, 9_700)
    assert not block.is_dense


def test_sparse_block_can_be_split_and_appended():
    lower = Sparse.of(RANGES)
    upper = lower.split()
    assert listed(lower) + listed(upper) == RANGES
    lower.append(upper)
    assert listed(lower) == RANGES
