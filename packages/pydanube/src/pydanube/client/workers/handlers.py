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
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

from pydanube.aio.contexts import in_own_context
from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.client.messages.schema import Schema
from pydanube.model.errors import InvalidRequest

_PLAIN = (Any, object, dict)
"""Annotations of values that are decoded as their writer schemas say."""


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
        self._is_batched = is_batched
        self._roles = [self._role(each) for each in _parameters(self.name, function)]
        if self._roles.count("value") > 1 or not {"value", "message"} & {*self._roles}:
            given = "messages" if is_batched else "a message"
            raise InvalidRequest(
                f"a worker calls {self.name}() with {given}: it needs one parameter "
                f"for the {'values' if is_batched else 'value'} or one that is "
                f"annotated as {self._message_type.__name__}"
            )

    def arguments(
        self, client: object, message: Message | MessageBatch, values: list[Any]
    ) -> list[Any]:
        """Return the arguments of a call with *message*, which may be a batch."""
        found: dict[str, Any] = {"client": client, "message": message}
        if self._is_batched:
            found["value"] = values
        else:
            found["value"] = values[0] if values else None
        return [found[role] for role in self._roles]

    def message(self, messages: Sequence[Message]) -> Message | MessageBatch:
        """Return *messages* as the function receives them."""
        if self._is_batched:
            return MessageBatch.of(messages[0].topic, messages)
        return messages[0]

    async def call(self, threads: CallThreads, arguments: Sequence[Any]) -> None:
        """
        Call the function, in a context of its own, and in a thread if not asynchronous.
        """
        if self.is_async:
            await in_own_context(self._function(*arguments))
        else:
            await threads.run(partial(self._function, *arguments))

    @property
    def _message_type(self) -> type:
        return MessageBatch if self._is_batched else Message

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
                f"{'with' if self._is_batched else 'without'} batch= calls it with a "
                f"{self._message_type.__name__}"
            )
        self.has_values = True
        if self._is_batched and hint is not inspect.Parameter.empty:
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


class CallThreads:
    """
    Threads for the calls of functions that are not asynchronous.

    A call that never returns does not keep the process from ending.

    Bounds: As many threads as calls that have run at the same time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._count = 0
        self._busy = 0

    async def run(self, call: Callable[[], Any]) -> None:
        """
        Run *call* in a thread and wait for it.

        Cancellation: The call continues in its thread, and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        context = copy_context()

        def finish(error: BaseException | None) -> None:
            self._busy -= 1
            if done.cancelled():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def job() -> None:
            failure: BaseException | None = None
            try:
                context.run(call)
            except StopIteration as error:
                # A future does not take it.
                failure = RuntimeError(repr(error))
            except BaseException as error:  # noqa: BLE001  # The caller gets it.
                failure = error
            # The loop may be closed, if it no longer waits for the call.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, failure)

        self._busy += 1
        if self._busy > self._count:
            self._count += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._jobs.put(job)
        await done

    def close(self) -> None:
        """End the threads after their present calls."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
