"""
A consumer: batches in, messages out, acknowledgements back in ranges.

The broker sends as far as the consumer's credit reaches, which comes back as
messages are handed out.  Acknowledgements gather for a few milliseconds and
travel as ranges.  When the connection breaks, the consumer opens again under its
name; what had come and was not handed out is dropped, because it comes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pydanube.client.backoff import Backoff, retried
from pydanube.client.messages import (
    Message,
    MessageBatch,
    MessageId,
    MessageIds,
    Part,
    ranges_of_offsets,
)
from pydanube.model.errors import (
    BrokerError,
    Closed,
    InvalidRequest,
    Remedy,
    TimedOut,
    Unavailable,
)
from pydanube.model.policy import Start, SubscriptionType
from pydanube.model.ranges import RangeSet
from pydanube.wire.frames import Kind
from pydanube.wire.messages import (
    ranges_to_wire,
    start_to_wire,
    type_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from pydanube.client.client import Client
    from pydanube.client.connection import BrokerConnection
    from pydanube.client.tasks import TaskScope
    from pydanube.model.ranges import Range
    from pydanube.wire.connection import Received

ACK_LINGER_S = 0.005
ACK_MESSAGES_MAX = 4096
"""Acknowledgements of so many messages do not wait for more."""
OPEN_TIMEOUT_S = 30.0
FLUSH_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 10.0
CONFIRM_INTERVAL_S = 1.0
"""How often the broker is asked to confirm what it was sent."""

_UNWRITTEN = (
    "the broker cannot be reached, so what was acknowledged last may come again"
)

Acked = Message | MessageBatch | MessageId | Iterable[Message | MessageId]
"""What can be acknowledged."""


class Consumer:
    """
    A consumer of one subscription; made by ``Client.consumer``.

    Ordering: Messages come in the order of the topic where one consumer gets
        all; what is delivered again comes before what is new.

    Bounds: It holds what it asked the broker for, ``prefetch_messages`` and
        ``prefetch_bytes``, and not more.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        subscription: str,
        type_: SubscriptionType,
        start: Start,
        name: str,
        ack_timeout_s: float | None,
        prefetch_messages: int,
        prefetch_bytes: int,
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self.name = name
        self.is_active = True
        """False while another consumer of a failover subscription is active."""
        self._client = client
        self._type = type_
        self._start = start
        self._ack_timeout_s = ack_timeout_s
        self._prefetch_messages = prefetch_messages
        self._prefetch_bytes = prefetch_bytes
        self._loop = asyncio.get_running_loop()
        self._connection: BrokerConnection | None = None
        self._channel = 0
        self._channel_end: asyncio.Future[BrokerError]
        self._failure: BrokerError | None = None
        # Parts that came, then the one that is being handed out.
        self._parts: deque[Part] = deque()
        self._part: Part | None = None
        self._position = 0
        self._arrived = asyncio.Event()
        # Handed out, and not yet given back to the broker as credit.
        self._used_messages = 0
        self._used_bytes = 0
        # The run of acknowledged offsets that grows, and the others.
        self._ack_base = 0
        self._ack_end = 0
        self._acks = RangeSet()
        # Sent, and not known to have arrived: they are sent again when the
        # connection breaks.
        self._unconfirmed = RangeSet()
        self._confirm_at = 0.0
        self._ack_timer: asyncio.TimerHandle | None = None

    # Receiving.

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        part = self._part
        if part is None or self._position >= part.count:
            try:
                part = self._next_part() or await self._wait_for_part()
            except Closed:
                raise StopAsyncIteration from None
        index = self._position
        self._position = index + 1
        return Message(part, index)

    async def receive(self, *, timeout_s: float | None = None) -> Message:
        """
        The next message.

        Raises:
            TimedOut: None came in *timeout_s*.
            Closed: The consumer is closed.
            ConsumerReplaced: Another consumer came under this one's name.
            OffsetDropped: Retention has dropped messages that were not done; the
                subscription goes on with the first that exists when a consumer
                opens it again.
        """
        part = self._part
        if part is None or self._position >= part.count:
            part = self._next_part() or await self._wait_for_part(timeout_s)
        index = self._position
        self._position = index + 1
        return Message(part, index)

    async def receive_batch(
        self, *, max_messages: int = 1000, timeout_s: float | None = None
    ) -> MessageBatch:
        """
        The messages that are here, at least one and at most *max_messages*.

        An empty batch comes if there was none in *timeout_s*.

        Raises: As ``receive``, but for TimedOut.
        """
        if max_messages < 1:
            raise InvalidRequest("max_messages must be at least 1")
        taken: list[tuple[Part, int, int]] = []
        part = self._part
        if part is None or self._position >= part.count:
            try:
                part = self._next_part() or await self._wait_for_part(timeout_s)
            except TimedOut:
                return MessageBatch(self.topic, taken)
        left = max_messages
        while part is not None and left:
            base = self._position
            end = min(part.count, base + left)
            taken.append((part, base, end))
            self._position = end
            left -= end - base
            part = self._next_part() if left else None
        return MessageBatch(self.topic, taken)

    # Answering.

    async def ack(self, messages: Acked) -> None:
        """
        These messages are done.

        Durability: Nothing is awaited: the broker learns it within milliseconds
            and has it on disk soon after.  A crash before that means that the
            messages are delivered again.  ``flush`` waits for the disk.
        """
        if type(messages) is Message:
            offset = messages._part.offsets[messages._index]  # noqa: SLF001  # Hot.
            self._ack(offset, offset + 1)
            return
        self.ack_nowait(messages)

    def ack_nowait(self, messages: Acked) -> None:
        """These messages are done; the same as ``ack``, which does not wait either."""
        for base, end in _ranges_of(messages):
            self._ack(base, end)

    async def ack_cumulative(self, message: Message | MessageId) -> None:
        """This message and all before it are done; see ``ack``."""
        self._ack(0, message.offset + 1)

    async def nack(self, messages: Acked) -> None:
        """These messages were not processed: they are delivered again."""
        if self._connection is not None:
            ranges = ranges_to_wire(_ranges_of(messages))
            self._connection.send(Kind.NACK, pb.Nack(ranges=ranges), self._channel)

    async def flush(self) -> None:
        """
        Wait until the broker has all acknowledgements on disk.

        Raises:
            BrokerError: The consumer has failed.
            TimedOut: No broker has taken them for half a minute.
        """
        backoff = Backoff()
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                while not await self._try_flush():  # noqa: ASYNC110  # Backing off.
                    await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            raise TimedOut(_UNWRITTEN) from None

    async def seek(self, to: int | str) -> None:
        """
        Go on at an offset, at ``"earliest"`` or at ``"latest"``.

        It holds for the whole subscription, and what had come before is dropped.

        Durability: On return the new position is on disk.

        Raises:
            InvalidRequest: The topic has no such offset yet, or is not reliable.
        """
        message = pb.Seek()
        if isinstance(to, int):
            message.offset = to
        else:
            try:
                message.start = start_to_wire(Start(to))
            except ValueError:
                raise InvalidRequest(
                    f"seek to an offset, 'earliest' or 'latest', not {to!r}"
                ) from None
        self._take_acks()
        if self._connection is None:
            raise TimedOut("the consumer is not connected at the moment")
        # What comes before the answer was sent before the seek.
        await self._connection.request_nowait(
            Kind.SEEK, message, self._channel, on_answer=self._drop_parts
        )

    # What the connection tells us.

    def on_frame(self, frame: Received) -> None:
        """See ``connection.Channel``."""
        if frame.kind is Kind.DELIVERY:
            assert frame.batch is not None
            self._parts.append(Part(frame.batch, self.topic, frame.attempt))
            self._arrived.set()
        elif frame.kind is Kind.CONSUMER_STATE:
            message: Any = frame.message
            self.is_active = message.is_active

    def on_closed(self, reason: BrokerError) -> None:
        """See ``connection.Channel``."""
        self._connection = None
        if not self._channel_end.done():
            self._channel_end.set_result(reason)

    # The life of the consumer.

    async def open(self) -> None:
        """Open for the first time; errors are the caller's."""
        await retried(self._open_channel, OPEN_TIMEOUT_S)

    async def run(self) -> None:
        """Keep the consumer open, whatever happens to its channel, until it fails."""
        backoff = Backoff()
        while self._failure is None:
            if self._connection is not None:
                reason = await self._channel_end
                backoff.reset()
                self._drop_parts()
            else:
                try:
                    await self._open_channel()
                    continue
                except BrokerError as error:
                    reason = error
            if reason.remedy is Remedy.GIVE_UP:
                self._fail(reason)
            else:
                await asyncio.sleep(backoff.next_s())

    async def aclose(self) -> None:
        """Have all acknowledgements written, and leave the subscription."""
        try:
            if self._failure is None:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    if self._has_acks or self._unconfirmed:
                        await self.flush()
                    if self._connection is not None:
                        await self._close_channel(self._connection)
        except TimeoutError:
            raise TimedOut(_UNWRITTEN) from None
        finally:
            self._fail(Closed("the consumer is closed"))

    def abandon(self) -> None:
        """Close without waiting, if it is not closed yet."""
        if self._failure is None:
            self._fail(Closed("the consumer is closed"))

    @property
    def is_connected(self) -> bool:
        """Whether the broker has the consumer open at the moment."""
        return self._connection is not None

    async def _close_channel(self, connection: BrokerConnection) -> None:
        try:
            await connection.request(
                Kind.CLOSE_CONSUMER, pb.CloseConsumer(), self._channel
            )
        except Unavailable:
            # The broker is gone, and our place with it.
            return
        connection.free_channel(self._channel)

    async def _open_channel(self) -> None:
        connection = await self._client.connection()
        channel = connection.new_channel(self)
        self._channel_end = self._loop.create_future()
        try:
            await connection.request(
                Kind.OPEN_CONSUMER,
                pb.OpenConsumer(
                    topic=self.topic,
                    subscription=self.subscription,
                    name=self.name,
                    type=type_to_wire(self._type),
                    start=start_to_wire(self._start),
                    ack_timeout_s=self._ack_timeout_s or 0,
                ),
                channel,
            )
        except BaseException:
            connection.free_channel(channel)
            raise
        self._connection, self._channel = connection, channel
        self._used_messages = self._used_bytes = 0
        if self._has_acks or self._unconfirmed:
            # Before new deliveries: what is done need not come again.
            for base, end in self._unconfirmed:
                self._acks.add(base, end)
            connection.send(Kind.ACK, self._take_acks(), channel)
        connection.send(
            Kind.CREDIT,
            pb.Credit(messages=self._prefetch_messages, bytes=self._prefetch_bytes),
            channel,
        )

    def _fail(self, reason: BrokerError) -> None:
        self._failure = reason
        self._connection = None
        self._drop_parts()
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self._arrived.set()

    # From deliveries to messages.

    def _next_part(self) -> Part | None:
        """Begin with the next part that came, if there is one."""
        if not self._parts:
            return None
        part = self._part = self._parts.popleft()
        self._position = 0
        self._used_messages += part.count
        self._used_bytes += part.frame.byte_count
        if (
            self._used_messages * 2 >= self._prefetch_messages
            or self._used_bytes * 2 >= self._prefetch_bytes
        ):
            self._give_credit()
        return part

    async def _wait_for_part(self, timeout_s: float | None = None) -> Part:
        # What is handed out is used; the broker may wait for just that credit.
        self._give_credit()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if self._failure is not None:
                        raise self._failure
                    part = self._next_part()
                    if part is not None:
                        return part
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise TimedOut(f"no message came in {timeout_s} s") from None

    def _give_credit(self) -> None:
        if self._connection is not None and self._used_messages:
            credit = pb.Credit(messages=self._used_messages, bytes=self._used_bytes)
            self._connection.send(Kind.CREDIT, credit, self._channel)
            self._used_messages = self._used_bytes = 0

    def _drop_parts(self) -> None:
        for part in self._parts:
            self._used_messages += part.count
            self._used_bytes += part.frame.byte_count
        self._parts.clear()
        self._part = None
        self._position = 0
        self._give_credit()

    # Acknowledgements.

    def _ack(self, base: int, end: int) -> None:
        if base == self._ack_end and self._ack_base < base:
            self._ack_end = end
        else:
            self._acks.add(self._ack_base, self._ack_end)
            self._ack_base, self._ack_end = base, end
        if self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_LINGER_S, self._send_acks)
        elif self._ack_end - self._ack_base == ACK_MESSAGES_MAX:
            self._send_acks()

    @property
    def _has_acks(self) -> bool:
        return self._ack_base < self._ack_end or bool(self._acks)

    def _take_acks(self) -> pb.Ack:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self._acks.add(self._ack_base, self._ack_end)
        self._ack_base = self._ack_end
        message = pb.Ack(ranges=ranges_to_wire(self._acks))
        for base, end in self._acks:
            self._unconfirmed.add(base, end)
        self._acks.clear()
        return message

    def _send_acks(self) -> None:
        if self._connection is None:
            self._ack_timer = None
        elif self._loop.time() < self._confirm_at:
            self._connection.send(Kind.ACK, self._take_acks(), self._channel)
        else:
            self._confirm_at = self._loop.time() + CONFIRM_INTERVAL_S
            self._request_ack(self._connection).add_done_callback(_retrieve)

    def _request_ack(self, connection: BrokerConnection) -> asyncio.Future[Any]:
        """Send the acknowledgements, and hear when they are on the broker's disk."""
        message = self._take_acks()
        sent, self._unconfirmed = self._unconfirmed, RangeSet()
        answer = connection.request_nowait(Kind.ACK, message, self._channel)
        answer.add_done_callback(partial(self._on_confirmed, sent))
        return answer

    def _on_confirmed(self, sent: RangeSet, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            for base, end in sent:
                self._unconfirmed.add(base, end)

    async def _try_flush(self) -> bool:
        """Have all acknowledgements written; False if the connection broke."""
        if self._failure is not None:
            raise self._failure
        if self._connection is None:
            return False
        try:
            await self._request_ack(self._connection)
        except BrokerError as error:
            if error.remedy is Remedy.GIVE_UP:
                raise
        # What was sent before without waiting may have been lost since.
        return not self._unconfirmed and not self._has_acks


@asynccontextmanager
async def open_consumer(
    client: Client,
    tasks: TaskScope,
    topic: str,
    *,
    subscription: str,
    type_: SubscriptionType,
    start: Start,
    name: str,
    ack_timeout_s: float | None,
    prefetch_messages: int,
    prefetch_bytes: int,
) -> AsyncIterator[Consumer]:
    """A consumer, open while the body runs; see ``Client.consumer``."""
    consumer = Consumer(
        client,
        topic,
        subscription=subscription,
        type_=type_,
        start=start,
        name=name,
        ack_timeout_s=ack_timeout_s,
        prefetch_messages=prefetch_messages,
        prefetch_bytes=prefetch_bytes,
    )
    await consumer.open()
    running = tasks.run(consumer.run(), f"consumer {name} of {topic}")
    try:
        yield consumer
    except BaseException:
        # The body's error is what matters; nobody waits for a lost broker now.
        with suppress(BrokerError):
            if consumer.is_connected:
                await consumer.aclose()
        raise
    else:
        await consumer.aclose()
    finally:
        consumer.abandon()
        running.cancel()


def _retrieve(answer: asyncio.Future[Any]) -> None:
    # Nobody waits for it; what went wrong shows when the channel is closed.
    if not answer.cancelled():
        answer.exception()


def _ranges_of(messages: Any) -> Iterator[Range]:
    if isinstance(messages, MessageBatch):
        yield from messages.ranges()
    elif isinstance(messages, MessageIds):
        yield from ranges_of_offsets(messages.offsets)
    elif isinstance(messages, Message | MessageId):
        yield messages.offset, messages.offset + 1
    elif isinstance(messages, Iterable) and not isinstance(messages, str | bytes):
        yield from ranges_of_offsets(_offset_of(each) for each in messages)
    else:
        raise InvalidRequest(
            f"a message, a batch or several of them, not {type(messages).__name__}"
        )


def _offset_of(message: object) -> int:
    if not isinstance(message, Message | MessageId):
        raise InvalidRequest(f"a message, not {type(message).__name__}")
    return message.offset
