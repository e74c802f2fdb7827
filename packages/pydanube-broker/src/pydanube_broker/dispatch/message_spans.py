"""
Tracked messages, as spans: ranges of one batch that are in the same state.

A span is not split when some of its messages become done.  The cursor knows which ones
are done, and is consulted when the span changes its state.  An ack only updates the
cursor.  All spans of a subscription, in whatever state, are disjoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.ranges import Range, RangeSet
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.offset_index import STALE_MAX, OffsetIndex

NOBODY = -1
EXTENDED_SPANS_MAX = 100_000
"""With this many spans, a span is extended as a whole rather than divided."""


@dataclass(slots=True)
class DeliveryWindow:
    """The time in which the messages ``base … end`` may be delivered."""

    base: int
    end: int
    due: float | None = None
    """The time from which they may be delivered; None: at once."""
    expires: float | None = None
    """The time at which they expire; None: never."""


def look_up(codes: Sequence[int], table: bytes) -> bytes:
    """Return the byte of *table* for each of *codes*."""
    return bytes(map(table.__getitem__, codes))


@dataclass(slots=True)
class BatchKeys:
    """The keys of a batch: message ``base + i`` has the key ``unique[codes[i]]``."""

    unique: Sequence[bytes]
    codes: Sequence[int]
    look_up: Callable[[Sequence[int], bytes], bytes] = look_up
    """The function of that name, or one that does the same with these codes faster."""


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


def divide_by_windows(
    base: int, end: int, batch: Batch, windows: Sequence[DeliveryWindow]
) -> Iterator[tuple[MessageSpan, float | None]]:
    """Divide new messages by their delivery windows; yields when each part is due."""
    for each in windows:
        if base < each.base:
            yield MessageSpan(base, each.base, 1, batch), None
        base = max(base, each.base)
        if base < each.end:
            yield MessageSpan(base, each.end, 1, batch, expires=each.expires), each.due
            base = each.end
    if base < end:
        yield MessageSpan(base, end, 1, batch), None


by_base = attrgetter("base")
"""The sort key of spans."""


class MessageSpans(OffsetIndex[MessageSpan]):
    """Spans by offset and by deadline."""

    __slots__ = ("_cursor", "_deadlines", "count")

    def __init__(self, cursor: Cursor) -> None:
        super().__init__()
        self._cursor = cursor
        # A heap of times, each with the base of a span.  An entry is stale unless a
        # span with this base has this time.
        self._deadlines: list[tuple[float, int]] = []
        self.count = 0
        """The number of messages, without those that are done."""

    def add(self, span: MessageSpan) -> None:
        """
        Add *span*, which overlaps no other.

        Its ``open_count``, which must not be 0, is kept up to date from now on.
        """
        assert span.open_count > 0
        self.insert(span)
        self.count += span.open_count
        if span.time is not None:
            heappush(self._deadlines, (span.time, span.base))

    def mark_done(self, span: MessageSpan, count: int) -> None:
        """Note that *count* messages of *span* became done."""
        span.open_count -= count
        self.count -= count
        assert span.open_count >= 0
        if not span.open_count:
            self._remove(span)

    def mark(self, base: int, end: int) -> int:
        """Mark the messages of ``base … end`` in spans as done; return their number."""
        before = self.count
        for span in self.overlapping(base, end):
            count = self._cursor.mark(max(base, span.base), min(end, span.end))
            self.mark_done(span, count)
        return before - self.count

    def withdraw(
        self, base: int, end: int, consumer: int | None = None
    ) -> list[MessageSpan]:
        """
        Remove and return the open messages of ``base … end``.

        With *consumer*, only those that this consumer has.
        """
        taken = []
        for span in self.overlapping(base, end):
            if consumer is not None and span.consumer != consumer:
                continue
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

    def ranges_of(
        self, base: int, end: int, consumer: int, attempt: int
    ) -> list[Range]:
        """Return the open messages that *consumer* has in its delivery *attempt*."""
        span = self.find_containing(base, end)
        if span is not None and (span.consumer, span.attempt) == (consumer, attempt):
            return self._cursor.open_ranges(base, end)
        found = RangeSet()
        for span in self.overlapping(base, end):
            if span.consumer == consumer and span.attempt == attempt:
                within = max(base, span.base), min(end, span.end)
                for part in self._cursor.open_ranges(*within):
                    found.add(*part)
        return list(found)

    def extend(self, ranges: Iterable[Range], consumer: int, time: float) -> None:
        """
        Move earlier deadlines of messages of *ranges* to *time*.

        This affects only messages that *consumer* has.
        """
        for base, end in ranges:
            self._extend(base, end, consumer, time)

    def _extend(self, base: int, end: int, consumer: int, time: float) -> None:
        for span in self.overlapping(base, end):
            if span.consumer != consumer or span.time is None or span.time >= time:
                continue
            if len(self) >= EXTENDED_SPANS_MAX:
                # Do not divide the span: its other messages get more time as well.
                parts = self.withdraw(span.base, span.end)
            else:
                parts = self.withdraw(max(base, span.base), min(end, span.end))
            for part in parts:
                part.time = time
                self.add(part)

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
            span = self._by_base[heappop(self._deadlines)[1]]
            self.remove(span)
            due.append(span)
        return due

    def next_time(self) -> float | None:
        """Return the earliest deadline, or None."""
        deadlines = self._deadlines
        while deadlines:
            time, base = deadlines[0]
            span = self._by_base.get(base)
            if span is not None and span.time == time:
                return time
            heappop(deadlines)
        return None

    def limit_times(self, latest: float | None) -> None:
        """Move later deadlines to *latest*; None removes all deadlines."""
        for span in self:
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
        super().clear()
        self._deadlines.clear()
        self.count = 0

    def _remove(self, span: MessageSpan) -> None:
        self.delete(span)
        if len(self._deadlines) > 2 * len(self._by_base) + STALE_MAX:
            self._rebuild_deadlines()

    def _rebuild_deadlines(self) -> None:
        self._deadlines = sorted(
            (each.time, each.base) for each in self if each.time is not None
        )


class Expiries:
    """
    Ranges of messages by expiry time.

    Done ranges are removed from time to time, so at most about half of the entries are
    done.
    """

    __slots__ = ("_cursor", "_entries", "_entries_max")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        # A heap of times, each with a range.
        self._entries: list[tuple[float, int, int]] = []
        self._entries_max = STALE_MAX

    def add(self, expires: float, base: int, end: int) -> None:
        """Add ``base … end``, which expire at this time."""
        heappush(self._entries, (expires, base, end))
        if len(self._entries) > self._entries_max:
            self._entries = sorted(
                each for each in self._entries if self._is_open(each[1], each[2])
            )
            self._entries_max = 2 * len(self._entries) + STALE_MAX

    def next_time(self) -> float | None:
        """Return the earliest expiry time of an open range, or None."""
        while self._entries:
            expires, base, end = self._entries[0]
            if self._is_open(base, end):
                return expires
            heappop(self._entries)
        return None

    def pop_expired(self, now: float) -> Range | None:
        """Remove and return the first range that has expired, or return None."""
        expires = self.next_time()
        if expires is None or expires > now:
            return None
        _, base, end = heappop(self._entries)
        return base, end

    def clear(self) -> None:
        """Remove all ranges."""
        self._entries.clear()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def _is_open(self, base: int, end: int) -> bool:
        return self._cursor.first_open(base, end) is not None
