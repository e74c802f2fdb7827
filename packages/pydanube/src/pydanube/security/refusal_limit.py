"""The limit of records of refusals, which strangers can cause as often as they like."""

from __future__ import annotations

from collections.abc import Hashable

PER_SOURCE_MAX = 20
"""The refusals of a source that are recorded at once."""
PER_SOURCE_PER_S = 1.0
"""The refusals of a source that are recorded per second, after those."""
TOTAL_MAX = 1000
"""The refusals of all sources that are recorded at once."""
TOTAL_PER_S = 50.0
"""The refusals of all sources that are recorded per second, after those."""
SOURCES_MAX = 10_000
"""The sources that are remembered; others count together."""

OTHERS = "others"
"""The source of the refusals of sources beyond ``SOURCES_MAX``."""


class RefusalLimit:
    """
    Decides which refusals are recorded one by one, and counts the others.

    A source is whatever causes refusals: an address and a principal.  A source with
    many refusals does not hide those of others, until all together are too many.
    """

    def __init__(
        self, *, total_max: int = TOTAL_MAX, sources_max: int = SOURCES_MAX
    ) -> None:
        self._total_max = total_max
        self._sources_max = sources_max
        # The refusals at a time, in the order of the last ones.
        self._sources: dict[Hashable, tuple[float, float]] = {}
        self._total = (0.0, 0.0)
        self._suppressed: dict[Hashable, int] = {}

    def admits(self, source: Hashable, now: float) -> bool:
        """Return whether to record a refusal; if not, it is counted."""
        known = self._sources.pop(source, (0.0, now))
        count = _left(known, PER_SOURCE_PER_S, now)
        total = _left(self._total, TOTAL_PER_S, now)
        is_admitted = count + 1 <= PER_SOURCE_MAX and total + 1 <= self._total_max
        if is_admitted:
            count += 1
            self._total = total + 1, now
        else:
            self._count_suppressed(source)
        self._sources[source] = count, now
        if len(self._sources) > self._sources_max:
            del self._sources[next(iter(self._sources))]
        return is_admitted

    def take_suppressed(self) -> dict[Hashable, int]:
        """Return how many refusals were not recorded since the last call, by source."""
        suppressed, self._suppressed = self._suppressed, {}
        return suppressed

    def _count_suppressed(self, source: Hashable) -> None:
        has_room = len(self._suppressed) < self._sources_max
        is_known = source in self._suppressed or has_room
        key = source if is_known else OTHERS
        self._suppressed[key] = self._suppressed.get(key, 0) + 1


def _left(known: tuple[float, float], per_s: float, now: float) -> float:
    count, at = known
    return max(0.0, count - max(0.0, now - at) * per_s)
