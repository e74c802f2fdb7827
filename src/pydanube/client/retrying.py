"""Retries of requests and connections."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, TypeVar

from pydanube.model.errors import BrokerError, Remedy
from pydanube.model.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_POLICY = RetryPolicy(first_s=0.05, max_s=2.0)


class Backoff:
    """Waits between attempts, shortened at random."""

    def __init__(self) -> None:
        self._failures = 0

    async def wait(self) -> None:
        """Wait after a failed attempt."""
        self._failures += 1
        await asyncio.sleep(_POLICY.delay_s(self._failures, random.random))

    def reset(self) -> None:
        """Note that an attempt succeeded: the next wait is short again."""
        self._failures = 0


async def retry(attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """
    Return the result of *attempt*, which is repeated while its errors allow that.

    Raises: The error of the last attempt, if it is final or *timeout_s* has passed.
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
        await backoff.wait()
