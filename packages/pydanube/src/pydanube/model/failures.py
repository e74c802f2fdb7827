"""Messages that have failed, as a subscription remembers them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from pydanube.model.shown_text import excerpt

FAILED_RANGES_MAX = 2000
"""The most ranges that are remembered; further messages begin again after a restart."""
REASON_CHARS_MAX = 200


class FailedRange(NamedTuple):
    """Messages ``base … end`` that have failed equally often."""

    base: int
    end: int
    attempt: int
    """The number of their next delivery."""
    failures: int
    """The number of nacks and ack timeouts."""
    reason: str
    """The reason of the last failure."""

    def part(self, base: int, end: int) -> FailedRange:
        """Return the messages of ``base … end``, which are a part of these."""
        return self._replace(base=max(base, self.base), end=min(end, self.end))


_base = attrgetter("base")
_end = attrgetter("end")


class Failures:
    """
    The failures of messages that are not done yet.

    Bounds: ``FAILED_RANGES_MAX`` ranges.  If there are as many, messages that have
        failed most often replace others.
    """

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Iterable[FailedRange] = ()) -> None:
        """*ranges* are disjoint."""
        self._ranges = sorted(ranges)

    def note(
        self, base: int, end: int, *, attempt: int, failures: int, reason: str
    ) -> None:
        """Note the last failure of ``base … end``."""
        self.forget(base, end)
        new = FailedRange(
            base, end, attempt, failures, excerpt(reason, REASON_CHARS_MAX)
        )
        at = bisect_left(self._ranges, base, key=_base)
        before = self._ranges[at - 1] if at else None
        if before is not None and before.end == base and before[2:] == new[2:]:
            self._ranges[at - 1] = before._replace(end=end)
            return
        if len(self._ranges) >= FAILED_RANGES_MAX:
            least = min(self._ranges, key=attrgetter("failures"))
            if least.failures >= failures:
                return
            self._ranges.remove(least)
        insort(self._ranges, new)

    def forget(self, base: int, end: int) -> None:
        """Forget the failures of ``base … end``."""
        at = bisect_left(self._ranges, base + 1, key=_end)
        stop = bisect_left(self._ranges, end, at, key=_base)
        left = [
            each.part(*bounds)
            for each in self._ranges[at:stop]
            for bounds in ((each.base, base), (end, each.end))
            if max(bounds[0], each.base) < min(bounds[1], each.end)
        ]
        self._ranges[at:stop] = left

    def within(self, base: int, end: int) -> list[FailedRange]:
        """Return the parts of ``base … end`` that have failed, in order."""
        at = bisect_left(self._ranges, base + 1, key=_end)
        stop = bisect_left(self._ranges, end, at, key=_base)
        return [each.part(base, end) for each in self._ranges[at:stop]]

    def clear(self) -> None:
        """Forget all failures."""
        self._ranges.clear()

    @property
    def end(self) -> int:
        """The end of the last range; 0 if there is none."""
        return self._ranges[-1].end if self._ranges else 0

    def replace(self, ranges: Iterable[FailedRange]) -> None:
        """Replace all ranges by *ranges*, which are in order."""
        self._ranges = list(ranges)

    def __iter__(self) -> Iterator[FailedRange]:
        return iter(self._ranges)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._ranges)
