"""
What a range set is made of: a block of ranges as numbers, or as bits.

A range takes 16 bytes as two numbers, and an offset takes one bit in a bit map.  So
numbers are for few ranges of any length, and bits for many that lie close together,
as acknowledgements in no order do.  Both kinds of block answer the same calls.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydanube.model.ranges import Range

RANGES_MAX = 512
"""A block of numbers that grows beyond this is split, or becomes one of bits."""
SPAN_MAX = 1 << 16
"""How far the offsets of one block of bits may lie apart; 8 KiB."""
SPREAD_DENSE = 128
"""Up to so many offsets for each range, bits take no more than numbers."""
SPREAD_SPARSE = 4 * SPREAD_DENSE
"""From so many on, bits become numbers again; in between a block stays what it is."""


class Sparse:
    """
    Ranges as two sorted arrays of numbers.

    Adding and removing cost a binary search and the move of what lies behind.
    """

    __slots__ = ("_bases", "_ends")

    def __init__(self, bases: array[int], ends: array[int]) -> None:
        """The arrays, which the block keeps, may be empty only for a moment."""
        self._bases = bases
        self._ends = ends

    @classmethod
    def of(cls, ranges: Sequence[Range]) -> Sparse:
        """The block of *ranges*, which are in order and do not touch."""
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
        """How many ranges there are."""
        return len(self._bases)

    @property
    def is_dense(self) -> bool:
        """Whether bits would take no more room, and one block of them holds all."""
        span = self.end - self.first
        return span <= min(SPAN_MAX, SPREAD_DENSE * self.range_count)

    def fits(self, base: int, end: int) -> bool:
        """Whether ``base … end`` can be put in."""
        return True

    def add(self, base: int, end: int) -> int:
        """Put ``base … end`` in; return how many of them were not there before."""
        bases, ends = self._bases, self._ends
        # Everything that overlaps or touches base … end becomes one range.
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
        """Take ``base … end`` out; return how many of them had been there."""
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
        """How many of ``base … end`` are there."""
        return sum(
            there_end - there for there, there_end in self.intersection(base, end)
        )

    def find(self, offset: int) -> Range | None:
        """The first range that ends after *offset*, if there is one."""
        at = bisect_right(self._ends, offset)
        return (self._bases[at], self._ends[at]) if at < len(self._ends) else None

    def intersection(self, base: int, end: int) -> list[Range]:
        """The parts of ``base … end`` that are there, in order."""
        bases, ends = self._bases, self._ends
        first = bisect_right(ends, base)
        last = bisect_left(bases, end, first)
        return [(max(base, bases[at]), min(end, ends[at])) for at in range(first, last)]

    def bits_from(self, base: int) -> int:
        """What is there as bits, that of *base*, the lowest offset or less, first."""
        return bits_of(zip(self._bases, self._ends, strict=True), base)

    def split(self) -> Sparse:
        """Give the upper half away."""
        middle = len(self._bases) // 2
        upper = Sparse(self._bases[middle:], self._ends[middle:])
        del self._bases[middle:], self._ends[middle:]
        return upper

    @property
    def byte_count(self) -> int:
        """About how much memory it takes."""
        return 16 * len(self._bases)

    def copy(self) -> Sparse:
        """An equal block of its own."""
        return Sparse(self._bases[:], self._ends[:])

    def append(self, above: Sparse) -> None:
        """Take in what *above* holds, which lies above all that is here."""
        self._bases += above._bases
        self._ends += above._ends


class Dense:
    """
    Offsets as bits.

    A single offset costs the same wherever it falls; a range costs little more
    than its length in bytes.
    """

    __slots__ = ("_bits", "_origin", "end", "first", "range_count")

    def __init__(self, base: int, bits: int) -> None:
        """The block of *base* + i for each bit i that is set; the lowest one is."""
        self.first = base
        """The lowest offset."""
        self.end = base + bits.bit_length()
        """The end of the highest range."""
        self.range_count = range_count_of(bits)
        """How many ranges there are."""
        self._origin = base
        # A little more, so that the offset after the last one can be looked at.
        self._bits = bytearray(bits.to_bytes((bits.bit_length() >> 3) + 1, "little"))

    @classmethod
    def of(cls, ranges: Sequence[Range]) -> Dense:
        """The block of *ranges*, which are in order and do not touch."""
        base = ranges[0][0]
        return cls(base, bits_of(ranges, base))

    @property
    def is_dense(self) -> bool:
        """Whether bits still take little more room than numbers."""
        return 8 * len(self._bits) <= SPREAD_SPARSE * self.range_count

    def fits(self, base: int, end: int) -> bool:
        """Whether ``base … end`` can be put in."""
        span = min(SPAN_MAX, SPREAD_SPARSE * self.range_count)
        return self._origin <= base and end - self._origin <= span

    def add(self, base: int, end: int) -> int:
        """Put ``base … end``, which fits, in; return how many were not there before."""
        bits, at = self._bits, base - self._origin
        missing = (end - self._origin >> 3) + 1 - len(bits)
        if missing > 0:
            bits += bytes(missing)
        # For every single offset: a comparison costs less than a call.
        if base < self.first:  # noqa: PLR1730
            self.first = base
        if end > self.end:  # noqa: PLR1730
            self.end = end
        if end - base > 1:
            return self._set(at, end - base)
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
        Put in *base* and what follows, as far as *bits* says so, the lowest for *base*.

        Base and end of it fit, and are set; returns how many were not there before.
        """
        count = bits.bit_length()
        added = self.add(base, base + 1)
        added += self.add(base + count - 1, base + count)
        at = base - self._origin
        start, stop = at >> 3, (at + count >> 3) + 1
        old = int.from_bytes(self._bits[start:stop], "little")
        new = old | bits << (at & 7)
        self._bits[start:stop] = new.to_bytes(stop - start, "little")
        # The bits before and after are set already, or lie inside.
        self.range_count += range_count_of(new) - range_count_of(old)
        return added + new.bit_count() - old.bit_count()

    def remove(self, base: int, end: int) -> int:
        """Take ``base … end`` out; return how many of them had been there."""
        base, end = max(base, self.first), min(end, self.end)
        if base >= end:
            return 0
        removed = self._clear(base - self._origin, end - base)
        if not self.range_count:
            self.first = self.end
        elif base == self.first:
            self.first = self._origin + self._first_set(end - self._origin)
        elif end == self.end:
            self.end = self._origin + self._last_set(base - self._origin) + 1
        return removed

    def count_in(self, base: int, end: int) -> int:
        """How many of ``base … end`` are there."""
        base, end = max(base, self.first), min(end, self.end)
        return self._part(base, end).bit_count() if base < end else 0

    def find(self, offset: int) -> Range | None:
        """The first range that ends after *offset*, if there is one."""
        if offset >= self.end:
            return None
        first = self._first_set(max(offset, self.first) - self._origin)
        end = self._first_clear(first)
        if first == offset - self._origin:
            first = self._last_clear(first) + 1
        return self._origin + first, self._origin + end

    def intersection(self, base: int, end: int) -> list[Range]:
        """The parts of ``base … end`` that are there, in order."""
        base, end = max(base, self.first), min(end, self.end)
        return ranges_of_bits(base, self._part(base, end)) if base < end else []

    @property
    def byte_count(self) -> int:
        """About how much memory it takes."""
        return len(self._bits)

    def bits_from(self, base: int) -> int:
        """What is there as bits, that of *base*, the lowest offset or less, first."""
        return self._part(self.first, self.end) << (self.first - base)

    @property
    def bit_map(self) -> BitMap:
        """Its offsets as a bit map."""
        return self._origin, bytes(self._bits)

    def copy(self) -> Dense:
        """An equal block of its own."""
        copied = copy(self)
        copied._bits = self._bits[:]  # noqa: SLF001  # One of its own class.
        return copied

    def _part(self, base: int, end: int) -> int:
        """The bits of ``base … end``, the lowest one first."""
        at, stop = base - self._origin, end - self._origin
        part = int.from_bytes(self._bits[at >> 3 : (stop >> 3) + 1], "little")
        return part >> (at & 7) & (1 << (stop - at)) - 1

    def _set(self, at: int, count: int) -> int:
        old, new = self._change(at, count, 1)
        return new.bit_count() - old.bit_count()

    def _clear(self, at: int, count: int) -> int:
        old, new = self._change(at, count, 0)
        return old.bit_count() - new.bit_count()

    def _change(self, at: int, count: int, value: int) -> tuple[int, int]:
        """Set *count* bits to *value*; return bits around them, before and after."""
        bits = self._bits
        # With the bit before and the one after, which tell how ranges join.
        start, stop = max(0, at - 1) >> 3, (at + count >> 3) + 1
        mask = (1 << count) - 1 << (at - 8 * start)
        old = int.from_bytes(bits[start:stop], "little")
        new = old | mask if value else old & ~mask
        bits[start:stop] = new.to_bytes(stop - start, "little")
        self.range_count += range_count_of(new) - range_count_of(old)
        return old, new

    def _first_set(self, at: int) -> int:
        """The lowest bit from *at* on that is set; there is one."""
        bits, byte, step = self._bits, at >> 3, 8
        found = int.from_bytes(bits[byte : byte + step], "little") >> (at & 7)
        if found:
            return at + _lowest(found)
        while not found:
            byte += step
            step *= 4
            found = int.from_bytes(bits[byte : byte + step], "little")
        return 8 * byte + _lowest(found)

    def _first_clear(self, at: int) -> int:
        """The lowest bit from *at* on that is not set; there is one."""
        bits, byte, step = self._bits, at >> 3, 8
        found = ~int.from_bytes(bits[byte : byte + step], "little") >> (at & 7)
        # Bits that are not there are not set, so the lowest one found may lie
        # behind the window; then the next window decides.
        while at + _lowest(found) >= 8 * (byte + step):
            byte += step
            step *= 4
            at = 8 * byte
            found = ~int.from_bytes(bits[byte : byte + step], "little")
        return at + _lowest(found)

    def _last_set(self, at: int) -> int:
        """The highest bit below *at* that is set; there is one."""
        stop, step = (at + 7) >> 3, 8
        start = max(0, stop - step)
        found = int.from_bytes(self._bits[start:stop], "little")
        found &= (1 << (at - 8 * start)) - 1
        while not found:
            stop, step = start, 4 * step
            start = max(0, stop - step)
            found = int.from_bytes(self._bits[start:stop], "little")
        return 8 * start + found.bit_length() - 1

    def _last_clear(self, at: int) -> int:
        """The highest bit below *at* that is not set, or -1."""
        stop, step = (at + 7) >> 3, 8
        limit = at
        while limit > 0:
            start = max(0, stop - step)
            ones = (1 << (limit - 8 * start)) - 1
            found = int.from_bytes(self._bits[start:stop], "little") & ones ^ ones
            if found:
                return 8 * start + found.bit_length() - 1
            stop, step, limit = start, 4 * step, 8 * start
        return -1


Block = Sparse | Dense

BitMap = tuple[int, bytes]
"""An offset, and bytes whose bits say of it and of what follows whether it is there."""


def ranges_of(bit_map: BitMap) -> list[Range]:
    """What is in the bit map, in order."""
    base, bits = bit_map
    return ranges_of_bits(base, int.from_bytes(bits, "little"))


def ranges_of_bits(base: int, bits: int) -> list[Range]:
    """*base* + i for each bit i that is set, as ranges in order."""
    # A character for each bit, lowest first, because strings can be searched.
    text = bin(bits)[:1:-1] + "0"
    found = []
    at = text.find("1")
    while at >= 0:
        till = text.find("0", at)
        found.append((base + at, base + till))
        at = text.find("1", till)
    return found


def bits_of(ranges: Iterable[Range], base: int) -> int:
    """A number whose bit i says whether *base* + i is in one of *ranges*."""
    bits = 0
    for there, end in ranges:
        bits |= (1 << (end - there)) - 1 << (there - base)
    return bits


def range_count_of(bits: int) -> int:
    """How many runs of bits are set: those bits whose lower neighbour is not."""
    return (bits & ~(bits << 1)).bit_count()


def _lowest(bits: int) -> int:
    """The number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
