"""
Results of workers: what a function returns, as messages for a topic.

The annotation of the function says of which class the results are.  ``ResultPublisher``
publishes them while the worker still holds the message, so that an error of publishing
is a failure of the message.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from itertools import islice
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydanube.aio.async_scopes import async_scope
from pydanube.client.connections.telemetry import SendSpan, Telemetry
from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.client.producers.producer import Pending, Producer
from pydanube.client.producers.typed_producer import TypedProducer
from pydanube.client.pure.batching import SendOptions
from pydanube.client.workers.handlers import RESULTS_MAX, Middleware, chained
from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.request_reply import CORRELATION_ID
from pydanube.model.schemas import SchemaReference

if TYPE_CHECKING:
    from pydanube.client.workers.transactions import Transaction

T_co = TypeVar("T_co", covariant=True)

CARRIED_ATTRIBUTES = (
    "traceparent",
    "tracestate",
    "baggage",
    "correlation_id",
    CORRELATION_ID,
)
"""Attributes of a message that its results have, too."""

_SEVERAL = (
    *(list, tuple, set, frozenset, Sequence, Iterable, Iterator, Generator),
    *(AsyncIterable, AsyncIterator, AsyncGenerator),
)
_UNTYPED = (Any, object, bytes, str, NoneType)
"""Classes of results that are payloads already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResultOptions:
    key: str | bytes | None = None
    attributes: Mapping[str, str] | None = None
    id: str | None = None
    deliver_after_s: float | None = None
    deliver_at: datetime | float | None = None
    ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class Result(_ResultOptions, Generic[T_co]):
    """
    A message that a worker with ``publish=`` publishes, with more than its value.

    Args:
        value: The value, or the payload if the function is annotated with no class.
        key: By default, that of the message that was processed.
        attributes: Names and values of your own; those that carry traces and
            correlations (``CARRIED_ATTRIBUTES``) are added.
        id, deliver_after_s, deliver_at, ttl_s: As for ``Producer.send``.
    """

    value: T_co


Encoded: TypeAlias = tuple[Any, SendOptions]
"""A payload, and how it is sent."""
_MESSAGES = (Result, Message, MessageBatch)


class ResultClient(Protocol):
    """A client, as publishers of results use it."""

    @property
    def producer(self) -> Callable[..., AbstractAsyncContextManager[Any]]: ...

    @property
    def telemetry(self) -> Telemetry | None: ...

    def _unattended_transaction(
        self, name: str
    ) -> AbstractAsyncContextManager[Transaction]: ...


@dataclass(frozen=True, slots=True)
class ResultTopic:
    """Where the results of a worker go, and how."""

    topic: str
    schema: Any
    """The class of the values; None: the function returns payloads."""
    is_transaction: bool

    @classmethod
    def parse(
        cls, topic: str, annotation: Any, name: str, *, is_transaction: bool
    ) -> ResultTopic:
        """
        Read where the function *name* publishes what it returns.

        Raises:
            InvalidRequest: The topic is invalid, or the results are of several classes.
        """
        parsed = str(TopicName.parse(topic))
        if annotation is NoneType:
            raise InvalidRequest(
                f"{name}() is annotated with -> None, and its results would be "
                f"published to {parsed}: write the class of what it returns"
            )
        found = dict.fromkeys(_classes_of(annotation))
        for each in _UNTYPED:
            found.pop(each, None)
        if len(found) > 1:
            shown = ", ".join(getattr(each, "__name__", repr(each)) for each in found)
            raise InvalidRequest(
                f"{name}() returns {shown}: a worker publishes values of one class; "
                "give the classes a common schema, or let one worker publish each"
            )
        return cls(parsed, next(iter(found), None), is_transaction)


