"""The event loop of programs that pydanube starts."""

from __future__ import annotations

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop, which is 2 to 4 times as fast, if installed."""
    try:
        import uvloop  # noqa: PLC0415  # Not on every platform.
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()  # type: ignore[no-any-return]
