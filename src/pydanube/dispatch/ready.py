"""The messages that can be delivered as soon as a consumer has credit."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydanube.dispatch.cursor import Cursor
    from pydanube.dispatch.message_spans import MessageSpan

OFFSET_MAX = 1 << 64
"""More than any offset."""
# So many places at the beginning may be empty.
_STALE_MAX = 1000


class ReadySpans:
    """
    First what was delivered before, then what was not, each in the order of offsets.

    Taking the first and appending the last cost the same however much is ready.
    """

    __slots__ = ("_begin", "_cursor", "_early", "_new", "_returned")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        # As it came, in the order of offsets, from the place _begin on.  (An empty
        # deque would take ten times as much, and most are empty.)
        self._new: list[MessageSpan] = []
        self._begin = 0
        # What is to be delivered for the first time, but did not come in order: it
        # was delayed, or is the rest of something.  The last one comes first.
        self._early: list[MessageSpan] = []
        # What was delivered before.  The last one comes first.
        self._returned: list[MessageSpan] = []

    def add_new(self, span: MessageSpan) -> None:
        """Append a span that lies behind all new ones that came before."""
        self._new.append(span)

    def put_back(self, span: MessageSpan) -> None:
        """Take a span that was taken, came back from a consumer, or is due now."""
        queue = self._returned if span.attempt > 1 else self._early
        insort(queue, span, key=_backwards)

    def take(self, first_below: int = OFFSET_MAX) -> MessageSpan | None:
        """
        Remove and return the next span, of which nothing is done.

        What was never delivered counts only below the offset *first_below*.
        """
        while self._returned:
            span = self._pop_returned()
            if self._cut_to_open(span):
                return span
        while (taken := self._pop_first(first_below)) is not None:
            if not self._cut_to_open(taken):
                continue
            if taken.base < first_below:
                return taken
            self.put_back(taken)
        return None

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Take out what is not done of ``base … end``, and return it in order."""
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
            # What is left stays in its place; it may be nothing.
            span.end = cut
        for rest in rests:
            self.put_back(rest)
        return sorted(taken, key=_base)

    def clear(self) -> None:
        """Forget everything."""
        if self._new or self._early or self._returned:
            self._new.clear()
            self._begin = 0
            self._early.clear()
            self._returned.clear()

    def __len__(self) -> int:
        """How many spans there are, also such of which nothing is left."""
        new = len(self._new) - self._begin
        return new + len(self._early) + len(self._returned)

    def _pop_returned(self) -> MessageSpan:
        returned = self._returned
        span = returned.pop()
        # What a batch was cut into for several consumers, or by a nack in its
        # middle, becomes one delivery again.
        while returned and returned[-1].base == span.end and returned[-1].is_like(span):
            span.end = returned.pop().end
        return span

    def _pop_first(self, first_below: int) -> MessageSpan | None:
        new, early = self._new, self._early
        first = new[self._begin] if new else None
        if early and not (first is not None and first.base < early[-1].base):
            return early.pop() if early[-1].base < first_below else None
        if first is None or first.base >= first_below:
            return None
        self._begin += 1
        if self._begin == len(new) or self._begin == _STALE_MAX:
            del new[: self._begin]
            self._begin = 0
        return first

    def _cut_to_open(self, span: MessageSpan) -> bool:
        """Leave the first part that is not done; what follows it is put back."""
        found = self._cursor.first_open(span.base, span.end)
        if found is None:
            return False
        base, end = found
        if end < span.end:
            self.put_back(span.part(end, span.end))
        span.base, span.end = base, end
        return True

    def _overlapping(self, base: int, end: int) -> list[MessageSpan]:
        """The spans that hold some of ``base … end``."""
        found = []
        for queue in (self._returned, self._early):
            for at in range(bisect_left(queue, 1 - end, key=_backwards), len(queue)):
                found.append(queue[at])
                if queue[at].base <= base:
                    break
        last = bisect_left(self._new, end, self._begin, key=_base) - 1
        for at in range(last, self._begin - 1, -1):
            found.append(self._new[at])
            if self._new[at].base <= base:
                break
        return [each for each in found if base < each.end and each.base < end]


def _base(span: MessageSpan) -> int:
    return span.base


def _backwards(span: MessageSpan) -> int:
    return -span.base
