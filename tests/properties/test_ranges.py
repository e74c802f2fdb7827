"""RangeSet compared with a set of integers."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pydanube.model.ranges import RangeSet

small = st.integers(0, 60)
changes = st.lists(st.tuples(st.sampled_from(["add", "remove"]), small, small))


def built(steps):
    """Return the range set and the plain set that result from *steps*."""
    ranges, plain = RangeSet(), set()
    for change, base, end in steps:
        if change == "add":
            ranges.add(base, end)
            plain |= set(range(base, end))
        else:
            ranges.remove(base, end)
            plain -= set(range(base, end))
    return ranges, plain


def members(ranges):
    return {offset for base, end in ranges for offset in range(base, end)}


@given(changes)
@settings(max_examples=3 * settings.default.max_examples)
def test_range_set_contains_the_same_as_a_set_in_the_fewest_ranges(steps):
    ranges, plain = built(steps)
    assert members(ranges) == plain
    assert ranges.count == len(plain)
    assert len(ranges) == sum(offset - 1 not in plain for offset in plain)
    assert bool(ranges) == bool(plain)
    listed = list(ranges)
    assert listed == sorted(listed)
    assert ranges.first() == (listed[0] if listed else None)
    assert ranges.last() == (listed[-1] if listed else None)
    assert [offset in ranges for offset in range(62)] == [
        offset in plain for offset in range(62)
    ]


@given(changes, small, small)
def test_add_and_remove_count_what_they_change(steps, base, end):
    ranges, plain = built(steps)
    assert ranges.add(base, end) == len(set(range(base, end)) - plain)
    ranges, plain = built(steps)
    assert ranges.remove(base, end) == len(set(range(base, end)) & plain)
    ranges, plain = built(steps)
    assert ranges.remove(0, end) == len(set(range(end)) & plain)
    assert members(ranges) == plain - set(range(end))


@given(changes, small)
def test_take_through_ends_at_the_first_gap(steps, offset):
    ranges, plain = built(steps)
    through = ranges.take_through(offset)
    assert plain.issuperset(range(offset, through))
    assert through not in plain
    assert members(ranges) == {each for each in plain if each > through}


@given(changes, small, small)
def test_intersection_and_gaps_divide_a_range(steps, base, end):
    ranges, plain = built(steps)
    inside, gaps = ranges.intersection(base, end), ranges.gaps(base, end)
    assert members(inside) == set(range(base, end)) & plain
    assert members(gaps) == set(range(base, end)) - plain
    assert all(there < there_end for there, there_end in inside + gaps)
    assert ranges.first_gap(base, end) == (gaps[0] if gaps else None)
    assert ranges.count_in(base, end) == len(set(range(base, end)) & plain)


@given(changes)
def test_equality_does_not_depend_on_the_order_of_changes(steps):
    ranges, plain = built(steps)
    again = RangeSet((offset, offset + 1) for offset in sorted(plain, reverse=True))
    assert ranges == again
    assert repr(ranges) == repr(again)
    again.add(100, 101)
    assert ranges != again
    again.remove(0, 101)
    assert again == RangeSet()
    assert again.count == 0


FAR = 60_000
far = st.integers(0, FAR)
seeds = st.integers(0, 1000)
steps = st.sampled_from([2, 3, 20, 80, 150])


class ManyRanges(RuleBasedStateMachine):
    """
    Enough changes at a time to split and merge blocks.

    In the range set each offset of the plain set is *scale* offsets.
    """

    scale: int

    def __init__(self):
        super().__init__()
        self.ranges, self.plain = RangeSet(), set()

    @rule(
        base=far, count=st.integers(1, 2500), step=steps, width=st.sampled_from([1, 9])
    )
    def comb(self, base, count, step, width):
        for offset in range(base, min(FAR, base + count * step), step):
            self.change(offset, offset + min(width, step - 1), is_added=True)

    @rule(base=far, count=st.integers(1, 2500), step=steps)
    def comb_out(self, base, count, step):
        for offset in range(base, min(FAR, base + count * step), step):
            self.change(offset, offset + 1, is_added=False)

    @rule(base=far, seed=seeds, count=st.integers(1, 3000), closeness=st.integers(0, 6))
    def bits(self, base, seed, count, closeness):
        rng = random.Random(seed)
        bits = rng.getrandbits(count)
        for _ in range(closeness):
            bits &= rng.getrandbits(count)
        offsets = {base + at for at in range(count) if bits >> at & 1}
        scaled = "".join(bit * self.scale for bit in f"{bits:b}")
        added = self.ranges.add_bits(base * self.scale, int(scaled, 2))
        assert added == len(offsets - self.plain) * self.scale
        self.plain |= offsets

    @rule(base=far, end=far, is_added=st.booleans())
    def one_range(self, base, end, is_added):
        self.change(base, end, is_added=is_added)

    @rule(base=far, end=far, seed=seeds)
    def single_offsets_in_no_order(self, base, end, seed):
        rng = random.Random(seed)
        for _ in range(2000 if base < end else 0):
            offset = rng.randrange(base, end)
            self.change(offset, offset + 1, is_added=rng.random() < 0.8)

    @rule(seed=seeds, base=far, end=far, left_over=st.integers(0, 100))
    def gaps_close_in_no_order(self, seed, base, end, left_over):
        gaps = self.gaps(base, end)
        random.Random(seed).shuffle(gaps)
        for gap in gaps[left_over:]:
            self.change(*gap, is_added=True)

    @rule(seed=seeds, base=far, end=far, left_over=st.integers(0, 100))
    def ranges_vanish_in_no_order(self, seed, base, end, left_over):
        there = self.intersection(base, end)
        random.Random(seed).shuffle(there)
        for each in there[left_over:]:
            self.change(*each, is_added=False)

    @rule(base=far, end=far)
    def look(self, base, end):
        inside = self.plain.intersection(range(base, end))
        assert members(self.intersection(base, end)) == inside
        scale = self.scale
        assert self.ranges.count_in(base * scale, end * scale) == len(inside) * scale
        gap = self.ranges.first_gap(base * scale, end * scale)
        gaps = self.gaps(base, end)
        assert (gap and unscaled([gap], scale)) == (gaps[:1] or None)
        assert (base * scale in self.ranges) == (base in self.plain)

    @rule(offset=far)
    def take_through(self, offset):
        through = self.ranges.take_through(offset * self.scale) // self.scale
        assert self.plain.issuperset(range(offset, through))
        self.plain -= set(range(through))
        assert through not in self.plain

    @invariant()
    def is_the_same_set(self):
        listed = unscaled(self.ranges, self.scale)
        assert all(below[1] < above[0] for below, above in pairwise(listed))
        assert members(listed) == self.plain
        assert self.ranges.count == len(self.plain) * self.scale
        assert len(self.ranges) == len(listed)
        ends = [each for each in (self.ranges.first(), self.ranges.last()) if each]
        assert unscaled(ends, self.scale) == listed[:1] + listed[-1:]

    @invariant()
    def parts_are_the_whole(self):
        ranges, bit_maps = self.ranges.parts()
        together = RangeSet(ranges)
        for origin, bits in bit_maps:
            number = int.from_bytes(bits, "little")
            assert together.add_bits(origin, number) == number.bit_count()
        assert together == self.ranges
        assert self.ranges.byte_count <= 64 * len(self.ranges) + 64

    @rule()
    def a_copy_is_one_of_its_own(self):
        copied = self.ranges.copy()
        assert copied == self.ranges
        self.ranges.remove(0, 2**63)
        self.ranges = copied

    def change(self, base, end, *, is_added):
        offsets, scale = set(range(base, end)), self.scale
        if is_added:
            added = self.ranges.add(base * scale, end * scale)
            assert added == len(offsets - self.plain) * scale
            self.plain |= offsets
        else:
            removed = self.ranges.remove(base * scale, end * scale)
            assert removed == len(offsets & self.plain) * scale
            self.plain -= offsets

    def intersection(self, base, end):
        scale = self.scale
        return unscaled(self.ranges.intersection(base * scale, end * scale), scale)

    def gaps(self, base, end):
        scale = self.scale
        return unscaled(self.ranges.gaps(base * scale, end * scale), scale)


def unscaled(ranges, scale):
    assert all(offset % scale == 0 for each in ranges for offset in each)
    return [(base // scale, end // scale) for base, end in ranges]


class CloseRanges(ManyRanges):
    """Offsets for which blocks become dense, and sparse again."""

    scale = 1


class FarRanges(ManyRanges):
    """Offsets for which blocks stay sparse."""

    scale = 200


_SETTINGS = settings(
    max_examples=settings.default.max_examples // 2, stateful_step_count=20
)

TestCloseRanges = pytest.mark.slow(CloseRanges.TestCase)
TestCloseRanges.settings = _SETTINGS
TestFarRanges = pytest.mark.slow(FarRanges.TestCase)
TestFarRanges.settings = _SETTINGS
