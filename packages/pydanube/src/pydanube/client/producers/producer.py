"""
The producer of one topic: gathers messages into batches, and sends these to the broker.

Messages that are sent one by one gather in an open batch.  If no batch is in flight,
it is sent at the end of the event loop's turn; otherwise when it is full, or when the
batches in flight are acknowledged.  A single message does not wait, and batches
grow with load.

A batch keeps its sequence numbers until it is acknowledged.  When the connection
breaks, the producer opens again under its old identity and sends the unacknowledged
batches again; the broker drops duplicates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, Unpack

from pydanube.client.connections.channel import KeptChannel
from pydanube.client.connections.connection import BrokerConnection, retrieve
from pydanube.client.connections.requester import Backoff, Requester
from pydanube.client.messages.messages import MessageId, MessageIds
from pydanube.client.messages.options import ProducerOptions
from pydanube.client.pure.batching import (
    WINDOW_BYTES,
    DeliveryOptions,
    Keys,
    ManyAttributes,
    batches_of,
    check_attributes,
    cut,
    parse_delivery,
    to_bytes,
)
from pydanube.client.pure.deduplication import with_ids
from pydanube.client.pure.outgoing import DeliveryWindow, OutgoingBatch
from pydanube.client.pure.send_queue import (
    DELIVERY_TIMEOUT_S,
    NO_EXTRAS,
    OPEN_BATCH_MESSAGES_MAX,
    OpenBatch,
    SendQueue,
)
from pydanube.model.batch import Column
from pydanube.model.deduplication import DEDUPLICATION_ID, check_id
from pydanube.model.errors import (
    BrokerError,
    Closed,
    InvalidRequest,
    MessageTooLarge,
    OutOfSequence,
    Overloaded,
    ProtocolViolation,
    QuotaExceeded,
    Remedy,
    TimedOut,
)
from pydanube.model.policy import ProducerAccess
from pydanube.wire.batches import Codec
from pydanube.wire.native.connection import ReceivedFrame
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import enum_to_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube.wire.small_batch import SMALL_MESSAGES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

STEADY_S = 1.0
"""A producer reopens at once if its channel was open for this long."""
MESSAGE_OVERHEAD_BYTES = 16

BatchData: TypeAlias = "Sequence[bytes | str] | pa.RecordBatch | pa.Table"
"""The messages of ``send_batch``."""
Placement: TypeAlias = "int | Sequence[int]"
"""The first offset of a batch; or that of each message, if the batch has duplicates."""
SentPiece: TypeAlias = "tuple[int, asyncio.Future[Placement]]"
"""The number of messages in a batch that was sent, and their offsets."""


class Producer(KeptChannel):
    """
    A producer of one topic; made by ``Client.producer``.

    Ordering: Messages get their offsets in the order in which they were sent.

    Bounds: It holds at most 64 MiB that are not acknowledged; ``send`` and
        ``send_batch`` wait for capacity, ``send_nowait`` raises ``Overloaded``.
    """

    _CLOSE_REQUEST = pb.CloseProducer()

    def __init__(self, client: Requester, topic: str, options: ProducerOptions) -> None:
        super().__init__(client, topic, options.name)
        self.unacknowledged = 0
        """The number of unacknowledged messages when closing timed out."""
        self._options = options
        self._access = options.access
        self._is_patient = options.access is ProducerAccess.EXCLUSIVE_WAIT
        self._codec = options.codec
        self._wall_clock_ns = client.wall_clock_ns
        self._counters = client.live_counters
        self._is_reliable = True
        schema = options.schema
        self._queue: SendQueue[asyncio.Future[Placement]] = SendQueue(
            options.name,
            options.codec,
            (0, 0) if schema is None else (schema.schema_id, schema.version),
            self._loop.time,
        )
        # Set while send_nowait takes messages, and while a batch may be sent.
        self._capacity = asyncio.Event()
        self._capacity.set()
        self._window = asyncio.Event()
        # Senders that have to wait are served in their order.
        self._turn = asyncio.Lock()
        self._waiter_count = 0
        # Whether messages were sent in this turn of the loop, and have its time.
        self._is_in_turn = False
        # When the channel was opened, and whether it brought a receipt.
        self._opened_at = 0.0
        self._has_receipt = False
        # The error of a message that nobody awaits, until flush() raises it.
        self._unreported: BrokerError | None = None
        # The timeout of closing; each receipt restarts it.
        self._closing: asyncio.Timeout | None = None

    # Sending.

    async def send(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002  # It is what users call it.
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageId:
        """
        Publish one message and return its id.

        Args:
            payload: The content; text is sent as UTF-8.
            key: Messages of one key go to one partition, in their order.
            attributes: Names and values of your own.
            id: A text that identifies the message.  If the topic has stored a message
                with this id in its window, which is 2 minutes unless it is configured,
                this one is not stored, and the result is the id of that message.
            delivery: The delivery window.  ``deliver_after_s``: consumers get the
                message this much later, on reliable topics; ``deliver_at``: at this
                time, a datetime or seconds since 1970; ``ttl_s``: the message expires
                after this time.

        Durability: On return the message is as safe as its topic promises; by
            default it is on disk.

        Cancellation: The message may or may not be published.

        Raises:
            InvalidRequest: The topic is not reliable, and *id* is given.
            MessageTooLarge: The broker accepts no message of this size.
            ProducerFenced: Another producer of this name was opened.
            QuotaExceeded: The namespace stores as much as it may.  The producer goes
                on: later messages are stored if there is room.
            TimedOut: No broker has acknowledged it for two minutes.
        """
        if self._waiter_count or not self._capacity.is_set():
            await self._wait_in_turn()
        queue = self._queue
        is_plain = key is None and attributes is None and id is None and not delivery
        if (
            is_plain
            and not queue.senders
            and queue.is_idle
            and self._codec is Codec.NONE
        ):
            # Without gathering, which costs time.
            self._raise_if_failed()
            if type(payload) is not bytes:
                payload = to_bytes("payload", payload)
            byte_count = len(payload) + MESSAGE_OVERHEAD_BYTES
            if byte_count > queue.alone_bytes:
                self._check_size(byte_count)
            queue.senders += 1
            try:
                return MessageId(self.topic, await self._send_small([payload]))
            finally:
                queue.senders -= 1
        if is_plain:
            batch, index = self.send_nowait(payload)
        else:
            batch, index = self.send_nowait(
                payload, key=key, attributes=attributes, id=id, **delivery
            )
        queue.senders += 1
        try:
            # A single sender does not wait for others.  Several senders, whose messages
            # were acknowledged together, send the next ones in one batch.
            if queue.senders == 1 and not queue.inflight and not queue.waiting:
                self._close_open()
            # As awaiting the pending message, without a generator for each.
            batch.is_awaited = True
            completion = batch.completion
            if not completion.done():
                assert isinstance(completion, _Completion)
                await completion.new_waiter()
            found = completion.result()
            return MessageId(
                self.topic, found + index if isinstance(found, int) else found[index]
            )
        finally:
            queue.senders -= 1

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
        Publish one message soon, together with others; await the result for its id.

        Args: As for ``send``.

        Raises:
            Overloaded: Too much is not acknowledged yet: await
                ``wait_for_capacity()``, or use ``send``.
            MessageTooLarge: The broker accepts no message of this size.
            Closed: The producer is closed, or has failed before.
        """
        if type(payload) is not bytes:
            payload = to_bytes("payload", payload)
        byte_count = len(payload) + MESSAGE_OVERHEAD_BYTES
        extras = None
        has_id = False
        if key is not None or attributes is not None or id is not None or delivery:
            if id is not None:
                self._check_ids((id,))
                check_attributes(attributes or {})
                attributes = {**(attributes or {}), DEDUPLICATION_ID: id}
            extras = (
                None if key is None else to_bytes("key", key),
                attributes,
                self._window_of(delivery),
            )
            byte_count += _byte_count_of(*extras)
            has_id = attributes is not None and DEDUPLICATION_ID in attributes
        queue = self._queue
        if byte_count > queue.alone_bytes:
            self._check_size(byte_count)
            self._close_open()
        batch = queue.open
        if batch is not None and batch.has_ids is not has_id:
            self._close_open()
            batch = queue.open
        if batch is None:
            batch = self._open_batch()
            batch.has_ids = has_id
        if id is not None:
            batch.uses_ids = True
        payloads = batch.payloads
        index = len(payloads)
        if extras is not None or batch.extras is not None:
            batch.add_extras(extras or NO_EXTRAS)
        if not self._is_in_turn:
            self._begin_turn(batch)
        payloads.append(payload)
        batch.byte_count += byte_count
        if batch.byte_count >= queue.full_bytes or index + 1 >= OPEN_BATCH_MESSAGES_MAX:
            self._close_open()
        return Pending((batch, index))

    async def send_batch(
        self,
        messages: BatchData,
        *,
        keys: Keys = None,
        attributes: ManyAttributes = None,
        ids: Sequence[str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageIds:
        """
        Publish many messages and return their ids, in their order.

        Args:
            messages: Payloads; or Arrow data with the column ``payload`` and
                optionally ``key``, ``attributes``, ``publish_time``, ``deliver_at``
                and ``expires_at``.
            keys: The key of each payload, or None for those without.
            attributes: The attributes of each payload, or None for those without.
            ids: The id of each message; see ``send``.
            delivery: As for ``send``, for all of them.

        Durability, Cancellation, Raises: As ``send``, for all of them; the
            messages may be sent, and on an error be stored, in several batches.
        """
        is_plain = keys is None and attributes is None and ids is None
        if is_plain and not delivery and self._is_small(messages):
            self._close_open()
            if self._queue.can_send:
                base = await self._send_small(messages)
                return MessageIds(self.topic, range(base, base + len(messages)))
        batches = batches_of(
            messages, self._window_of(delivery), keys=keys, attributes=attributes
        )
        if ids is not None:
            self._check_ids(ids)
            batches = with_ids(batches, ids)
        sent = await self._send_batches(batches, uses_ids=ids is not None)
        return MessageIds(self.topic, await wait_for_offsets(sent))

    async def _send_batches(
        self,
        batches: Sequence[OutgoingBatch],
        schema: tuple[int, int] | None = None,
        *,
        uses_ids: bool = False,
    ) -> list[SentPiece]:
        """
        Send batches as soon as the in-flight window allows.

        *schema* is the id and version of their schema, if not the producer's.  With
        *uses_ids*, the topic drops messages whose ids it knows.

        Returns: The number of messages in each piece that was sent, and the future
            of its first offset.
        """
        sent = []
        self._waiter_count += 1
        try:
            async with self._turn:
                self._close_open()
                for batch in batches:
                    is_delayed = bool(batch.columns & Column.DELIVER_AT)
                    self._check_delay(is_delayed=is_delayed)
                    for piece in cut(batch, self._queue.batch_bytes_max):
                        await self._wait_for_window()
                        future = self._send_piece(piece, schema, uses_ids=uses_ids)
                        sent.append((piece.count, future))
        finally:
            self._waiter_count -= 1
        return sent

    async def flush(self) -> None:
        """
        Wait until all messages are acknowledged.

        Raises:
            BrokerError: A message that nobody awaited has failed.
        """
        self._close_open()
        while (last := self._queue.last_completion) is not None:
            await asyncio.wait([last])
        unreported, self._unreported = self._unreported, None
        if unreported is not None:
            raise unreported

    @property
    def _is_gathering(self) -> bool:
        """True if there is an open batch, to which the next message goes."""
        return self._queue.open is not None

    @property
    def has_capacity(self) -> bool:
        """True if ``send_nowait`` accepts a message at the moment."""
        return self._capacity.is_set()

    async def wait_for_capacity(self) -> None:
        """Wait until ``send_nowait`` accepts a message."""
        await self._capacity.wait()

    @property
    def pending_count(self) -> int:
        """The number of messages that are not acknowledged yet."""
        return self._queue.message_count

    # The connection.

    def _on_frame(self, frame: ReceivedFrame) -> None:
        if frame.kind is not Kind.RECEIPT:
            return
        message: Any = frame.message
        if self._closing is not None:
            self._closing.reschedule(self._loop.time() + self._client.close_timeout_s)
        sequences, offsets = message.base_sequence, message.base_offset
        if len(sequences) != len(offsets):
            raise ProtocolViolation(
                f"the broker sent a receipt of {len(sequences)} sequences and "
                f"{len(offsets)} offsets"
            )
        deduplicated = None
        if message.deduplicated:
            deduplicated = {
                each.base_sequence: list(each.offsets) for each in message.deduplicated
            }
        for sequence, offset in zip(sequences, offsets, strict=True):
            self._counters.published += self._queue.acknowledge(
                sequence, offset, deduplicated
            )
            self._has_receipt = True
        self._queue.send_waiting()
        self._update_events()

    def _on_closed(self, reason: BrokerError) -> None:
        super()._on_closed(reason)
        self._queue.publish = None

    # The life of the producer.

    async def aclose(self) -> None:
        """
        Send the open batch, wait until all messages are acknowledged, and close.

        Raises:
            TimedOut: Messages are not acknowledged, and the broker has not answered
                for the client's ``close_timeout_s``.
        """
        try:
            if self.failure is None:
                # A broker that throttles sends receipts now and then.
                async with self._client.closing(self._connections) as self._closing:
                    try:
                        await self.flush()
                    except BrokerError:
                        await self._close_channel()
                        raise
                    await self._close_channel()
        except TimeoutError:
            self.unacknowledged = self.pending_count
            if self.unacknowledged:
                raise close_timeout_error(
                    self.unacknowledged, self.topic, self._client
                ) from None
        finally:
            self._closing = None
            self._fail(Closed("the producer is closed"))

    def _abandon(self) -> None:
        # Unacknowledged messages may or may not be stored.
        if self._connection is not None:
            answer = self._connection.request(self._CLOSE_REQUEST, self._channel)
            answer.add_done_callback(retrieve)
            self._connection.release_channel(self._channel)
        self._fail(Closed("the producer is closed"))

    def _open_request(self) -> pb.OpenProducer:
        options = self._options
        producer_id, producer_epoch = self._queue.identity
        return pb.OpenProducer(
            topic=self.topic,
            name=self.name,
            policy=to_wire(pb.TopicPolicy, options.policy),
            takes_any_kind=options.takes_any_kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_anonymous=options.is_anonymous,
            access=enum_to_wire(self._access),
            schema=to_wire(
                pb.SchemaReference, options.schema and options.schema.reference
            ),
        )

    def _on_opened(self, connection: BrokerConnection, answer: Any) -> None:
        self._is_reliable = answer.reliable
        if self._access is not ProducerAccess.SHARED:
            # If another producer takes the exclusive access while the connection is
            # lost, this one must fail: neither wait silently nor fence the other.
            self._access = ProducerAccess.EXCLUSIVE
        self._opened_at, self._has_receipt = self._loop.time(), False
        queue = self._queue
        queue.set_batch_bytes_max(
            min(answer.batch_bytes_max, connection.batch_bytes_max)
        )
        queue.resume(
            answer.producer_id,
            answer.producer_epoch,
            answer.next_sequence,
            partial(connection.send_batch, Kind.PUBLISH, channel=self._channel),
        )
        self._update_events()

    def _on_broken(self, reason: BrokerError, backoff: Backoff | None) -> bool:
        queue = self._queue
        was_open = backoff is not None
        if was_open and queue.inflight and isinstance(reason, QuotaExceeded):
            # The storage is full.  There may be room for later batches.
            with self._counting_failures(reason):
                queue.fail_inflight(reason)
        elif reason.remedy is Remedy.GIVE_UP:
            is_about_batch = isinstance(reason, InvalidRequest) and not isinstance(
                reason, OutOfSequence
            )
            if is_about_batch and queue.inflight:
                with self._counting_failures(reason):
                    queue.fail_first(reason)
            else:
                self._fail(reason)
        elif queue.inflight and queue.inflight[0].deadline < self._loop.time():
            late = TimedOut(
                f"no broker has acknowledged the messages for "
                f"{DELIVERY_TIMEOUT_S:.0f} s; the last reason: {reason}"
            )
            with self._counting_failures(late):
                queue.fail_inflight(late)
        self._update_events()
        # A full disk breaks a channel over the batches that were sent again on it.
        if backoff is not None and (
            self._has_receipt or self._loop.time() > self._opened_at + STEADY_S
        ):
            backoff.reset()
            return True
        return False

    def _fail(self, reason: BrokerError) -> None:
        self.failure = reason
        self._connection = None
        with self._counting_failures(reason):
            self._queue.fail_all(reason)
        self._capacity.set()
        self._window.set()

    @contextmanager
    def _counting_failures(self, reason: BrokerError) -> Iterator[None]:
        """Count and log the messages that fail for *reason* in the body."""
        before = self._queue.message_count
        yield
        failed = before - self._queue.message_count
        if failed:
            self._counters.publish_failures += failed
            self.log.warning(
                "%s: %d unacknowledged message%s failed: %s",
                self._log_name,
                failed,
                "" if failed == 1 else "s",
                self._client.shown(reason),
            )

    def _raise_if_failed(self) -> None:
        if self.failure is not None:
            raise self.failure

    # Batches.

    def _open_batch(self) -> OpenBatch[asyncio.Future[Placement]]:
        self._raise_if_failed()
        queue = self._queue
        if not queue.has_capacity:
            raise Overloaded(
                f"{queue.pending_bytes} bytes are not acknowledged yet; "
                "await wait_for_capacity(), or use send()"
            )
        completion = _Completion(loop=self._loop)
        batch = queue.open = OpenBatch(self.topic, completion)
        completion.add_done_callback(partial(self._note_error, batch))
        # In a turn that fills several batches, each has its own time.
        self._begin_turn(batch)
        return batch

    def _begin_turn(self, batch: OpenBatch[asyncio.Future[Placement]]) -> None:
        """Give the messages that follow in this turn of the loop the time of now."""
        batch.set_time(self._wall_clock_ns() // 1000)
        if not self._is_in_turn:
            self._is_in_turn = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_in_turn = False
        if self._queue.open is not None and not self._queue.inflight:
            self._close_open()

    def _close_open(self) -> None:
        self._queue.close_open()
        if not self._queue.has_capacity:
            self._capacity.clear()

    def _is_small(self, messages: BatchData) -> TypeGuard[list[bytes]]:
        """Return whether *messages* are a small batch, and no other sender waits."""
        return (
            type(messages) is list
            and 0 < len(messages) <= SMALL_MESSAGES_MAX
            and self._codec is Codec.NONE
            and not self._waiter_count
            and self.failure is None
            and all(type(payload) is bytes for payload in messages)
            and sum(map(len, messages)) <= self._queue.full_bytes
        )

    async def _send_small(self, payloads: Sequence[bytes]) -> int:
        """Send a small batch at once, and return its first offset."""
        future: asyncio.Future[Placement] = self._loop.create_future()
        now = self._wall_clock_ns() // 1000
        batch = self._queue.send_small(payloads, now, future)
        try:
            base = await future
        except asyncio.CancelledError:
            # The batch is still in flight, and flush() waits for it.
            batch.completion = self._loop.create_future()
            batch.completion.add_done_callback(retrieve)
            raise
        assert isinstance(base, int)  # The messages have no ids.
        return base

    def _send_piece(
        self,
        batch: OutgoingBatch,
        schema: tuple[int, int] | None,
        *,
        uses_ids: bool,
    ) -> asyncio.Future[Placement]:
        self._raise_if_failed()
        future: asyncio.Future[Placement] = self._loop.create_future()
        future.add_done_callback(retrieve)
        times = batch.times(self._wall_clock_ns() // 1000)
        self._queue.send_batch(batch, times, future, schema, uses_ids=uses_ids)
        return future

    def _note_error(
        self,
        batch: OpenBatch[asyncio.Future[Placement]],
        future: asyncio.Future[Placement],
    ) -> None:
        error = future.exception()
        if isinstance(error, BrokerError) and not batch.is_awaited:
            self._unreported = error

    # Waiting.

    async def _wait_for_window(self) -> None:
        while not self._queue.can_send:
            self._raise_if_failed()
            self._window.clear()
            await self._window.wait()

    async def _wait_in_turn(self) -> None:
        self._waiter_count += 1
        try:
            async with self._turn:
                await self._capacity.wait()
        finally:
            self._waiter_count -= 1

    def _update_events(self) -> None:
        queue = self._queue
        if queue.has_capacity:
            self._capacity.set()
        if queue.can_send:
            self._window.set()
        if queue.open is not None and not queue.inflight and queue.publish is not None:
            # It waits for senders that continue in the next turn.
            self._loop.call_soon(self._end_turn)

    # Checks.

    def _check_size(self, byte_count: int) -> None:
        """Raise unless a message fits into a batch alone."""
        if byte_count + 1024 > self._queue.batch_bytes_max:
            raise MessageTooLarge(
                f"a message of {byte_count} bytes; the broker accepts batches of at "
                f"most {self._queue.batch_bytes_max} bytes"
            )

    def _check_ids(self, ids: Sequence[str]) -> None:
        if not self._is_reliable:
            raise InvalidRequest(
                f"{self.topic} is not reliable: it stores no messages, so it does not "
                "know whether one of this id was published before"
            )
        for each in ids:
            check_id(each)

    def _window_of(self, options: DeliveryOptions) -> DeliveryWindow | None:
        if not options:
            return None
        window = parse_delivery(self._wall_clock_ns() // 1000, options)
        if window is not None:
            self._check_delay(is_delayed=window.deliver_at is not None)
        return window

    def _check_delay(self, *, is_delayed: bool) -> None:
        if is_delayed and not self._is_reliable:
            raise InvalidRequest(
                f"{self.topic} is not reliable: its messages cannot be delayed"
            )


class _Completion(asyncio.Future[Placement]):
    """
    The offsets of a gathered batch, and those who wait for one of its messages.

    They wake in the turn of the loop that follows the receipt.  Callbacks of the future
    would take one turn more, and twice the time.
    """

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._create_future = loop.create_future
        self._waiters: list[asyncio.Future[None]] = []

    def new_waiter(self) -> asyncio.Future[None]:
        """Return a future that is done with this one, but is cancelled alone."""
        waiter: asyncio.Future[None] = self._create_future()
        self._waiters.append(waiter)
        return waiter

    def set_result(self, result: Placement, /) -> None:
        super().set_result(result)
        self._wake()

    def set_exception(self, exception: type | BaseException, /) -> None:
        super().set_exception(exception)
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Pending(tuple[OpenBatch["asyncio.Future[Placement]"], int]):
    """A message that is not acknowledged yet; await it for its MessageId."""

    # One is made for every message, of its batch and its index there, and nothing is
    # made faster than a tuple.
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, MessageId]:
        batch, index = self
        batch.is_awaited = True
        future = batch.completion
        if not future.done():
            assert isinstance(future, _Completion)
            yield from future.new_waiter()
        found = future.result()
        return MessageId(
            batch.topic, found + index if isinstance(found, int) else found[index]
        )

    def done(self) -> bool:
        """Return whether the message is acknowledged or has failed."""
        return self[0].completion.done()


async def wait_for_offsets(sent: Sequence[SentPiece]) -> Sequence[int]:
    """
    Wait until all pieces are acknowledged, and return the offsets of their messages.

    They are a range if there is no gap.
    """
    runs: list[Sequence[int]] = []
    for count, future in sent:
        # Cancelling the waiter must not cancel the batch.
        found = await asyncio.shield(future)
        runs.append(range(found, found + count) if isinstance(found, int) else found)
    if (
        runs
        and runs[-1][-1] + 1 - runs[0][0] == sum(map(len, runs))
        and all(isinstance(run, range) for run in runs)
    ):
        return range(runs[0][0], runs[-1][-1] + 1)
    return [offset for run in runs for offset in run]


def close_timeout_error(count: int, topic: str, client: Requester) -> TimedOut:
    """Return the error for *count* messages that were unacknowledged on closing."""
    messages = "1 message" if count == 1 else f"{count} messages"
    return TimedOut(
        f"the broker did not acknowledge {messages} to {topic} within "
        f"{client.close_timeout_s:g} s of closing; it may or may not have stored them: "
        f"check that the broker at {client.url} answers, and send them again"
    )


def _byte_count_of(
    key: bytes | None,
    attributes: Mapping[str, str] | None,
    window: DeliveryWindow | None,
) -> int:
    byte_count = 0 if key is None else len(key)
    if attributes is not None:
        byte_count += check_attributes(attributes)
    if window is not None:
        byte_count += WINDOW_BYTES
    return byte_count
