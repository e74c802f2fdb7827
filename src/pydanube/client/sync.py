"""
The client without ``await``, for threads and scripts.

One thread runs the event loop; the objects here hand their work to it and wait.
They may be used from several threads, each object from one at a time.  What is
done per message, handing out, acknowledging and queueing, does not cross to the
loop for each.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydanube.client import client as aio
from pydanube.client.loops import new_loop
from pydanube.client.messages import Message, MessageBatch, MessageId, MessageIds
from pydanube.model.errors import BrokerError, Closed, TimedOut

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager

    import pyarrow as pa

    from pydanube.client.consumer import Acked
    from pydanube.client.consumer import Consumer as AsyncConsumer
    from pydanube.client.pending import Pending as AsyncPending
    from pydanube.client.producer import Producer as AsyncProducer
    from pydanube.model.descriptions import (
        Segments,
        SubscriptionDescription,
        TopicDescription,
    )

T = TypeVar("T")

BATCH_MESSAGES = 1000
"""So many messages come over from the loop at a time while one iterates."""
QUEUED_MESSAGES_MAX = 8192
"""When so many are queued, ``send_nowait`` waits for the loop to catch up."""


@contextmanager
def connect(url: str = aio.DEFAULT_URL, *, token: str = "") -> Iterator[Client]:
    """
    A client of the broker at *url*; see ``pydanube.connect``.

    Raises:
        ConnectionLost: Nobody answers there.
        InvalidRequest: *url* is not one of ours.
    """
    with (
        _loop_thread() as loop,
        _entered(loop, aio.connect(url, token=token)) as client,
    ):
        yield Client(loop, client)


class Client:
    """A client of one broker; see ``pydanube.Client`` for what each method does."""

    def __init__(self, loop: _LoopThread, client: aio.Client) -> None:
        self._loop = loop
        self._client = client

    @contextmanager
    def producer(self, topic: str, **options: Any) -> Iterator[Producer]:
        """A producer for *topic*; options as for ``pydanube.Client.producer``."""
        with _entered(self._loop, self._client.producer(topic, **options)) as producer:
            wrapped = Producer(self._loop, producer)
            yield wrapped
            wrapped.hand_over()

    @contextmanager
    def consumer(self, topic: str, **options: Any) -> Iterator[Consumer]:
        """A consumer of *topic*; options as for ``pydanube.Client.consumer``."""
        with _entered(self._loop, self._client.consumer(topic, **options)) as consumer:
            wrapped = Consumer(self._loop, consumer)
            yield wrapped
            wrapped.hand_over()

    def read(
        self,
        topic: str,
        *,
        start: int | str = "earliest",
        end: int | None = None,
        follow: bool = False,
    ) -> Iterator[MessageBatch]:
        """The messages ``start … end``; see ``pydanube.Client.read``."""
        batches = self._client.read(topic, start=start, end=end, follow=follow)
        try:
            while (batch := self._loop.wait(_next_or_none(batches))) is not None:
                yield batch
        finally:
            self._loop.wait(batches.aclose())  # type: ignore[attr-defined]

    def create_topic(self, topic: str, **options: Any) -> None:
        """Create *topic*; options as for ``pydanube.Client.create_topic``."""
        self._loop.wait(self._client.create_topic(topic, **options))

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Remove *topic* with all its messages and subscriptions."""
        self._loop.wait(self._client.delete_topic(topic, force=force))

    def topics(self, namespace: str | None = None) -> list[str]:
        """The names of all topics, or of those of *namespace*."""
        return self._loop.wait(self._client.topics(namespace))

    def describe_topic(self, topic: str) -> TopicDescription:
        """What is known of *topic* at the moment."""
        return self._loop.wait(self._client.describe_topic(topic))

    def segments(self, topic: str, base: int = 0, end: int = 0) -> Segments:
        """The immutable files that hold messages ``base … end`` of *topic*."""
        return self._loop.wait(self._client.segments(topic, base, end))

    def create_subscription(
        self, topic: str, subscription: str, **options: Any
    ) -> None:
        """Create a subscription that has no consumer yet."""
        self._loop.wait(
            self._client.create_subscription(topic, subscription, **options)
        )

    def delete_subscription(
        self, topic: str, subscription: str, *, force: bool = False
    ) -> None:
        """Forget a subscription and what it has done."""
        self._loop.wait(
            self._client.delete_subscription(topic, subscription, force=force)
        )

    def describe_subscription(
        self, topic: str, subscription: str
    ) -> SubscriptionDescription:
        """What is known of a subscription at the moment."""
        return self._loop.wait(self._client.describe_subscription(topic, subscription))

    def report_progress(self, topic: str, subscription: str, offset: int) -> None:
        """Say that a reader with positions of its own has come to *offset*."""
        self._loop.wait(self._client.report_progress(topic, subscription, offset))


