"""The processes of a system: their log, their restarts, and their end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from pydanube.model.errors import RequestFailed
from pydanube_cli.development.parts import Part

READY = "pydanube broker is ready"
"""The line that a broker prints when it serves."""
STOP_S = 15.0
"""The time that a process has for ending; then it is killed."""
RESTART_S_MAX = 30.0
LINE_BYTES_MAX = 1024 * 1024

Show = Callable[[str, str], None]
"""Shows a line of a part."""


class System:
    """
    The processes of a system.

    The broker is started first, and ends last.  A part that fails is started again, the
    later the more often it has failed; the end of the broker is the end of all.
    """

    def __init__(self, parts: Sequence[Part], show: Show) -> None:
        self._broker = next(each for each in parts if each.is_broker)
        self._others = [each for each in parts if not each.is_broker]
        self._show = show
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._is_ready = asyncio.Event()

    async def run(self) -> None:
        """
        Run until the broker ends, or the task is cancelled; then end all processes.

        Raises:
            RequestFailed: The broker has ended.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_broker())
                # The end of the broker cancels this.
                await self._is_ready.wait()
                for part in self._others:
                    group.create_task(self._keep_running(part))
        except* RequestFailed as errors:
            raise errors.exceptions[0] from None
        finally:
            await self._stop()

    async def _run_broker(self) -> None:
        code = await self._run(self._broker)
        raise RequestFailed(f"the broker has ended with exit code {code}")

    async def _keep_running(self, part: Part) -> None:
        delay_s = 1.0
        while (code := await self._run(part)) != 0:
            self._show(
                part.name, f"ended with exit code {code}; again in {delay_s:.0f} s"
            )
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RESTART_S_MAX)
        self._show(part.name, "ended")

    async def _run(self, part: Part) -> int:
        """Run a process, show what it prints, and return its exit code."""
        process = await asyncio.create_subprocess_exec(
            *part.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LINE_BYTES_MAX,
            # Ctrl-C reaches only this process, which ends the others in their order.
            start_new_session=True,
        )
        self._running[part.name] = process
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                # Longer than the limit, and dropped.
                continue
            if not line:
                break
            text = line.decode(errors="replace").rstrip()
            if part.is_broker and text.startswith(READY):
                self._is_ready.set()
            self._show(part.name, text)
        code = await process.wait()
        self._running.pop(part.name, None)
        return code

    async def _stop(self) -> None:
        """End the processes: those of users first, and the broker last."""
        broker = self._running.pop(self._broker.name, None)
        others, self._running = list(self._running.values()), {}
        with suppress(asyncio.CancelledError):
            await _end(others)
        await _end([] if broker is None else [broker])


async def _end(processes: Sequence[asyncio.subprocess.Process]) -> None:
    for each in processes:
        _signal(each, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_S):
            for each in processes:
                await _drained(each)
    except TimeoutError:
        pass
    finally:
        for each in processes:
            if each.returncode is None:
                _signal(each, signal.SIGKILL)


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Read what a process still prints, so that it can end, and wait for its end."""
    assert process.stdout is not None
    while await process.stdout.read(LINE_BYTES_MAX):
        pass
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    # The whole group: a program may have processes of its own.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
