"""Running an asynchronous program on the fastest event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from inspect import iscoroutine
from typing import Any, TypeVar

from pydanube.aio.loops import new_loop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """
    Run *main* and return its result, as ``asyncio.run`` does.

    The event loop is uvloop's where it is installed, on which the client takes less
    processor time.  Ctrl-C cancels *main*, so that it closes what it has opened, and
    then raises KeyboardInterrupt.

    Args:
        main: The call of a coroutine function, such as ``main()``.
        debug: Turns asyncio's debug mode on or off; None: as Python was started.

    Raises:
        TypeError: *main* is not a coroutine.
        RuntimeError: This thread runs an event loop already.
    """
    if not iscoroutine(main):
        raise TypeError(
            f"pydanube.run takes a coroutine, not {main!r:.80}: call the function, "
            "for example pydanube.run(main())"
        )
    if _is_loop_running():
        main.close()
        raise RuntimeError(
            "pydanube.run cannot start in a running event loop: in a notebook or a "
            "coroutine, write `await main()`"
        )
    with asyncio.Runner(debug=debug, loop_factory=new_loop) as runner:
        result: T = runner.run(main)
    return result


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
