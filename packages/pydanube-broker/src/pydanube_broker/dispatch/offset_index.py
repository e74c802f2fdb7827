"""An index of disjoint ranges of messages, by offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

STALE_MAX = 64
"""The number of stale entries that an index may have, however small it is."""


class OffsetRange(Protocol):
    """The messages ``base … end``, and whatever else is known of them."""

    base: int
    end: int


T = TypeVar("T", bound=OffsetRange)


class OffsetIndex(Generic[T]):
    """
    Disjoint ranges by offset.

    Every change takes a binary search.  Removed ranges leave stale entries in the
    sorted list, which is rebuilt when most entries are stale; so removing from the
    front, where most acks fall, moves nothing.
    """

    __slots__ = ("_bases", "_by_base")

    def __init__(self) -> None:
        self._by_base: dict[int, T] = {}
        # Sorted; a superset of the keys of _by_base.  No base of a removed range lies
        # inside an existing one, so only the range at the highest base that is not
        # above an offset can contain it.
        self._bases: list[int] = []

    def insert(self, each: T) -> None:
        """Add a range, which overlaps no other."""
        bases, base = self._bases, each.base
        if not bases or base > bases[-1]:
            bases.append(base)
        else:
            first = bisect_left(bases, base)
            bases[first : bisect_left(bases, each.end, first)] = [base]
        self._by_base[base] = each

    def delete(self, each: T) -> None:
        """Remove a range."""
        by_base = self._by_base
        del by_base[each.base]
        if len(self._bases) > 2 * len(by_base) + STALE_MAX:
            self._bases = [base for base in self._bases if base in by_base]

    def find_containing(self, base: int, end: int) -> T | None:
        """Return the range that contains all of ``base … end``, or None."""
        at = bisect_right(self._bases, base) - 1
        found = self._by_base.get(self._bases[at]) if at >= 0 else None
        return found if found is not None and end <= found.end else None

    def overlapping(self, base: int, end: int) -> list[T]:
        """Return the ranges that overlap ``base … end``, in order."""
        first = max(0, bisect_right(self._bases, base) - 1)
        last = bisect_left(self._bases, end, first)
        found = map(self._by_base.get, self._bases[first:last])
        return [each for each in found if each is not None and base < each.end]

    def clear(self) -> None:
        """Remove all ranges."""
        self._by_base.clear()
        self._bases.clear()

    def __iter__(self) -> Iterator[T]:
        """Yield all ranges, in no particular order."""
        return iter(self._by_base.values())

    def __len__(self) -> int:
        return len(self._by_base)
