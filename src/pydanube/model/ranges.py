"""Sets of offsets, kept as half-open ranges so that a million are a few numbers."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""``base … end``, half-open."""


class RangeSet:
    """
    A set of offsets as sorted, disjoint, non-touching ranges.

    Adding and removing cost a binary search and the move of what lies behind,
    whatever the size of the range.  A range takes 16 bytes, so offsets are at
    most 2**64 - 1 and never negative.
    """

    __slots__ = ("_bases", "_count", "_ends")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._bases = array("Q")
        self._ends = array("Q")
        self._count = 0
        for base, end in ranges:
            self.add(base, end)

    def add(self, base: int, end: int) -> int:
        """Put ``base … end`` in; return how many of them were not there before."""
        if base >= end:
            return 0
        bases, ends = self._bases, self._ends
        # Everything that overlaps or touches base … end becomes one range.
        first = bisect_left(ends, base)
        last = bisect_right(bases, end, first)
        if first == last:
            bases.insert(first, base)
            ends.insert(first, end)
            self._count += end - base
            return end - base
        had = sum(ends[first:last]) - sum(bases[first:last])
        base, end = min(base, bases[first]), max(end, ends[last - 1])
        bases[first], ends[first] = base, end
        del bases[first + 1 : last], ends[first + 1 : last]
        self._count += end - base - had
        return end - base - had

    def remove(self, base: int, end: int) -> int:
        """Take ``base … end`` out; return how many of them had been there."""
        bases, ends = self._bases, self._ends
        first = bisect_right(ends, base)
        last = bisect_left(bases, end, first)
        if base >= end or first == last:
            return 0
        had = sum(ends[first:last]) - sum(bases[first:last])
        kept = [(bases[first], base), (end, ends[last - 1])]
        kept = [
            (kept_base, kept_end)
            for kept_base, kept_end in kept
            if kept_base < kept_end
        ]
        bases[first:last] = array("Q", [kept_base for kept_base, _ in kept])
        ends[first:last] = array("Q", [kept_end for _, kept_end in kept])
        removed = had - sum(kept_end - kept_base for kept_base, kept_end in kept)
        self._count -= removed
        return removed

    def remove_below(self, end: int) -> int:
        """Take out everything smaller than *end*."""
        return self.remove(self._bases[0], end) if self._bases else 0

    def intersection(self, base: int, end: int) -> list[Range]:
        """The parts of ``base … end`` that are in the set, in order."""
        if base >= end:
            return []
        first = bisect_right(self._ends, base)
        last = bisect_left(self._bases, end, first)
        return [
            (max(base, self._bases[at]), min(end, self._ends[at]))
            for at in range(first, last)
        ]

    def gaps(self, base: int, end: int) -> list[Range]:
        """The parts of ``base … end`` that are not in the set, in order."""
        found: list[Range] = []
        for there, there_end in self.intersection(base, end):
            if base < there:
                found.append((base, there))
            base = there_end
        if base < end:
            found.append((base, end))
        return found

    def first_gap(self, base: int, end: int) -> Range | None:
        """The first of gaps(), or None if all of ``base … end`` is in the set."""
        at = bisect_right(self._bases, base)
        if at and self._ends[at - 1] > base:
            base = self._ends[at - 1]
        if base >= end:
            return None
        return base, min(end, self._bases[at]) if at < len(self._bases) else end

    def first(self) -> Range | None:
        """The lowest range, or None if the set is empty."""
        return (self._bases[0], self._ends[0]) if self._bases else None

    def last(self) -> Range | None:
        """The highest range, or None if the set is empty."""
        return (self._bases[-1], self._ends[-1]) if self._bases else None

    @property
    def count(self) -> int:
        """How many integers are in the set."""
        return self._count

    def clear(self) -> None:
        """Take everything out."""
        del self._bases[:], self._ends[:]
        self._count = 0

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._bases, self._ends, strict=True)))

    def __len__(self) -> int:
        """How many ranges the set consists of."""
        return len(self._bases)

    def __bool__(self) -> bool:
        return bool(self._bases)

    def __contains__(self, item: int) -> bool:
        at = bisect_right(self._bases, item) - 1
        return at >= 0 and item < self._ends[at]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RangeSet)
            and self._bases == other._bases
            and self._ends == other._ends
        )

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"
