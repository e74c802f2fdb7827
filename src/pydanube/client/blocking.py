"""
Blocking calls of the asynchronous client: its event loop runs in a thread.

``blocking`` and its siblings turn a method of an asynchronous class into one of a
``Facade``, with the same parameters and the same docstring.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
)
from functools import wraps
from typing import (
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
)

from pydanube.aio.loops import new_loop
from pydanube.client.scopes import AsyncScope, SyncScope

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")


class LoopThread:
    """An event loop in a thread of its own; made by ``loop_thread``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on the loop, and return what it returns."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in the waiting thread also cancels the work on the loop.
            future.cancel()
            raise

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(callback)

    @contextmanager
    def entered(self, scope: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter *scope* on the loop, and leave it with the body."""
        entered: Future[T] = Future()
        left: Future[Exception | None] = Future()
        task: asyncio.Task[None] | None = None

        async def hold() -> None:
            nonlocal task
            task = asyncio.current_task()
            # One task enters and leaves the scope, as task groups need.
            async with scope as value:
                entered.set_result(value)
                failure = await asyncio.wrap_future(left)
                if failure is not None:
                    raise failure

        holding = asyncio.run_coroutine_threadsafe(hold(), self._loop)
        raised: Exception | None = None
        try:
            both: tuple[Future[Any], ...] = (entered, holding)
            wait(both, return_when=FIRST_COMPLETED)
            if holding.done():
                holding.result()
            yield entered.result()
        except BaseException as failure:
            # On the loop, anything but an Exception would stop the loop itself.
            raised = failure if isinstance(failure, Exception) else _Interrupted()
            if task is not None and not entered.done():
                self._loop.call_soon_threadsafe(task.cancel)
            raise
        finally:
            left.set_result(raised)
            try:
                holding.result()
            except CancelledError:
                if entered.done():
                    raise
            except BaseException as error:
                if error is not raised:
                    raise


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    """Run a loop in a thread while the body runs."""
    loop = new_loop()
    thread = threading.Thread(
        target=loop.run_forever, name="pydanube client", daemon=True
    )
    thread.start()
    try:
        yield LoopThread(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class Facade:
    """An object of the asynchronous client, for threads."""

    def __init__(self, loop: LoopThread, wrapped: Any) -> None:
        self._loop = loop
        self._wrapped = wrapped

    def hand_over(self) -> None:
        """Pass calls that are queued in this thread to the loop, in their order."""


class FacadeMethod(Protocol[P, T_co]):
    """A method with the parameters *P*; type checkers bind its ``self``."""

    def __get__(
        self, instance: Any, owner: type | None = None, /
    ) -> Callable[P, T_co]: ...


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> FacadeMethod[P, T]:
    """Return a facade's version of a coroutine method: it waits for the result."""

    @wraps(method)
    def call(self: Facade, *args: P.args, **kwargs: P.kwargs) -> T:
        self.hand_over()
        bound: Callable[P, Coroutine[Any, Any, T]]
        bound = getattr(self._wrapped, method.__name__)
        return self._loop.wait(bound(*args, **kwargs))

    return cast("FacadeMethod[P, T]", call)


def iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> FacadeMethod[P, Iterator[T]]:
    """Return a facade's version of a method whose result is iterated."""

    @wraps(method)
    def call(self: Facade, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = getattr(self._wrapped, method.__name__)(*args, **kwargs)
        return iterated(self._loop, found)

    return cast("FacadeMethod[P, Iterator[T]]", call)


def iterated(loop: LoopThread, values: Any) -> Iterator[Any]:
    """Iterate *values*, an asynchronous generator, on the loop."""
    try:
        while (value := loop.wait(_next_or_none(values))) is not None:
            yield value
    finally:
        loop.wait(values.aclose())


def wrapping(
    method: Callable[Concatenate[Any, P], S], wrapper: Callable[[LoopThread, S], T]
) -> FacadeMethod[P, T]:
    """Return a facade's version of a method whose result becomes a *wrapper*."""

    @wraps(method)
    def call(self: Facade, *args: P.args, **kwargs: P.kwargs) -> T:
        found = getattr(self._wrapped, method.__name__)(*args, **kwargs)
        return wrapper(self._loop, found)

    return cast("FacadeMethod[P, T]", call)


def blocking_scope(
    scope: AbstractAsyncContextManager[Any], opening: AbstractContextManager[T]
) -> SyncScope[T]:
    """Return *opening*, which enters *scope* on the loop, as a scope for threads."""
    assert isinstance(scope, AsyncScope)
    return scope.for_threads(opening)


async def _next_or_none(values: AsyncIterator[T]) -> T | None:
    return await anext(values, None)


class _Interrupted(Exception):
    """Stands in on the loop for what ended the thread, such as KeyboardInterrupt."""
