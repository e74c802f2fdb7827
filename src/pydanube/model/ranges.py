"""Sets of offsets, kept as half-open ranges so that a million are a few numbers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""``base … end``, half-open."""


class RangeSet:
    """
    A set of integers as sorted, disjoint, non-touching ranges.

    Adding and removing cost a binary search and a list insertion, whatever the
    size of the range.
    """

    __slots__ = ("_bases", "_count", "_ends")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._bases: list[int] = []
        self._ends: list[int] = []
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
        last = bisect_right(bases, end)
        had = 0
        if first < last:
            had = sum(map(_overlap, bases[first:last], ends[first:last],
                          (base,) * (last - first), (end,) * (last - first)))
            merged = min(base, bases[first]), max(end, ends[last - 1])
        else:
            merged = base, end
        bases[first:last] = [merged[0]]
        ends[first:last] = [merged[1]]
        added = end - base - had
        self._count += added
        return added

    def remove(self, base: int, end: int) -> int:
        """Take ``base … end`` out; return how many of them had been there."""
        if base >= end:
            return 0
        bases, ends = self._bases, self._ends
        first = bisect_right(ends, base)
        last = bisect_left(bases, end)
        if first >= last:
            return 0
        removed = sum(map(_overlap, bases[first:last], ends[first:last],
                          (base,) * (last - first), (end,) * (last - first)))
        kept = [(bases[first], base), (end, ends[last - 1])]
        kept = [(b, e) for b, e in kept if b < e]
        bases[first:last] = [b for b, _ in kept]
        ends[first:last] = [e for _, e in kept]
        self._count -= removed
        return removed

    def remove_below(self, end: int) -> int:
        """Take out everything smaller than *end*."""
        return self.remove(self._bases[0], end) if self._bases else 0

    def intersection(self, base: int, end: int) -> list[Range]:
        """The parts of ``base … end`` that are in the set, in order."""
        first = bisect_right(self._ends, base)
        last = bisect_left(self._bases, end)
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
        self._bases.clear()
        self._ends.clear()
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
        return isinstance(other, RangeSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"


def _overlap(a_base: int, a_end: int, b_base: int, b_end: int) -> int:
    return max(0, min(a_end, b_end) - max(a_base, b_base))
