"""Times at which something is due, most of them told in the order of time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Deadline = tuple[float, int, int]
"""A time, and the ``base … end`` that it concerns."""

# So many places at the beginning may be empty.
_STALE_MAX = 1000


class Deadlines:
    """
    A queue by time.

    Deadlines that come in order cost an append; others go to a heap beside.  Who
    keeps the queue knows which of them still count, and drops the others.
    """

    # Lists, because an empty deque takes ten times as much, and most queues are empty.
    __slots__ = ("_begin", "_in_order", "_others")

    def __init__(self) -> None:
        self._in_order: list[Deadline] = []
        # Where it begins; what lies before was removed.
        self._begin = 0
        self._others: list[Deadline] = []

    def add(self, time: float, base: int, end: int) -> None:
        """Note that *time* concerns ``base … end``."""
        in_order = self._in_order
        if not in_order or time >= in_order[-1][0]:
            in_order.append((time, base, end))
        else:
            heappush(self._others, (time, base, end))

    def first(self) -> Deadline | None:
        """The earliest, or None."""
        if self._others and self._is_other_first():
            return self._others[0]
        return self._in_order[self._begin] if self._in_order else None

    def pop(self) -> Deadline:
        """Remove and return the earliest; there must be one."""
        if self._others and self._is_other_first():
            return heappop(self._others)
        first = self._in_order[self._begin]
        self._begin += 1
        if self._begin == len(self._in_order) or self._begin == _STALE_MAX:
            del self._in_order[: self._begin]
            self._begin = 0
        return first

    def replace(self, deadlines: Iterable[Deadline]) -> None:
        """Keep just these."""
        self._in_order = sorted(deadlines)
        self._begin = 0
        self._others.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._in_order.clear()
        self._begin = 0
        self._others.clear()

    def __len__(self) -> int:
        return len(self._in_order) - self._begin + len(self._others)

    def __iter__(self) -> Iterator[Deadline]:
        """All of them, in no particular order."""
        yield from self._in_order[self._begin :]
        yield from self._others

    def _is_other_first(self) -> bool:
        return not self._in_order or self._others[0] < self._in_order[self._begin]
