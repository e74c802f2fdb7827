"""
Blocking calls of the asynchronous client: its event loop runs in a thread.

``blocking`` and its siblings turn a method of an asynchronous class into one of a
``Facade``, with the same parameters and the same docstring.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    suppress,
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
from pydanube.client.connections.forks import call_in_child
from pydanube.client.connections.scopes import AsyncScope, SyncScope
from pydanube.model.errors import Closed, InvalidRequest

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")
F = TypeVar("F", bound="Facade")


class LoopThread:
    """
    An event loop in a thread of its own; made by ``loop_thread``.

    It ends when its owner stops it or the process exits.  A forked process does not
    have it.  After that, ``wait`` raises ``Closed``.
    """

    def __init__(self) -> None:
        self._loop = new_loop()
        # Reentrant: a garbage collection may stop this thread at any line.
        self._lock = threading.RLock()
        # Empty while the loop runs.
        self._end_reason = ""
        # In the order in which they were entered.
        self._scopes: list[_HeldScope] = []
        # A daemon, because the interpreter waits for other threads before it calls
        # what would stop them.
        self._thread = threading.Thread(
            target=self._run, name="pydanube client", daemon=True
        )
        _loop_threads.add(self)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """
        Run *work* on the loop, and return what it returns.

        Raises:
            Closed: The loop ended before *work*.
            InvalidRequest: This is the loop's own thread, which would wait for itself.
        """
        if self.is_current:
            work.close()
            raise InvalidRequest(
                "a callback of a client of pydanube.sync cannot wait for this client: "
                "call the client in another thread"
            )
        future = self.start(work)
        try:
            return future.result()
        except CancelledError:
            self._check_running()
            raise
        except BaseException:
            # Ctrl-C in the waiting thread also cancels the work on the loop.
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """
        Run *work* on the loop.

        Raises:
            Closed: The loop has ended.
        """
        with self._lock:
            if self.has_ended:
                work.close()
                self._check_running()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, callback: Callable[..., object]) -> None:
        """
        Call *callback* on the loop.

        Raises:
            Closed: The loop has ended.
        """
        with self._lock:
            self._check_running()
            self._loop.call_soon_threadsafe(callback)

    @property
    def is_current(self) -> bool:
        """Whether this thread is the loop's; garbage may be collected there."""
        return threading.current_thread() is self._thread

    @property
    def has_ended(self) -> bool:
        return bool(self._end_reason)

    @contextmanager
    def entered(
        self, scope: AbstractAsyncContextManager[Any], facade: Callable[[Any], F]
    ) -> Iterator[F]:
        """Enter *scope* on the loop, leave it with the body, and yield its *facade*."""
        held = _HeldScope(self, scope)
        try:
            found = held.facade = facade(held.enter())
            self._scopes.append(held)
            yield found
            if not self.has_ended:
                found.before_leaving()
        except BaseException as failure:
            held.leave(failure)
            raise
        else:
            held.leave(None)
        finally:
            with suppress(ValueError):
                self._scopes.remove(held)

    def stop(self, reason: str = "the client is closed") -> None:
        """End the loop, and cancel what still runs on it."""
        with self._lock:
            if not self.has_ended:
                self._end_reason = reason
                self._loop.call_soon_threadsafe(self._loop.stop)
        _loop_threads.discard(self)
        if not self.is_current:
            self._thread.join()

    def stop_at_exit(self) -> None:
        """Leave all scopes, the last one first, and stop."""
        try:
            for held in reversed(self._scopes):
                held.leave_at_exit()
        finally:
            self.stop("the process has closed its clients, because it exits")

    def abandon(self) -> None:
        """Note that this process was forked, so the thread does not exist here."""
        for task in asyncio.all_tasks(self._loop):
            # It is never finalized.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))
        self._lock = threading.RLock()
        self._end_reason = (
            "the client was opened in another process, and this one was forked from "
            "it: open a client in each process"
        )

    def _check_running(self) -> None:
        if self.has_ended:
            raise Closed(self._end_reason)

    def _run(self) -> None:
        loop = self._loop
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


class _HeldScope:
    """A scope that one task of the loop enters and leaves, as task groups need."""

    def __init__(
        self, loop: LoopThread, scope: AbstractAsyncContextManager[Any]
    ) -> None:
        self.facade: Facade | None = None
        self._loop = loop
        self._entered: Future[Any] = Future()
        self._left: Future[Exception | None] = Future()
        self._task: asyncio.Task[None] | None = None
        self._holding = loop.start(self._hold(scope))

    def enter(self) -> Any:
        """Wait until the scope is entered, and return what it yields."""
        both: tuple[Future[Any], ...] = (self._entered, self._holding)
        wait(both, return_when=FIRST_COMPLETED)
        if self._holding.done():
            self._holding.result()
        return self._entered.result()

    def leave(self, failure: BaseException | None) -> None:
        """Leave the scope because of *failure*, and wait until it is left."""
        if self._loop.has_ended:
            return
        raised: Exception | None = None
        if isinstance(failure, Exception):
            raised = failure
        elif failure is not None:
            # On the loop, anything but an Exception would stop the loop itself.
            raised = _Interrupted()
        if self._task is not None and not self._entered.done():
            self._loop.call_soon(self._task.cancel)
        if not self._left.done():
            self._left.set_result(raised)
        if self._loop.is_current:
            # Garbage is collected in the loop's thread, which must go on.
            return
        try:
            self._holding.result()
        except CancelledError:
            if self._entered.done() and not self._loop.has_ended:
                raise
        except BaseException as error:
            if error is not raised:
                raise

    def leave_at_exit(self) -> None:
        """Leave the scope as without a failure, and log errors."""
        try:
            if self.facade is not None:
                self.facade.before_leaving()
            self.leave(None)
        except Exception as error:  # noqa: BLE001  # The other scopes are left, too.
            log.warning("closing at the exit of the process: %s", error)

    async def _hold(self, scope: AbstractAsyncContextManager[Any]) -> None:
        self._task = asyncio.current_task()
        async with scope as value:
            self._entered.set_result(value)
            failure = await asyncio.wrap_future(self._left)
            if failure is not None:
                raise failure


_loop_threads: set[LoopThread] = set()
"""Those of this process that have not ended."""


def _stop_at_exit() -> None:
    # The interpreter has not stopped daemon threads yet, and waits for no other ones.
    for each in list(_loop_threads):
        each.stop_at_exit()


def _abandon_in_child() -> None:
    for each in _loop_threads:
        each.abandon()
    _loop_threads.clear()


atexit.register(_stop_at_exit)
call_in_child(_abandon_in_child)


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    """Run a loop in a thread while the body runs."""
    thread = LoopThread()
    try:
        yield thread
    finally:
        thread.stop()


class Facade:
    """An object of the asynchronous client, for threads."""

    def __init__(self, loop: LoopThread, wrapped: Any) -> None:
        self._loop = loop
        self._wrapped = wrapped

    def hand_over(self) -> None:
        """Pass calls that are queued in this thread to the loop, in their order."""

    def before_leaving(self) -> None:
        """Do what must be done before the scope is left without an error."""
        self.hand_over()


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
        # Perhaps as garbage, of which the loop's thread does not wait for itself.
        with suppress(Closed):
            (loop.start if loop.is_current else loop.wait)(values.aclose())


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
