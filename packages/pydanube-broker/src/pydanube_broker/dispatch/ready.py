"""The ready messages of subscriptions that ignore keys."""

from __future__ import annotations

from bisect import bisect_left, insort

from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.message_spans import MessageSpan, by_base

OFFSET_MAX = 1 << 64
"""Higher than any offset."""
# The number of entries at the beginning that may be empty.
_STALE_MAX = 1000


class ReadySpans:
    """
    Redeliveries, then first deliveries, each in the order of offsets.

    Taking the first and appending the last span takes constant time.
    """

    __slots__ = ("_begin", "_cursor", "_new", "_returned", "_unordered")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        # First deliveries in the order of offsets, from the index _begin on.  (An empty
        # deque takes ten times as much memory, and most of these lists are empty.)
        self._new: list[MessageSpan] = []
        self._begin = 0
        # First deliveries that were not added in order: they were delayed, or are the
        # rest of a span.  In descending order.
        self._unordered: list[MessageSpan] = []
        # Redeliveries, in descending order.
        self._returned: list[MessageSpan] = []

    def add_new(self, span: MessageSpan) -> None:
        """Add a new span, which lies above all spans added before."""
        self._new.append(span)

    def put_back(self, span: MessageSpan) -> None:
        """Add a span that was taken, that a consumer returned, or that is due now."""
        queue = self._returned if span.attempt > 1 else self._unordered
        insort(queue, span, key=_descending)

    def take(self, first_deliveries_end: int = OFFSET_MAX) -> MessageSpan | None:
        """
        Remove and return the next span, of which nothing is done.

        First deliveries are returned only below the offset *first_deliveries_end*.
        """
        while self._returned:
            span = self._pop_returned()
            if self._cut_to_open(span):
                return span
        while (taken := self._pop_first(first_deliveries_end)) is not None:
            if not self._cut_to_open(taken):
                continue
            if taken.base < first_deliveries_end:
                return taken
            self.put_back(taken)
        return None

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Remove and return the open messages of ``base … end``, in order."""
        taken: list[MessageSpan] = []
        rests: list[MessageSpan] = []
        for span in self._overlapping(base, end):
            cut, cut_end = max(base, span.base), min(end, span.end)
            part = span.part(cut, cut_end)
            part.open_count = self._cursor.open_count(cut, cut_end)
            if part.open_count:
                taken.append(part)
            if cut_end < span.end:
                rests.append(span.part(cut_end, span.end))
            # The part below stays in its place; it may be empty.
            span.end = cut
        for rest in rests:
            self.put_back(rest)
        return sorted(taken, key=by_base)

    def clear(self) -> None:
        """Remove all spans."""
        if self._new or self._unordered or self._returned:
            self._new.clear()
            self._begin = 0
            self._unordered.clear()
            self._returned.clear()

    def __len__(self) -> int:
        """Return the number of spans, including empty ones."""
        new = len(self._new) - self._begin
        return new + len(self._unordered) + len(self._returned)

    def _pop_returned(self) -> MessageSpan:
        returned = self._returned
        span = returned.pop()
        # Parts of a batch that was divided among consumers, or by a nack in its
        # middle, become one delivery again.
        while returned and returned[-1].base == span.end and returned[-1].is_like(span):
            span.end = returned.pop().end
        return span

    def _pop_first(self, first_deliveries_end: int) -> MessageSpan | None:
        new, unordered = self._new, self._unordered
        first = new[self._begin] if new else None
        if unordered and not (first is not None and first.base < unordered[-1].base):
            return (
                unordered.pop() if unordered[-1].base < first_deliveries_end else None
            )
        if first is None or first.base >= first_deliveries_end:
            return None
        self._begin += 1
        if self._begin == len(new) or self._begin == _STALE_MAX:
            del new[: self._begin]
            self._begin = 0
        return first

    def _cut_to_open(self, span: MessageSpan) -> bool:
        """Cut *span* to its first open range, and put the rest back."""
        found = self._cursor.first_open(span.base, span.end)
        if found is None:
            return False
        base, end = found
        if end < span.end:
            self.put_back(span.part(end, span.end))
        span.base, span.end = base, end
        return True

    def _overlapping(self, base: int, end: int) -> list[MessageSpan]:
        """Return the spans that overlap ``base … end``."""
        found = []
        for queue in (self._returned, self._unordered):
            for at in range(bisect_left(queue, 1 - end, key=_descending), len(queue)):
                found.append(queue[at])
                if queue[at].base <= base:
                    break
        last = bisect_left(self._new, end, self._begin, key=by_base) - 1
        for at in range(last, self._begin - 1, -1):
            found.append(self._new[at])
            if self._new[at].base <= base:
                break
        return [each for each in found if base < each.end and each.base < end]


def _descending(span: MessageSpan) -> int:
    return -span.base
