"""
The consumer of a topic: it receives batches, and acknowledges messages in ranges.

The broker sends as much as the consumer's credit allows; the consumer returns credit
as it hands out messages.  Acknowledgements gather for a few milliseconds and are sent
as ranges.  When the connection breaks, the consumer opens again under its name, and
drops the messages that it has not handed out, because the broker delivers them again.
It also drops messages whose ack timeout has passed (``unread_deliveries.py``).
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic

from pydanube.client.connections.channel import KeptChannel
from pydanube.client.connections.connection import BrokerConnection, retrieve
from pydanube.client.connections.requester import Backoff, Requester, retry
from pydanube.client.connections.unread_deliveries import HandOutPace, UnreadDeliveries
from pydanube.client.consumers.acknowledger import Acknowledger
from pydanube.client.messages.messages import (
    Message,
    MessageBatch,
    ReceivedBatch,
    Receiver,
    Source,
    T_co,
    ranges_of_slice,
)
from pydanube.client.messages.options import ConsumerOptions, check_max_messages
from pydanube.client.pure.acks import Acks
from pydanube.client.pure.credit import Credit
from pydanube.client.pure.offsets import AckTarget, check_origin
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

UNCLOCKED_MESSAGES_MAX = 64
"""A consumer hands out this many messages at most without a look at the clock."""

RETURN_PART = 2
"""A consumer returns its free credit when it is at least one half of all."""
RETURN_PART_WAITING = 4
"""A consumer that waits for messages returns at least a quarter: small pieces of
credit divide batches into small deliveries."""

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
        *,
        may_create: bool = False,
    ) -> None:
        super().__init__(client, topic, options.name)
        # Only before it is open: a topic that is deleted meanwhile stays away.
        self._may_create = may_create
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
        self._pace = HandOutPace(UNCLOCKED_MESSAGES_MAX)
        # The source of new messages; None after the consumer has failed.
        self._source: Source | None = Source(topic, options.subscription, self)
        # This consumer as the broker knows it until the connection breaks.
        self._receiver: Receiver | None = None
        self._unread = UnreadDeliveries(options.type)
        # Some of its next messages, if they are handed out one by one.
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
            self._unread.position += 1
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
        check_max_messages(Consumer.receive_batch, max_messages)
        while not (found := self._batch_nowait(max_messages)):
            try:
                await self._wait_for_batch(timeout_s)
            except TimedOut:
                break
        return found

    def _next_nowait(self) -> Message[T_co] | None:
        """Return the next message, or None if none has arrived."""
        for message in self._messages:
            self._unread.position += 1
            return message
        batch = self._current_batch()
        if batch is None:
            return None
        end = batch.count
        if batch.deadline is not None:
            now = self._loop.time()
            end = min(end, self._unread.position + self._pace.next_count(now))
        self._messages = batch.messages(self._unread.position, end)
        return self._next_nowait()

    def _batch_nowait(self, max_messages: int) -> MessageBatch[T_co]:
        """Return the messages that have arrived, at most *max_messages*."""
        taken: list[tuple[ReceivedBatch, int, int]] = []
        left = max_messages
        batch = self._current_batch()
        while batch is not None and left:
            base = self._unread.position
            end = min(batch.count, base + left)
            taken.append((batch, base, end))
            self._unread.position = end
            self._messages = iter(())
            left -= end - base
            batch = self._next_batch() if left else None
        return MessageBatch(self.topic, taken)

    # Acknowledging.

    def _ack_nowait(self, messages: AckTarget) -> None:
        if type(messages) is not Message:
            if not (type(messages) is MessageBatch and self._ack_bits(messages)):
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

    def _ack_bits(self, messages: MessageBatch) -> bool:
        """Acknowledge parts of deliveries with gaps, if *messages* are nothing else."""
        if self._has_left:
            return False
        parts: list[tuple[int, int]] = []
        for batch, base, end in messages.slices:
            part = batch.bits_of(base, end)
            if part is None:
                return False
            parts.append(part)
        if not parts:
            return False
        for batch, _, _ in messages.slices:
            self._check_origin(batch.topic, batch)
        for origin, bits in parts:
            self._acks.add_bits(origin, bits)
        self._ack_ranges(())
        return True

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

    def _extend_unread(self) -> None:
        """Extend the ack timeout of all messages that are not handed out."""
        self._drop_late()
        timeout_s = self.ack_timeout_s
        if timeout_s is None or self._connection is None:
            return
        for batch in self._unread.batches:
            self._extend_ranges(ranges_of_slice(batch, 0, batch.count), timeout_s)
        self._unread.extend(self._loop.time())

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
        source, channel_end = self._source, self._channel_end
        on_answer = partial(self._on_moved, channel_end)
        try:
            await self._connection.request(message, self._channel, on_answer=on_answer)
        finally:
            self._is_seeking = False
            self._ack_ranges(())
        if source is self._source:
            raise channel_end.result()

    # The connection.

    def _on_frame(self, frame: ReceivedFrame) -> None:
        if frame.kind is Kind.DELIVERY:
            assert frame.batch is not None
            self.credit.use(frame.batch.count, frame.batch.plain_bytes)
            batch = ReceivedBatch(frame.batch, self.topic, frame.attempt, self._source)
            self.arrivals += 1
            batch.arrival = self.arrivals
            batch.receiver = self._receiver
            unread = self._unread
            unread.set_deadline(batch, self._loop.time())
            if not unread.awaiting_schema and self._decoding.attach_decoder(batch):
                unread.waiting.append(batch)
                self._on_arrival()
            else:
                self._queue_for_schema(batch)
        elif frame.kind is Kind.CONSUMER_STATE:
            self._on_state(frame.message)

    def _on_state(self, state: Any) -> None:
        timeout_s = state.ack_timeout_s or None
        if timeout_s != self.ack_timeout_s:
            self._unread.change_ack_timeout(timeout_s, self._loop.time())
        if state.is_active != self._is_active:
            self._is_active = state.is_active
            shown = "active" if self.is_active else "on standby"
            self.log.info("%s is %s", self._log_name, shown)
            if not self.is_active:
                # None of its messages is in flight: the next one gets the rest.
                self._drop_batches()

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
    def ack_timeout_s(self) -> float | None:
        """The ack timeout of new deliveries; None: there is none, or not known yet."""
        return self._unread.ack_timeout_s

    @property
    def _consumers(self) -> Sequence[TopicConsumer]:
        return [self]

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
            may_create=self._may_create,
        )

    def _on_opened(self, connection: BrokerConnection, answer: Any) -> None:
        self._may_create = False
        self._receiver = Receiver(answer.consumer_id, self)
        self._unread.ack_timeout_s = answer.ack_timeout_s or None
        self._acks = self._acks.of(answer.generation)
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

    def _current_batch(self) -> ReceivedBatch | None:
        """Return the batch with the next messages, or None if none has arrived."""
        self._drop_late()
        return self._unread.current or self._next_batch()

    def _next_batch(self) -> ReceivedBatch | None:
        """Start to hand out the next batch, if one has arrived."""
        batch = self._unread.start_next()
        self._messages = iter(())
        if batch is None:
            return None
        self._counters.received += batch.count
        if batch.attempt > 1:
            self._counters.redelivered += batch.count
        self.credit.free(batch.count, batch.frame.plain_bytes)
        if self.credit.has_free(RETURN_PART):
            self._return_credit()
        return batch

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
            batch = self._current_batch()
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
        self._unread.awaiting_schema.append(batch)
        if len(self._unread.awaiting_schema) == 1:
            self._client.tasks.run(self._load_decoders(), f"schemas of {self.topic}")

    async def _load_decoders(self) -> None:
        unread = self._unread
        while unread.awaiting_schema:
            batch = unread.awaiting_schema[0]
            await self._decoding.load_decoder(batch)
            if unread.awaiting_schema and unread.awaiting_schema[0] is batch:
                unread.waiting.append(unread.awaiting_schema.popleft())
                self._on_arrival()

    def _on_moved(self, channel_end: asyncio.Future[BrokerError]) -> None:
        """
        Drop deliveries and acknowledgements from before the seek.

        If its channel has ended, they may have been sent again: the seek must follow.
        """
        if channel_end.done():
            return
        if self._source is not None:
            self._source.is_over = True
            self._source = Source(self.topic, self.subscription, self)
        self._take_acks()
        # Acknowledgements whose requests fail later go to the earlier one.
        self._acks = Acks(self._counters)
        self._drop_batches()

    def _drop_batches(self) -> None:
        self.drops += 1
        self._messages = iter(())
        self._free(self._unread.drop_all())

    def _drop_late(self) -> None:
        """Drop messages whose ack timeout has passed, and return their credit."""
        late = self._unread.drop_late(self._loop.time())
        if late is None:
            return
        self._messages = iter(())
        if not self._counters.late:
            self.log.warning(
                "%s has dropped %d messages that waited here for longer than their ack "
                "timeout of %g s, and are delivered again: use a smaller "
                "prefetch_messages, a longer ack_timeout_s, or more consumers",
                self._log_name,
                late.message_count,
                self.ack_timeout_s or 0,
            )
        self._counters.late += late.message_count
        for each in late.released:
            self._release_ranges(ranges_of_slice(each, 0, each.count))
        self._free((*late.waiting, *late.released))

    def _free(self, dropped: Iterable[ReceivedBatch]) -> None:
        """Return the credit of batches of which nothing was handed out."""
        for batch in dropped:
            self.credit.free(batch.count, batch.frame.plain_bytes)
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
        answer.add_done_callback(partial(_on_confirmed, self._acks, sent))
        return answer

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


def _on_confirmed(
    acks: Acks, sent: list[pb.OffsetRanges], answer: asyncio.Future[Any]
) -> None:
    if answer.cancelled() or answer.exception() is not None:
        acks.restore_unconfirmed(sent)
