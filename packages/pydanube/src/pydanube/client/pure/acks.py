"""
The acknowledgements of a consumer that the broker has not confirmed.  Pure.

They gather and are sent as ranges.  The consumer keeps them until the broker has
confirmed that they are on disk, and sends them again when the connection breaks.
Acknowledging a message twice is harmless, so duplicates are not removed.
"""

from __future__ import annotations

from bisect import bisect_right

from pydanube.client.counters import ClientCounters
from pydanube.client.pure.offsets import merge_ranges
from pydanube.model.range_blocks import bits_of
from pydanube.model.ranges import Range
from pydanube.wire.native.messages import (
    BIT_MAP_OFFSETS_MAX,
    bits_to_wire,
    divided_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

BIT_MAP_RANGES_MIN = 32
"""Fewer ranges are shorter as numbers than a bit map may be."""


class Acks:
    """The acknowledgements of one consumer that are not on the broker's disk."""

    __slots__ = (
        "_bit_maps",
        "_counters",
        "_generation",
        "_ranges",
        "_unconfirmed",
        "_uncounted",
        "base",
        "end",
    )

    def __init__(self, counters: ClientCounters | None = None) -> None:
        self._counters = counters or ClientCounters()
        # The offsets that cumulative acknowledgements include, and do not count.
        self._uncounted = 0
        # The range that grows while messages are acknowledged in order; then the
        # earlier ranges.
        self.base = 0
        self.end = 0
        self._ranges: list[Range] = []
        self._bit_maps: list[tuple[int, int]] = []
        self._unconfirmed: list[pb.OffsetRanges] = []
        # The generation of the subscription; 0: it is not known.
        self._generation = 0

    def of(self, generation: int) -> Acks:
        """
        Return these if the subscription still has *generation*, or no acknowledgements.

        It has another one if it was moved or created again: then messages that were
        acknowledged before are delivered again.
        """
        is_same = self._generation in {0, generation}
        found = self if is_same else Acks(self._counters)
        found._generation = generation
        return found

    def add(self, base: int, end: int) -> None:
        if base == self.end and self.base < base:
            self.end = end
            return
        if self.base < self.end:
            self._ranges.append((self.base, self.end))
        self.base, self.end = base, end

    def add_bits(self, origin: int, bits: int) -> None:
        """Add *origin* + i for each set bit i of *bits*."""
        if self._bit_maps:
            first, others = self._bit_maps[-1]
            at = origin - first
            if 0 <= at <= BIT_MAP_OFFSETS_MAX - bits.bit_length():
                self._bit_maps[-1] = first, others | bits << at
                return
        self._bit_maps.append((origin, bits))

    def exclude_from_count(self, count: int) -> None:
        """Leave *count* of the added offsets out of the counters."""
        self._uncounted += count

    @property
    def range_count(self) -> int:
        """The number of ranges besides the one that grows."""
        return len(self._ranges)

    @property
    def has_unconfirmed(self) -> bool:
        """True if any acknowledgement is not sent, or not confirmed."""
        return self.base < self.end or bool(
            self._ranges or self._bit_maps or self._unconfirmed
        )

    def take(self) -> list[pb.OffsetRanges]:
        """Return what has gathered, to be sent now; usually one item, at least one."""
        self.add(0, 0)
        added = sum(end - base for base, end in self._ranges)
        added += sum(bits.bit_count() for _, bits in self._bit_maps)
        self._counters.acked += added - self._uncounted
        self._uncounted = 0
        ranges = merge_ranges(self._ranges)
        maps, self._ranges, self._bit_maps = self._bit_maps, [], []
        taken = [sent for each in maps for sent in bits_to_wire(*each)]
        if ranges or not taken:
            taken += _to_wire(ranges)
        if ranges or maps:
            self._unconfirmed += taken
        return taken

    def take_unconfirmed(self) -> list[pb.OffsetRanges]:
        """Return and forget what was sent and is not confirmed."""
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        return unconfirmed

    def restore_unconfirmed(self, unconfirmed: list[pb.OffsetRanges]) -> None:
        """Keep what the broker did not confirm."""
        self._unconfirmed += unconfirmed


def _to_wire(ranges: list[Range]) -> list[pb.OffsetRanges]:
    """Return sorted *ranges* as messages: bit maps where many are close together."""
    if len(ranges) < BIT_MAP_RANGES_MIN:
        return divided_to_wire(ranges)
    found: list[pb.OffsetRanges] = []
    others: list[Range] = []
    at = 0
    while at < len(ranges):
        origin = ranges[at][0]
        till = bisect_right(ranges, origin + BIT_MAP_OFFSETS_MAX, at, key=_end)
        if till - at < BIT_MAP_RANGES_MIN:
            till = max(till, at + 1)
            others += ranges[at:till]
        else:
            found += bits_to_wire(origin, bits_of(ranges[at:till], origin))
        at = till
    if others:
        found += divided_to_wire(others)
    return found


def _end(each: Range) -> int:
    return each[1]