class Pending:
    """A message on its way."""

    __slots__ = ("_failure", "_owner", "_pending")

    def __init__(self, owner: Producer) -> None:
        self._owner = owner
        self._pending: AsyncPending | None = None
        self._failure: BrokerError | None = None

    def result(self) -> MessageId:
        """
        Wait for the message's id.

        Raises: As ``pydanube.Producer.send``.
        """
        return self._owner.wait_for(self)

    def take(self, sent: AsyncPending | BrokerError) -> None:
        """On the loop: the message was sent, or could not be."""
        if isinstance(sent, BrokerError):
            self._failure = sent
        else:
            self._pending = sent

    async def settled(self) -> MessageId:
        """On the loop: the id, when it is there."""
        if self._failure is not None:
            raise self._failure
        assert self._pending is not None
        return await self._pending


class Producer:
    """A producer; see ``pydanube.Producer`` for what each method does."""

    def __init__(self, loop: _LoopThread, producer: AsyncProducer) -> None:
        self.topic = producer.topic
        self.name = producer.name
        self._loop = loop
        self._producer = producer
        self._queue: deque[tuple[Pending, tuple[Any, ...]]] = deque()
        self._is_scheduled = False

    def send(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> MessageId:
        """Publish one message and wait for its id."""
        self.hand_over()
        return self._loop.wait(
            self._producer.send(payload, key=key, attributes=attributes)
        )

    def send_nowait(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Pending:
        """
        Publish one message soon; ``result()`` of what it returns waits for its id.

        Waits when too much is on its way already.
        """
        pending = Pending(self)
        self._queue.append((pending, (payload, key, attributes)))
        if len(self._queue) >= QUEUED_MESSAGES_MAX:
            self.hand_over()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send_queued)
        return pending

    def send_batch(
        self, messages: Sequence[bytes | str] | pa.RecordBatch | pa.Table
    ) -> MessageIds:
        """Publish many messages and wait for their ids."""
        self.hand_over()
        return self._loop.wait(self._producer.send_batch(messages))

    def flush(self) -> None:
        """Wait until everything that was sent is acknowledged."""
        self.hand_over()
        self._loop.wait(self._producer.flush())

    def wait_for(self, pending: Pending) -> MessageId:
        """The id of *pending*'s message, when it is there."""
        self.hand_over()
        return self._loop.wait(pending.settled())

    def hand_over(self) -> None:
        """Have everything queued sent, and wait while there is no room for it."""
        if self._queue:
            self._loop.wait(self._send_all())

    def _send_queued(self) -> None:
        """On the loop: send what is queued, as far as there is room."""
        self._is_scheduled = False
        while self._queue and self._producer.has_room:
            pending, message = self._queue.popleft()
            self._send_one(pending, *message)

    async def _send_all(self) -> None:
        while self._queue:
            await self._producer.room()
            pending, message = self._queue.popleft()
            self._send_one(pending, *message)

    def _send_one(
        self,
        pending: Pending,
        payload: bytes,
        key: str | None,
        attributes: Mapping[str, str] | None,
    ) -> None:
        try:
            pending.take(
                self._producer.send_nowait(payload, key=key, attributes=attributes)
            )
        except BrokerError as error:
            pending.take(error)


class Consumer:
    """A consumer; see ``pydanube.Consumer`` for what each method does."""

    def __init__(self, loop: _LoopThread, consumer: AsyncConsumer) -> None:
        self.topic = consumer.topic
        self.subscription = consumer.subscription
        self.name = consumer.name
        self._loop = loop
        self._consumer = consumer
        # Messages that came over from the loop and are not handed out.
        self._messages: deque[Message] = deque()
        self._acks: deque[Acked] = deque()
        self._is_scheduled = False

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                yield self.receive()
            except Closed:
                return

    def receive(self, *, timeout_s: float | None = None) -> Message:
        """The next message."""
        if not self._messages:
            batch = self._receive(BATCH_MESSAGES, timeout_s)
            if not batch:
                raise TimedOut(f"no message came in {timeout_s} s")
            self._messages.extend(batch)
        return self._messages.popleft()

    def receive_batch(
        self, *, max_messages: int = 1000, timeout_s: float | None = None
    ) -> MessageBatch:
        """The messages that are here, at least one and at most *max_messages*."""
        if self._messages:
            # What iterating has left over, by its parts.
            taken = [
                self._messages.popleft()
                for _ in range(min(max_messages, len(self._messages)))
            ]
            return MessageBatch.of(self.topic, taken)
        return self._receive(max_messages, timeout_s)

    def ack(self, messages: Acked) -> None:
        """These messages are done; the broker learns it within milliseconds."""
        self._acks.append(messages)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._ack_queued)

    def ack_cumulative(self, message: Message | MessageId) -> None:
        """This message and all before it are done."""
        self._loop.wait(self._consumer.ack_cumulative(message))

    def nack(self, messages: Acked) -> None:
        """These messages were not processed: they are delivered again."""
        self._loop.wait(self._consumer.nack(messages))

    def flush(self) -> None:
        """Wait until the broker has all acknowledgements on disk."""
        self.hand_over()
        self._loop.wait(self._consumer.flush())

    def seek(self, to: int | str) -> None:
        """Go on at an offset, at ``"earliest"`` or at ``"latest"``."""
        self._messages.clear()
        self._loop.wait(self._consumer.seek(to))

    def hand_over(self) -> None:
        """Have every acknowledgement taken over by the loop."""
        if self._acks:
            self._loop.wait(self._ack_all())

    def _receive(self, max_messages: int, timeout_s: float | None) -> MessageBatch:
        return self._loop.wait(
            self._consumer.receive_batch(max_messages=max_messages, timeout_s=timeout_s)
        )

    def _ack_queued(self) -> None:
        self._is_scheduled = False
        while self._acks:
            self._consumer.ack_nowait(self._acks.popleft())

    async def _ack_all(self) -> None:
        self._ack_queued()


