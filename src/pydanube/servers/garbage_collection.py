"""
When the broker's process looks for garbage.

Nearly all memory is given back by counting references.  What refers to itself, a
connection that broke or an error with its traceback, is left to Python's collector.  It
looks at new objects often and quickly; but now and then at all that there are, and
while it does, nobody is answered: 50 ms for the modules of a broker alone, much more
where many batches are in memory.  So what was there at the start is never looked at
again, and the rest when nothing is going on.
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

YOUNG_OBJECTS = 2_000
"""When there are so many new objects more, these are looked at."""
YOUNG_ROUNDS = 10
"""After so many times, those that have come since the last time."""
NEVER = 2**31 - 1

LOOK_S = 1.0
INTERVAL_S = 600.0
"""All objects are looked at so often, if it is quiet."""
INTERVAL_S_MAX = 6 * 3600.0
"""And so often, whatever is going on."""
QUIET_LOAD = 0.05
"""It is quiet where the process takes no more than this part of a processor."""


def is_due(passed_s: float, load: float) -> bool:
    """Whether to look at all objects, *passed_s* after the last time."""
    is_quiet = load <= QUIET_LOAD
    return passed_s >= (INTERVAL_S if is_quiet else INTERVAL_S_MAX)


@asynccontextmanager
async def collect_when_idle() -> AsyncIterator[None]:
    """While the body runs, all objects are looked at when nobody has to wait."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_ROUNDS, NEVER)
    try:
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(_look_again_and_again())
            yield
            looking.cancel()
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def _look_again_and_again() -> None:
    looked_at = time.monotonic()
    while True:
        taken_s = time.process_time()
        await asyncio.sleep(LOOK_S)
        load = (time.process_time() - taken_s) / LOOK_S
        if is_due(time.monotonic() - looked_at, load):
            gc.collect()
            looked_at = time.monotonic()
