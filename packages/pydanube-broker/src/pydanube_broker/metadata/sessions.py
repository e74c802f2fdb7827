"""
Sessions: the lifetime of a holder of keys.

A broker opens a session and attaches keys to it.  The store deletes these keys when the
session ends: when its holder closes it, or has not been heard of for the session's time
to live (TTL).  Other brokers then may take over what the keys stood for.

The store counts the TTL from the moment at which it receives a keepalive, and the
holder from the moment at which it sends one, which is earlier.  So a holder that is cut
off from the store knows that its session is lost before the store deletes the keys, if
its clock is not slower than the store's.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from pydanube.model.errors import SessionLost

STALLED_TTLS = 3
"""A session ends if its holder's event loop has stood still for so many TTLs."""

NEARLY_LOST = 0.25
"""The part of the TTL: a session with less time left was nearly lost."""

STRAINED = 0.25
"""The part of the TTL: a holder whose event loop stood still for longer is strained."""

MARGIN_S = 60.0
"""For how long the least margin of a session is remembered, and up to twice that."""


def boot_clock() -> float:
    """Return the seconds since the machine started, with the time it was suspended."""
    # CLOCK_MONOTONIC, which is time.monotonic() on Linux, stops during a suspension.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Session:
    """A session of a metadata store; opened by ``MetadataStore.open_session``."""

    def __init__(
        self,
        session_id: str,
        *,
        valid_until: float = math.inf,
        ttl_s: float = math.inf,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        """The session is lost at *valid_until* on *clock*, unless it is extended."""
        self.session_id = session_id
        self.ttl_s = ttl_s
        self.margin = Margin(ttl_s)
        """How much time was left when keepalives were answered."""
        self.lost = asyncio.Event()
        """
        Set soon after the session has been lost, or is closed.

        The event loop may be late; ``is_lost`` is exact.
        """
        self._valid_until = valid_until
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat_at = math.inf
        self._ending = threading.Lock()
        self._has_ended = False

    @property
    def is_lost(self) -> bool:
        """Whether others may hold the session's keys by now."""
        return self._has_ended or self._clock() >= self._valid_until

    @property
    def is_strained(self) -> bool:
        """Whether the holder was lately short of what it needs to keep the session."""
        return self.margin.is_strained(self._clock())

    @property
    def least_margin_s(self) -> float:
        """The least time that was left lately when a keepalive was answered."""
        return self.margin.least_s(self._clock())

    @property
    def longest_gap_s(self) -> float:
        """The longest time lately for which the holder's event loop stood still."""
        return self.margin.longest_gap_s(self._clock())

    @property
    def remaining_s(self) -> float:
        """The time until the session is lost unless it is extended; 0 if it is lost."""
        if self._has_ended:
            return 0.0
        return max(0.0, self._valid_until - self._clock())

    def check(self) -> None:
        """
        Check that the session still holds its keys.

        Raises:
            SessionLost: It may not.
        """
        if self.is_lost:
            raise SessionLost(
                f"session {self.session_id} of the metadata store is lost: the store "
                "did not receive its keepalives in time, or the session was closed"
            )

    # Called by the store.

    def extend(self, valid_until: float) -> float | None:
        """
        Keep the session valid until *valid_until*; a lost session stays lost.

        Returns: The time that was left if the session was nearly lost, else None.
        """
        now = self._clock()
        left_s = self._valid_until - now
        if self._has_ended or left_s <= 0:
            return None
        self._valid_until = max(self._valid_until, valid_until)
        return left_s if self.margin.on_keepalive(left_s, now) else None

    def end(self) -> bool:
        """Note that the session is lost or closed; return whether that is new."""
        with self._ending:
            is_new, self._has_ended = not self._has_ended, True
        if self._loop is None or self._loop is _running_loop():
            self.lost.set()
        elif not self._loop.is_closed():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.lost.set)
        return is_new

    # Called by the thread of the keepalives and by the event loop of the holder.

    def hold_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the event loop of the holder, which must call ``beat`` from now on."""
        self._loop = loop
        self.beat()

    def beat(self) -> None:
        """Note that the holder's event loop runs."""
        before, self._beat_at = self._beat_at, self._clock()
        self.margin.on_gap(self._beat_at - before, self._beat_at)

    @property
    def is_stalled(self) -> bool:
        """Whether the holder's event loop has stood still for too long."""
        return self._clock() - self._beat_at >= STALLED_TTLS * self.ttl_s


class Margin:
    """
    How near a session was to its end in the last minute or two.

    It has the least time that was left at a keepalive, and the longest time for which
    the holder's event loop stood still.
    """

    def __init__(self, ttl_s: float) -> None:
        self.near_losses = 0
        """Keepalives that were answered when the session was nearly lost."""
        self._ttl_s = ttl_s
        self._least = _Lately()
        self._gaps = _Lately()

    def on_keepalive(self, left_s: float, now: float) -> bool:
        """Note a keepalive; return whether the session was nearly lost."""
        self._least.note(-left_s, now)
        is_near = left_s < NEARLY_LOST * self._ttl_s
        self.near_losses += is_near
        return is_near

    def on_gap(self, gap_s: float, now: float) -> None:
        """Note that the event loop stood still for *gap_s* at most."""
        self._gaps.note(gap_s, now)

    def least_s(self, now: float) -> float:
        """Return the least time that was left lately; without keepalives, the TTL."""
        return min(-self._least.highest(now), self._ttl_s)

    def longest_gap_s(self, now: float) -> float:
        """Return the longest time lately for which the event loop stood still."""
        return max(self._gaps.highest(now), 0.0)

    def is_strained(self, now: float) -> bool:
        """Return whether the holder should do less than others."""
        return (
            self.least_s(now) < NEARLY_LOST * self._ttl_s
            or self.longest_gap_s(now) > STRAINED * self._ttl_s
        )


class _Lately:
    """The highest value of the last minute or two."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._before = self._present = -math.inf

    def note(self, value: float, now: float) -> None:
        self._turn(now)
        self._present = max(self._present, value)

    def highest(self, now: float) -> float:
        self._turn(now)
        return max(self._before, self._present)

    def _turn(self, now: float) -> None:
        age_s = now - self._since
        if age_s >= MARGIN_S:
            self._before = self._present if age_s < 2 * MARGIN_S else -math.inf
            self._present, self._since = -math.inf, now


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
