"""
The objects that ``pydanube.sync`` hands out, for threads: producers, consumers, ...

Receiving, acknowledging and ``send_nowait`` do not cross to the loop for each message.
``sync_facades.py``, which is generated, has the client itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from pydanube.client import client as aio
from pydanube.client.blocking import (
    F,
    Facade,
    FacadeMethod,
    LoopThread,
    blocking,
    blocking_scope,
    iterating,
    wrapping,
)
from pydanube.client.connections.unread_deliveries import HandOutPace
from pydanube.client.consumers.consumer import Consumer as AsyncConsumer
from pydanube.client.consumers.dead_letters import DeadLetters as AsyncDeadLetters
from pydanube.client.messages.messages import Message, MessageBatch, MessageId, T_co
from pydanube.client.producers.producer import Producer as AsyncProducer
from pydanube.client.producers.producer import close_timeout_error
from pydanube.client.producers.typed_producer import TypedProducer as AsyncTypedProducer
from pydanube.client.workers.staging import PartWriter as AsyncPartWriter
from pydanube.client.workers.staging import Staging as AsyncStaging
from pydanube.client.workers.transactions import Transaction as AsyncTransaction
from pydanube.model.errors import BrokerError, Closed, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import Unpack

    from pydanube.client.consumers.dead_letters import DeadLetter
    from pydanube.client.counters import ClientCounters
    from pydanube.client.producers.partitioned_producer import (
        PartitionedProducer as AsyncPartitionedProducer,
    )
    from pydanube.client.producers.producer import Pending as AsyncPending
    from pydanube.client.pure.batching import DeliveryOptions, SendOptions
    from pydanube.client.pure.offsets import AckTarget
    from pydanube.model.positions import PositionLike

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

BATCH_MESSAGES = 1000
"""The most messages that iteration takes over from the loop at a time."""
QUEUED_MESSAGES_MAX = 8192
"""The most queued messages; then ``send_nowait`` waits for the loop."""


class Pending:
    """A message that is not acknowledged yet."""

    __slots__ = ("_owner", "sent")

    def __init__(self, owner: Producer) -> None:
        self._owner = owner
        self.sent: AsyncPending | Exception | None = None
        """Its counterpart on the loop, or why it could not be sent; None: not yet."""

    def result(self) -> MessageId:
        """
        Wait for the message's id.

        Raises: As ``pydanube.Producer.send``.
        """
        return self._owner.wait_for(self)


class Producer(Facade):
    """A producer; see ``pydanube.Producer``."""

    _wrapped: AsyncProducer | AsyncPartitionedProducer | AsyncTypedProducer[Any]

    def __init__(self, loop: LoopThread, client: aio.Client, producer: Any) -> None:
        super().__init__(loop, producer)
        self._client = client
        self.topic = producer.topic
        self.name = producer.name
        # Whether the loop needs the context in which a message was sent.
        self._is_traced = client.telemetry is not None
        # Messages that the loop has not taken over yet, and how to send them there.
        self._queue: deque[tuple[Pending, Callable[[], AsyncPending]]] = deque()
        self._is_scheduled = False

    send = blocking(AsyncProducer.send)
    send_batch = blocking(AsyncProducer.send_batch)
    flush = blocking(AsyncProducer.flush)

    def send_nowait(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002  # It is what users call it.
        **delivery: Unpack[DeliveryOptions],
    ) -> Pending:
        """
        Publish one message soon; ``result()`` of the return value waits for its id.

        Waits if too many messages are not acknowledged yet.
        """
        return self._enqueue(payload, key=key, attributes=attributes, id=id, **delivery)

    def wait_for(self, pending: Pending) -> MessageId:
        """Wait for the id of *pending*'s message."""
        self.hand_over()
        return self._loop.wait(_message_id(pending))

    def hand_over(self) -> None:
        """Send everything queued, and wait while the producer has no capacity."""
        if self._queue:
            self._loop.wait(self._send_all())

    def before_leaving(self) -> None:
        """Send everything queued within the client's ``close_timeout_s``."""
        if self._queue:
            self._loop.wait(self._send_all_in_time())

    def _enqueue(self, payload: Any, **options: Any) -> Pending:
        pending = Pending(self)
        send = partial(self._wrapped.send_nowait, payload, **options)
        if self._is_traced:
            send = partial(copy_context().run, send)
        self._queue.append((pending, send))
        if len(self._queue) >= QUEUED_MESSAGES_MAX:
            self.hand_over()
        elif not self._is_scheduled:
            self._loop.call_soon(self._send_queued)
            self._is_scheduled = True
        return pending

    async def _send_all_in_time(self) -> None:
        try:
            async with self._client.requester.closing():
                await self._send_all()
        except TimeoutError:
            count = len(self._queue) + self._wrapped.pending_count
            raise close_timeout_error(
                count, self.topic, self._client.requester
            ) from None

    def _send_queued(self) -> None:
        """Send what is queued, on the loop, as far as the producer has capacity."""
        self._is_scheduled = False
        while self._queue and self._wrapped.has_capacity:
            self._send_one()

    async def _send_all(self) -> None:
        while self._queue:
            await self._wrapped.wait_for_capacity()
            self._send_one()

    def _send_one(self) -> None:
        pending, send = self._queue.popleft()
        try:
            pending.sent = send()
        except Exception as error:  # noqa: BLE001  # result() raises it.
            pending.sent = error


