"""A system starts with its broker, survives its programs, and ends as a whole."""

from __future__ import annotations

import asyncio
import sys

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import RequestFailed
from pydanube_cli.development.parts import Part
from pydanube_cli.development.processes import READY, System

pytestmark = pytest.mark.slow

WAITING = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("ends", flush=True), sys.exit(0)))
print({0!r}, flush=True)
signal.pause()
"""


def part(name, program, *, is_broker=False):
    command = [sys.executable, "-u", "-c", program]
    return Part(name=name, command=command, is_broker=is_broker)


BROKER = part("broker", WAITING.format(READY), is_broker=True)


class Log:
    """The lines of a system; they can be awaited."""

    def __init__(self):
        self.lines = []
        self._news = asyncio.Event()

    def show(self, name, text):
        self.lines.append((name, text))
        self._news.set()

    async def has(self, name, text):
        while (name, text) not in self.lines:
            self._news.clear()
            await self._news.wait()


async def test_programs_start_when_the_broker_serves_and_end_before_it():
    log = Log()
    program = part("worker", WAITING.format("works"))
    async with task_scope() as tasks:
        running = tasks.run(System([program, BROKER], log.show).run())
        await log.has("worker", "works")
        assert log.lines[0] == ("broker", READY)
        running.cancel()
        await asyncio.wait([running])
    # What they print while they end is not shown; none of them is left.
    assert running.cancelled()


async def test_a_program_that_fails_is_started_again(tmp_path):
    log, mark = Log(), tmp_path / "mark"
    program = part(
        "worker",
        f"import pathlib, sys; mark = pathlib.Path({str(mark)!r})\n"
        "if mark.exists(): print('fine'); sys.exit(0)\n"
        "mark.touch(); sys.exit(3)",
    )
    async with task_scope() as tasks:
        running = tasks.run(System([BROKER, program], log.show).run())
        await log.has("worker", "ended")
        running.cancel()
        await asyncio.wait([running])
    of_worker = [text for name, text in log.lines if name == "worker"]
    assert of_worker == ["ended with exit code 3; again in 1 s", "fine", "ended"]


async def test_the_end_of_the_broker_is_the_end_of_all():
    log = Log()
    broker = part(
        "broker", f"print({READY!r}); import sys; sys.exit(5)", is_broker=True
    )
    program = part("worker", WAITING.format("works"))
    with pytest.raises(RequestFailed, match="exit code 5"):
        await System([broker, program], log.show).run()


async def test_lines_that_are_too_long_are_left_out():
    log = Log()
    program = part("worker", "print('x' * (1 << 21)); print('short')")
    async with task_scope() as tasks:
        running = tasks.run(System([BROKER, program], log.show).run())
        await log.has("worker", "ended")
        running.cancel()
        await asyncio.wait([running])
    assert ("worker", "short") in log.lines
