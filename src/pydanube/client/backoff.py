"""How long to wait before the next try, and for how long to try at all."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, TypeVar

from pydanube.model.errors import BrokerError, Remedy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


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


async def retry(attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """
    What *attempt* gives; it is repeated while its errors say that this may help.

    Raises: What the last attempt raised, if that is final or *timeout_s* is over.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff()
    give_up_at = loop.time() + timeout_s
    while True:
        try:
            return await attempt()
        except BrokerError as error:
            if error.remedy is Remedy.GIVE_UP or loop.time() > give_up_at:
                raise
        await asyncio.sleep(backoff.next_s())
