"""The expiry times of tracked messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.deadlines import Deadlines

if TYPE_CHECKING:
    from pydanube.dispatch.cursor import Cursor
    from pydanube.model.ranges import Range

_STALE_MAX = 64


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
