"""
A producer: messages in, batches out, every batch sent until it is acknowledged.

Messages that are sent one by one gather in an open batch.  It leaves at the end
of the loop's turn while few batches are on their way, and otherwise when it is
full or the way is free again: one message alone does not wait, and many fill
their batches by themselves.

A batch keeps its sequence numbers until it is acknowledged.  When the connection
breaks, the producer opens again under its old identity and sends what is not
acknowledged again; the broker recognises what it has.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pydanube.client.backoff import Backoff, retried
from pydanube.client.messages import MessageId, MessageIds
from pydanube.client.pending import OpenBatch, Outgoing, Pending
from pydanube.model.batch import Column, batch_of, conform
from pydanube.model.errors import (
    BrokerError,
    Closed,
    InvalidRequest,
    MessageTooLarge,
    OutOfSequence,
    Overloaded,
    Remedy,
    TimedOut,
    Unavailable,
)
from pydanube.model.policy import DispatchMode, TopicPolicy
from pydanube.wire.batches import (
    BatchFrame,
    BatchHeader,
    Codec,
    encode,
    encode_message,
    restamp_producer,
)
from pydanube.wire.frames import Kind
from pydanube.wire.messages import policy_to_wire
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from pydanube.client.client import Client
    from pydanube.client.connection import BrokerConnection
    from pydanube.client.tasks import TaskScope
    from pydanube.wire.connection import Received

BATCH_MESSAGES_MAX = 8192
BATCH_BYTES = 512 * 1024
"""An open batch that has so many payload bytes is full."""
EAGER_BATCHES = 4
"""While fewer are on their way, a batch leaves before it is full."""
INFLIGHT_BATCHES_MAX = 64
INFLIGHT_BYTES_MAX = 16 * 1024 * 1024
PENDING_BYTES_MAX = 64 * 1024 * 1024
"""What a producer holds at most, open, waiting and on its way."""
DELIVERY_TIMEOUT_S = 120.0
"""A batch that no broker has taken for so long has failed."""
OPEN_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 30.0
MESSAGE_OVERHEAD_BYTES = 16

_CODECS = {None: Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


class Producer:
    """
    A producer of one topic; made by ``Client.producer``.

    Ordering: Messages get their offsets in the order in which they were sent.

    Bounds: It holds at most 64 MiB that are not acknowledged; ``send`` and
        ``send_batch`` wait for room, ``send_nowait`` raises ``Overloaded``.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        name: str | None,
        policy: TopicPolicy,
        codec: Codec,
        *,
        takes_any_kind: bool,
    ) -> None:
        self.topic = topic
        self.name = name or f"producer-{uuid.uuid4().hex[:12]}"
        self._client = client
        self._is_anonymous = name is None
        self._policy = policy
        self._takes_any_kind = takes_any_kind
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        self._connection: BrokerConnection | None = None
        self._channel = 0
        self._channel_end: asyncio.Future[BrokerError]
        self._producer_id = 0
        self._producer_epoch = 0
        self._next_sequence = 0
        self._batch_bytes_max = 0
        self._full_bytes = 0
        self._alone_bytes = 0
        self._open: OpenBatch | None = None
        # Closed batches that wait for a free way, then those on their way.
        self._waiting: deque[OpenBatch] = deque()
        self._outgoing: deque[Outgoing] = deque()
        self._outgoing_bytes = 0
        self._pending_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._way = asyncio.Event()
        self._failure: BrokerError | None = None
        # What fire-and-forget messages ran into, until somebody flushes.
        self._unseen: BrokerError | None = None

    # Sending.

    async def send(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> MessageId:
        """
        Publish one message and return its id.

        Durability: On return the message is as safe as its topic promises; by
            default it is on disk.

        Cancellation: The message may or may not be published.

        Raises:
            MessageTooLarge: The broker takes no message of this size.
            ProducerFenced: Another producer of this name was opened.
            TimedOut: No broker has taken it for two minutes.
        """
        if not self._room.is_set():
            await self._room.wait()
        pending = self.send_nowait(payload, key=key, attributes=attributes)
        if not self._outgoing and not self._waiting:
            # Nothing is on its way: what others send in this turn of the loop
            # gathers behind this one.
            self._close_open()
        return await pending

    def send_nowait(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Pending:
        """
        Publish one message soon, together with others; await the result for its id.

        Raises:
            Overloaded: Too much is not acknowledged yet: await ``flush()``, or
                use ``send``.
            MessageTooLarge: The broker takes no message of this size.
            Closed: The producer is closed, or has failed before.
        """
        if type(payload) is not bytes:
            payload = _to_bytes("payload", payload)
        byte_count = len(payload) + MESSAGE_OVERHEAD_BYTES
        if key is not None:
            key = _to_bytes("key", key)
            byte_count += len(key)
        if attributes is not None:
            byte_count += _check_attributes(attributes)
        if byte_count > self._alone_bytes:
            self._check_size(byte_count)
            self._close_open()
        batch = self._open
        if batch is None:
            batch = self._begin()
        payloads = batch.payloads
        index = len(payloads)
        if key is not None or batch.keys is not None:
            _add(batch, "keys", index, key)
        if attributes is not None or batch.attributes is not None:
            _add(batch, "attributes", index, attributes)
        payloads.append(payload)
        batch.times.append(time_ns() // 1000)
        batch.byte_count += byte_count
        if batch.byte_count >= self._full_bytes or index + 1 >= BATCH_MESSAGES_MAX:
            self._close_open()
        return Pending(batch, index)

    async def send_batch(
        self, messages: Sequence[bytes | str] | pa.RecordBatch | pa.Table
    ) -> MessageIds:
        """
        Publish many messages and return their ids, in their order.

        Args:
            messages: Payloads; or Arrow data with the column ``payload`` and, if
                wanted, ``key``, ``attributes`` and ``publish_time``.

        Durability, Cancellation, Raises: As ``send``, for all of them; the
            messages may travel, and on an error be stored, in several batches.
        """
        if isinstance(messages, pa.RecordBatch | pa.Table):
            batches = conform(messages)
        elif messages:
            payloads = [
                each if type(each) is bytes else _to_bytes("payload", each)
                for each in messages
            ]
            batches = [batch_of(payloads)]
        else:
            batches = []
        self._close_open()
        futures = []
        for batch in batches:
            for piece in self._cut(batch):
                while self._waiting or not self._has_way():
                    self._raise_if_failed()
                    self._way.clear()
                    await self._way.wait()
                futures.append((piece.num_rows, self._ship(piece)))
        offsets: list[range] = []
        for count, future in futures:
            base = await asyncio.shield(future)
            offsets.append(range(base, base + count))
        return MessageIds(self.topic, _joined(offsets))

    async def flush(self) -> None:
        """
        Wait until everything that was sent is acknowledged.

        Raises:
            BrokerError: What a message that nobody awaited has run into.
        """
        self._close_open()
        while self._waiting or self._outgoing:
            last = (
                self._waiting[-1].future if self._waiting else self._outgoing[-1].future
            )
            await asyncio.wait([last])
        unseen, self._unseen = self._unseen, None
        if unseen is not None:
            raise unseen

    @property
    def is_connected(self) -> bool:
        """Whether the broker has the producer open at the moment."""
        return self._connection is not None

    @property
    def has_room(self) -> bool:
        """Whether ``send_nowait`` takes a message at the moment."""
        return self._room.is_set()

    async def room(self) -> None:
        """Wait until ``send_nowait`` takes a message."""
        await self._room.wait()

    @property
    def pending_count(self) -> int:
        """How many messages are not acknowledged yet."""
        return (
            (len(self._open.payloads) if self._open else 0)
            + sum(len(batch.payloads) for batch in self._waiting)
            + sum(outgoing.frame.count for outgoing in self._outgoing)
        )

    # What the connection tells us.

    def on_frame(self, frame: Received) -> None:
        """See ``connection.Channel``."""
        if frame.kind is not Kind.RECEIPT:
            return
        message: Any = frame.message
        for sequence, offset in zip(
            message.base_sequence, message.base_offset, strict=True
        ):
            self._acknowledge(sequence, offset)
        self._send_waiting()
        self._make_room()

    def on_closed(self, reason: BrokerError) -> None:
        """See ``connection.Channel``."""
        self._connection = None
        if not self._channel_end.done():
            self._channel_end.set_result(reason)

    # The life of the producer.

    async def open(self) -> None:
        """Open for the first time; errors are the caller's."""
        await retried(self._open_channel, OPEN_TIMEOUT_S)

    async def run(self) -> None:
        """Keep the producer open, whatever happens to its channel, until it fails."""
        backoff = Backoff()
        while self._failure is None:
            if self.is_connected:
                reason = await self._channel_end
                backoff.reset()
                self._take_in(reason)
                continue
            try:
                await self._open_channel()
            except BrokerError as error:
                self._take_in(error)
            if not self.is_connected:
                await asyncio.sleep(backoff.next_s())

    async def aclose(self) -> None:
        """Send what is open, wait for its acknowledgement, and close."""
        try:
            if self._failure is None:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self.flush()
                if self._connection is not None:
                    await self._close_channel(self._connection)
        except TimeoutError:
            raise TimedOut(
                f"{self.pending_count} messages were not acknowledged in "
                f"{CLOSE_TIMEOUT_S:.0f} s"
            ) from None
        finally:
            self._fail_all(Closed("the producer is closed"))

    async def _close_channel(self, connection: BrokerConnection) -> None:
        try:
            await connection.request(
                Kind.CLOSE_PRODUCER, pb.CloseProducer(), self._channel
            )
        except Unavailable:
            # The broker is gone; everything that was sent is acknowledged.
            return
        connection.free_channel(self._channel)

    def abandon(self) -> None:
        """Close without waiting; what is not acknowledged may or may not be stored."""
        if self._connection is not None:
            self._connection.request_nowait(
                Kind.CLOSE_PRODUCER, pb.CloseProducer(), self._channel
            ).add_done_callback(_retrieve)
            self._connection.free_channel(self._channel)
        self._fail_all(Closed("the producer is closed"))

    async def _open_channel(self) -> None:
        connection = await self._client.connection()
        channel = connection.new_channel(self)
        self._channel_end = self._loop.create_future()
        try:
            opened = await connection.request(
                Kind.OPEN_PRODUCER,
                pb.OpenProducer(
                    topic=self.topic,
                    name=self.name,
                    policy=policy_to_wire(self._policy),
                    takes_any_kind=self._takes_any_kind,
                    producer_id=self._producer_id,
                    producer_epoch=self._producer_epoch,
                    is_anonymous=self._is_anonymous,
                ),
                channel,
            )
        except BaseException:
            connection.free_channel(channel)
            raise
        self._producer_id = opened.producer_id
        self._producer_epoch = opened.producer_epoch
        self._batch_bytes_max = min(opened.batch_bytes_max, connection.batch_bytes_max)
        # An open batch and one more message always fit into a frame; a longer
        # message travels alone.
        self._full_bytes = min(BATCH_BYTES, self._batch_bytes_max // 2)
        self._alone_bytes = self._batch_bytes_max // 4
        self._resend(connection, channel, opened.next_sequence)

    def _resend(
        self, connection: BrokerConnection, channel: int, next_sequence: int
    ) -> None:
        """Take the new channel, and send what is not acknowledged on it."""
        self._connection, self._channel = connection, channel
        first = self._outgoing[0].frame.header if self._outgoing else None
        if first is None:
            self._next_sequence = next_sequence
        elif (
            first.base_sequence > next_sequence
            or first.producer_id != self._producer_id
            or first.producer_epoch != self._producer_epoch
        ):
            # A batch before these failed, or the broker knows us no more:
            # they go on where the broker is.
            for outgoing in self._outgoing:
                restamp_producer(
                    outgoing.frame,
                    self._producer_id,
                    self._producer_epoch,
                    next_sequence,
                )
                next_sequence += outgoing.frame.count
            self._next_sequence = next_sequence
        for outgoing in self._outgoing:
            connection.publish(outgoing.frame, channel)
        self._send_waiting()

    def _take_in(self, reason: BrokerError) -> None:
        """The channel is closed, or could not be opened, for this *reason*."""
        if reason.remedy is Remedy.GIVE_UP:
            is_about_batch = isinstance(reason, InvalidRequest) and not isinstance(
                reason, OutOfSequence
            )
            if is_about_batch and self._outgoing:
                self._drop(self._outgoing.popleft(), reason)
            else:
                self._fail_all(reason)
            return
        if self._outgoing and self._outgoing[0].deadline < self._loop.time():
            late = TimedOut(
                f"no broker has taken the messages for {DELIVERY_TIMEOUT_S:.0f} s; "
                f"the last reason: {reason}"
            )
            while self._outgoing:
                self._drop(self._outgoing.popleft(), late)

    def _fail_all(self, reason: BrokerError) -> None:
        self._failure = reason
        self._connection = None
        if self._open is not None:
            self._waiting.append(self._open)
            self._open = None
        while self._outgoing:
            self._drop(self._outgoing.popleft(), reason)
        while self._waiting:
            _fail(self._waiting.popleft().future, reason)
        self._pending_bytes = 0
        self._room.set()
        self._way.set()

    # From messages to batches on their way.

    def _begin(self) -> OpenBatch:
        self._raise_if_failed()
        if self._pending_bytes >= PENDING_BYTES_MAX:
            raise Overloaded(
                f"{self._pending_bytes} bytes are not acknowledged yet; "
                "await flush(), or use send()"
            )
        batch = self._open = OpenBatch(self.topic, self._loop)
        batch.future.add_done_callback(partial(self._see, batch))
        self._loop.call_soon(self._end_of_turn, batch)
        return batch

    def _end_of_turn(self, batch: OpenBatch) -> None:
        if self._open is batch and len(self._outgoing) < EAGER_BATCHES:
            self._close_open()

    def _close_open(self) -> None:
        batch, self._open = self._open, None
        if batch is not None and batch.payloads:
            self._waiting.append(batch)
            self._pending_bytes += batch.byte_count
            if self._pending_bytes >= PENDING_BYTES_MAX:
                self._room.clear()
            self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._has_way():
            batch = self._waiting.popleft()
            self._pending_bytes -= batch.byte_count
            self._ship_open(batch)
        # The way is free: whatever gathered meanwhile need not wait any longer.
        if (
            self._open is not None
            and not self._waiting
            and len(self._outgoing) < EAGER_BATCHES
            and self._connection is not None
        ):
            self._close_open()

    def _ship_open(self, batch: OpenBatch) -> None:
        header = self._header(batch.times[0], batch.times[-1])
        if batch.is_single and self._codec is Codec.NONE:
            self._dispatch(encode_message(batch.payloads[0], header), batch.future)
            return
        try:
            arrow = batch.to_arrow()
        except (pa.ArrowException, ValueError, TypeError) as error:
            _fail(batch.future, InvalidRequest(f"not a batch: {error}"))
            return
        self._dispatch(encode(arrow, header, self._codec), batch.future)

    def _ship(self, batch: pa.RecordBatch) -> asyncio.Future[int]:
        self._raise_if_failed()
        future: asyncio.Future[int] = self._loop.create_future()
        future.add_done_callback(_retrieve)
        frame = encode(batch, self._header(*_times_of(batch)), self._codec)
        self._dispatch(frame, future)
        return future

    def _header(self, first_time: int, last_time: int) -> BatchHeader:
        """The next batch's header; its encoder fills in what it holds."""
        return BatchHeader(
            count=1,
            columns=Column.PAYLOAD,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._next_sequence,
            first_publish_time=first_time,
            last_publish_time=last_time,
            producer=self.name,
        )

    def _dispatch(self, frame: BatchFrame, future: asyncio.Future[int]) -> None:
        """Put *frame* on its way, and keep it until it is acknowledged."""
        self._next_sequence += frame.count
        self._pending_bytes += frame.byte_count
        self._outgoing_bytes += frame.byte_count
        deadline = self._loop.time() + DELIVERY_TIMEOUT_S
        self._outgoing.append(Outgoing(frame, future, deadline))
        if self._connection is not None:
            self._connection.publish(frame, self._channel)

    def _has_way(self) -> bool:
        return (
            len(self._outgoing) < INFLIGHT_BATCHES_MAX
            and self._outgoing_bytes < INFLIGHT_BYTES_MAX
        )

    def _acknowledge(self, sequence: int, offset: int) -> None:
        while self._outgoing:
            outgoing = self._outgoing[0]
            if outgoing.frame.header.base_sequence > sequence:
                return
            self._outgoing.popleft()
            self._release(outgoing)
            if not outgoing.future.done():
                ahead = outgoing.frame.header.base_sequence - sequence
                outgoing.future.set_result(offset + ahead)

    def _drop(self, outgoing: Outgoing, reason: BrokerError) -> None:
        self._release(outgoing)
        _fail(outgoing.future, reason)

    def _release(self, outgoing: Outgoing) -> None:
        self._outgoing_bytes -= outgoing.frame.byte_count
        self._pending_bytes -= outgoing.frame.byte_count

    def _make_room(self) -> None:
        if self._pending_bytes < PENDING_BYTES_MAX:
            self._room.set()
        if not self._waiting and self._has_way():
            self._way.set()

    def _cut(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """*batch* in pieces that a frame can carry."""
        byte_count = batch.nbytes + 512
        if byte_count <= self._batch_bytes_max and batch.num_rows:
            return [batch]
        if batch.num_rows == 0:
            return []
        if batch.num_rows == 1:
            raise MessageTooLarge(
                f"a message of {byte_count} bytes; the broker takes batches of at most "
                f"{self._batch_bytes_max}"
            )
        half = batch.num_rows // 2
        return self._cut(batch.slice(0, half)) + self._cut(batch.slice(half))

    def _check_size(self, byte_count: int) -> None:
        """A message must fit into a batch alone."""
        if byte_count + 1024 > self._batch_bytes_max:
            raise MessageTooLarge(
                f"a message of {byte_count} bytes; the broker takes batches of at most "
                f"{self._batch_bytes_max}"
            )

    def _see(self, batch: OpenBatch, future: asyncio.Future[int]) -> None:
        error = future.exception()
        if isinstance(error, BrokerError) and not batch.is_awaited:
            self._unseen = error

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure


@asynccontextmanager
async def open_producer(
    client: Client,
    tasks: TaskScope,
    topic: str,
    *,
    name: str | None,
    reliable: bool | None,
    compression: str | None,
) -> AsyncIterator[Producer]:
    """A producer, open while the body runs; see ``Client.producer``."""
    if compression not in _CODECS:
        raise InvalidRequest(
            f"compression is 'lz4', 'zstd' or None, not {compression!r}"
        )
    policy = TopicPolicy(
        dispatch=DispatchMode.NON_RELIABLE
        if reliable is False
        else DispatchMode.RELIABLE
    )
    producer = Producer(
        client,
        topic,
        name,
        policy,
        _CODECS[compression],
        takes_any_kind=reliable is None,
    )
    await producer.open()
    running = tasks.run(producer.run(), f"producer {producer.name} of {topic}")
    try:
        yield producer
    except BaseException:
        # What is not acknowledged is given up: the body has failed already.
        producer.abandon()
        raise
    else:
        await producer.aclose()
    finally:
        running.cancel()


def _to_bytes(what: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidRequest(f"a {what} is bytes or str, not {type(value).__name__}")


def _check_attributes(attributes: Mapping[str, str]) -> int:
    """How many bytes *attributes* take."""
    byte_count = 0
    for name, value in attributes.items():
        if type(name) is not str or type(value) is not str:
            raise InvalidRequest("attributes are a mapping of str to str")
        byte_count += 4 * (len(name) + len(value)) + 8
    return byte_count


def _add(batch: OpenBatch, which: str, index: int, value: Any) -> None:
    values = getattr(batch, which)
    if values is None:
        values = [None] * index
        setattr(batch, which, values)
    values.append(value)


def _fail(future: asyncio.Future[Any], reason: BrokerError) -> None:
    if not future.done():
        future.set_exception(reason)


def _retrieve(future: asyncio.Future[Any]) -> None:
    # Whoever waited may be gone; that is no reason for a warning.
    if not future.cancelled():
        future.exception()


def _times_of(batch: pa.RecordBatch) -> tuple[int, int]:
    if "publish_time" not in batch.schema.names:
        now = time_ns() // 1000
        return now, now
    times = batch.column("publish_time").cast(pa.int64())
    return times[0].as_py(), times[-1].as_py()


def _joined(offsets: Sequence[range]) -> Sequence[int]:
    if not offsets:
        return range(0)
    first, last = offsets[0], offsets[-1]
    if last.stop - first.start == sum(map(len, offsets)):
        return range(first.start, last.stop)
    return [offset for run in offsets for offset in run]
