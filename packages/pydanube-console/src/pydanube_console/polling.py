"""Work that is repeated while somebody looks at its outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod

from pydanube.model.errors import BrokerError
from pydanube_console.pure.history import INTERVAL_S

log = logging.getLogger(__name__)

SHARE_MAX = 0.1
"""The work takes at most this part of the time, so that it loads nobody."""
WATCHED_S = 10.0
"""After this time without a page that shows its outcome, the work is not repeated."""


class Poller(ABC):
    """The repetition of ``take``; ``run`` is its task."""

    def __init__(self) -> None:
        self.error = ""
        """Why the work failed the last time."""
        self._watched_until = 0.0
        self._wake = asyncio.Event()
        self._is_done = asyncio.Event()

    @abstractmethod
    async def take(self) -> None:
        """
        Do the work once.

        Raises:
            BrokerError: It failed, and is tried again.
        """

    @property
    def has_taken(self) -> bool:
        """Whether the work was done, or failed, at least once."""
        return self._is_done.is_set()

    def watch(self) -> None:
        """Repeat the work for the next ``WATCHED_S``."""
        self._watched_until = time.monotonic() + WATCHED_S
        self._wake.set()

    async def first(self) -> None:
        """Wait until the work was done, or failed."""
        self.watch()
        await self._is_done.wait()

    async def attempt(self) -> None:
        """Do the work once, and keep its error."""
        try:
            await self.take()
            self.error = ""
        except BrokerError as error:
            self.error = str(error)
            log.info("%s: %s", type(self).__name__, error)
        except Exception as error:
            # Other pages go on.
            self.error = f"a failure of the console: {type(error).__name__}"
            log.exception("%s", type(self).__name__)
        self._is_done.set()

    async def run(self) -> None:
        """Repeat the work while somebody watches, until cancelled."""
        while True:
            began = time.monotonic()
            if began > self._watched_until:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self.attempt()
            elapsed_s = time.monotonic() - began
            await asyncio.sleep(max(INTERVAL_S, elapsed_s / SHARE_MAX))