async def _message_id(pending: Pending) -> MessageId:
    """Wait on the loop for the id of a message that was handed over."""
    sent = pending.sent
    assert sent is not None
    if isinstance(sent, Exception):
        raise sent
    return await sent


class TypedProducer(Producer, Generic[T]):
    """A producer of values; see ``pydanube.TypedProducer``."""

    def __init__(
        self, loop: LoopThread, client: aio.Client, producer: AsyncTypedProducer[T]
    ) -> None:
        super().__init__(loop, client, producer)
        self.schema = producer.schema
        """The version of the subject that values are written with."""

    send = blocking(AsyncTypedProducer[T].send)  # type: ignore[assignment]
    send_batch = blocking(AsyncTypedProducer[T].send_batch)  # type: ignore[assignment]
    send_encoded = blocking(AsyncTypedProducer.send_encoded)

    def send_nowait(  # type: ignore[override]  # Values instead of payloads.
        self, value: T, **options: Unpack[SendOptions]
    ) -> Pending:
        """Publish one value soon; see ``Producer.send_nowait``."""
        return self._enqueue(value, **options)


class Consumer(Facade, Generic[T_co]):
    """A consumer; see ``pydanube.Consumer``."""

    _wrapped: AsyncConsumer

    def __init__(self, loop: LoopThread, consumer: Any) -> None:
        super().__init__(loop, consumer)
        self.topic = consumer.topic
        self.subscription = consumer.subscription
        self.name = consumer.name
        # Messages from the loop that are not handed out yet.
        self._messages: deque[Message[T_co]] = deque()
        # They are few if the program is slow: nobody looks at their ack timeout.
        self._pace = HandOutPace(BATCH_MESSAGES)
        self._acks: deque[AckTarget] = deque()
        self._is_scheduled = False

    @property
    def topics(self) -> list[str]:
        """The topics that are consumed at the moment; see ``pydanube.Consumer``."""
        return list(self._wrapped.topics)

    ack_cumulative = blocking(AsyncConsumer.ack_cumulative)
    nack = blocking(AsyncConsumer.nack)
    extend = blocking(AsyncConsumer.extend)
    reply = blocking(AsyncConsumer.reply)
    release = blocking(AsyncConsumer.release)
    flush = blocking(AsyncConsumer.flush)

    def __iter__(self) -> Iterator[Message[T_co]]:
        while True:
            try:
                yield self.receive()
            except Closed:
                return

    def receive(self, *, timeout_s: float | None = None) -> Message[T_co]:
        """
        Return the next message.

        Raises: As ``pydanube.Consumer.receive``.
        """
        if not self._messages:
            count = self._pace.next_count(monotonic())
            batch = self._receive(count, timeout_s)
            if not batch:
                raise TimedOut(f"no message came in {timeout_s} s")
            self._messages.extend(batch)
        return self._messages.popleft()

    def receive_batch(
        self, *, max_messages: int = 1000, timeout_s: float | None = None
    ) -> MessageBatch[T_co]:
        """Return the messages that have arrived; see ``pydanube.Consumer``."""
        if self._messages:
            # First the rest of the last batch, as far as it is of one partition.
            topic = self._messages[0].topic
            taken: list[Message] = []
            while self._messages and len(taken) < max_messages:
                if self._messages[0].topic != topic:
                    break
                taken.append(self._messages.popleft())
            return MessageBatch.of(topic, taken)
        return self._receive(max_messages, timeout_s)

    def ack(self, messages: AckTarget) -> None:
        """
        Acknowledge *messages*; the broker learns it within milliseconds.

        Raises: As ``pydanube.Consumer.ack``.
        """
        if isinstance(messages, Iterator):
            messages = list(messages)
        self._wrapped._acknowledgeable_ranges(messages)
        self._acks.append(messages)
        if not self._is_scheduled:
            self._loop.call_soon(self._ack_queued)
            self._is_scheduled = True

    def _ack_nowait(self, messages: AckTarget) -> None:
        """Acknowledge *messages*, as ``ack`` does; for ``Message.ack``."""
        self.ack(messages)

    def _nack_nowait(
        self, messages: AckTarget, *, delay_s: float = 0.0, reason: str = ""
    ) -> None:
        """Reject *messages*, as ``nack`` does; for ``Message.nack``."""
        self.nack(messages, delay_s=delay_s, reason=reason)

    def _extend_nowait(self, messages: AckTarget, ack_timeout_s: float | None) -> None:
        """Extend the ack timeout of *messages*; for ``Message.extend``."""
        self.extend(messages, ack_timeout_s)

    def seek(self, to: PositionLike) -> None:
        """Move the subscription to *to*; see ``pydanube.Consumer.seek``."""
        self._messages.clear()
        self._loop.wait(self._wrapped.seek(to))

    def hand_over(self) -> None:
        """Pass all queued acknowledgements to the loop."""
        if self._acks:
            self._loop.wait(self._ack_all())

    def _receive(self, max_messages: int, timeout_s: float | None) -> MessageBatch:
        batch = self._loop.wait(
            self._wrapped.receive_batch(max_messages=max_messages, timeout_s=timeout_s)
        )
        for received, _, _ in batch.slices:
            if received.source is not None:
                # message.ack() is called in this thread.
                received.source.pass_to(self)
        return batch

    def _ack_queued(self) -> None:
        self._is_scheduled = False
        # If the consumer has failed since, receive() and flush() raise it.
        while self._acks:
            with suppress(BrokerError):
                self._wrapped._ack_nowait(self._acks.popleft())

    async def _ack_all(self) -> None:
        self._ack_queued()


