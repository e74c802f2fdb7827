"""How long to wait before the next try."""

from __future__ import annotations

import random


class Backoff:
    """Waits that double from *first_s* to *max_s*, each shortened by chance."""

    def __init__(self, first_s: float = 0.05, max_s: float = 2.0) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The wait before the next try; many clients must not come at once."""
        wait_s = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311
        self._next_s = min(self._next_s * 2, self._max_s)
        return wait_s

    def reset(self) -> None:
        """It worked; begin anew."""
        self._next_s = self._first_s
