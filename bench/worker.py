"""
A worker: does one job after the other, as JSON lines on its input tell it.

The first line names the system and its server.  Each further line is a job: its answer
is ``{"result": …}`` or ``{"error": …}``.  A job whose work is timed says
``{"ready": true}`` before, and begins when it is told ``{"start_ns": …}``.  The worker
ends with its input, so it never outlives whoever started it.
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
    """The harness, at the other end of our input and output."""

    def __init__(self) -> None:
        # What a client prints must not get between our answers.
        self._output = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._lines.put_nowait, json.loads(line))
        # Whoever started us has gone or wants us to: nothing is left to be said.
        os._exit(0)

    async def next(self) -> dict[str, Any]:
        """What it says next."""
        return await self._lines.get()

    def say(self, answer: dict[str, Any]) -> None:
        """Tell it something."""
        self._output.write(json.dumps(answer) + "\n")
        self._output.flush()

    async def start(self) -> int:
        """Say that we are ready; when the work begins, by the monotonic clock."""
        # What the harness itself holds is nothing that a client's collector looks at.
        gc.collect()
        gc.freeze()
        self.say({"ready": True})
        while (line := await self.next()).get("start_ns") is None:
            pass
        return int(line["start_ns"])

    async def told(self, what: str, timeout_s: float) -> Any:
        """What it says about *what*; None if it says nothing in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return (await self.next())[what]
        except TimeoutError:
            return None


async def work() -> None:
    """Do jobs until the input ends."""
    parent = Parent()
    opening = await parent.next()
    driver = find_system(opening["system"]).driver(opening["endpoint"])
    while True:
        job = await parent.next()
        try:
            parent.say({"result": await JOBS[job["do"]](driver, job, parent)})
        except Exception as error:  # noqa: BLE001  # Whoever gave the job is told.
            traceback.print_exc()
            parent.say({"error": _words(error)})


def _words(error: BaseException) -> str:
    """An error in one line; of a group, its first."""
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
