"""
The consumer of a topic: it receives batches, and acknowledges messages in ranges.

The broker sends as much as the consumer's credit allows; the consumer returns credit
as it hands out messages.  Acknowledgements gather for a few milliseconds and are sent
as ranges.  When the connection breaks, the consumer opens again under its name, and
drops the messages that it has not handed out, because the broker delivers them again.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic

from pydanube.client.acknowledger import Acknowledger
from pydanube.client.acks import Acks
from pydanube.client.channel import KeptChannel
from pydanube.client.connection import BrokerConnection, retrieve
from pydanube.client.credit import Credit
from pydanube.client.messages import (
    Message,
    MessageBatch,
    ReceivedBatch,
    Receiver,
    Source,
    T_co,
)
from pydanube.client.offsets import AckTarget, check_origin
from pydanube.client.options import ConsumerOptions
from pydanube.client.requester import Backoff, Requester, retry
from pydanube.model.arguments import check
from pydanube.model.errors import (
    BrokerError,
    Closed,
    InvalidRequest,
    NotOwner,
    Remedy,
    TimedOut,
    TopicNotFound,
)
from pydanube.model.positions import PositionLike, to_position
from pydanube.model.ranges import Range
from pydanube.wire.native.connection import ReceivedFrame
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import (
    divided_to_wire,
    enum_to_wire,
    position_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

ACK_LINGER_S = 0.005
ACK_RANGES_MAX = 4096
"""This many ranges of acknowledgements are sent without waiting for more."""
FLUSH_TIMEOUT_S = 30.0
REASON_CHARACTERS_MAX = 1024
"""The longest reason of a nack; longer ones are truncated."""
CONFIRM_INTERVAL_S = 1.0
"""The interval at which a consumer asks the broker to confirm acknowledgements."""

RETURN_PART = 2
"""A consumer returns its free credit when it is at least one half of all."""
RETURN_PART_WAITING = 16
"""A consumer that waits for messages returns at least one sixteenth."""

_UNCONFIRMED = (
    "the broker did not confirm the last acknowledgements, so it may deliver these "
    "messages again"
)


class Consumer(Acknowledger, Generic[T_co]):
    """
    A consumer of one subscription; made by ``Client.consumer``.

    ``Consumer[Order]`` has messages whose values are of the class ``Order``.

    Ordering: If one consumer gets all messages, they arrive in the order of the
        topic; redelivered messages come before new ones.

    Bounds: It holds ``prefetch_messages`` and ``prefetch_bytes``, before
        compression, and one batch more.  If the broker sends much more, the
        consumer closes the connection.
    """

    subscription: str

    @property
    def topics(self) -> list[str]:
        """The topics that are consumed at the moment, each partition by its name."""
        return [each.topic for each in self._consumers]

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """False while another consumer of a failover subscription is active."""

    @property
    @abstractmethod
    def _consumers(self) -> Sequence[TopicConsumer]:
        """The consumers of all topics and partitions."""

    @abstractmethod
    async def __anext__(self) -> Message[T_co]: ...

    @abstractmethod
    async def receive(self, *, timeout_s: float | None = None) -> Message[T_co]:
        """
        Return the next message.

        Raises:
            TimedOut: No message arrived in *timeout_s*.
            Closed: The consumer is closed.
            ConsumerReplaced: Another consumer of the same name was opened.
            OffsetDropped: Retention has dropped unacknowledged messages; when a
                consumer opens the subscription again, it continues with the first
                message that exists.
        """

    @abstractmethod
    async def receive_batch(
        self, *, max_messages: int = 1000, timeout_s: float | None = None
    ) -> MessageBatch[T_co]:
        """
        Return the messages that have arrived, at least one, at most *max_messages*.

        Returns an empty batch if no message arrived in *timeout_s*.

        Raises: As ``receive``, except TimedOut.
        """

    @abstractmethod
    async def flush(self) -> None:
        """
        Wait until the broker has all acknowledgements on disk.

        Raises:
            BrokerError: The consumer has failed.
            TimedOut: No broker has confirmed them for half a minute.
        """

    @abstractmethod
    async def seek(self, to: PositionLike) -> None:
        """
        Continue at an offset, at ``"earliest"``, at ``"latest"``, or at a time.

        This moves the whole subscription, and drops the messages that have arrived.
        While the consumer is not connected, the seek waits up to the ``retry_s`` of the
        client.

        Durability: On return the new position is on disk.

        Cancellation: The subscription may be at the new position.

        Raises:
            InvalidRequest: The topic has no such offset yet, or is not reliable.
            Unavailable: No broker has moved the subscription; or one has, and its
                answer was lost.
        """


class TopicConsumer(KeptChannel, Consumer[T_co]):
    """A consumer of one topic that has no partitions, or of one partition."""

    _CLOSE_REQUEST = pb.CloseConsumer()

    def __init__(
        self,
        client: Requester,
        topic: str,
        options: ConsumerOptions,
        on_arrival: Callable[[], None] | None = None,
        credit: Credit | None = None,
    ) -> None:
        super().__init__(client, topic, options.name)
        self.subscription = options.subscription
        self._is_active = True
        self._has_left = False
        """True if the topic was deleted, which a consumer of a pattern expects."""
        self.arrivals = 0
        """The number of deliveries that have arrived."""
        self.drops = 0
        """The number of times that it has dropped messages, as on a lost connection."""
        self._options = options
        self._decoding = options.decoding
        self._is_closing = False
        self._is_seeking = False
        # The source of new messages; None after the consumer has failed.
        self._source: Source | None = Source(topic, options.subscription, self)
        # This consumer as the broker knows it until the connection breaks.
        self._receiver: Receiver | None = None
        # Batches that arrived, and the one that is being handed out.
        self._batches: deque[ReceivedBatch] = deque()
        self._batch: ReceivedBatch | None = None
        # Batches that arrived, from the first whose schema is being loaded.
        self._awaiting_schema: deque[ReceivedBatch] = deque()
        self._position = 0
        # Its next messages, if they are handed out one by one.
        self._messages: Iterator[Message[T_co]] = iter(())
        self._arrived = asyncio.Event()
        # Called when messages arrive or the consumer fails.
        self._on_arrival = on_arrival or self._arrived.set
        self.credit = credit or Credit(
            options.prefetch_messages, options.prefetch_bytes
        )
        self._counters = client.live_counters
        self._acks = Acks(self._counters)
        self._confirm_at = 0.0
        self._ack_timer: asyncio.TimerHandle | None = None

    @property
    def is_active(self) -> bool:
        return self._is_active

    # Receiving.

    async def __anext__(self) -> Message[T_co]:
        for message in self._messages:
            self._position += 1
            return message
        try:
            return await self.receive()
        except Closed:
            raise StopAsyncIteration from None

    async def receive(self, *, timeout_s: float | None = None) -> Message[T_co]:
        message = self._next_nowait()
        while message is None:
            await self._wait_for_batch(timeout_s)
            message = self._next_nowait()
        return message

    async def receive_batch(
        self, *, max_messages: int = 1000, timeout_s: float | None = None
    ) -> MessageBatch[T_co]:
        check_max_messages(max_messages)
        batch = self._batch
        if batch is None or self._position >= batch.count:
            try:
                batch = self._next_batch() or await self._wait_for_batch(timeout_s)
            except TimedOut:
                return MessageBatch(self.topic, [])
        return self._batch_nowait(max_messages)

    def _next_nowait(self) -> Message[T_co] | None:
        """Return the next message, or None if none has arrived."""
        for message in self._messages:
            self._position += 1
            return message
        batch = self._batch
        if batch is None or self._position >= batch.count:
            batch = self._next_batch()
            if batch is None:
                return None
        self._messages = batch.messages(self._position, batch.count)
        return self._next_nowait()

    def _batch_nowait(self, max_messages: int) -> MessageBatch[T_co]:
        """Return the messages that have arrived, at most *max_messages*."""
        taken: list[tuple[ReceivedBatch, int, int]] = []
        left = max_messages
        batch = self._batch
        if batch is None or self._position >= batch.count:
            batch = self._next_batch()
        while batch is not None and left:
            base = self._position
            end = min(batch.count, base + left)
            taken.append((batch, base, end))
            self._position = end
            self._messages = iter(())
            left -= end - base
            batch = self._next_batch() if left else None
        return MessageBatch(self.topic, taken)

    # Acknowledging.

    def _ack_nowait(self, messages: AckTarget) -> None:
        if type(messages) is not Message:
            super()._ack_nowait(messages)
            return
        offset, batch, acks = messages.offset, messages._batch, self._acks
        if (
            offset == acks.end
            and self._ack_timer is not None
            and batch.source is self._source
        ):
            # A faster way to do the same for messages in order.
            acks.end = offset + 1
        elif not self._has_left:
            self._check_origin(batch.topic, batch)
            self._ack_ranges([(offset, offset + 1)])

    def _consumer_of(self, topic: str) -> TopicConsumer[T_co] | None:
        return None if self._has_left else self

    def _ack_ranges(self, ranges: Iterable[Range]) -> None:
        add = self._acks.add
        for base, end in ranges:
            add(base, end)
        if self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_LINGER_S, self._send_acks)
        elif self._acks.range_count >= ACK_RANGES_MAX:
            self._send_acks()

    def _ack_through(self, offset: int) -> None:
        """Acknowledge all messages up to *offset*, which count as one."""
        self._acks.exclude_from_count(offset)
        self._ack_ranges([(0, offset + 1)])

    def _nack_ranges(
        self, ranges: Iterable[Range], delay_s: float, reason: str
    ) -> None:
        check(Acknowledger.nack, {"delay_s": delay_s, "reason": reason})
        if not 0 <= delay_s < float("inf"):
            raise InvalidRequest(f"delay_s is {delay_s}: it must be finite, at least 0")
        ranges = list(ranges)
        self._counters.nacked += sum(end - base for base, end in ranges)
        reason = reason[:REASON_CHARACTERS_MAX]
        self._send_ranges(ranges, partial(pb.Nack, delay_s=delay_s, reason=reason))

    def _extend_ranges(
        self, ranges: Iterable[Range], ack_timeout_s: float | None
    ) -> None:
        """Extend the ack timeout of messages, if the consumer is connected."""
        extend = partial(pb.Extend, ack_timeout_s=ack_timeout_s or 0)
        self._send_ranges(ranges, extend)

    def _release_ranges(self, ranges: Iterable[Range]) -> None:
        """Release messages, if the consumer is connected."""
        self._send_ranges(ranges, pb.Release)

    def return_received(
        self, receiver: Receiver, ranges: Iterable[Range], failure: str | None
    ) -> None:
        """
        Reject messages because of *failure*, or release them if it is None.

        Does nothing if the connection that brought them has broken.
        """
        if receiver is not self._receiver:
            return
        if failure is None:
            self._release_ranges(ranges)
        else:
            self._nack_ranges(ranges, 0.0, failure)

    def _send_ranges(self, ranges: Iterable[Range], kind: Callable[..., Any]) -> None:
        if self._connection is None or self._is_closing:
            return
        if self._ack_timer is not None:
            # A message that was acknowledged before stays acknowledged.
            self._send_acks()
        for some in divided_to_wire(ranges):
            self._connection.send(kind(ranges=some), self._channel)

    def _check_origin(self, topic: str, batch: ReceivedBatch | None) -> None:
        """Raise unless this consumer received the messages of *topic* in *batch*."""
        if self._source is None:
            assert self.failure is not None
            raise self.failure
        if batch is None or batch.source is not self._source:
            check_origin(self._source, topic, batch)

    async def flush(self) -> None:
        backoff = Backoff()
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                while not await self._try_flush():
                    await backoff.wait()
        except TimeoutError:
            raise TimedOut(_UNCONFIRMED) from None

    async def seek(self, to: PositionLike) -> None:
        # A seek whose answer was lost may be repeated: it ends at the same position.
        message = position_to_wire(to_position(to), pb.Seek)
        await retry(partial(self._seek, message), self._client.retry_s)

    async def _seek(self, message: pb.Seek) -> None:
        if self.failure is not None:
            raise self.failure
        if self._connection is None:
            raise TimedOut("the consumer is not connected at the moment")
        for ranges in self._take_acks():
            self._connection.send(pb.Ack(ranges=ranges), self._channel)
        # Messages that arrive before the answer were sent before the seek, and their
        # acknowledgements must not reach the broker after it.
        self._is_seeking = True
        try:
            await self._connection.request(
                message, self._channel, on_answer=self._on_moved
            )
        finally:
            self._is_seeking = False
            self._ack_ranges(())

    # The connection.

    def _on_frame(self, frame: ReceivedFrame) -> None:
        if frame.kind is Kind.DELIVERY:
            assert frame.batch is not None
            self.credit.use(frame.batch.count, frame.batch.plain_bytes)
            batch = ReceivedBatch(frame.batch, self.topic, frame.attempt, self._source)
            self.arrivals += 1
            batch.arrival = self.arrivals
            batch.receiver = self._receiver
            if not self._awaiting_schema and self._decoding.attach_decoder(batch):
                self._batches.append(batch)
                self._on_arrival()
            else:
                self._queue_for_schema(batch)
        elif frame.kind is Kind.CONSUMER_STATE:
            message: Any = frame.message
            self._is_active = message.is_active
            state = "active" if self.is_active else "on standby"
            self.log.info("%s is %s", self._log_name, state)

    # The life of the consumer.

    def _on_broken(self, reason: BrokerError, backoff: Backoff | None) -> bool:
        if backoff is not None:
            backoff.reset()
            self._drop_batches()
        if reason.remedy is Remedy.GIVE_UP:
            self._fail(reason)
        # The topic moves, and a broker answers when it has arrived.
        return backoff is not None and isinstance(reason, NotOwner)

    async def aclose(self) -> None:
        """Flush the acknowledgements, and leave the subscription."""
        try:
            if self.failure is None:
                async with self._client.closing(self._connections):
                    if self._acks.has_unconfirmed:
                        await self.flush()
                    self._is_closing = self._connection is not None
                    await self._close_channel()
        except TimeoutError:
            if self._acks.has_unconfirmed:
                raise TimedOut(_UNCONFIRMED) from None
        finally:
            self._fail(Closed("the consumer is closed"))

    def _abandon(self) -> None:
        if self.failure is None:
            self._fail(Closed("the consumer is closed"))

    @property
    def _has_messages(self) -> bool:
        """True if a message has arrived that was not handed out."""
        batch = self._batch
        return bool(self._batches) or (
            batch is not None and self._position < batch.count
        )

    @property
    def _consumers(self) -> Sequence[TopicConsumer]:
        return [self]

    @property
    def _unread_batches(self) -> list[ReceivedBatch]:
        """The batches that are not handed out, or not completely."""
        batch = self._batch
        is_read = batch is None or self._position >= batch.count
        first = [] if batch is None or is_read else [batch]
        return [*first, *self._batches, *self._awaiting_schema]

    def _open_request(self) -> pb.OpenConsumer:
        options = self._options
        return pb.OpenConsumer(
            topic=self.topic,
            subscription=self.subscription,
            name=self.name,
            type=enum_to_wire(options.type),
            position=position_to_wire(options.start, pb.Position),
            ack_timeout_s=options.ack_timeout_s or 0,
            key_filters=options.key_filters,
            priority=options.priority,
        )

    def _on_opened(self, connection: BrokerConnection, answer: Any) -> None:
        self._receiver = Receiver(answer.consumer_id, self)
        # Acknowledgements go before credit, so that the broker does not deliver
        # these messages again.
        if self._acks.has_unconfirmed:
            again = self._acks.take_unconfirmed()
            for ranges in (*again, *self._take_acks()):
                connection.send(pb.Ack(ranges=ranges), self._channel)
            self._acks.restore_unconfirmed(again)
        self._grant(connection, self.credit.grant_all())

    def _fail(self, reason: BrokerError) -> None:
        self.failure = reason
        if self._source is not None and isinstance(reason, TopicNotFound):
            # A topic of the same name that is created later has other messages.
            self._source.is_over = True
        self._source = None
        self._receiver = None
        self._connection = None
        self._drop_batches()
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self._on_arrival()
        # The callback may refer to this consumer: break the cycle.
        self._on_arrival = self._arrived.set

    # From deliveries to messages.

    def _next_batch(self) -> ReceivedBatch | None:
        """Start to hand out the next batch, if one has arrived."""
        if not self._batches:
            self._start_batch(None)
            return None
        batch = self._batches.popleft()
        self._start_batch(batch)
        self._counters.received += batch.count
        if batch.attempt > 1:
            self._counters.redelivered += batch.count
        self.credit.free(batch.count, batch.frame.plain_bytes)
        if self.credit.has_free(RETURN_PART):
            self._return_credit()
        return batch

    def _start_batch(self, batch: ReceivedBatch | None) -> None:
        self._batch = batch
        self._position = 0
        self._messages = iter(())

    async def _wait_for_batch(self, timeout_s: float | None = None) -> ReceivedBatch:
        self._return_credit_before_wait()
        if timeout_s is None:
            return await self._arrival()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._arrival()
        except TimeoutError:
            raise TimedOut(f"no message came in {timeout_s} s") from None
        except TypeError:
            check(Consumer.receive, {"timeout_s": timeout_s})
            raise

    async def _arrival(self) -> ReceivedBatch:
        while True:
            if self.failure is not None:
                raise self.failure
            batch = self._next_batch()
            if batch is not None:
                return batch
            self._arrived.clear()
            await self._arrived.wait()

    def _return_credit_before_wait(self) -> None:
        """
        Return credit before waiting for messages.

        The broker may wait for it, or split a batch that exceeds the credit.  If few
        messages arrive, credit is returned for many at a time.
        """
        if self.credit.has_free(RETURN_PART_WAITING):
            self._return_credit()

    def _return_credit(self) -> None:
        """Return the credit of the messages that were handed out or dropped."""
        # After the request to close the channel, nothing may be sent on it.
        if self._connection is not None and not self._is_closing:
            messages, byte_count = self.credit.take_free()
            if messages or byte_count:
                self._grant(self._connection, (messages, byte_count))

    def _grant(self, connection: BrokerConnection, credit: tuple[int, int]) -> None:
        messages, byte_count = credit
        message = pb.Credit(messages=messages, bytes=byte_count)
        connection.send(message, self._channel)

    def _queue_for_schema(self, batch: ReceivedBatch) -> None:
        """Hand *batch* out, in its order, when its schema is loaded."""
        self._awaiting_schema.append(batch)
        if len(self._awaiting_schema) == 1:
            self._client.tasks.run(self._load_decoders(), f"schemas of {self.topic}")

    async def _load_decoders(self) -> None:
        while self._awaiting_schema:
            batch = self._awaiting_schema[0]
            await self._decoding.load_decoder(batch)
            if self._awaiting_schema and self._awaiting_schema[0] is batch:
                self._batches.append(self._awaiting_schema.popleft())
                self._on_arrival()

    def _on_moved(self) -> None:
        """Drop deliveries and acknowledgements from before the seek."""
        if self._source is not None:
            self._source.is_over = True
            self._source = Source(self.topic, self.subscription, self)
        self._take_acks()
        self._acks.take_unconfirmed()
        self._drop_batches()

    def _drop_batches(self) -> None:
        self.drops += 1
        for batch in (*self._batches, *self._awaiting_schema):
            self.credit.free(batch.count, batch.frame.plain_bytes)
        self._batches.clear()
        self._awaiting_schema.clear()
        self._start_batch(None)
        self._return_credit()

    # Acknowledgements.

    def _take_acks(self) -> list[pb.OffsetRanges]:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        return self._acks.take()

    def _send_acks(self) -> None:
        if self._connection is None or self._is_closing or self._is_seeking:
            self._ack_timer = None
        elif self._loop.time() < self._confirm_at:
            for ranges in self._take_acks():
                self._connection.send(pb.Ack(ranges=ranges), self._channel)
        else:
            self._confirm_at = self._loop.time() + CONFIRM_INTERVAL_S
            self._request_ack(self._connection).add_done_callback(retrieve)

    def _request_ack(self, connection: BrokerConnection) -> asyncio.Future[Any]:
        """Send the acknowledgements; the future is done when they are on disk."""
        *before, last = self._take_acks()
        for ranges in before:
            connection.send(pb.Ack(ranges=ranges), self._channel)
        sent = self._acks.take_unconfirmed()
        answer = connection.request(pb.Ack(ranges=last), self._channel)
        answer.add_done_callback(partial(self._on_confirmed, sent))
        return answer

    def _on_confirmed(
        self, sent: list[pb.OffsetRanges], answer: asyncio.Future[Any]
    ) -> None:
        if answer.cancelled() or answer.exception() is not None:
            self._acks.restore_unconfirmed(sent)

    async def _try_flush(self) -> bool:
        """Flush all acknowledgements; return False if the connection broke."""
        if self.failure is not None:
            raise self.failure
        if self._connection is None or self._is_seeking:
            return False
        try:
            await self._request_ack(self._connection)
        except BrokerError as error:
            if error.remedy is Remedy.GIVE_UP:
                raise
        # Acknowledgements that were sent earlier may have been lost since.
        return not self._acks.has_unconfirmed


def check_max_messages(count: int) -> None:
    """Raise unless *count* is the maximum of a batch."""
    try:
        is_valid = count >= 1
    except TypeError:
        check(Consumer.receive_batch, {"max_messages": count})
        raise
    if not is_valid:
        raise InvalidRequest(f"max_messages is {count}: it must be at least 1")
