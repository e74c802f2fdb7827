"""Awaiting coroutines in contexts of their own."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def in_own_context(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """
    Await *work* in a copy of the current context, as if it were a task of its own.

    It takes less time than a task.  Context variables that *work* sets are not set
    for the caller.
    """
    run = copy_context().run
    try:
        awaited = run(work.send, None)
        while True:
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001  # The work gets it.
                awaited = run(work.throw, error)
            else:
                awaited = run(work.send, sent)
    except StopIteration as end:
        result: T = end.value
        return result
