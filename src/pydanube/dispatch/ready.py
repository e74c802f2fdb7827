"""The messages that can be delivered as soon as a consumer has credit."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydanube.dispatch.cursor import Cursor
    from pydanube.dispatch.stretches import Stretch

ANYWHERE = 1 << 64
"""More than any offset."""
# So many places at the beginning may be empty.
_STALE_MAX = 1000


class Ready:
    """
    First what was delivered before, then what was not, each in the order of offsets.

    Taking the first and appending the last cost the same however much is ready.
    """

    __slots__ = ("_begin", "_cursor", "_early", "_new", "_returned")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        # As it came, in the order of offsets, from the place _begin on.  (An empty
        # deque would take ten times as much, and most are empty.)
        self._new: list[Stretch] = []
        self._begin = 0
        # What is to be delivered for the first time, but did not come in order: it
        # was delayed, or is the rest of something.  The last one comes first.
        self._early: list[Stretch] = []
        # What was delivered before.  The last one comes first.
        self._returned: list[Stretch] = []

    def add_new(self, stretch: Stretch) -> None:
        """Append a stretch that lies behind all new ones that came before."""
        self._new.append(stretch)

    def put_back(self, stretch: Stretch) -> None:
        """Take a stretch that was taken, came back from a consumer, or is due now."""
        line = self._returned if stretch.attempt > 1 else self._early
        insort(line, stretch, key=_backwards)

    def take(self, first_below: int = ANYWHERE) -> Stretch | None:
        """
        Remove and return the next stretch, of which nothing is done.

        What was never delivered counts only below the offset *first_below*.
        """
        while self._returned:
            stretch = self._pop_returned()
            if self._cut_to_open(stretch):
                return stretch
        while (taken := self._pop_first(first_below)) is not None:
            if not self._cut_to_open(taken):
                continue
            if taken.base < first_below:
                return taken
            self.put_back(taken)
        return None

    def withdraw(self, base: int, end: int) -> list[Stretch]:
        """Take out what is not done of ``base … end``, and return it in order."""
        taken: list[Stretch] = []
        rests: list[Stretch] = []
        for stretch in self._overlapping(base, end):
            cut, cut_end = max(base, stretch.base), min(end, stretch.end)
            part = stretch.part(cut, cut_end)
            part.open_count = self._cursor.open_count(cut, cut_end)
            if part.open_count:
                taken.append(part)
            if cut_end < stretch.end:
                rests.append(stretch.part(cut_end, stretch.end))
            # What is left stays in its place; it may be nothing.
            stretch.end = cut
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
        """How many stretches there are, also such of which nothing is left."""
        new = len(self._new) - self._begin
        return new + len(self._early) + len(self._returned)

    def _pop_returned(self) -> Stretch:
        returned = self._returned
        stretch = returned.pop()
        # What a batch was cut into for several consumers, or by a nack in its
        # middle, becomes one delivery again.
        while (
            returned
            and returned[-1].base == stretch.end
            and returned[-1].is_like(stretch)
        ):
            stretch.end = returned.pop().end
        return stretch

    def _pop_first(self, first_below: int) -> Stretch | None:
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

    def _cut_to_open(self, stretch: Stretch) -> bool:
        """Leave the first part that is not done; what follows it is put back."""
        found = self._cursor.first_open(stretch.base, stretch.end)
        if found is None:
            return False
        base, end = found
        if end < stretch.end:
            self.put_back(stretch.part(end, stretch.end))
        stretch.base, stretch.end = base, end
        return True

    def _overlapping(self, base: int, end: int) -> list[Stretch]:
        """The stretches that hold some of ``base … end``."""
        found = []
        for line in (self._returned, self._early):
            for at in range(bisect_left(line, 1 - end, key=_backwards), len(line)):
                found.append(line[at])
                if line[at].base <= base:
                    break
        last = bisect_left(self._new, end, self._begin, key=_base) - 1
        for at in range(last, self._begin - 1, -1):
            found.append(self._new[at])
            if self._new[at].base <= base:
                break
        return [each for each in found if base < each.end and each.base < end]


def _base(stretch: Stretch) -> int:
    return stretch.base


def _backwards(stretch: Stretch) -> int:
    return -stretch.base
