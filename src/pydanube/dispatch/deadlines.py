"""A queue of deadlines, most of which are added in the order of time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Deadline = tuple[float, int, int]
"""A time, and the ``base … end`` that it applies to."""

# The number of entries at the beginning that may be empty.
_STALE_MAX = 1000


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
        if self._begin == len(self._in_order) or self._begin == _STALE_MAX:
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
