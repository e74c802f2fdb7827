"""
Task groups that raise plain exceptions.

An ``asyncio.TaskGroup`` wraps an exception of its body in an ``ExceptionGroup``, but
the users of a client expect ``except ProducerFenced`` to work around ``async with``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, TypeVar

from pydanube.aio.async_scopes import async_scope
from pydanube.model.errors import BrokerError

T = TypeVar("T")


class TaskScope:
    """Tasks that are cancelled when the body of ``task_scope`` ends."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        # In the order in which they were started.
        self._running: dict[asyncio.Task[Any], None] = {}

    def run(
        self, work: Coroutine[Any, Any, None], name: str | None = None
    ) -> asyncio.Task[None]:
        """Run *work*, which must handle its own errors, until the scope ends."""
        task = self._group.create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return task

    def start(
        self, work: Coroutine[Any, Any, T], name: str | None = None
    ) -> asyncio.Future[T]:
        """
        Run *work* until the scope ends; the future has its outcome.

        Nobody needs to await the future.

        Cancellation: Cancelling the future cancels the work.
        """
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = self.run(_complete(outcome, work), name)
        outcome.add_done_callback(lambda _: _end(task, outcome))
        task.add_done_callback(lambda _: _finish(outcome, work))
        return outcome

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in list(self._running):
            task.cancel()


async def _complete(outcome: asyncio.Future[T], work: Coroutine[Any, Any, T]) -> None:
    try:
        result = await work
    except Exception as error:  # noqa: BLE001  # Its waiters get it.
        if not outcome.done():
            outcome.set_exception(error)
    else:
        if not outcome.done():
            outcome.set_result(result)


def _finish(outcome: asyncio.Future[Any], work: Coroutine[Any, Any, Any]) -> None:
    outcome.cancel()
    # A task that was cancelled before its first step has not awaited it.
    work.close()


def _end(task: asyncio.Task[None], outcome: asyncio.Future[Any]) -> None:
    if outcome.cancelled():
        task.cancel()
    else:
        # Retrieved, so that nobody needs to.
        outcome.exception()


@async_scope
async def task_scope() -> AsyncIterator[TaskScope]:
    """Open a task scope; exceptions of the body are raised unwrapped."""
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        scope = TaskScope(group)
        try:
            yield scope
        except BaseException as error:  # noqa: BLE001  # It is raised again below.
            failure = error
        scope.cancel()
    if failure is not None:
        raise failure


async def gather(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """
    Run *works* concurrently and return their results in order.

    Cancellation: The works are cancelled.  CancelledError is raised when they have
        ended, also if one of them fails at the same moment.

    Raises: The first exception, unwrapped; the other works are cancelled.
    """
    # A TaskGroup whose task fails forgets a cancellation that comes at the same time
    # (until Python 3.13), and leaves its own one counted.  So no task of it fails.
    works = list(works)
    failures: list[Exception] = []
    running: list[asyncio.Task[T]] = []
    loop = asyncio.get_running_loop()

    async def attempt(work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except Exception as error:  # noqa: BLE001  # It is raised again below.
            failures.append(error)
            for task in running:
                # Later, so that all works have begun: one that was not awaited warns.
                loop.call_soon(task.cancel)
            raise asyncio.CancelledError from None

    try:
        async with asyncio.TaskGroup() as group:
            running += [group.create_task(attempt(work)) for work in works]
        if failures:
            raise failures[0]
    finally:
        failures.clear()
        _close_all(works)
    return [task.result() for task in running]


async def run_all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """
    Run *works* concurrently, each to its end, even if others fail.

    Raises: The exception of the first work, in order, that failed.
    """
    works = list(works)
    try:
        failures = await gather(map(_failure_of, works))
    finally:
        _close_all(works)
    for failure in failures:
        if failure is not None:
            raise failure


def _close_all(works: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Close works, of which some may never have begun."""
    for each in works:
        each.close()


async def _failure_of(work: Coroutine[Any, Any, None]) -> BrokerError | None:
    try:
        await work
    except BrokerError as error:
        return error
    return None
