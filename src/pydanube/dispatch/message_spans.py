"""
Messages in hand, as spans: ranges of one batch that are in the same state.

A span is not cut when some of its messages become done: the cursor knows what
is done, and is asked when the span changes its state.  So an acknowledgement
costs no more than the cursor's mark, and a million of them leave nothing behind.
All spans of a subscription, whatever their state, are disjoint.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.dispatch.deadlines import Deadlines
from pydanube.model.ranges import RangeSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydanube.dispatch.cursor import Cursor
    from pydanube.dispatch.facts import Keys
    from pydanube.model.ranges import Range

NOBODY = -1
_STALE_MAX = 64


@dataclass(slots=True, eq=False)
class Batch:
    """A batch as it came, which no delivery crosses."""

    base: int
    end: int
    byte_count: int
    keys: Keys | None = None
    """Those of its messages, where a subscription goes by keys."""

    def charge(self, base: int, end: int) -> int:
        """
        What ``base … end`` of it costs in bytes.

        The charges of the parts add up to the whole, however it is cut.
        """
        if base == self.base and end == self.end:
            return self.byte_count
        count = self.end - self.base
        return (end - self.base) * self.byte_count // count - (
            base - self.base
        ) * self.byte_count // count


@dataclass(slots=True, eq=False)
class MessageSpan:
    """Messages ``base … end`` of *batch*, which are all treated alike."""

    base: int
    end: int
    attempt: int
    """In span, the number of this delivery; else of the next one; 1 is the first."""
    batch: Batch
    failures: int = 0
    """How often it was given back or not acknowledged in time."""
    expires: float | None = None
    reason: str = ""
    """Why it failed the last time."""
    is_expired: bool = False
    """It was given up because its time was over."""
    consumer: int = NOBODY
    """Who has it, or had it last."""
    time: float | None = None
    """When it leaves its state, unless something happens before."""
    open_count: int = 0
    """
    How many of its messages are not done; kept up to date as long as the span is
    in a MessageSpans.
    """

    def part(self, base: int, end: int) -> MessageSpan:
        """A new span of ``base … end`` in the same state."""
        return MessageSpan(
            base,
            end,
            self.attempt,
            self.batch,
            self.failures,
            self.expires,
            self.reason,
            self.is_expired,
            self.consumer,
            self.time,
        )

    def is_like(self, other: MessageSpan) -> bool:
        """Whether both could be delivered as one, if they were neighbours."""
        return (
            self.batch is other.batch
            and self.attempt == other.attempt
            and self.failures == other.failures
            and self.expires == other.expires
        )


class MessageSpans:
    """
    MessageSpans by offset and by time.

    Every change costs a binary search.  Removed spans leave their place in the
    sorted lists, which are rebuilt when they are mostly such places; therefore
    removing from the front, where most acknowledgements fall, moves nothing.
    """

    __slots__ = ("_bases", "_cursor", "_deadlines", "_spans", "_stale", "count")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._spans: dict[int, MessageSpan] = {}
        # Sorted; a superset of the keys of _spans.  No base of a removed span
        # lies inside a present one, so the span that holds an offset, if any, is
        # the one at the highest base that is not above it.
        self._bases: list[int] = []
        # An entry counts if there is still such a span, with such a time.
        self._deadlines = Deadlines()
        # How many places in either list may be empty.
        self._stale = 0
        self.count = 0
        """How many messages there are, without those that are done."""

    def add(self, span: MessageSpan) -> None:
        """
        Put *span* in, which overlaps no other.

        Its ``open_count``, which is not 0, is kept up to date from now on.
        """
        bases, base = self._bases, span.base
        assert span.open_count > 0
        if not bases or base > bases[-1]:
            bases.append(base)
        else:
            first = bisect_left(bases, base)
            last = bisect_left(bases, span.end, first)
            bases[first:last] = [base]
        self._spans[base] = span
        self.count += span.open_count
        if span.time is not None:
            self._deadlines.add(span.time, base, span.end)

    def settle(self, span: MessageSpan, count: int) -> None:
        """Note that *count* messages of *span* became done."""
        span.open_count -= count
        self.count -= count
        assert span.open_count >= 0
        if not span.open_count:
            self._remove(span)

    def find_holder(self, base: int, end: int) -> MessageSpan | None:
        """The span that holds all of ``base … end``, if one does."""
        at = bisect_right(self._bases, base) - 1
        span = self._spans.get(self._bases[at]) if at >= 0 else None
        return span if span is not None and end <= span.end else None

    def overlapping(self, base: int, end: int) -> list[MessageSpan]:
        """The spans that hold some of ``base … end``, in order."""
        first = max(0, bisect_right(self._bases, base) - 1)
        last = bisect_left(self._bases, end, first)
        found = map(self._spans.get, self._bases[first:last])
        return [each for each in found if each is not None and base < each.end]

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Take out what is not done of ``base … end``, splitting at its ends."""
        taken = []
        for span in self.overlapping(base, end):
            if base <= span.base and span.end <= end:
                self.remove(span)
                taken.append(span)
                continue
            cuts = sorted({span.base, max(base, span.base), min(end, span.end)})
            self.remove(span)
            for cut, cut_end in zip(cuts, [*cuts[1:], span.end], strict=True):
                part = span.part(cut, cut_end)
                part.open_count = self._cursor.open_count(cut, cut_end)
                if not part.open_count:
                    continue
                if base <= cut < end:
                    taken.append(part)
                else:
                    self.add(part)
        return taken

    def withdraw_from(self, consumer: int) -> list[MessageSpan]:
        """Take everything out that *consumer* has."""
        found = [each for each in self if each.consumer == consumer]
        for span in found:
            self.remove(span)
        return found

    def withdraw_due(self, now: float) -> list[MessageSpan]:
        """Take everything out whose time has come, the earliest first."""
        due = []
        while (time := self.next_time()) is not None and time <= now:
            span = self._spans[self._deadlines.pop()[1]]
            self.remove(span)
            due.append(span)
        return due

    def next_time(self) -> float | None:
        """The earliest time of all spans, or None."""
        deadlines = self._deadlines
        while (first := deadlines.first()) is not None:
            time, base, _ = first
            span = self._spans.get(base)
            if span is not None and span.time == time:
                return time
            deadlines.pop()
        return None

    def limit_times(self, latest: float | None) -> None:
        """Let no span stay longer than to *latest*; None: all stay."""
        for span in self._spans.values():
            if latest is None:
                span.time = None
            elif span.time is None or span.time > latest:
                span.time = latest
        self._rebuild_deadlines()

    def remove(self, span: MessageSpan) -> None:
        """Take *span* out, with what it still has."""
        self.count -= span.open_count
        self._remove(span)

    def ranges(self) -> tuple[Range, ...]:
        """The messages that there are and that are not done, in order."""
        cursor = self._cursor
        return tuple(
            RangeSet(
                gap
                for each in self
                for gap in cursor.done.gaps(max(each.base, cursor.offset), each.end)
            )
        )

    def clear(self) -> None:
        """Forget everything."""
        self._spans.clear()
        self._bases.clear()
        self._deadlines.clear()
        self._stale = 0
        self.count = 0

    def __iter__(self) -> Iterator[MessageSpan]:
        """All of them, in no particular order."""
        return iter(self._spans.values())

    def __len__(self) -> int:
        """How many spans there are."""
        return len(self._spans)

    def _remove(self, span: MessageSpan) -> None:
        spans = self._spans
        del spans[span.base]
        self._stale += 1
        if self._stale > len(spans) + _STALE_MAX:
            self._stale = 0
            self._bases = [base for base in self._bases if base in spans]
            self._rebuild_deadlines()

    def _rebuild_deadlines(self) -> None:
        self._deadlines.replace(
            (each.time, each.base, each.end)
            for each in self._spans.values()
            if each.time is not None
        )
