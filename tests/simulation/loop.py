"""
An event loop with simulated time and without threads.

Time stands still while any task is ready, and then jumps to the next timer.  Jobs for
threads run on the loop, a moment later; those of a one-thread executor run in order.
So a run takes only computing time, and is the same every time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from math import ulp
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

ITERATIONS_MAX = 200_000
"""More iterations of the loop at one moment are a busy loop."""


_RESOLUTION_S = 1e-9


class Host:
    """
    A simulated process; the context of its tasks refers to it.

    The tasks of a dead process run for a while, because Python cannot remove a
    coroutine.  All simulated devices check ``is_alive`` and do nothing for them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self._is_paused = False
        self._held: list[asyncio.Handle] = []

    @property
    def is_paused(self) -> bool:
        """Whether the process is stopped, as by SIGSTOP: its code does not run."""
        return self._is_paused

    def pause(self) -> None:
        """Stop the process until ``resume``."""
        self._is_paused = True

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep what the paused process would do now."""
        self._held.append(handle)

    def resume(self, loop: SimulatedLoop) -> None:
        """Let the process go on with what it would have done meanwhile."""
        self._is_paused = False
        loop._ready.extend(self._held)
        self._held.clear()


HOST: ContextVar[Host | None] = ContextVar("host", default=None)
"""The process of the current code; None for the simulation itself."""


def is_dead_process() -> bool:
    """Return whether the current code belongs to a dead process."""
    return _is_dead(HOST.get())


def _is_dead(host: Host | None) -> bool:
    return host is not None and not host.is_alive


class _ReadyHandles(deque[asyncio.Handle]):
    """The callbacks that run next, without those of paused processes."""

    def __init__(self, nothing: asyncio.Handle) -> None:
        super().__init__()
        self._nothing = nothing

    def popleft(self) -> asyncio.Handle:
        """Return the next handle; a cancelled one in place of a paused process's."""
        handle = super().popleft()
        host = handle._context.get(HOST)
        if host is None or not host.is_paused:
            return handle
        host.hold(handle)
        return self._nothing


class Deadlock(Exception):
    """All tasks wait, and no timer will wake any of them."""


class BusyLoop(Exception):
    """Tasks run again and again without letting time pass."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop; *rng* determines the durations of jobs in threads."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.thread_s_max = 0.002
        """The longest duration of a job in a thread."""
        self.failures: list[dict[str, Any]] = []
        """Exceptions that were not caught."""
        self.task_count = 0
        self._rng = rng
        self._now = 0.0
        self._iterations = 0
        self._free_at: dict[object, float] = {}
        # The base class calls its select() with the time to wait.
        self._selector = self
        nothing = asyncio.Handle(int, (), self)
        nothing.cancel()
        self._ready = _ReadyHandles(nothing)
        self._clock_resolution = _RESOLUTION_S
        self.set_task_factory(_new_task)
        self.set_exception_handler(_note_failure)

    def time(self) -> float:
        """See asyncio.AbstractEventLoop."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Let *timeout* pass; there are no external events."""
        if timeout is None:
            raise Deadlock
        if timeout > 0:
            # Exactly the time of the timer; a sum would have rounding errors.
            self._now = max(self._now, self._scheduled[0]._when)
            self._clock_resolution = max(_RESOLUTION_S, 2 * ulp(self._now))
            self._iterations = 0
        else:
            self._iterations += 1
            if self._iterations > ITERATIONS_MAX:
                raise BusyLoop(f"at {self._now}: {list(self._ready)[:10]}")
        return []

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """See asyncio.AbstractEventLoop; the job runs on the loop, a moment later."""
        future: asyncio.Future[Any] = self.create_future()
        took_s = self._rng.random() * self.thread_s_max
        when = self.free_at(executor, took_s)
        self.call_at(when, self._carry_out, HOST.get(), future, func, args)
        return future

    def free_at(self, thread: object, took_s: float) -> float:
        """Return when *thread* finishes a job of *took_s*; None: any thread."""
        if thread is None:
            return self._now + took_s
        done_at = max(self._now, self._free_at.get(thread, 0.0)) + took_s
        self._free_at[thread] = done_at
        return done_at

    def _carry_out(
        self,
        host: Host | None,
        future: asyncio.Future[Any],
        func: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        # A cancelled job may have begun already.
        if future.cancelled() and self._rng.random() < 0.5:
            return
        try:
            result = _refuse() if _is_dead(host) else func(*args)
        except Exception as error:  # noqa: BLE001 (as an executor does)
            if not future.done():
                future.set_exception(error)
                if _is_dead(host):
                    # Mark it as retrieved: the process is dead.
                    future.exception()
        else:
            if not future.done():
                future.set_result(result)

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _refuse() -> None:
    raise OSError("the process is dead")


class _Task(asyncio.Task[Any]):
    """A task whose hash does not depend on its address in memory."""

    def __init__(
        self, coro: Coroutine[Any, Any, Any], number: int, **options: Any
    ) -> None:
        self.number = number
        self.host = HOST.get()
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


def _new_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    assert isinstance(loop, SimulatedLoop)
    loop.task_count += 1
    return _Task(coro, loop.task_count, loop=loop, **options)


def _note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimulatedLoop)
    # The current context is not that of the failed task.
    host = HOST.get()
    failed = context.get("task") or context.get("future")
    if "handle" in context:
        host = context["handle"]._context.get(HOST)
    elif isinstance(failed, _Task):
        host = failed.host
    if not _is_dead(host):
        loop.failures.append(context)
