"""
A worker process, which runs one job after the other.

It reads JSON lines from its input.  The first line names the system and its server.
Each further line is a job, whose answer is ``{"result": …}`` or ``{"error": …}``.
Before a timed job the worker answers ``{"ready": true}`` and waits for
``{"start_ns": …}``.  The worker ends with its input, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import threading
import traceback
from typing import Any

from bench.systems import find_system
from bench.work import JOBS


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


async def work() -> None:
    """Run jobs until the input ends."""
    parent = Parent()
    opening = await parent.next()
    driver = find_system(opening["system"]).driver(opening["endpoint"])
    while True:
        job = await parent.next()
        try:
            parent.say({"result": await JOBS[job["do"]](driver, job, parent)})
        except Exception as error:  # noqa: BLE001  # Whoever gave the job is told.
            traceback.print_exc()
            parent.say({"error": _error_message(error)})


def _error_message(error: BaseException) -> str:
    """Return an error in one line; of a group, the first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def main() -> None:
    """Run on the fastest loop that is installed, as clients advise."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    try:
        import uvloop  # noqa: PLC0415  # Not where only one client is installed.
    except ImportError:
        asyncio.run(work())
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


if __name__ == "__main__":
    main()
