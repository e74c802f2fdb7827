"""
Tasks with an owner, for code that others wrap an ``async with`` around.

A plain ``TaskGroup`` turns what its body raises into an ``ExceptionGroup``; the
users of a client expect ``except ProducerFenced`` to work around the whole
``async with``, and its tasks to be over when the body is.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pydanube.model.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable

T = TypeVar("T")


class TaskScope:
    """Tasks that live at most as long as the body of ``task_scope``."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run *work* until it ends or the scope does; it handles its own errors."""
        task = self._group.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """End all tasks."""
        for task in self._running:
            task.cancel()


@asynccontextmanager
async def task_scope() -> AsyncIterator[TaskScope]:
    """A scope for tasks; what the body raises comes out as it is."""
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


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """
    What *works*, which run at the same time, return; in their order.

    Raises: What the first to fail raised, as it is; the others are cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in running]


async def all_done(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """
    Run *works* at the same time, each to its end, even if others fail.

    Raises: What the first of them that failed raised.
    """
    for failure in await together(map(_failure_of, works)):
        if failure is not None:
            raise failure


async def _failure_of(work: Coroutine[Any, Any, None]) -> BrokerError | None:
    try:
        await work
    except BrokerError as error:
        return error
    return None
