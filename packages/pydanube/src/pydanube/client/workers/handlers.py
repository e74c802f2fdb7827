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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
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
from pydanube.model.errors import InvalidRequest

_PLAIN = (Any, object, dict)
"""Annotations of values that are decoded as their writer schemas say."""


BoundHandler: TypeAlias = Callable[[Message | MessageBatch, Any], Any]
"""A function as a worker calls it: with the message, and its value if it wants it."""


class ForWorkers:
    """An object that the functions of workers may have as a parameter: the client."""


class Handler:
    """A function of a worker."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        schema: Schema[Any] | type | None,
        is_batched: bool,
    ) -> None:
        """
        Read the signature of *function*.

        Raises:
            InvalidRequest: It has parameters that a worker cannot provide.
        """
        self.name = getattr(function, "__qualname__", repr(function))
        self.is_async = inspect.iscoroutinefunction(function)
        self.schema = schema
        """The reader schema of the values; None: that of the writers."""
        self.has_values = False
        """Whether the function wants the decoded values."""
        self._function = function
        self.is_batched = is_batched
        self._roles = [self._role(each) for each in _parameters(self.name, function)]
        if self._roles.count("value") > 1 or not {"value", "message"} & {*self._roles}:
            given = "messages" if is_batched else "a message"
            raise InvalidRequest(
                f"a worker calls {self.name}() with {given}: it needs one parameter "
                f"for the {'values' if is_batched else 'value'} or one that is "
                f"annotated as {self._message_type.__name__}"
            )

    def bound(self, client: object, telemetry: Telemetry | None) -> BoundHandler:
        """Return the function with *client* as its argument, traced if at all."""
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

        if telemetry is None:
            return call
        return (_traced if self.is_async else _traced_in_thread)(call, telemetry)

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
        if isinstance(hint, type) and issubclass(hint, ForWorkers):
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


def _parameters(name: str, function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Return the required parameters of *function* and their annotations."""
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
    return found


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
        self._results: deque[tuple[C, BaseException | None]] = deque()
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

    def results(self) -> Iterator[tuple[C, BaseException | None]]:
        """Return the calls that are done, and what they have raised, once each."""
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
            error: BaseException | None = None
            try:
                function()
            except BaseException as raised:  # noqa: BLE001  # The loop gets it.
                error = raised
            self._results.append((call, error))
            if not self._is_told:
                self._is_told = True
                # The loop may be closed, if it no longer waits for the call.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._on_result)
