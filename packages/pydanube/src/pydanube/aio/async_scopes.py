"""Asynchronous context managers that an event loop does not close at its end."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def async_scope(
    function: Callable[P, AsyncIterator[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """
    Make *function* a context manager, as ``contextlib.asynccontextmanager`` does.

    An event loop that ends closes all asynchronous generators at the same time, nested
    ones too, in tasks that did not enter them.  That raises errors in their task
    groups.  The loop does not know the generators of these scopes: one that is left
    open when the loop ends, or that is garbage, is dropped without running further.
    """

    @wraps(function)
    def open_scope(*args: P.args, **kwargs: P.kwargs) -> _GeneratorScope[T]:
        generator = function(*args, **kwargs)
        assert isinstance(generator, AsyncGenerator)
        return _GeneratorScope(generator)

    return open_scope


class _GeneratorScope(AbstractAsyncContextManager[T]):
    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator

    async def __aenter__(self) -> T:
        hooks = sys.get_asyncgen_hooks()
        # The first call of a generator's method hands it to the hooks.
        sys.set_asyncgen_hooks(firstiter=None, finalizer=_drop)
        try:
            entering = anext(self._generator)
        finally:
            sys.set_asyncgen_hooks(*hooks)
        return await entering

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            try:
                await anext(self._generator)
            except StopAsyncIteration:
                return False
            raise AssertionError("a scope has one yield")
        try:
            await self._generator.athrow(error)
        except StopAsyncIteration as stop:
            return stop is not error
        except BaseException as raised:
            # Python raises a RuntimeError for these two that leave a generator.
            is_stop = isinstance(error, StopIteration | StopAsyncIteration)
            if raised is error or (is_stop and raised.__cause__ is error):
                error.__traceback__ = traceback
                return False
            raise
        raise AssertionError("a scope has one yield")


def _drop(_: Any) -> None:
    """Finalize a generator without closing it, which would need a task."""
