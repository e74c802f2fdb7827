"""
A program that uses a metadata store in an SQLite file beside other processes.

``python metadata_process.py PATH`` reads numbers from its standard input.  For each one
it forks a process that kills itself when it has reached so many points: statements of
SQL, and calls that touch files.  It answers with ``killed`` or ``done``.

``python metadata_process.py PATH count N`` adds 1 to a counter N times.

``python metadata_process.py PATH hold`` holds a key with its session.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from pydanube.model.errors import RevisionConflict
from pydanube_broker.metadata import shared_sqlite
from pydanube_broker.metadata.key import prefix_of
from pydanube_broker.metadata.shared_sqlite import open_shared_sqlite
from pydanube_broker.metadata.store import (
    ABSENT,
    Delete,
    Put,
    Unchanged,
    retry_on_conflict,
    unchanged,
)

THINGS = prefix_of("/things/", int)
HELD = prefix_of("/held/", int)
COUNTERS = prefix_of("/counters/", int)
COUNTER = COUNTERS.key("all")

TOUCHING = ("os.", "fcntl.", "sqlite3.", "open")


class _Points:
    """It counts what the process does, and kills it at its last point."""

    def __init__(self, last: int) -> None:
        self._left = last

    def pass_one(self, *_: object) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_event(self, event: str, _: object) -> None:
        if event.startswith(TOUCHING):
            self.pass_one()


async def write_until_killed(path: Path, last: int) -> None:
    """Change what must stay equal, and hold a key meanwhile."""
    points = _Points(last)
    sys.addaudithook(points.on_event)
    async with (
        open_shared_sqlite(path, str(os.getpid())) as store,
        store.open_session(1.0) as session,
    ):
        connection = store._file._connection
        await store._run(lambda: connection.set_trace_callback(points.pass_one))
        await store.transaction([], [Put(HELD.key(last), last, session)])
        one = await store.get(THINGS.key("one"))
        await store.transaction(
            [unchanged(THINGS.key("one"), one)],
            [
                Put(THINGS.key("one"), last),
                Put(THINGS.key("two"), last),
                Put(THINGS.key("old", last), last),
            ],
        )
        await store.transaction([], [Delete(THINGS.key("old", last))])


async def count(path: Path, times: int) -> None:
    """Add 1 to the counter *times* times."""
    async with open_shared_sqlite(path, str(os.getpid())) as store:

        async def add() -> None:
            stored = await store.get(COUNTER)
            value = 0 if stored is None else stored.value
            await store.transaction(
                [unchanged(COUNTER, stored)], [Put(COUNTER, value + 1)]
            )

        for _ in range(times):
            await retry_on_conflict(add)


async def hold(path: Path) -> None:
    """Hold the key as soon as nobody else does, say so, and wait."""
    # Nobody looks without being told, so the others are told.
    shared_sqlite.LOOK_INTERVAL_S = 3600.0
    key = HELD.key("by one")
    async with (
        open_shared_sqlite(path, str(os.getpid())) as store,
        store.open_session(1.0) as session,
        store.watch(HELD) as watch,
    ):
        async for changes in watch:
            if changes.values.get(key.path) is not None:
                continue
            try:
                put = Put(key, os.getpid(), session)
                await store.transaction([Unchanged(key, ABSENT)], [put])
            except RevisionConflict:
                continue
            _say("held")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    path = Path(sys.argv[1])
    match sys.argv[2:]:
        case ["count", times]:
            asyncio.run(count(path, int(times)))
        case ["hold"]:
            asyncio.run(hold(path))
        case _:
            for line in sys.stdin:
                if not (child := os.fork()):
                    asyncio.run(write_until_killed(path, int(line)))
                    os._exit(0)
                _, status = os.waitpid(child, 0)
                answers = {0: "done", signal.SIGKILL: "killed"}
                _say(answers.get(status, f"failed: {status}"))


if __name__ == "__main__":
    main()
