"""Warnings about a disk that syncs the journal slowly."""

from __future__ import annotations

SLOW_SYNC_S = 0.5
"""A sync that takes longer is slow: every publisher of the broker waits for it."""

INTERVAL_S = 60.0
"""The shortest time between two warnings."""


class SlowSyncs:
    """The slow syncs since the last warning."""

    def __init__(self) -> None:
        self._next_at = 0.0
        self._count = 0
        self._slowest_s = 0.0

    def warning(self, taken_s: float, now: float) -> str | None:
        """Return the warning to log after a sync that took *taken_s*, if it is time."""
        if taken_s < SLOW_SYNC_S:
            return None
        self._count += 1
        self._slowest_s = max(self._slowest_s, taken_s)
        if now < self._next_at:
            return None
        text = f"the disk is slow: a sync of the journal took {taken_s:.1f} s"
        if self._count > 1:
            text += (
                f"; {self._count} were slow since the last warning, and took up to "
                f"{self._slowest_s:.1f} s"
            )
        self._next_at, self._count, self._slowest_s = now + INTERVAL_S, 0, 0.0
        return text
