"""
The functions of workers: their parameters, by annotation, and the calls of them.

A parameter is the value of a message, a ``Message`` or the ``Client``; for batches it
is a list of values, a ``MessageBatch`` or the client.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Sequence,
)
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import (
    Any,
    Generic,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from pydanube.client.connections.telemetry import Telemetry
from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.client.messages.schema import Schema
from pydanube.client.workers.client_parts import is_given_to_workers
from pydanube.model.errors import InvalidRequest

_PLAIN = (Any, object, dict)
"""Annotations of values that are decoded as their writer schemas say."""


CallNext: TypeAlias = Callable[[Any], Awaitable[Any]]
"""The next middleware, or the function after the last one."""
Middleware: TypeAlias = Callable[[Any, CallNext], Coroutine[Any, Any, Any]]
"""``async def`` of a message, or a result, and of what to do with it."""
Publish: TypeAlias = Callable[[Message | MessageBatch, Any], Awaitable[None]]
"""Publishes what the function has returned for a message."""

RESULTS_MAX = 10_000
"""The most results of a call."""

BoundHandler: TypeAlias = Callable[[Message | MessageBatch, Any], Any]
"""A function as a worker calls it: with the message, and its value if it wants it."""


class Handler:
    """A function of a worker."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        schema: Schema[Any] | type | None,
        is_batched: bool,
        publishes: bool = False,
    ) -> None:
        """
        Read the signature of *function*.

        Raises:
            InvalidRequest: It has parameters that a worker cannot provide, or yields
                results that the worker does not publish.
        """
        self.name = getattr(function, "__qualname__", repr(function))
        self.description = inspect.getdoc(function) or ""
        self._yields = inspect.isasyncgenfunction(function)
        self.is_async = self._yields or inspect.iscoroutinefunction(function)
        if not publishes and (self._yields or inspect.isgeneratorfunction(function)):
            raise InvalidRequest(
                f"{self.name}() yields: a worker publishes what a function yields if "
                "it has publish='/namespace/topic', and calls others without yield"
            )
        self.schema = schema
        """The reader schema of the values; None: that of the writers."""
        self.has_values = False
        """Whether the function wants the decoded values."""
        self._function = function
        self.is_batched = is_batched
        parameters, self.returns = _signature(self.name, function)
        self._roles = [self._role(each) for each in parameters]
        if self._roles.count("value") > 1 or not {"value", "message"} & {*self._roles}:
            given = "messages" if is_batched else "a message"
            raise InvalidRequest(
                f"a worker calls {self.name}() with {given}: it needs one parameter "
                f"for the {'values' if is_batched else 'value'} or one that is "
                f"annotated as {self._message_type.__name__}"
            )

    def bound(self, client: object, telemetry: Telemetry | None) -> BoundHandler:
        """Return the function with *client* as its argument, traced if at all."""
        call = self._called_with(client)
        if telemetry is None:
            return call
        return (_traced if self.is_async else _traced_in_thread)(call, telemetry)

    def bound_within(
        self,
        client: object,
        telemetry: Telemetry | None,
        *,
        middlewares: Sequence[Middleware],
        publish: Publish | None,
        threads: ThreadCalls | None,
    ) -> BoundHandler:
        """
        Return the function as ``bound`` does, with what happens around it.

        It is asynchronous: without *threads*, the function is.  For single messages,
        the value that it is given is not used: it is decoded within *middlewares*.
        """
        call = self._called_with(client)

        async def process(message: Message | MessageBatch, value: Any) -> None:
            async def innermost(given: Any) -> Any:
                found = value
                if self.has_values and isinstance(given, Message):
                    found = given.value
                elif self.has_values and given is not message:
                    found = given.values()
                if threads is not None:
                    returned = await threads.call(partial(_listed, call, given, found))
                elif self._yields:
                    returned = await _list_of(call(given, found))
                else:
                    returned = await call(given, found)
                if publish is not None:
                    await publish(message, returned)
                return returned

            await chained(middlewares, innermost)(message)

        return process if telemetry is None else _traced(process, telemetry)

    def _called_with(self, client: object) -> BoundHandler:
        function = self._function
        call: BoundHandler
        match self._roles:
            case ["message"]:
                call = lambda message, _: function(message)  # noqa: E731
            case ["value"]:
                call = lambda _, value: function(value)  # noqa: E731
            case roles:

                def call(message: Message | MessageBatch, value: Any) -> Any:
                    found = {"client": client, "message": message, "value": value}
                    return function(*[found[role] for role in roles])

        return call

    @property
    def _message_type(self) -> type:
        return MessageBatch if self.is_batched else Message

    def _role(self, parameter: tuple[str, Any]) -> str:
        name, hint = parameter
        origin = get_origin(hint)
        if origin in (Message, MessageBatch):
            # Its value is decoded when the function reads it.
            [value_hint], hint = get_args(hint), origin
            self._read_values_as(value_hint)
        if hint is self._message_type:
            return "message"
        if is_given_to_workers(hint):
            return "client"
        if hint is inspect.Parameter.empty and self.schema is None:
            return "message"
        if hint in (Message, MessageBatch):
            raise InvalidRequest(
                f"{name} of {self.name}() is a {hint.__name__}: a worker "
                f"{'with' if self.is_batched else 'without'} batch= calls it with a "
                f"{self._message_type.__name__}"
            )
        self.has_values = True
        if self.is_batched and hint is not inspect.Parameter.empty:
            if get_origin(hint) not in (list, Sequence):
                raise InvalidRequest(
                    f"{name} of {self.name}() is {hint!r}: a worker with batch= calls "
                    "it with a list, for example list[Order]"
                )
            [hint] = get_args(hint)
        self._read_values_as(hint)
        return "value"

    def _read_values_as(self, hint: Any) -> None:
        if self.schema is None and hint not in _PLAIN and get_origin(hint) is not dict:
            self.schema = hint


