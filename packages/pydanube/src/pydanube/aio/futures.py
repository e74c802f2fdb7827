"""Callbacks that report an outcome, and futures that wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from pydanube.model.errors import BrokerError

Done = Callable[["BrokerError | None"], None]
"""A callback that gets None on success, or the error."""


def complete_future(future: asyncio.Future[None], error: BrokerError | None) -> None:
    """Complete *future* with the outcome that a ``Done`` callback gets."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


async def completion(start: Callable[[Done], object]) -> None:
    """Call *start*, and wait for the outcome that its callback gets."""
    completed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start(partial(complete_future, completed))
    await completed


def watch(
    watchers: dict[object, Callable[[], None]], callback: Callable[[], None]
) -> Callable[[], None]:
    """Add *callback* to *watchers*; return a function that removes it."""
    key = object()
    watchers[key] = callback

    def unwatch() -> None:
        watchers.pop(key, None)

    return unwatch
