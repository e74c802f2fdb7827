"""Callbacks that report an outcome, and futures that wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
