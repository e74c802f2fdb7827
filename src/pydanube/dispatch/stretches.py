"""
Messages in hand, as stretches: ranges of one batch that are in the same state.

A stretch is not cut when some of its messages become done: the cursor knows what
is done, and is asked when the stretch changes its state.  So an acknowledgement
costs no more than the cursor's mark, and a million of them leave nothing behind.
All stretches of a subscription, whatever their state, are disjoint.
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
class Stretch:
    """Messages ``base … end`` of *batch*, which are all treated alike."""

    base: int
    end: int
    attempt: int
    """In flight, the number of this delivery; else of the next one; 1 is the first."""
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
    How many of its messages are not done; kept up to date as long as the stretch is
    in a Stretches.
    """

    def part(self, base: int, end: int) -> Stretch:
        """A new stretch of ``base … end`` in the same state."""
        return Stretch(
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

    def is_like(self, other: Stretch) -> bool:
        """Whether both could be delivered as one, if they were neighbours."""
        return (
            self.batch is other.batch
            and self.attempt == other.attempt
            and self.failures == other.failures
            and self.expires == other.expires
        )


class Stretches:
    """
    Stretches by offset and by time.

    Every change costs a binary search.  Removed stretches leave their place in the
    sorted lists, which are rebuilt when they are mostly such places; therefore
    removing from the front, where most acknowledgements fall, moves nothing.
    """

    __slots__ = ("_bases", "_cursor", "_deadlines", "_stale", "_stretches", "count")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._stretches: dict[int, Stretch] = {}
        # Sorted; a superset of the keys of _stretches.  No base of a removed stretch
        # lies inside a present one, so the stretch that holds an offset, if any, is
        # the one at the highest base that is not above it.
        self._bases: list[int] = []
        # An entry counts if there is still such a stretch, with such a time.
        self._deadlines = Deadlines()
        # How many places in either list may be empty.
        self._stale = 0
        self.count = 0
        """How many messages there are, without those that are done."""

    def add(self, stretch: Stretch) -> None:
        """
        Put *stretch* in, which overlaps no other.

        Its ``open_count``, which is not 0, is kept up to date from now on.
        """
        bases, base = self._bases, stretch.base
        assert stretch.open_count > 0
        if not bases or base > bases[-1]:
            bases.append(base)
        else:
            first = bisect_left(bases, base)
            last = bisect_left(bases, stretch.end, first)
            bases[first:last] = [base]
        self._stretches[base] = stretch
        self.count += stretch.open_count
        if stretch.time is not None:
            self._deadlines.add(stretch.time, base, stretch.end)

    def settle(self, stretch: Stretch, count: int) -> None:
        """Note that *count* messages of *stretch* became done."""
        stretch.open_count -= count
        self.count -= count
        assert stretch.open_count >= 0
        if not stretch.open_count:
            self._remove(stretch)

    def find_holder(self, base: int, end: int) -> Stretch | None:
        """The stretch that holds all of ``base … end``, if one does."""
        at = bisect_right(self._bases, base) - 1
        stretch = self._stretches.get(self._bases[at]) if at >= 0 else None
        return stretch if stretch is not None and end <= stretch.end else None

    def overlapping(self, base: int, end: int) -> list[Stretch]:
        """The stretches that hold some of ``base … end``, in order."""
        first = max(0, bisect_right(self._bases, base) - 1)
        last = bisect_left(self._bases, end, first)
        found = map(self._stretches.get, self._bases[first:last])
        return [each for each in found if each is not None and base < each.end]

    def withdraw(self, base: int, end: int) -> list[Stretch]:
        """Take out what is not done of ``base … end``, splitting at its ends."""
        taken = []
        for stretch in self.overlapping(base, end):
            if base <= stretch.base and stretch.end <= end:
                self.remove(stretch)
                taken.append(stretch)
                continue
            cuts = sorted(
                {stretch.base, max(base, stretch.base), min(end, stretch.end)}
            )
            self.remove(stretch)
            for cut, cut_end in zip(cuts, [*cuts[1:], stretch.end], strict=True):
                part = stretch.part(cut, cut_end)
                part.open_count = self._cursor.open_count(cut, cut_end)
                if not part.open_count:
                    continue
                if base <= cut < end:
                    taken.append(part)
                else:
                    self.add(part)
        return taken

    def withdraw_from(self, consumer: int) -> list[Stretch]:
        """Take everything out that *consumer* has."""
        found = [each for each in self if each.consumer == consumer]
        for stretch in found:
            self.remove(stretch)
        return found

    def withdraw_due(self, now: float) -> list[Stretch]:
        """Take everything out whose time has come, the earliest first."""
        due = []
        while (time := self.next_time()) is not None and time <= now:
            stretch = self._stretches[self._deadlines.pop()[1]]
            self.remove(stretch)
            due.append(stretch)
        return due

    def next_time(self) -> float | None:
        """The earliest time of all stretches, or None."""
        deadlines = self._deadlines
        while (first := deadlines.first()) is not None:
            time, base, _ = first
            stretch = self._stretches.get(base)
            if stretch is not None and stretch.time == time:
                return time
            deadlines.pop()
        return None

    def limit_times(self, latest: float | None) -> None:
        """Let no stretch stay longer than to *latest*; None: all stay."""
        for stretch in self._stretches.values():
            if latest is None:
                stretch.time = None
            elif stretch.time is None or stretch.time > latest:
                stretch.time = latest
        self._rebuild_deadlines()

    def remove(self, stretch: Stretch) -> None:
        """Take *stretch* out, with what it still has."""
        self.count -= stretch.open_count
        self._remove(stretch)

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
        self._stretches.clear()
        self._bases.clear()
        self._deadlines.clear()
        self._stale = 0
        self.count = 0

    def __iter__(self) -> Iterator[Stretch]:
        """All of them, in no particular order."""
        return iter(self._stretches.values())

    def __len__(self) -> int:
        """How many stretches there are."""
        return len(self._stretches)

    def _remove(self, stretch: Stretch) -> None:
        stretches = self._stretches
        del stretches[stretch.base]
        self._stale += 1
        if self._stale > len(stretches) + _STALE_MAX:
            self._stale = 0
            self._bases = [base for base in self._bases if base in stretches]
            self._rebuild_deadlines()

    def _rebuild_deadlines(self) -> None:
        self._deadlines.replace(
            (each.time, each.base, each.end)
            for each in self._stretches.values()
            if each.time is not None
        )