def chained(middlewares: Sequence[Middleware], innermost: CallNext) -> CallNext:
    """Return *innermost* within *middlewares*, of which the first is the outermost."""
    call = innermost
    for each in reversed(middlewares):
        call = partial(_call_middleware, each, call)
    return call


def _call_middleware(
    middleware: Middleware, call_next: CallNext, given: Any
) -> Awaitable[Any]:
    return middleware(given, call_next)


def _listed(call: BoundHandler, message: Message | MessageBatch, value: Any) -> Any:
    """Call a function; return what it yields as a list."""
    returned = call(message, value)
    if isinstance(returned, Iterator):
        return list(islice(returned, RESULTS_MAX + 1))
    return returned


async def _list_of(yielded: AsyncIterator[Any]) -> list[Any]:
    found: list[Any] = []
    async for each in yielded:
        found.append(each)
        if len(found) > RESULTS_MAX:
            break
    return found


def _signature(
    name: str, function: Callable[..., Any]
) -> tuple[list[tuple[str, Any]], Any]:
    """Return the required parameters of *function*, and all annotations."""
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise InvalidRequest(
            f"the annotations of {name}() cannot be resolved ({error}): define the "
            "class at the top of its module"
        ) from error
    found = []
    for each in inspect.signature(function).parameters.values():
        if each.default is not each.empty or each.kind in (
            each.VAR_POSITIONAL,
            each.VAR_KEYWORD,
        ):
            continue
        if each.kind is each.KEYWORD_ONLY:
            raise InvalidRequest(
                f"{each.name} of {name}() is keyword-only: a worker passes its "
                "arguments by position"
            )
        found.append((each.name, hints.get(each.name, each.empty)))
    return found, hints.get("return", Any)


def _traced(call: BoundHandler, telemetry: Telemetry) -> BoundHandler:
    async def traced(message: Message | MessageBatch, value: Any) -> None:
        with telemetry.processing(message):
            await call(message, value)

    return traced


def _traced_in_thread(call: BoundHandler, telemetry: Telemetry) -> BoundHandler:
    def traced(message: Message | MessageBatch, value: Any) -> None:
        with telemetry.processing(message):
            call(message, value)

    return traced


C = TypeVar("C")
"""The description of a call that callers of ``CallThreads`` get back."""


class CallThreads(Generic[C]):
    """
    Threads that make calls, one after the other, and keep their results.

    Calls that wait for a thread begin in their order.  A call that never returns does
    not keep the process from ending.

    Bounds: At most *threads_max* threads, and as many as calls that are not done.
    """

    def __init__(
        self, name: str, threads_max: int, on_result: Callable[[], None]
    ) -> None:
        """*on_result* is called in the event loop when there are results."""
        self._name = name
        self._threads_max = threads_max
        self._on_result = on_result
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[C, Callable[[], Any]] | None]
        self._waiting = queue.SimpleQueue()
        self._results: deque[tuple[C, Any, BaseException | None]] = deque()
        self._is_told = False
        self._thread_count = 0
        self._call_count = 0

    def start(self, call: C, function: Callable[[], Any]) -> None:
        """Call *function* in a thread, in a copy of the current context."""
        self._call_count += 1
        if self._thread_count < min(self._call_count, self._threads_max):
            self._thread_count += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._waiting.put((call, partial(copy_context().run, function)))

    def results(self) -> Iterator[tuple[C, Any, BaseException | None]]:
        """Return the calls that are done: what they returned, and raised, once each."""
        self._is_told = False
        while self._results:
            self._call_count -= 1
            yield self._results.popleft()

    def remove_waiting(self) -> list[C]:
        """Remove and return the calls that have not begun."""
        removed = []
        with suppress(queue.Empty):
            while (waiting := self._waiting.get_nowait()) is not None:
                removed.append(waiting[0])
        self._call_count -= len(removed)
        return removed

    def close(self) -> None:
        """End the threads after their present calls."""
        self.remove_waiting()
        for _ in range(self._thread_count):
            self._waiting.put(None)

    def _work(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            call, function = waiting
            returned, error = None, None
            try:
                returned = function()
            except BaseException as raised:  # noqa: BLE001  # The loop gets it.
                error = raised
            self._results.append((call, returned, error))
            if not self._is_told:
                self._is_told = True
                # The loop may be closed, if it no longer waits for the call.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._on_result)


class ThreadCalls:
    """
    Functions that tasks call in threads, and await.

    Cancellation: The call continues, and its result is dropped.

    Bounds: As for ``CallThreads``.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self._threads: CallThreads[asyncio.Future[Any]]
        self._threads = CallThreads(name, threads_max, self._settle)

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call *function* in a thread, in a copy of the current context."""
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._threads.start(outcome, function)
        return await outcome

    def close(self) -> None:
        """End the threads after their present calls."""
        self._threads.close()

    def _settle(self) -> None:
        for outcome, returned, error in self._threads.results():
            if outcome.done():
                continue
            if error is None:
                outcome.set_result(returned)
            elif isinstance(error, StopIteration):
                # A future cannot raise it.
                outcome.set_exception(RuntimeError("the function raised StopIteration"))
            else:
                outcome.set_exception(error)
