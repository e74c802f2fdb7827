"""
An event loop without a world: its clock jumps, and its threads are none.

Time stands still while anything can be done, and then jumps to the next timer.
What code wants to do in a thread is done on the loop, a moment later, and code
that shares a one-thread executor is done in its order.  So a run takes as long as
its computing, and takes the same way every time.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from math import ulp
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

TURNS_MAX = 200_000
"""So many turns of the loop at one moment mean that somebody spins."""


_RESOLUTION_S = 1e-9


class Host:
    """
    A process of the simulated world; what runs for it carries it in its context.

    A process that has died goes on in the loop for a while, because Python has no
    way to make a coroutine vanish.  It is a ghost: all that it could touch asks
    ``is_alive``, and does nothing for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True


HOST: ContextVar[Host | None] = ContextVar("host", default=None)
"""For which process the present code runs; None for the simulation itself."""


def is_ghost() -> bool:
    """Whether the present code belongs to a process that has died."""
    return _is_dead(HOST.get())


def _is_dead(host: Host | None) -> bool:
    return host is not None and not host.is_alive


class Stuck(Exception):
    """Everybody waits, and there is nothing that would ever wake anybody."""


class Spinning(Exception):
    """Somebody does something again and again, and time does not pass."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop; *chance* decides how long threads take."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.thread_s_max = 0.002
        """How long a job takes at most that is given to a thread."""
        self.failures: list[dict[str, Any]] = []
        """What nobody has caught."""
        self.task_count = 0
        self._chance = chance
        self._now = 0.0
        self._turns = 0
        self._free_at: dict[object, float] = {}
        # The base class asks it for events and gives it the time to wait.
        self._selector = self
        self._clock_resolution = _RESOLUTION_S
        self.set_task_factory(_new_task)
        self.set_exception_handler(_note_failure)

    def time(self) -> float:
        """See asyncio.AbstractEventLoop."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Nothing comes from outside; let *timeout* pass."""
        if timeout is None:
            raise Stuck
        if timeout > 0:
            # To the very moment: a sum of differences would come close only.
            self._now = max(self._now, self._scheduled[0]._when)
            self._clock_resolution = max(_RESOLUTION_S, 2 * ulp(self._now))
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > TURNS_MAX:
                raise Spinning(f"at {self._now}: {list(self._ready)[:10]}")
        return []

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """See asyncio.AbstractEventLoop; done here, after a while."""
        future: asyncio.Future[Any] = self.create_future()
        took_s = self._chance.random() * self.thread_s_max
        when = self.free_at(executor, took_s)
        self.call_at(when, self._carry_out, HOST.get(), future, func, args)
        return future

    def free_at(self, thread: object, took_s: float) -> float:
        """When a job of *took_s* is done that *thread* gets now; None: any thread."""
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
        # A job that was called off may have begun already.
        if future.cancelled() and self._chance.random() < 0.5:
            return
        try:
            result = _refuse() if _is_dead(host) else func(*args)
        except Exception as error:  # noqa: BLE001 (as an executor does)
            if not future.done():
                future.set_exception(error)
                if _is_dead(host):
                    # A ghost need not look.
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
    """A task whose place in a set does not depend on where it is in memory."""

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
    # This is called outside of what failed.
    host = HOST.get()
    failed = context.get("task") or context.get("future")
    if "handle" in context:
        host = context["handle"]._context.get(HOST)
    elif isinstance(failed, _Task):
        host = failed.host
    if not _is_dead(host):
        loop.failures.append(context)