class DeadLetters(Facade):
    """The dead letters of one subscription; see ``pydanube.DeadLetters``."""

    _wrapped: AsyncDeadLetters
    dead_letter_topic = blocking(AsyncDeadLetters.dead_letter_topic)
    messages = iterating(AsyncDeadLetters.messages)

    def replay(self, dead_letters: Iterable[DeadLetter]) -> int:
        """Publish *dead_letters* again; see ``pydanube.DeadLetters.replay``."""
        return self._loop.wait(self._wrapped.replay(list(dead_letters)))

    def drop(self, dead_letters: Iterable[DeadLetter]) -> int:
        """Mark *dead_letters* as handled; see ``pydanube.DeadLetters.drop``."""
        return self._loop.wait(self._wrapped.drop(list(dead_letters)))


class PartWriter(Facade):
    """The writer of one staged part; see ``pydanube.PartWriter``."""

    def __init__(self, loop: LoopThread, part: AsyncPartWriter) -> None:
        super().__init__(loop, part)
        self.key = part.key

    write = blocking(AsyncPartWriter.write)
    finish = blocking(AsyncPartWriter.finish)
    abort = blocking(AsyncPartWriter.abort)


class Staging(Facade):
    """One version of a query's output; see ``pydanube.Staging``."""

    def __init__(self, loop: LoopThread, staging: AsyncStaging) -> None:
        super().__init__(loop, staging)
        self.query = staging.query
        self.version = staging.version

    is_committed = blocking(AsyncStaging.is_committed)
    describe = blocking(AsyncStaging.describe)
    part = wrapping(AsyncStaging.part, PartWriter)
    commit = blocking(AsyncStaging.commit)
    abort = blocking(AsyncStaging.abort)


class Transaction(Facade):
    """Messages to publish and to acknowledge together; see ``pydanube.Transaction``."""

    send = blocking(AsyncTransaction.send)
    send_batch = blocking(AsyncTransaction.send_batch)
    ack = blocking(AsyncTransaction.ack)


class OpeningFacade(Facade):
    """A client, as far as it is not generated: it opens the objects above."""

    _wrapped: aio.Client

    def counters(self) -> ClientCounters:
        """Return what the client has done since it was opened."""
        return self._wrapped.counters()

    def _open(
        self,
        scope: AbstractAsyncContextManager[Any],
        facade: Callable[[LoopThread, Any], F],
    ) -> AbstractContextManager[F]:
        entered = self._loop.entered(scope, partial(facade, self._loop))
        return blocking_scope(scope, entered)

    def _producer(self, loop: LoopThread, producer: Any) -> Producer:
        is_typed = isinstance(producer, AsyncTypedProducer)
        kind = TypedProducer if is_typed else Producer
        return kind(loop, self._wrapped, producer)


def opening(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[S]],
    facade: Callable[[LoopThread, S], F],
) -> FacadeMethod[P, AbstractContextManager[F]]:
    """Return a client's version of a method whose result is a scope."""

    @wraps(method)
    def call(
        self: OpeningFacade, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractContextManager[F]:
        scope = getattr(self._wrapped, method.__name__)(*args, **kwargs)
        return self._open(scope, facade)

    return cast("FacadeMethod[P, AbstractContextManager[F]]", call)
