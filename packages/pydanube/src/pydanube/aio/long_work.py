"""Long work in the event loop, which lets other tasks run again and again."""

from __future__ import annotations

import asyncio

STEPS_MAX = 100
"""
The number of steps after which other tasks run.

A step looks at one thing, such as a topic or a record, for 1 to 10 µs.  A publish waits
for about five turns of the loop, so it is held for 5 ms at most.
"""


class LongWork:
    """
    Work in many small steps, such as a walk over all topics.

    What the steps look at may change between them: walk over a copy of the list.
    """

    def __init__(self) -> None:
        self._steps = 0

    async def did(self, steps: int = 1) -> None:
        """Count *steps*, and let other tasks run after each ``STEPS_MAX``."""
        self._steps += steps
        if self._steps >= STEPS_MAX:
            self._steps = 0
            await asyncio.sleep(0)
