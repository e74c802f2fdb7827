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
import time
from collections.abc import Callable

from pydanube.model.errors import SessionLost


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
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        """The session is lost at *valid_until* on *clock*, unless it is extended."""
        self.session_id = session_id
        self.lost = asyncio.Event()
        """
        Set soon after the session has been lost, or is closed.

        The event loop may be late; ``is_lost`` is exact.
        """
        self._valid_until = valid_until
        self._clock = clock

    @property
    def is_lost(self) -> bool:
        """Whether others may hold the session's keys by now."""
        return self.lost.is_set() or self._clock() >= self._valid_until

    @property
    def remaining_s(self) -> float:
        """The time until the session is lost unless it is extended; 0 if it is lost."""
        if self.lost.is_set():
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

    def extend(self, valid_until: float) -> None:
        """Keep the session valid until *valid_until*; a lost session stays lost."""
        if not self.is_lost:
            self._valid_until = max(self._valid_until, valid_until)

    def end(self) -> None:
        """Note that the session is lost or closed."""
        self.lost.set()
