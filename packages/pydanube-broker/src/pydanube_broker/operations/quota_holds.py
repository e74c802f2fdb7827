"""
Waiting until a quota allows more.

A wait ends early if the quota is raised or removed meanwhile: within ``RECHECK_S``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

RECHECK_S = 5.0

Due = Callable[[float], float]
"""Returns the seconds until everything that was charged is due, at a time."""


def _nothing_due(_: float) -> float:
    return 0.0


def _do_nothing() -> None:
    pass


class QuotaHold:
    """A pause of something without a task; call ``end`` when that is lost."""

    __slots__ = ("_due", "_loop", "_on_end", "_recheck_s", "_timer", "_until")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        due: Due,
        on_end: Callable[[], None],
        *,
        recheck_s: float = RECHECK_S,
    ) -> None:
        self._recheck_s = recheck_s
        self._loop = loop
        self._due = due
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0

    @property
    def is_held(self) -> bool:
        """Whether the pause lasts."""
        return self._timer is not None

    def extend(self, delay_s: float) -> None:
        """Pause for *delay_s* from now on, or for longer if it lasts longer."""
        now = self._loop.time()
        self._until = max(self._until, now + delay_s)
        if self._timer is None:
            self._start(self._until - now)

    def end(self) -> None:
        """End the pause without a call, and drop the references to what was paused."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due, self._on_end = _nothing_due, _do_nothing

    def _start(self, left_s: float) -> None:
        self._timer = self._loop.call_later(min(left_s, self._recheck_s), self._look)

    def _look(self) -> None:
        now = self._loop.time()
        left_s = min(self._until - now, self._due(now))
        if left_s > 0:
            self._start(left_s)
            return
        self._timer, self._until = None, 0.0
        self._on_end()


async def wait_for_quota(
    delay_s: float, due: Due, *, recheck_s: float = RECHECK_S
) -> None:
    """Wait for *delay_s*, or less if *due* says that nothing is owed any more."""
    clock = asyncio.get_running_loop().time
    until = clock() + delay_s
    left_s = delay_s
    while left_s > 0:
        await asyncio.sleep(min(left_s, recheck_s))
        left_s = min(until - clock(), due(clock()))
