"""Sets of offsets, stored as half-open ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from pydanube.model.range_blocks import (
    RANGES_MAX,
    SPAN_MAX,
    SPREAD_DENSE,
    BitMap,
    Block,
    Dense,
    Range,
    Sparse,
    lowest_bit,
    range_count_of,
    ranges_of_bits,
)

__all__ = ["Range", "RangeSet"]

_RANGES_MIN = RANGES_MAX // 8
_BITS_RANGES_MIN = 8
_OFFSET_MAX = 2**64 - 1


class RangeSet:
    """
    A set of offsets as sorted, disjoint, non-touching ranges.

    Changes and queries take a few microseconds for any number of ranges; methods that
    return many ranges take time for each.  A range takes 16 bytes.  Where ranges lie so
    close together that one bit for each offset takes less, they are stored as bits; so
    a million offsets, added in any order, take at most about 200 KiB.

    Offsets are at most 2**64 - 1 and never negative.
    """

    # The blocks are in order, none is empty, and ranges of different blocks never
    # touch; so a range lies entirely in one block.
    __slots__ = ("_blocks", "_ends", "_firsts", "_range_count", "count")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._blocks: list[Block] = []
        # The lowest offset of each block, and the end of its highest range.
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self.count = 0
        """The number of offsets in the set."""
        self._range_count = 0
        for base, end in ranges:
            self.add(base, end)

    def add(self, base: int, end: int) -> int:
        """
        Add ``base … end``; return how many of them were not in the set.

        Raises:
            OverflowError: A number is not a valid offset; nothing was changed.
        """
        if base >= end:
            return 0
        _check(base, end)
        at = bisect_left(self._ends, base)
        stop = bisect_right(self._firsts, end, at)
        if at == stop:
            self._add_apart(at, base, end)
            return end - base
        if stop - at == 1 and self._blocks[at].fits(base, end):
            return self._add_to(at, base, end)
        # Extend the range by the ranges that it overlaps or touches.
        below, above = self._blocks[at].find(base - 1), self._blocks[stop - 1].find(end)
        if below is not None:
            base = min(base, below[0])
        if above is not None and above[0] <= end:
            end = above[1]
        removed = self.remove(base, end)
        # Now it touches no range, although it may lie between ranges of a block.
        return self.add(base, end) - removed

    def add_bits(self, base: int, bits: int) -> int:
        """
        Add *base* + i for each bit i of *bits* that is set.

        For many ranges that lie close together this is far faster than ``add``.

        Returns:
            How many of them were not in the set.

        Raises:
            OverflowError: A number is not a valid offset; nothing was changed.
        """
        end = base + bits.bit_length()
        _check(base, end)
        range_count = range_count_of(bits)
        if range_count >= _BITS_RANGES_MIN:
            lowest = lowest_bit(bits)
            base, bits = base + lowest, bits >> lowest
            at = bisect_left(self._ends, base)
            stop = bisect_right(self._firsts, end, at)
            block = self._blocks[at] if stop - at == 1 else None
            if isinstance(block, Dense) and block.fits(base, end):
                had = block.range_count
                added = block.add_bits(base, bits)
                self.count += added
                self._on_changed(at, had)
                return added
            first = min([base, *self._firsts[at:stop]])
            last = max([end, *self._ends[at:stop]])
            if last - first <= min(SPAN_MAX, SPREAD_DENSE * range_count):
                return self._merge(at, stop, first, bits << (base - first))
        return sum([self.add(*each) for each in ranges_of_bits(base, bits)])

    def remove(self, base: int, end: int) -> int:
        """Remove ``base … end``; return how many of them were in the set."""
        if base >= end:
            return 0
        at = bisect_right(self._ends, base)
        stop = bisect_left(self._firsts, end, at)
        removed = 0
        # Backwards, because blocks may be removed or split.
        for each in range(stop - 1, at - 1, -1):
            block = self._blocks[each]
            had = block.range_count
            removed += block.remove(base, end)
            self._on_changed(each, had)
        self.count -= removed
        return removed

    def take_through(self, offset: int) -> int:
        """
        Remove all offsets below *offset*, and the range that contains it.

        Returns:
            The lowest offset from *offset* on that was not in the set.
        """
        if not self._firsts or self._firsts[0] > offset:
            return offset
        found = self.find(offset)
        if found is not None and found[0] <= offset:
            offset = found[1]
        self.remove(0, offset)
        return offset

    def intersection(self, base: int, end: int) -> list[Range]:
        """Return the parts of ``base … end`` that are in the set, in order."""
        return [
            each
            for block in self._blocks_of(base, end)
            for each in block.intersection(base, end)
        ]

    def count_in(self, base: int, end: int) -> int:
        """Return how many of ``base … end`` are in the set."""
        if not self._blocks or (base <= self._firsts[0] and end >= self._ends[-1]):
            return self.count
        return sum(block.count_in(base, end) for block in self._blocks_of(base, end))

    def gaps(self, base: int, end: int) -> list[Range]:
        """Return the parts of ``base … end`` that are not in the set, in order."""
        found: list[Range] = []
        for there, there_end in self.intersection(base, end):
            if base < there:
                found.append((base, there))
            base = there_end
        if base < end:
            found.append((base, end))
        return found

    def first_gap(self, base: int, end: int) -> Range | None:
        """Return the first of gaps(), or None if there are none."""
        following = self.find(base)
        if following is not None and following[0] <= base:
            base = following[1]
            following = self.find(base)
        if base >= end:
            return None
        return base, end if following is None else min(end, following[0])

    def find(self, offset: int) -> Range | None:
        """Return the first range that ends after *offset*, or None."""
        at = bisect_right(self._ends, offset)
        return self._blocks[at].find(offset) if at < len(self._blocks) else None

    def first(self) -> Range | None:
        """Return the lowest range, or None if the set is empty."""
        return self.find(0)

    def last(self) -> Range | None:
        """Return the highest range, or None if the set is empty."""
        return self.find(self._ends[-1] - 1) if self._ends else None

    @property
    def byte_count(self) -> int:
        """The approximate memory that the set takes."""
        return sum(block.byte_count for block in self._blocks)

    def copy(self) -> RangeSet:
        """Return an independent copy."""
        copied = RangeSet()
        copied._blocks = [block.copy() for block in self._blocks]
        copied._firsts, copied._ends = self._firsts[:], self._ends[:]
        copied.count, copied._range_count = self.count, self._range_count
        return copied

    def parts(self) -> tuple[list[Range], list[BitMap]]:
        """
        Return the set in its most compact form: some ranges, and bit maps for the rest.

        Both are in order.
        """
        ranges: list[Range] = []
        bit_maps: list[BitMap] = []
        for block in self._blocks:
            if isinstance(block, Dense):
                bit_maps.append(block.bit_map)
            else:
                ranges += block.intersection(block.first, block.end)
        return ranges, bit_maps

    def __iter__(self) -> Iterator[Range]:
        """
        Yield the ranges in order.

        The set may be changed during the iteration, which may or may not show changes
        above the ranges yielded.
        """
        at = end = 0
        while at < len(self._blocks):
            block = self._blocks[at]
            end = block.end
            yield from block.intersection(block.first, end)
            at = bisect_right(self._ends, end)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return self._range_count

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __contains__(self, item: int) -> bool:
        found = self.find(item)
        return found is not None and found[0] <= item

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RangeSet)
            and self.count == other.count
            and self._range_count == other._range_count
            and all(mine == its for mine, its in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def _blocks_of(self, base: int, end: int) -> list[Block]:
        """Return the blocks that may contain some of ``base … end``."""
        if base >= end:
            return []
        at = bisect_right(self._ends, base)
        return self._blocks[at : bisect_left(self._firsts, end, at)]

    def _add_apart(self, at: int, base: int, end: int) -> None:
        """Add a range that touches no other and lies below block *at*, or in it."""
        for near in (at - 1, at):
            if 0 <= near < len(self._blocks) and self._blocks[near].fits(base, end):
                self._add_to(near, base, end)
                return
        self._insert(at, Sparse.of([(base, end)]))
        self.count += end - base
        self._range_count += 1

    def _add_to(self, at: int, base: int, end: int) -> int:
        block = self._blocks[at]
        had = block.range_count
        added = block.add(base, end)
        self.count += added
        self._on_changed(at, had)
        return added

    def _merge(self, at: int, stop: int, first: int, bits: int) -> int:
        """Merge blocks *at* … *stop* and *bits* into one block."""
        merged = self._blocks[at:stop]
        had_count = self.count_in(first, self._ends[stop - 1]) if merged else 0
        had_ranges = sum(block.range_count for block in merged)
        for block in merged:
            bits |= block.bits_from(first)
        made: Block = Dense(first, bits)
        if not made.is_dense:
            # Closed gaps left few ranges.
            made = Sparse.of(ranges_of_bits(first, bits))
        self._blocks[at:stop] = [made]
        self._firsts[at:stop] = [made.first]
        self._ends[at:stop] = [made.end]
        added = bits.bit_count() - had_count
        self.count += added
        self._range_count += made.range_count - had_ranges
        return added

    def _on_changed(self, at: int, had: int) -> None:
        """Update the indexes after block *at*, which had *had* ranges, has changed."""
        block = self._blocks[at]
        has = block.range_count
        self._range_count += has - had
        if not has:
            self._delete(at)
            return
        self._firsts[at] = block.first
        self._ends[at] = block.end
        if isinstance(block, Dense):
            if has < had and not block.is_dense:
                ranges = block.intersection(block.first, block.end)
                self._blocks[at] = Sparse.of(ranges)
        elif has > RANGES_MAX:
            self._split(at, block)
        elif has < _RANGES_MIN and len(self._blocks) > 1:
            self._merge_small(at)

    def _split(self, at: int, block: Sparse) -> None:
        if block.is_dense:
            ranges = block.intersection(block.first, block.end)
            self._blocks[at] = Dense.of(ranges)
            return
        upper = block.split()
        self._ends[at] = block.end
        self._insert(at + 1, upper)

    def _merge_small(self, at: int) -> None:
        """Merge block *at* with a small neighbour, if there is one."""
        for lower in (at - 1, at):
            pair = self._blocks[max(0, lower) : lower + 2]
            match pair:
                case [Sparse() as below, Sparse() as above] if (
                    below.range_count + above.range_count <= RANGES_MAX // 2
                ):
                    below.append(above)
                    self._ends[lower] = below.end
                    self._delete(lower + 1)
                    return

    def _insert(self, at: int, block: Block) -> None:
        self._blocks.insert(at, block)
        self._firsts.insert(at, block.first)
        self._ends.insert(at, block.end)

    def _delete(self, at: int) -> None:
        del self._blocks[at], self._firsts[at], self._ends[at]


def _check(base: int, end: int) -> None:
    if base < 0 or end > _OFFSET_MAX:
        raise OverflowError(f"{base} … {end} is not within 0 … {_OFFSET_MAX}")
