"""
The blocks of a range set: ranges as numbers, or as bits.

A range takes 16 bytes as two numbers, and an offset takes one bit in a bit map.  So
numbers are for few ranges of any length, and bits for many ranges that lie close
together, as those of unordered acks do.  Both kinds of block have the same methods.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from copy import copy

Range = tuple[int, int]
"""``base … end``, half-open."""

RANGES_MAX = 512
"""A sparse block with more ranges is split, or becomes dense."""
SPAN_MAX = 1 << 16
"""The largest span of the offsets of a dense block; 8 KiB."""
SPREAD_DENSE = 128
"""Up to this many offsets for each range, bits take no more than numbers."""
SPREAD_SPARSE = 4 * SPREAD_DENSE
"""Above this, a dense block becomes sparse; in between it stays as it is."""


class Sparse:
    """
    Ranges as two sorted arrays of numbers.

    Adding and removing take a binary search, and move the numbers behind.
    """

    __slots__ = ("_bases", "_ends")

    def __init__(self, bases: array[int], ends: array[int]) -> None:
        """Create a block that owns the arrays."""
        self._bases = bases
        self._ends = ends

    @classmethod
    def of(cls, ranges: Sequence[Range]) -> Sparse:
        """Return the block of *ranges*, which are in order and do not touch."""
        return cls(
            array("Q", [base for base, _ in ranges]),
            array("Q", [end for _, end in ranges]),
        )

    @property
    def first(self) -> int:
        """The lowest offset."""
        return self._bases[0]

    @property
    def end(self) -> int:
        """The end of the highest range."""
        return self._ends[-1]

    @property
    def range_count(self) -> int:
        """The number of ranges."""
        return len(self._bases)

    @property
    def is_dense(self) -> bool:
        """Whether one dense block can hold all ranges and takes no more memory."""
        span = self.end - self.first
        return span <= min(SPAN_MAX, SPREAD_DENSE * self.range_count)

    def fits(self, base: int, end: int) -> bool:
        """Return whether ``base … end`` can be added."""
        return True

    def add(self, base: int, end: int) -> int:
        """Add ``base … end``; return how many of them were not in the block."""
        bases, ends = self._bases, self._ends
        # All ranges that overlap or touch base … end become one.
        first = bisect_left(ends, base)
        last = bisect_right(bases, end, first)
        if first == last:
            bases.insert(first, base)
            ends.insert(first, end)
            return end - base
        had = sum(ends[first:last]) - sum(bases[first:last])
        base, end = min(base, bases[first]), max(end, ends[last - 1])
        bases[first], ends[first] = base, end
        del bases[first + 1 : last], ends[first + 1 : last]
        return end - base - had

    def remove(self, base: int, end: int) -> int:
        """Remove ``base … end``; return how many of them were in the block."""
        bases, ends = self._bases, self._ends
        first = bisect_right(ends, base)
        last = bisect_left(bases, end, first)
        if first == last:
            return 0
        had = sum(ends[first:last]) - sum(bases[first:last])
        kept = [(bases[first], base), (end, ends[last - 1])]
        kept = [each for each in kept if each[0] < each[1]]
        bases[first:last] = array("Q", [kept_base for kept_base, _ in kept])
        ends[first:last] = array("Q", [kept_end for _, kept_end in kept])
        return had - sum(kept_end - kept_base for kept_base, kept_end in kept)

    def count_in(self, base: int, end: int) -> int:
        """Return how many of ``base … end`` are in the block."""
        return sum(
            there_end - there for there, there_end in self.intersection(base, end)
        )

    def find(self, offset: int) -> Range | None:
        """Return the first range that ends after *offset*, or None."""
        at = bisect_right(self._ends, offset)
        return (self._bases[at], self._ends[at]) if at < len(self._ends) else None

    def intersection(self, base: int, end: int) -> list[Range]:
        """Return the parts of ``base … end`` that are in the block, in order."""
        bases, ends = self._bases, self._ends
        first = bisect_right(ends, base)
        last = bisect_left(bases, end, first)
        return [(max(base, bases[at]), min(end, ends[at])) for at in range(first, last)]

    def bits_from(self, base: int) -> int:
        """Return the block as bits; bit 0 is *base*, at most the lowest offset."""
        return bits_of(zip(self._bases, self._ends, strict=True), base)

    def split(self) -> Sparse:
        """Remove and return the upper half."""
        middle = len(self._bases) // 2
        upper = Sparse(self._bases[middle:], self._ends[middle:])
        del self._bases[middle:], self._ends[middle:]
        return upper

    @property
    def byte_count(self) -> int:
        """The approximate memory that the block takes."""
        return 16 * len(self._bases)

    def copy(self) -> Sparse:
        """Return an independent copy."""
        return Sparse(self._bases[:], self._ends[:])

    def append(self, above: Sparse) -> None:
        """Append the ranges of *above*, which lie above those of this block."""
        self._bases += above._bases
        self._ends += above._ends


class Dense:
    """
    Offsets as bits.

    Adding a single offset takes constant time; adding a range takes little more than
    writing its bits.
    """

    __slots__ = ("_bits", "_origin", "end", "first", "range_count")

    def __init__(self, base: int, bits: int) -> None:
        """Create a block of *base* + i for each set bit i; bit 0 must be set."""
        self.first = base
        """The lowest offset."""
        self.end = base + bits.bit_length()
        """The end of the highest range."""
        self.range_count = range_count_of(bits)
        """The number of ranges."""
        self._origin = base
        # One more bit, so that the offset after the last one can be read.
        self._bits = bytearray(bits.to_bytes((bits.bit_length() >> 3) + 1, "little"))

    @classmethod
    def of(cls, ranges: Sequence[Range]) -> Dense:
        """Return the block of *ranges*, which are in order and do not touch."""
        base = ranges[0][0]
        return cls(base, bits_of(ranges, base))

    @property
    def is_dense(self) -> bool:
        """Whether bits take little more memory than numbers."""
        return 8 * len(self._bits) <= SPREAD_SPARSE * self.range_count

    def fits(self, base: int, end: int) -> bool:
        """Return whether ``base … end`` can be added."""
        span = min(SPAN_MAX, SPREAD_SPARSE * self.range_count)
        return self._origin <= base and end - self._origin <= span

    def add(self, base: int, end: int) -> int:
        """Add ``base … end``, which fits; return how many were not in the block."""
        if end - base > 1:
            return self.add_bits(base, (1 << (end - base)) - 1)
        # A single offset, which is the most frequent change.
        if not self.first <= base < self.end:
            self._extend(base, end)
        bits, at = self._bits, base - self._origin
        if bits[at >> 3] >> (at & 7) & 1:
            return 0
        bits[at >> 3] |= 1 << (at & 7)
        after, before = at + 1, at - 1
        self.range_count += 1 - (bits[after >> 3] >> (after & 7) & 1)
        if at:
            self.range_count -= bits[before >> 3] >> (before & 7) & 1
        return 1

    def add_bits(self, base: int, bits: int) -> int:
        """
        Add *base* + i for each set bit i of *bits*; return how many were not there.

        The first and the last bit are set, and both offsets fit.
        """
        self._extend(base, base + bits.bit_length())
        return self._change(base - self._origin, bits, is_set=True)

    def remove(self, base: int, end: int) -> int:
        """Remove ``base … end``; return how many of them were in the block."""
        base, end = max(base, self.first), min(end, self.end)
        if base >= end:
            return 0
        mask = (1 << (end - base)) - 1
        removed = -self._change(base - self._origin, mask, is_set=False)
        if not self.range_count:
            self.first = self.end
        elif base == self.first:
            self.first = self._origin + self._first(end - self._origin, is_set=True)
        elif end == self.end:
            self.end = self._origin + self._last(base - self._origin, is_set=True) + 1
        return removed

    def count_in(self, base: int, end: int) -> int:
        """Return how many of ``base … end`` are in the block."""
        base, end = max(base, self.first), min(end, self.end)
        return self._part(base, end).bit_count() if base < end else 0

    def find(self, offset: int) -> Range | None:
        """Return the first range that ends after *offset*, or None."""
        if offset >= self.end:
            return None
        first = self._first(max(offset, self.first) - self._origin, is_set=True)
        end = self._first(first, is_set=False)
        if first == offset - self._origin:
            first = self._last(first, is_set=False) + 1
        return self._origin + first, self._origin + end

    def intersection(self, base: int, end: int) -> list[Range]:
        """Return the parts of ``base … end`` that are in the block, in order."""
        base, end = max(base, self.first), min(end, self.end)
        return ranges_of_bits(base, self._part(base, end)) if base < end else []

    @property
    def byte_count(self) -> int:
        """The approximate memory that the block takes."""
        return len(self._bits)

    def bits_from(self, base: int) -> int:
        """Return the block as bits; bit 0 is *base*, at most the lowest offset."""
        return self._part(self.first, self.end) << (self.first - base)

    @property
    def bit_map(self) -> BitMap:
        """The block as a bit map."""
        return self._origin, bytes(self._bits)

    def copy(self) -> Dense:
        """Return an independent copy."""
        copied = copy(self)
        copied._bits = self._bits[:]  # noqa: SLF001  # One of its own class.
        return copied

    def _part(self, base: int, end: int) -> int:
        """Return the bits of ``base … end``; bit 0 is *base*."""
        at, stop = base - self._origin, end - self._origin
        part = int.from_bytes(self._bits[at >> 3 : (stop >> 3) + 1], "little")
        return part >> (at & 7) & (1 << (stop - at)) - 1

    def _extend(self, base: int, end: int) -> None:
        """Make room for ``base … end``, whose first and last offset will be set."""
        # One more bit, so that the offset after the last one can be read.
        missing = ((end - self._origin) >> 3) + 1 - len(self._bits)
        if missing > 0:
            self._bits += bytes(missing)
        self.first, self.end = min(base, self.first), max(end, self.end)

    def _change(self, at: int, changed: int, *, is_set: bool) -> int:
        """
        Set or clear the bits that are set in *changed*, whose bit 0 is *at*.

        Return by how much the set bits have grown.
        """
        bits = self._bits
        # Include the bit before and the bit after, which show whether ranges join.
        start, stop = max(0, at - 1) >> 3, ((at + changed.bit_length()) >> 3) + 1
        mask = changed << (at - 8 * start)
        old = int.from_bytes(bits[start:stop], "little")
        new = old | mask if is_set else old & ~mask
        bits[start:stop] = new.to_bytes(stop - start, "little")
        self.range_count += range_count_of(new) - range_count_of(old)
        return new.bit_count() - old.bit_count()

    def _first(self, at: int, *, is_set: bool) -> int:
        """Return the lowest bit from *at* on that is set, or clear; there is one."""
        byte, step, skipped = at >> 3, 8, at & 7
        while True:
            found = int.from_bytes(self._bits[byte : byte + step], "little")
            if not is_set:
                found ^= (1 << 8 * step) - 1
            found >>= skipped
            if found:
                return 8 * byte + skipped + lowest_bit(found)
            byte, step, skipped = byte + step, 4 * step, 0

    def _last(self, at: int, *, is_set: bool) -> int:
        """Return the highest bit below *at* that is set, or clear; -1: none."""
        stop, step = (at + 7) >> 3, 8
        while at > 0:
            start = max(0, stop - step)
            found = int.from_bytes(self._bits[start:stop], "little")
            if not is_set:
                found = ~found
            found &= (1 << (at - 8 * start)) - 1
            if found:
                return 8 * start + found.bit_length() - 1
            at, stop, step = 8 * start, start, 4 * step
        return -1


Block = Sparse | Dense

BitMap = tuple[int, bytes]
"""An offset, and bytes whose bits tell whether it and the following are in the set."""


def ranges_of_bits(base: int, bits: int) -> list[Range]:
    """Return *base* + i for each set bit i, as ranges in order."""
    # One character for each bit, lowest first, because strings are fast to search.
    text = bin(bits)[:1:-1] + "0"
    found = []
    at = text.find("1")
    while at >= 0:
        till = text.find("0", at)
        found.append((base + at, base + till))
        at = text.find("1", till)
    return found


def ranges_of_offsets(offsets: Iterable[int]) -> list[Range]:
    """Return single offsets as ranges, in order."""
    ranges: list[Range] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] >= offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return ranges


def bits_of(ranges: Iterable[Range], base: int) -> int:
    """Return a number whose bit i is set if *base* + i is in one of *ranges*."""
    bits = 0
    for there, end in ranges:
        bits |= (1 << (end - there)) - 1 << (there - base)
    return bits


def range_count_of(bits: int) -> int:
    """Return the number of runs of set bits."""
    return (bits & ~(bits << 1)).bit_count()


def lowest_bit(bits: int) -> int:
    """Return the number of the lowest set bit."""
    return (bits & -bits).bit_length() - 1
