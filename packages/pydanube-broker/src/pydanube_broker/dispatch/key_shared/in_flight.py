"""The messages of a key-shared subscription that are in flight."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count

from pydanube.model.ranges import Range, RangeSet
from pydanube_broker.dispatch.key_shared.batch_chunks import (
    AckTimer,
    BatchChunks,
    Selection,
    moved_bits,
)
from pydanube_broker.dispatch.message_spans import MessageSpan, by_base
from pydanube_broker.dispatch.offset_index import STALE_MAX


class InFlightSelections:
    """
    Selections in flight, by offset and by deadline.

    The messages of a chunk that one consumer has are one selection, even if they came
    in several deliveries; but every delivery has its own deadline.
    """

    __slots__ = ("_chunks", "_serial", "_timers", "_timers_max", "count")

    def __init__(self, chunks: BatchChunks) -> None:
        self._chunks = chunks
        # A heap of deadlines.  Timers that are not live are removed when the number of
        # entries has doubled.
        self._timers: list[tuple[float, int, AckTimer]] = []
        self._serial = count()
        self._timers_max = STALE_MAX
        self.count = 0
        """The number of messages in flight, without those that are done."""

    def add(self, selection: Selection, consumer: int, time: float | None) -> None:
        """Note that *consumer* has *selection*, until *time*."""
        bits, in_flight = selection.bits, selection.chunk.in_flight
        self.count += bits.bit_count()
        for existing in in_flight:
            if existing.consumer == consumer and existing.is_like(selection):
                existing.bits |= bits
                existing.draining |= selection.draining
                break
        else:
            existing = selection
            existing.consumer = consumer
            in_flight[existing] = None
        if time is not None:
            self._add_timer(time, existing, bits)

    def remove(self, selection: Selection, bits: int) -> int:
        """Remove *bits* from *selection*; return their number."""
        count = bits.bit_count()
        self.count -= count
        selection.bits ^= bits
        if not selection.bits:
            del selection.chunk.in_flight[selection]
            selection.timers.clear()
        return count

    def withdraw(
        self, base: int, end: int, consumer: int | None = None
    ) -> list[MessageSpan]:
        """
        Remove and return the messages of ``base … end`` that are not done.

        With *consumer*, only those that this consumer has.
        """
        taken: list[MessageSpan] = []
        for chunk in self._chunks.overlapping(base, end):
            mask = chunk.mask(base, end)
            for selection in list(chunk.in_flight):
                if consumer is None or selection.consumer == consumer:
                    taken += self._withdraw(selection, selection.bits & mask)
        return sorted(taken, key=by_base)

    def ranges_of(
        self, base: int, end: int, consumer: int, attempt: int
    ) -> list[Range]:
        """Return the messages that *consumer* has in its delivery *attempt*."""
        found = RangeSet()
        for chunk in self._chunks.overlapping(base, end):
            mask = chunk.mask(base, end)
            for selection in chunk.in_flight:
                bits = selection.bits & mask
                if (
                    selection.consumer == consumer
                    and selection.attempt == attempt
                    and bits
                ):
                    found.add_bits(chunk.origin, bits)
        return list(found)

    def has_bits(self, base: int, bits: int, consumer: int, attempt: int) -> bool:
        """Return whether *consumer* has all *bits*, bit 0 of which is *base*."""
        for chunk in self._chunks.overlapping(base, base + bits.bit_length()):
            at = chunk.origin - base
            for selection in chunk.in_flight:
                if selection.consumer == consumer and selection.attempt == attempt:
                    bits &= ~moved_bits(selection.bits, at)
        return not bits

    def extend(self, ranges: Iterable[Range], consumer: int, time: float) -> None:
        """
        Move earlier deadlines of messages of *ranges* to *time*.

        This affects only messages that *consumer* has.
        """
        for chunk, mask in self._chunks.bits_of(ranges):
            for selection in chunk.in_flight:
                if selection.consumer == consumer and selection.bits & mask:
                    self._extend(selection, selection.bits & mask, time)

    def extend_bits(self, base: int, bits: int, consumer: int, time: float) -> None:
        """Move deadlines as ``extend`` does, of *base* + i for each set bit i."""
        for chunk in self._chunks.overlapping(base, base + bits.bit_length()):
            mask = moved_bits(bits, base - chunk.origin)
            for selection in chunk.in_flight:
                if selection.consumer == consumer and selection.bits & mask:
                    self._extend(selection, selection.bits & mask, time)

    def withdraw_from(self, consumer: int) -> list[Selection]:
        """Remove and return all of *consumer*; they still count in their chunks."""
        found = [
            selection
            for chunk in self._chunks
            for selection in chunk.in_flight
            if selection.consumer == consumer
        ]
        taken = []
        for selection in found:
            taken.append(selection.part(selection.bits))
            self.remove(selection, selection.bits)
        return taken

    def withdraw_due(self, now: float) -> list[MessageSpan]:
        """Remove and return the messages whose deadline has passed."""
        taken: list[MessageSpan] = []
        while (time := self.next_time()) is not None and time <= now:
            _, _, timer = heappop(self._timers)
            selection = timer.selection
            taken += self._withdraw(selection, selection.bits & timer.bits)
        return taken

    def next_time(self) -> float | None:
        """Return the earliest deadline, or None."""
        timers = self._timers
        while timers:
            time, _, timer = timers[0]
            if timer.is_live:
                return time
            heappop(timers)
        return None

    def limit_times(self, latest: float | None) -> None:
        """Move later deadlines to *latest*; None removes all deadlines."""
        timers = [timer for _, _, timer in self._timers if timer.is_live]
        self._timers = []
        timed: dict[Selection, int] = {}
        for timer in timers:
            selection = timer.selection
            timed[selection] = timed.get(selection, 0) | timer.bits
            selection.timers.clear()
        if latest is None:
            return
        for timer in timers:
            self._add_timer(min(timer.time, latest), timer.selection, timer.bits)
        for chunk in self._chunks:
            for selection in chunk.in_flight:
                untimed = selection.bits & ~timed.get(selection, 0)
                if untimed:
                    self._add_timer(latest, selection, untimed)

    def clear(self) -> None:
        """Remove all messages."""
        self._timers.clear()
        self.count = 0

    def _extend(self, selection: Selection, bits: int, time: float) -> None:
        extended = 0
        for timer in selection.timers:
            if timer.time < time:
                extended |= timer.bits & bits
                timer.bits &= ~bits
        if extended:
            selection.timers = [each for each in selection.timers if each.is_live]
            self._add_timer(time, selection, extended)

    def _add_timer(self, time: float, selection: Selection, bits: int) -> None:
        timer = AckTimer(time, selection, bits)
        selection.timers.append(timer)
        heappush(self._timers, (time, next(self._serial), timer))
        if len(self._timers) > self._timers_max:
            self._timers = [each for each in self._timers if each[2].is_live]
            heapify(self._timers)
            self._timers_max = 2 * len(self._timers) + STALE_MAX

    def _withdraw(self, selection: Selection, bits: int) -> list[MessageSpan]:
        if not bits:
            return []
        spans = selection.chunk.spans(selection, bits)
        self._chunks.shrink(selection.chunk, self.remove(selection, bits))
        return spans