class _LoopThread:
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
            # Ctrl-C in the waiting thread must not leave the work behind.
            future.cancel()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run *work* on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, callback: Any) -> None:
        """Call *callback* on the loop."""
        self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class _Held(Generic[T]):
    """
    An async context manager, entered and left in one task of the loop.

    Task groups insist on that.
    """

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
                    raise self._failure  # noqa: TRY301  # For the scope to see.
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._entered.set()

    async def value(self) -> T:
        """What the scope gave when it was entered."""
        await self._entered.wait()
        if self._failure is not None:
            raise self._failure
        return self._value

    async def leave(self, failure: BaseException | None) -> None:
        """Leave, as if the body had raised *failure*."""
        self._failure = failure
        self._leave.set()


@contextmanager
def _loop_thread() -> Iterator[_LoopThread]:
    loop = _LoopThread()
    try:
        yield loop
    finally:
        loop.close()


class _Interrupted(Exception):
    """Stands on the loop for what ends a thread, such as KeyboardInterrupt."""


@contextmanager
def _entered(loop: _LoopThread, scope: AbstractAsyncContextManager[T]) -> Iterator[T]:
    held = _Held(scope)
    holding = loop.run(held.hold())
    try:
        yield loop.wait(held.value())
    except BaseException as failure:
        # On the loop, anything but an Exception would stop the loop itself.
        told = failure if isinstance(failure, Exception) else _Interrupted()
        loop.wait(held.leave(told))
        try:
            holding.result()
        except BaseException as raised:
            if raised is not told:
                raise
        raise
    else:
        loop.wait(held.leave(None))
        holding.result()


async def _next_or_none(batches: Any) -> MessageBatch | None:
    batch: MessageBatch | None = await anext(batches, None)
    return batch
