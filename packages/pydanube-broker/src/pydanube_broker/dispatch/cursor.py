"""The progress of a subscription: an offset and the done ranges above it."""

from __future__ import annotations

from collections.abc import Iterable

from pydanube.model.failures import FailedRange, Failures
from pydanube.model.ranges import Range, RangeSet


class Cursor:
    """
    The lowest offset that is not done, and the done ranges above it.

    ``offset`` itself is never in ``done``, so the cursor is a single number as long as
    messages are acknowledged in order.
    """

    __slots__ = ("_note", "done", "failures", "generation", "offset")

    def __init__(
        self,
        offset: int,
        done: RangeSet | None = None,
        *,
        generation: int = 1,
        failures: Iterable[FailedRange] = (),
        note: str = "",
    ) -> None:
        """Begin at *offset*; the cursor owns *done*, which may reach below it."""
        self.failures = Failures(failures)
        """The failures of messages; those of messages that are done do not count."""
        self.generation = generation
        """
        A number that rises when the cursor is moved to another offset by request.

        From then on the same messages may fail again, so they have other dead letters.
        """
        self._note = offset, note
        self.offset = offset
        self.done = RangeSet() if done is None else done
        self.done.remove(0, offset)
        self._advance()

    @property
    def note(self) -> str:
        """The text that was set at this offset; empty once the cursor has moved on."""
        offset, text = self._note
        return text if offset == self.offset else ""

    @note.setter
    def note(self, text: str) -> None:
        self._note = self.offset, text

    def mark(self, base: int, end: int) -> int:
        """Mark ``base … end`` as done; return how many were not done before."""
        if base <= self.offset:
            base = self.offset
            if end > base and not self.done:
                self.offset = end
                return end - base
        added = self.done.add(base, end) if base < end else 0
        self._advance()
        return added

    def mark_bits(self, base: int, bits: int) -> int:
        """
        Mark *base* + i for each bit i of *bits* that is set.

        None of them may be below ``offset``.  Returns how many were not done before.
        """
        lowest = bits & -bits
        if not bits & (bits + lowest):
            # A single run.
            return self.mark(base + lowest.bit_length() - 1, base + bits.bit_length())
        added = self.done.add_bits(base, bits)
        self._advance()
        return added

    def seek(self, offset: int) -> bool:
        """Move to *offset* without done ranges; return whether that is a change."""
        if offset == self.offset and not self.done:
            return False
        self.offset = offset
        self.done = RangeSet()
        return True

    def first_open(self, base: int, end: int) -> Range | None:
        """Return the first range of ``base … end`` that is not done, or None."""
        base = max(base, self.offset)
        if not self.done:
            return (base, end) if base < end else None
        return self.done.first_gap(base, end)

    def open_ranges(self, base: int, end: int) -> list[Range]:
        """Return the ranges of ``base … end`` that are not done, in order."""
        return self.done.gaps(max(base, self.offset), end)

    def open_count(self, base: int, end: int) -> int:
        """Return how many messages of ``base … end`` are not done."""
        base = max(base, self.offset)
        if base >= end:
            return 0
        if not self.done:
            return end - base
        return end - base - self.done.count_in(base, end)

    def open_failures(self) -> tuple[FailedRange, ...]:
        """Return the failures of messages that are not done, and forget the others."""
        if len(self.failures):
            self.failures.replace(
                [
                    failed.part(*part)
                    for failed in self.failures
                    for part in self.open_ranges(failed.base, failed.end)
                ]
            )
        return tuple(self.failures)

    def skip_done(self, offset: int) -> int:
        """Return the lowest offset from *offset* on that is not done."""
        last = self.done.last()
        if last is None or offset >= last[1]:
            return max(offset, self.offset)
        found = self.first_open(offset, last[1])
        return last[1] if found is None else found[0]

    def end_of_open(self, count: int, end: int) -> int:
        """Return the end of the first *count* open messages, at most *end*."""
        offset = self.offset
        while count > 0 and (found := self.first_open(offset, end)) is not None:
            base, gap_end = found
            offset = min(gap_end, base + count)
            count -= offset - base
        return offset

    def backlog(self, end_offset: int) -> int:
        """Return how many messages below *end_offset* are not done."""
        return self.open_count(self.offset, end_offset)

    def _advance(self) -> None:
        self.offset = self.done.take_through(self.offset)

    def __repr__(self) -> str:
        return f"Cursor({self.offset}, {self.done})"
