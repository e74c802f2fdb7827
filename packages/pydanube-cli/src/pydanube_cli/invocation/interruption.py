"""
Ctrl-C and SIGTERM: the first signal asks a command to stop, the second forces it.

A command decides where it may be interrupted.  Code under ``until_requested`` stops
at once, code under ``shielded`` finishes first, and all other code is cancelled.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A signal ended the command."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


@contextmanager
def raising_on_sigterm() -> Iterator[None]:
    """Raise Interrupted in the main thread if SIGTERM arrives during the body."""

    def interrupt(number: int, _: object) -> NoReturn:
        raise Interrupted(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interruption:
    """The state of the interruption of a running command; see ``run``."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.number: int | None = None
        """The first signal that arrived, if any."""
        self._task = task
        self._waiting: asyncio.Timeout | None = None
        self._is_finishing = False
        self._grace_s: float | None = None
        self._grace: asyncio.TimerHandle | None = None

    @property
    def is_requested(self) -> bool:
        """Whether a signal has arrived, so that the command should stop."""
        return self.number is not None

    @asynccontextmanager
    async def until_requested(self) -> AsyncIterator[None]:
        """Run the body until a signal arrives, then continue after it."""
        deadline = asyncio.get_running_loop().time() if self.is_requested else None
        try:
            async with asyncio.timeout_at(deadline) as self._waiting:
                yield
        except TimeoutError:
            if self._waiting is None or not self._waiting.expired():
                raise
        finally:
            self._waiting = None

    @contextmanager
    def shielded(self, grace_s: float | None = None) -> Iterator[None]:
        """
        Run the body without interruption by the first signal.

        With *grace_s*, the body is cancelled that long after the signal.
        """
        self._is_finishing, self._grace_s = True, grace_s
        try:
            yield
        finally:
            self._is_finishing = False
            if self._grace is not None:
                self._grace.cancel()

    def on_signal(self, number: int) -> None:
        """Record a signal, and interrupt or cancel the command."""
        is_first, self.number = not self.is_requested, self.number or number
        if is_first and self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())
        elif not is_first or not self._is_finishing:
            self._task.cancel()
        if is_first and self._is_finishing and self._grace_s is not None:
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(self._grace_s, self._task.cancel)


def run(work: Callable[[Interruption], Coroutine[Any, Any, T]]) -> T:
    """
    Run *work* on a new event loop and return its result.

    Raises:
        Interrupted: A signal arrived; *work* has finished or was cancelled.
    """

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        interruption = Interruption(task)
        for number in SIGNALS:
            loop.add_signal_handler(number, interruption.on_signal, number)
        try:
            result = await work(interruption)
        except asyncio.CancelledError:
            if interruption.number is None:
                raise
            raise Interrupted(interruption.number) from None
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        if interruption.number is not None:
            raise Interrupted(interruption.number)
        return result

    # The standard loop starts faster than others, and leaves standard input and output,
    # which are shared with the terminal, in blocking mode.
    return asyncio.run(watched())
