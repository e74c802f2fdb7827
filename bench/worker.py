"""
A worker process, which runs one job after the other.

It reads JSON lines from its input.  The first line names the system and its server.
Each further line is a job, whose answer is ``{"result": …}`` or ``{"error": …}``.
Before a timed job the worker answers ``{"ready": true}`` and waits for
``{"start_ns": …}``.  The worker ends with its input, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback

from bench.parent import Parent
from bench.systems import find_system
from bench.work import JOBS


async def work() -> None:
    """Run jobs until the input ends."""
    parent = Parent()
    opening = await parent.next()
    driver = find_system(opening["system"]).driver(opening["endpoint"])
    while True:
        job = await parent.next()
        try:
            parent.say({"result": await JOBS[job["do"]](driver, job, parent)})
        except Exception as error:  # noqa: BLE001  # The parent gets it.
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
