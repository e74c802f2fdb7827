"""The parent process of a worker, as the worker sees it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from typing import Any


class Parent:
    """The parent process at the other end of stdin and stdout."""

    def __init__(self) -> None:
        # The output of clients must not mix with the answers.
        self._output = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._lines.put_nowait, json.loads(line))
        # The parent has ended, or has closed the input.
        os._exit(0)

    async def next(self) -> dict[str, Any]:
        """Return the next message."""
        return await self._lines.get()

    def say(self, answer: dict[str, Any]) -> None:
        """Send a message."""
        self._output.write(json.dumps(answer) + "\n")
        self._output.flush()

    async def start(self) -> int:
        """Report readiness and return the start time by the monotonic clock."""
        # Objects of the harness must not slow down the garbage collector.
        gc.collect()
        gc.freeze()
        self.say({"ready": True})
        while (line := await self.next()).get("start_ns") is None:
            pass
        return int(line["start_ns"])

    async def told(self, what: str, timeout_s: float) -> Any:
        """Return the value of *what* that it sends; None after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                return (await self.next())[what]
        except TimeoutError:
            return None
