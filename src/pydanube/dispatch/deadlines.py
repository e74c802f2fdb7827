"""Queues of deadlines, most of which are added in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from pydanube.dispatch.cursor import Cursor
from pydanube.model.ranges import Range

Deadline = tuple[float, int, int]
"""A time, and the ``base … end`` that it applies to."""

# The number of entries at the beginning of Deadlines that may be empty.
_EMPTY_MAX = 1000
_STALE_MAX = 64


class Deadlines:
    """
    A priority queue by time.

    A deadline that is added in order costs an append; others go to a heap.  The owner
    of the queue discards deadlines that no longer apply.
    """

    # Lists: an empty deque takes ten times as much memory, and most queues are empty.
    __slots__ = ("_begin", "_in_order", "_others")

    def __init__(self) -> None:
        self._in_order: list[Deadline] = []
        # The index of the first entry; those before it were removed.
        self._begin = 0
        self._others: list[Deadline] = []

    def add(self, time: float, base: int, end: int) -> None:
        """Add *time*, which applies to ``base … end``."""
        in_order = self._in_order
        if not in_order or time >= in_order[-1][0]:
            in_order.append((time, base, end))
        else:
            heappush(self._others, (time, base, end))

    def first(self) -> Deadline | None:
        """Return the earliest deadline, or None."""
        if self._others and self._is_other_first():
            return self._others[0]
        return self._in_order[self._begin] if self._in_order else None

    def pop(self) -> Deadline:
        """Remove and return the earliest deadline; the queue must not be empty."""
        if self._others and self._is_other_first():
            return heappop(self._others)
        first = self._in_order[self._begin]
        self._begin += 1
        if self._begin == len(self._in_order) or self._begin == _EMPTY_MAX:
            del self._in_order[: self._begin]
            self._begin = 0
        return first

    def replace(self, deadlines: Iterable[Deadline]) -> None:
        """Replace all deadlines."""
        self._in_order = sorted(deadlines)
        self._begin = 0
        self._others.clear()

    def clear(self) -> None:
        """Remove all deadlines."""
        self._in_order.clear()
        self._begin = 0
        self._others.clear()

    def __len__(self) -> int:
        return len(self._in_order) - self._begin + len(self._others)

    def __iter__(self) -> Iterator[Deadline]:
        """Yield all deadlines, in no particular order."""
        yield from self._in_order[self._begin :]
        yield from self._others

    def _is_other_first(self) -> bool:
        return not self._in_order or self._others[0] < self._in_order[self._begin]


class Expiries:
    """
    Ranges of messages by expiry time.

    Done ranges are removed from time to time, so at most about half of the entries are
    done.
    """

    __slots__ = ("_cursor", "_deadlines", "_entries_max")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._deadlines = Deadlines()
        self._entries_max = _STALE_MAX

    def add(self, expires: float, base: int, end: int) -> None:
        """Add ``base … end``, which expire at this time."""
        self._deadlines.add(expires, base, end)
        if len(self._deadlines) > self._entries_max:
            self._deadlines.replace(
                [each for each in self._deadlines if self._is_open(each[1], each[2])]
            )
            self._entries_max = 2 * len(self._deadlines) + _STALE_MAX

    def next_time(self) -> float | None:
        """Return the earliest expiry time of an open range, or None."""
        while (first := self._deadlines.first()) is not None:
            if self._is_open(first[1], first[2]):
                return first[0]
            self._deadlines.pop()
        return None

    def pop_expired(self, now: float) -> Range | None:
        """Remove and return the first range that has expired, or return None."""
        expires = self.next_time()
        if expires is None or expires > now:
            return None
        _, base, end = self._deadlines.pop()
        return base, end

    def clear(self) -> None:
        """Remove all ranges."""
        self._deadlines.clear()

    def __bool__(self) -> bool:
        return len(self._deadlines) > 0

    def _is_open(self, base: int, end: int) -> bool:
        return self._cursor.first_open(base, end) is not None
