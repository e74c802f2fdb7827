"""What the consumers of a key-shared subscription have and have not acknowledged."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydanube.dispatch.key_shared.batch_chunks import BatchChunks, Selection
    from pydanube.dispatch.message_spans import MessageSpan

_STALE_MAX = 64


class InFlightSelections:
    """
    Shares in flight, by offset and by time.

    What one consumer has of a chunk is one selection, however it was delivered; but
    every delivery has a deadline of its own.
    """

    __slots__ = ("_chunks", "_serial", "_stale_count", "_timers", "count")

    def __init__(self, chunks: BatchChunks) -> None:
        self._chunks = chunks
        # A heap of deadlines, each with a selection and the bits that it applies to.
        # Bits that the selection no longer has are ignored.
        self._timers: list[tuple[float, int, Selection, int]] = []
        self._serial = count()
        # How many timers are for selections of which nothing is left.
        self._stale_count = 0
        self.count = 0
        """How many messages are in flight, without those that are done."""

    def add(self, selection: Selection, consumer: int, time: float | None) -> None:
        """*consumer* has *selection* now, until *time*."""
        bits, in_flight = selection.bits, selection.chunk.in_flight
        self.count += bits.bit_count()
        for held in in_flight:
            if held.consumer == consumer and held.is_like(selection):
                held.bits |= bits
                break
        else:
            held = selection
            held.consumer = consumer
            in_flight[held] = None
        if time is not None:
            held.timer_count += 1
            heappush(self._timers, (time, next(self._serial), held, bits))

    def settle(self, selection: Selection, bits: int) -> int:
        """These *bits* of *selection* are not in flight any more; return how many."""
        count = bits.bit_count()
        self.count -= count
        selection.bits ^= bits
        if not selection.bits:
            del selection.chunk.in_flight[selection]
            self._stale_count += selection.timer_count
            if 2 * self._stale_count > len(self._timers) + _STALE_MAX:
                self._timers = [each for each in self._timers if each[2].bits]
                heapify(self._timers)
                self._stale_count = 0
        return count

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Take out what is not done of ``base … end``."""
        taken: list[MessageSpan] = []
        for chunk in self._chunks.overlapping(base, end):
            mask = chunk.mask(base, end)
            for selection in list(chunk.in_flight):
                taken += self._withdraw(selection, selection.bits & mask)
        return sorted(taken, key=_base)

    def take_all_of(self, consumer: int) -> list[Selection]:
        """Take out what *consumer* has; the selections stay in their chunks' count."""
        found = [
            selection
            for chunk in self._chunks
            for selection in chunk.in_flight
            if selection.consumer == consumer
        ]
        taken = []
        for selection in found:
            taken.append(selection.part(selection.bits))
            self.settle(selection, selection.bits)
        return taken

    def withdraw_due(self, now: float) -> list[MessageSpan]:
        """Take out what has not been done in time."""
        taken: list[MessageSpan] = []
        while (time := self.next_time()) is not None and time <= now:
            _, _, selection, bits = heappop(self._timers)
            selection.timer_count -= 1
            taken += self._withdraw(selection, selection.bits & bits)
        return taken

    def next_time(self) -> float | None:
        """The earliest deadline, or None."""
        timers = self._timers
        while timers:
            time, _, selection, bits = timers[0]
            if selection.bits & bits:
                return time
            heappop(timers)
            if selection.bits:
                selection.timer_count -= 1
            else:
                self._stale_count -= 1
        return None

    def limit_times(self, latest: float | None) -> None:
        """Let nothing stay longer than to *latest*; None: all may."""
        timed: dict[Selection, int] = {}
        timers = []
        for time, serial, selection, bits in self._timers:
            if selection.bits & bits and latest is not None:
                timers.append((min(time, latest), serial, selection, bits))
                timed[selection] = timed.get(selection, 0) | bits
        for chunk in self._chunks:
            for selection in chunk.in_flight:
                selection.timer_count = 0
                untimed = selection.bits & ~timed.get(selection, 0)
                if untimed and latest is not None:
                    timers.append((latest, next(self._serial), selection, untimed))
        for _, _, selection, _ in timers:
            selection.timer_count += 1
        heapify(timers)
        self._timers, self._stale_count = timers, 0

    def clear(self) -> None:
        """Forget everything."""
        self._timers.clear()
        self._stale_count = 0
        self.count = 0

    def _withdraw(self, selection: Selection, bits: int) -> list[MessageSpan]:
        if not bits:
            return []
        spans = selection.chunk.spans(selection, bits)
        self._chunks.shrink(selection.chunk, self.settle(selection, bits))
        return spans


def _base(span: MessageSpan) -> int:
    return span.base
