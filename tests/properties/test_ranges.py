"""RangeSet against what it stands for: a set of integers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.ranges import RangeSet

small = st.integers(0, 60)
changes = st.lists(st.tuples(st.sampled_from(["add", "remove"]), small, small))


def built(steps):
    """The range set and the plain set that *steps* make."""
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
@settings(max_examples=300)
def test_holds_what_a_set_holds_in_the_fewest_ranges(steps):
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
    assert ranges.remove_below(end) == len(set(range(end)) & plain)
    assert members(ranges) == plain - set(range(end))


@given(changes, small, small)
def test_intersection_and_gaps_divide_a_range(steps, base, end):
    ranges, plain = built(steps)
    inside, gaps = ranges.intersection(base, end), ranges.gaps(base, end)
    assert members(inside) == set(range(base, end)) & plain
    assert members(gaps) == set(range(base, end)) - plain
    assert all(there < there_end for there, there_end in inside + gaps)
    assert ranges.first_gap(base, end) == (gaps[0] if gaps else None)


@given(changes)
def test_equal_sets_are_equal_however_they_came_about(steps):
    ranges, plain = built(steps)
    again = RangeSet((offset, offset + 1) for offset in sorted(plain, reverse=True))
    assert ranges == again
    assert repr(ranges) == repr(again)
    again.add(100, 101)
    assert ranges != again
    again.clear()
    assert again == RangeSet()
    assert again.count == 0