def _classes_of(annotation: Any, *, may_be_several: bool = True) -> Iterator[Any]:
    """Yield the classes of the values that an annotation of results stands for."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        for each in arguments:
            yield from _classes_of(each, may_be_several=may_be_several)
    elif origin in _MESSAGES:
        yield arguments[0]
    elif origin in _SEVERAL and may_be_several:
        items = arguments if origin is tuple else arguments[:1]
        for each in items:
            if each is not ...:
                yield from _classes_of(each, may_be_several=False)
    elif annotation not in (*_MESSAGES, *_SEVERAL):
        yield annotation


def collect(returned: Any) -> list[Result[Any]]:
    """
    Return what a function has returned as results.

    Raises:
        InvalidRequest: There are more than ``RESULTS_MAX``.
    """
    if returned is None:
        return []
    if type(returned) in (list, tuple, set, frozenset, MessageBatch) or isinstance(
        returned, Iterator
    ):
        found = list(islice(returned, RESULTS_MAX + 1))
        if len(found) > RESULTS_MAX:
            raise _too_many()
        return [_result(each) for each in found if each is not None]
    return [_result(returned)]


def _too_many() -> InvalidRequest:
    return InvalidRequest(
        f"the call returned more than {RESULTS_MAX} results: publish them with "
        "producer.send_batch, from a parameter that is a pydanube.Client"
    )


def _result(item: Any) -> Result[Any]:
    return item if isinstance(item, Result) else Result(item)


class ResultPublisher:
    """
    Publishes the results of a worker; made by ``open_publisher``.

    A producer that has failed, for example because the topic was deleted, is opened
    again for the next message.
    """

    def __init__(
        self,
        client: ResultClient,
        target: ResultTopic,
        name: str,
        *,
        slots: int,
        middlewares: Sequence[Middleware],
    ) -> None:
        self._client = client
        self._middlewares = middlewares
        self._target = target
        self._name = name
        self._producer: Any = None
        self._scope = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._committed: set[int] = set()
        # A transaction fences an earlier one of its name: each call has its own.
        session = uuid.uuid4().hex
        self._names = [f"{name}-{session}-{slot}" for slot in range(slots)]

    async def open(self) -> None:
        """
        Open the producer, unless it is open already.

        Raises: As ``Client.producer``.
        """
        async with self._opening:
            if self._producer is not None and not _has_failed(self._producer):
                return
            self._producer = None
            await self._close()
            target = self._target
            opening = (
                self._client.producer(target.topic)
                if target.schema is None
                else self._client.producer(target.topic, schema=target.schema)
            )
            self._producer = await self._scope.enter_async_context(opening)

    async def _close(self) -> None:
        # It has failed already, with an error that a message has got.
        with suppress(BrokerError):
            await self._scope.aclose()

    async def aclose(self) -> None:
        """Close the producer."""
        await self._close()

    def take_committed(self, message: Message | MessageBatch) -> bool:
        """Return whether a transaction has acknowledged *message*, once."""
        is_committed = id(message) in self._committed
        self._committed.discard(id(message))
        return is_committed

    async def publish(
        self,
        message: Message | MessageBatch,
        returned: Any,
    ) -> None:
        """
        Publish what a call of the function has returned for *message*.

        With transactions it also acknowledges, if there are results.

        Durability: On return the results are as safe as their topic promises.

        Raises:
            InvalidPayload: A result does not conform to the schema.  Nothing was
                published.
            BrokerError: As ``Producer.send`` or ``Client.transaction``.
        """
        results = collect(returned)
        if not results:
            return
        await self.open()
        if self._target.is_transaction:
            await self._commit(message, results)
        elif self._middlewares:
            await self._pass(message, results, self._send)
        else:
            await self._send(self._encoded(message, results))

    async def _pass(
        self,
        message: Message | MessageBatch,
        results: list[Result[Any]],
        send: Callable[[list[Encoded]], Awaitable[None]],
    ) -> None:
        """Send each of *results* within the middlewares, one after the other."""

        async def send_one(result: Result[Any]) -> None:
            await send(self._encoded(message, [result]))

        for each in results:
            await chained(self._middlewares, send_one)(each)

    def _encoded(
        self, message: Message | MessageBatch, results: list[Result[Any]]
    ) -> list[Encoded]:
        """Return payloads and options; if one is invalid, nothing was sent."""
        producer = self._producer
        payloads: list[Any]
        if isinstance(producer, TypedProducer):
            values = [
                each.value.value if isinstance(each.value, Message) else each.value
                for each in results
            ]
            if len(values) == 1:
                payloads = [producer._payload(values[0])]
            else:
                payloads = producer._encode(values)
        else:
            payloads = [_payload_of(each.value) for each in results]
        options = [_options_of(each, message) for each in results]
        return list(zip(payloads, options, strict=True))

    async def _send(self, encoded: list[Encoded]) -> None:
        producer = self._producer
        if isinstance(producer, TypedProducer):
            producer = producer._producer
        if len(encoded) == 1:
            [(payload, options)] = encoded
            await producer.send(payload, **options)
            return
        pending: list[Pending] = []
        for payload, options in encoded:
            if not producer.has_capacity:
                await producer.wait_for_capacity()
            pending.append(producer.send_nowait(payload, **options))
        for each in pending:
            await each

    async def _commit(
        self, message: Message | MessageBatch, results: list[Result[Any]]
    ) -> None:
        name = self._names.pop()
        spans: list[SendSpan] = []
        failure: BaseException | None = None
        try:
            async with self._client._unattended_transaction(name) as transaction:
                send = partial(self._send_within, transaction, spans)
                if self._middlewares:
                    await self._pass(message, results, send)
                else:
                    await send(self._encoded(message, results))
                await transaction.ack(message)
            self._committed.add(id(message))
        except BaseException as error:
            failure = error
            raise
        finally:
            for span in spans:
                span.end(failure)
            self._names.append(name)

    async def _send_within(
        self, transaction: Transaction, spans: list[SendSpan], encoded: list[Encoded]
    ) -> None:
        topic, telemetry = self._target.topic, self._client.telemetry
        schema: SchemaReference | None = None
        if isinstance(self._producer, TypedProducer):
            version = self._producer.schema
            schema = SchemaReference(subject=version.subject, version=version.version)
        for payload, options in encoded:
            if "id" in options:
                raise InvalidRequest(
                    "a result of a worker with exactly_once=True has an id: leave it "
                    "out, because a transaction publishes each result once"
                )
            if telemetry is not None:
                span = telemetry.begin_send(topic, 1, options.get("attributes"))
                spans.append(span)
                options["attributes"] = span.attributes
            await transaction.send(topic, payload, schema=schema, **options)  # type: ignore[misc]


@async_scope
async def open_publisher(
    client: ResultClient,
    target: ResultTopic,
    name: str,
    *,
    slots: int,
    middlewares: Sequence[Middleware],
) -> AsyncIterator[ResultPublisher]:
    """Open a publisher that makes up to *slots* transactions at a time."""
    publisher = ResultPublisher(
        client, target, name, slots=slots, middlewares=middlewares
    )
    try:
        await publisher.open()
        yield publisher
    finally:
        await publisher.aclose()


def _has_failed(producer: Any) -> bool:
    inner = producer._producer if isinstance(producer, TypedProducer) else producer
    if isinstance(inner, Producer):
        return inner.failure is not None
    return any(each.failure is not None for each in inner._channels.values())


def _payload_of(value: Any) -> bytes | str:
    if isinstance(value, Message):
        return value.payload
    if isinstance(value, bytes | bytearray | memoryview | str):
        return value  # type: ignore[return-value]
    raise InvalidRequest(
        f"the worker has returned {type(value).__name__}, and its function is not "
        f"annotated with the class of its results: write -> {type(value).__name__}"
    )


def _options_of(result: Result[Any], message: Message | MessageBatch) -> SendOptions:
    """Return how to publish *result* of *message*, whose key it has by default."""
    forwarded = result.value if isinstance(result.value, Message) else None
    source = message if isinstance(message, Message) else forwarded
    key = result.key
    attributes: dict[str, str] = {}
    if source is not None:
        if key is None:
            key = (forwarded or source).key_bytes
        theirs = source.attributes
        if theirs:
            attributes = {k: theirs[k] for k in CARRIED_ATTRIBUTES if k in theirs}
    if forwarded is not None:
        attributes |= forwarded.attributes
    attributes |= result.attributes or {}
    found: dict[str, Any] = {
        "key": key,
        "attributes": attributes or None,
        "id": result.id,
        "deliver_after_s": result.deliver_after_s,
        "deliver_at": result.deliver_at,
        "ttl_s": result.ttl_s,
    }
    options: Any = {name: value for name, value in found.items() if value is not None}
    return options  # type: ignore[no-any-return]
