"""Connectors as a process, and those of a file in this process."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import Unavailable
from pydanube_broker.testing import memory_broker
from pydanube_connect import load, run_connectors
from support.drivers.commands import DANUBE, environment

KILLS_MAX = 6
KILLS_MIN = 3
"""Fewer kills are no test; the last messages may arrive together."""


class ConnectProcess:
    """``danube connect run``, which can be killed and started again."""

    def __init__(self, file: Path, url: str, command: str = "run") -> None:
        """With the *command* ``work``, *file* is the name of the worker."""
        self.starts = 0
        arguments = ["--name", file.name] if command == "work" else [str(file)]
        self._command = [*DANUBE, "connect", command, *arguments, "--interval", "1s"]
        own = {"DANUBE_STATE": str(file.parent / "state")}
        self._environment = environment(url, **own)
        self._process = None

    def __enter__(self) -> ConnectProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> None:
        """Start it, without waiting."""
        self.starts += 1
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self.wait()

    def terminate(self) -> int:
        """End it in good order; its exit code."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        process, self._process = self._process, None
        return process.wait()


def declared(text: str, url: str, directory: Path | None = None, **environment: str):
    """The connectors of a file with *text*."""
    with tempfile.TemporaryDirectory() as other:
        file = Path(directory or other) / "connectors.yaml"
        file.write_text(text)
        return load(file, environment={"DANUBE_URL": url, **environment})


async def read_records(source, count, position=None):
    """The first *count* records of *source* after *position*, and the next position."""
    records = []
    async with aclosing(source.batches(position)) as batches:
        async for batch in batches:
            records += batch.records
            position = batch.position
            if len(records) >= count:
                break
    return records, position


async def write_messages(text, topic, *messages, directory=None, dead="/default/dead"):
    """
    Write *messages*, pairs of key and payload, to the only connector of *text*.

    Returns its status when each is written or refused, and the dead letters.
    """
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(topic) as producer:
            for key, payload in messages:
                await producer.send(payload, key=key)
        [connector] = declared(text, broker.url, directory)
        async with running([connector]) as until:

            def is_over(found):
                status = found[connector.name]
                done = status.messages + status.dead_letters
                return done == len(messages) or status.state.is_over

            status = (await until(is_over))[connector.name]
        if not status.dead_letters:
            return status, []
        return status, [each async for b in client.read(dead) for each in b]


async def numbers_under_kills(client, topic, count, kill):
    """
    Return the numbers in *topic* until there are *count* different ones.

    ``kill(0)``, ``kill(1)`` … are called while they arrive, in threads.
    """
    found = []
    kills = 0
    while len(set(found)) < count:
        # Reading ends with the connection to a broker that is killed.
        with suppress(Unavailable):
            async for batch in client.read(topic, start=len(found), follow=True):
                found += map(int, batch.payloads)
                if len(found) > count // 10 * (kills + 1) and kills < KILLS_MAX:
                    await asyncio.to_thread(kill, kills)
                    kills += 1
                if len(set(found)) >= count:
                    break
    assert kills >= KILLS_MIN
    return found


@asynccontextmanager
async def running(connectors):
    """Run *connectors* during the body; yield an async function that stops them."""
    stop = asyncio.Event()
    statuses = {}
    changed = asyncio.Event()

    def report(status):
        statuses[status.connector] = status
        changed.set()

    async def until(condition):
        """Wait until *condition* holds for the statuses, by connector."""
        while not (len(statuses) == len(connectors) and condition(statuses)):
            changed.clear()
            await changed.wait()
        return statuses

    async with task_scope() as tasks:
        run = tasks.start(
            run_connectors(connectors, report, stop=stop, interval_s=0.02)
        )
        yield until
        stop.set()
        await run
