"""
Tracked messages, as spans: ranges of one batch that are in the same state.

A span is not split when some of its messages become done.  The cursor knows which ones
are done, and is consulted when the span changes its state.  An ack only updates the
cursor.  All spans of a subscription, in whatever state, are disjoint.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.deadlines import Deadlines
from pydanube.model.ranges import Range, RangeSet

NOBODY = -1
_STALE_MAX = 64


@dataclass(slots=True)
class DeliveryWindow:
    """The time in which the messages ``base â¦ end`` may be delivered."""

    base: int
    end: int
    due: float | None = None
    """The time from which they may be delivered; None: at once."""
    expires: float | None = None
    """The time at which they expire; None: never."""


@dataclass(slots=True)
class BatchKeys:
    """The keys of a batch: message ``base + i`` has the key ``unique[codes[i]]``."""

    unique: Sequence[bytes]
    codes: Sequence[int]


@dataclass(slots=True, eq=False)
class Batch:
    """A stored batch; a delivery never spans two of them."""

    base: int
    end: int
    byte_count: int
    keys: BatchKeys | None = None
    """The keys of its messages, in key-shared subscriptions."""

    def charge(self, base: int, end: int) -> int:
        """
        Return the bytes to charge for ``base … end`` of it.

        The charges of the parts add up to the whole, however it is divided.
        """
        if base == self.base and end == self.end:
            return self.byte_count
        count = self.end - self.base
        return (end - self.base) * self.byte_count // count - (
            base - self.base
        ) * self.byte_count // count


@dataclass(slots=True, eq=False)
class MessageSpan:
    """Messages ``base … end`` of *batch*, all in the same state."""

    base: int
    end: int
    attempt: int
    """In flight, the number of this delivery, from 1; otherwise of the next one."""
    batch: Batch
    failures: int = 0
    """The number of nacks and ack timeouts."""
    expires: float | None = None
    reason: str = ""
    """The reason of the last failure."""
    is_expired: bool = False
    """Whether it was given up because it expired."""
    consumer: int = NOBODY
    """The consumer that has it, or had it last."""
    time: float | None = None
    """The deadline at which it leaves its state, if there is one."""
    open_count: int = 0
    """
    The number of its messages that are not done; up to date while the span is in a
    MessageSpans.
    """

    def part(self, base: int, end: int) -> MessageSpan:
        """Return a new span of ``base … end`` in the same state."""
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
        """Return whether the two can be delivered as one if they are neighbours."""
        return (
            self.batch is other.batch
            and self.attempt == other.attempt
            and self.failures == other.failures
            and self.expires == other.expires
        )


by_base = attrgetter("base")
"""The sort key of spans."""


class MessageSpans:
    """
    Spans by offset and by deadline.

    Every change takes a binary search.  Removed spans leave stale entries in the sorted
    lists, which are rebuilt when most entries are stale; so removing from the front,
    where most acks fall, moves nothing.
    """

    __slots__ = ("_bases", "_cursor", "_deadlines", "_spans", "_stale", "count")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._spans: dict[int, MessageSpan] = {}
        # Sorted; a superset of the keys of _spans.  No base of a removed span lies
        # inside an existing one, so only the span at the highest base that is not
        # above an offset can contain it.
        self._bases: list[int] = []
        # An entry is stale unless a span with this base has this time.
        self._deadlines = Deadlines()
        # The number of entries in either list that may be stale.
        self._stale = 0
        self.count = 0
        """The number of messages, without those that are done."""

    def add(self, span: MessageSpan) -> None:
        """
        Add *span*, which overlaps no other.

        Its ``open_count``, which must not be 0, is kept up to date from now on.
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

    def mark_done(self, span: MessageSpan, count: int) -> None:
        """Note that *count* messages of *span* became done."""
        span.open_count -= count
        self.count -= count
        assert span.open_count >= 0
        if not span.open_count:
            self._remove(span)

    def find_containing(self, base: int, end: int) -> MessageSpan | None:
        """Return the span that contains all of ``base … end``, or None."""
        at = bisect_right(self._bases, base) - 1
        span = self._spans.get(self._bases[at]) if at >= 0 else None
        return span if span is not None and end <= span.end else None

    def overlapping(self, base: int, end: int) -> list[MessageSpan]:
        """Return the spans that overlap ``base … end``, in order."""
        first = max(0, bisect_right(self._bases, base) - 1)
        last = bisect_left(self._bases, end, first)
        found = map(self._spans.get, self._bases[first:last])
        return [each for each in found if each is not None and base < each.end]

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Remove and return the open messages of ``base … end``."""
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
        """Remove and return the spans of *consumer*."""
        found = [each for each in self if each.consumer == consumer]
        for span in found:
            self.remove(span)
        return found

    def withdraw_due(self, now: float) -> list[MessageSpan]:
        """Remove and return the spans whose deadline has passed, earliest first."""
        due = []
        while (time := self.next_time()) is not None and time <= now:
            span = self._spans[self._deadlines.pop()[1]]
            self.remove(span)
            due.append(span)
        return due

    def next_time(self) -> float | None:
        """Return the earliest deadline, or None."""
        deadlines = self._deadlines
        while (first := deadlines.first()) is not None:
            time, base, _ = first
            span = self._spans.get(base)
            if span is not None and span.time == time:
                return time
            deadlines.pop()
        return None

    def limit_times(self, latest: float | None) -> None:
        """Move later deadlines to *latest*; None removes all deadlines."""
        for span in self._spans.values():
            if latest is None:
                span.time = None
            elif span.time is None or span.time > latest:
                span.time = latest
        self._rebuild_deadlines()

    def remove(self, span: MessageSpan) -> None:
        """Remove *span*."""
        self.count -= span.open_count
        self._remove(span)

    def ranges(self) -> tuple[Range, ...]:
        """Return the ranges of messages that are not done, in order."""
        return tuple(
            RangeSet(
                gap
                for each in self
                for gap in self._cursor.open_ranges(each.base, each.end)
            )
        )

    def clear(self) -> None:
        """Remove all spans."""
        self._spans.clear()
        self._bases.clear()
        self._deadlines.clear()
        self._stale = 0
        self.count = 0

    def __iter__(self) -> Iterator[MessageSpan]:
        """Yield all spans, in no particular order."""
        return iter(self._spans.values())

    def __len__(self) -> int:
        """Return the number of spans."""
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
