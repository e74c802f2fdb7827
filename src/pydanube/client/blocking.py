"""
Blocking calls of the asynchronous client: its event loop runs in a thread.

``blocking`` and its siblings turn a method of an asynchronous class into one of a
``Facade``, with the same parameters and the same docstring.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from pydanube.aio.loops import new_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="pydanube client", daemon=True
        )
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on the loop, and return what it returns."""
        future = self.run(work)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in the waiting thread also cancels the work on the loop.
            future.cancel()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start *work* on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call *callback* on the loop."""
        self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    @contextmanager
    def entered(self, scope: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter *scope* on the loop, and leave it with the body."""
        holder = _ScopeHolder(scope)
        holding = self.run(holder.hold())
        try:
            yield self.wait(holder.value())
        except BaseException as failure:
            # On the loop, anything but an Exception would stop the loop itself.
            raised = failure if isinstance(failure, Exception) else _Interrupted()
            self.wait(holder.leave(raised))
            try:
                holding.result()
            except BaseException as error:
                if error is not raised:
                    raise
            raise
        else:
            self.wait(holder.leave(None))
            holding.result()


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    """Run a loop in a thread while the body runs."""
    loop = LoopThread()
    try:
        yield loop
    finally:
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

    @overload
    def __get__(
        self, instance: None, owner: type, /
    ) -> Callable[Concatenate[Any, P], T_co]: ...
    @overload
    def __get__(
        self, instance: object, owner: type | None = None, /
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
        values = getattr(self._wrapped, method.__name__)(*args, **kwargs)
        try:
            while (value := self._loop.wait(_next_or_none(values))) is not None:
                yield value
        finally:
            self._loop.wait(values.aclose())

    return cast("FacadeMethod[P, Iterator[T]]", call)


def wrapping(
    method: Callable[Concatenate[Any, P], S], wrapper: Callable[[LoopThread, S], T]
) -> FacadeMethod[P, T]:
    """Return a facade's version of a method whose result becomes a *wrapper*."""

    @wraps(method)
    def call(self: Facade, *args: P.args, **kwargs: P.kwargs) -> T:
        found = getattr(self._wrapped, method.__name__)(*args, **kwargs)
        return wrapper(self._loop, found)

    return cast("FacadeMethod[P, T]", call)


async def _next_or_none(values: AsyncIterator[T]) -> T | None:
    return await anext(values, None)


class _ScopeHolder(Generic[T]):
    """Enters and leaves an async context manager in one task, as task groups need."""

    def __init__(self, scope: AbstractAsyncContextManager[T]) -> None:
        self._scope = scope
        self._entered = asyncio.Event()
        self._leave = asyncio.Event()
        self._value: T
        self._failure: BaseException | None = None

    async def hold(self) -> None:
        """Enter, wait for ``leave``, and leave."""
        try:
            async with self._scope as value:
                self._value = value
                self._entered.set()
                await self._leave.wait()
                if self._failure is not None:
                    raise self._failure  # noqa: TRY301  # The scope must see it.
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._entered.set()

    async def value(self) -> T:
        """Return the value of the scope when it is entered."""
        await self._entered.wait()
        if self._failure is not None:
            raise self._failure
        return self._value

    async def leave(self, failure: BaseException | None) -> None:
        """Leave, as if the body had raised *failure*."""
        self._failure = failure
        self._leave.set()


class _Interrupted(Exception):
    """Stands in on the loop for what ended the thread, such as KeyboardInterrupt."""
