"""The events of a run as lines, and their digest."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINES_MAX = 200_000
"""The number of lines that are kept; the digest covers all."""


class Trace:
    """The events of a run, in order, with their times."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.count = 0
        self.is_over = False
        """Whether to ignore further events."""
        self._clock = clock
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=LINES_MAX)
        self._digest = blake2b(digest_size=8)

    def note(self, who: str, what: str) -> None:
        """Add the event *what* of *who*, at the current time."""
        if self.is_over:
            return
        now = self._clock()
        self.count += 1
        self._lines.append((now, who, what))
        self._digest.update(f"{now!r}|{who}|{what}\n".encode())

    @property
    def digest(self) -> str:
        """A hash of all events, for comparing runs."""
        return self._digest.hexdigest()

    def lines(self, about: str = "") -> Iterator[str]:
        """Yield the lines that contain *about*."""
        for each in self._lines:
            line = _readable(each)
            if about in line:
                yield line

    def lines_of(self, *names: str) -> Iterator[str]:
        """Yield the lines of those whose names begin with one of *names*."""
        for each in self._lines:
            if each[1].startswith(names):
                yield _readable(each)


def _readable(event: tuple[float, str, str]) -> str:
    now, who, what = event
    return f"{now:11.6f}  {who:<14} {what}"
