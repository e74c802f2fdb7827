"""
An event loop with simulated time and without threads.

Time stands still while any task is ready, and then jumps to the next timer.  Jobs for
threads run on the loop, a moment later; those of a one-thread executor run in order.
So a run takes only computing time, and is the same every time.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from heapq import heappop, heappush
from math import ulp
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context
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
        self.is_paused = False
        """Whether the process is stopped, as by SIGSTOP: its code does not run."""
        self._held: list[asyncio.Handle] = []

    def pause(self) -> None:
        """Stop the process until ``resume``."""
        self.is_paused = True

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep what the paused process would do now."""
        self._held.append(handle)

    def resume(self, loop: SimulatedLoop) -> None:
        """Let the process go on with what it would have done meanwhile."""
        self.is_paused = False
        loop._ready.extend(self._held)
        self._held.clear()


HOST: ContextVar[Host | None] = ContextVar("host", default=None)
"""The process of the current code; None for the simulation itself."""


def is_dead_process() -> bool:
    """Return whether the current code belongs to a dead process."""
    return _is_dead(HOST.get())


def _is_dead(host: Host | None) -> bool:
    return host is not None and not host.is_alive


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
        # In order of time, and of creation.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._free_at: dict[object, float] = {}
        self._clock_resolution = _RESOLUTION_S
        self.set_task_factory(_new_task)
        self.set_exception_handler(_note_failure)

    def time(self) -> float:
        """See asyncio.AbstractEventLoop."""
        return self._now

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio.AbstractEventLoop."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio.AbstractEventLoop; timers of the same time run in order."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def _run_once(self) -> None:
        """Let time pass if nothing is ready, and run what is ready then."""
        # The method of the base class, without what real time and sockets need.
        ready, timers = self._ready, self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if ready or self._stopping:
            self._note_iteration()
        elif timers:
            # Exactly the time of the timer; a sum would have rounding errors.
            when = timers[0][0]
            if when > self._now:
                self._now, self._iterations = when, 0
            else:
                self._note_iteration()
        else:
            raise Deadlock
        due = self._now + max(_RESOLUTION_S, 2 * ulp(self._now))
        while timers and timers[0][0] < due:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            host = handle._context.get(HOST)
            if host is not None and host.is_paused:
                host.hold(handle)
            else:
                handle._run()

    def _note_iteration(self) -> None:
        self._iterations += 1
        if self._iterations > ITERATIONS_MAX:
            raise BusyLoop(f"at {self._now}: {list(self._ready)[:10]}")

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
