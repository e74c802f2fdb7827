"""What happened in a run, line by line, and one number that stands for all of it."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINES_MAX = 200_000
"""So many are kept to be shown; the digest covers all."""


class Trace:
    """The events of a run, in order, with their times."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.count = 0
        self.is_over = False
        """Whether what happens now is no longer part of the run."""
        self._clock = clock
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=LINES_MAX)
        self._digest = blake2b(digest_size=8)

    def note(self, who: str, what: str) -> None:
        """*what* happened to *who*, now."""
        if self.is_over:
            return
        now = self._clock()
        self.count += 1
        self._lines.append((now, who, what))
        self._digest.update(f"{now!r}|{who}|{what}\n".encode())

    @property
    def digest(self) -> str:
        """The same for two runs if, and only if, the same happened in them."""
        return self._digest.hexdigest()

    def lines(self, about: str = "") -> Iterator[str]:
        """What happened, readable; only lines in which *about* stands."""
        for each in self._lines:
            line = _readable(each)
            if about in line:
                yield line

    def lines_of(self, *names: str) -> Iterator[str]:
        """What happened to those whose names begin with one of *names*."""
        for each in self._lines:
            if each[1].startswith(names):
                yield _readable(each)


def _readable(event: tuple[float, str, str]) -> str:
    now, who, what = event
    return f"{now:11.6f}  {who:<14} {what}"
