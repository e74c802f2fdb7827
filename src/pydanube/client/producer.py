"""
A producer: messages in, batches out, every batch sent until it is acknowledged.

Messages that are sent one by one gather in an open batch.  It leaves at the end
of the loop's turn while none is on its way, and otherwise when it is full or the
others have arrived: one message alone does not wait, and many fill their batches
by themselves, the more the busier the broker is.

A batch keeps its sequence numbers until it is acknowledged.  When the connection
breaks, the producer opens again under its old identity and sends what is not
acknowledged again; the broker recognises what it has.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import pyarrow as pa

from pydanube.client.batching import (
    WINDOW_BYTES,
    batches_of,
    check_attributes,
    cut,
    delivery_window,
    has_delivery_window,
    is_delayed,
    times_of,
    to_bytes,
)
from pydanube.client.messages import MessageId, MessageIds
from pydanube.client.pending import NO_EXTRAS, OpenBatch, OutgoingBatch, Pending
from pydanube.client.retrying import Backoff, retry
from pydanube.model.batch import Column
from pydanube.model.errors import (
    BrokerError,
    Closed,
    InvalidRequest,
    MessageTooLarge,
    OutOfSequence,
    Overloaded,
    ProtocolViolation,
    Remedy,
    TimedOut,
    Unavailable,
)
from pydanube.model.names import parse_client_name
from pydanube.model.policy import DispatchMode, ProducerAccess, TopicPolicy
from pydanube.model.positions import parse_choice
from pydanube.wire.batches import (
    BatchFrame,
    BatchHeader,
    Codec,
    encode,
    encode_payloads,
    restamp_producer,
)
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import access_to_wire, policy_to_wire
from pydanube.wire.native.schema_messages import reference_to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube.wire.small_batch import SMALL_MESSAGES_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import Unpack

    from pydanube.client.batching import DeliveryOptions, DeliveryWindow
    from pydanube.client.connection import BrokerConnection
    from pydanube.client.requester import Requester
    from pydanube.model.schemas import ProducerSchema
    from pydanube.wire.native.connection import ReceivedFrame

OPEN_BATCH_MESSAGES_MAX = 8192
BATCH_BYTES = 512 * 1024
"""An open batch that has so many payload bytes is full."""
INFLIGHT_BATCHES_MAX = 64
INFLIGHT_BYTES_MAX = 16 * 1024 * 1024
PENDING_BYTES_MAX = 64 * 1024 * 1024
"""What a producer holds at most, open, waiting and on its way."""
DELIVERY_TIMEOUT_S = 120.0
"""A batch that no broker has taken for so long has failed."""
OPEN_TIMEOUT_S = 30.0
STEADY_S = 1.0
"""A channel that was open for so long is opened again at once when it breaks."""
MESSAGE_OVERHEAD_BYTES = 16

_CODECS = {None: Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}

BatchData: TypeAlias = "Sequence[bytes | str] | pa.RecordBatch | pa.Table"
"""What can be published at once."""


SentPiece: TypeAlias = "tuple[int, asyncio.Future[int]]"
"""How many messages are on their way, and the future of their first offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How to produce."""

    name: str
    is_anonymous: bool
    """Whether we made up the name."""
    policy: TopicPolicy
    """Of a topic that does not exist yet."""
    takes_any_kind: bool
    codec: Codec
    access: ProducerAccess
    schema: ProducerSchema | None = None
    """The version of a subject that payloads are written with; None: no schema."""

    @classmethod
    def of(
        cls,
        name: str | None = None,
        reliable: bool | None = None,
        compression: str | None = None,
        access: str = "shared",
    ) -> ProducerOptions:
        """Return the options that ``Client.producer`` is called with."""
        mode = DispatchMode.NON_RELIABLE if reliable is False else DispatchMode.RELIABLE
        return cls(
            name=(
                f"producer-{uuid.uuid4().hex[:12]}"
                if name is None
                else parse_client_name("producer", name)
            ),
            is_anonymous=name is None,
            policy=TopicPolicy(dispatch=mode),
            takes_any_kind=reliable is None,
            codec=parse_codec(compression),
            access=parse_choice("access", access, ProducerAccess),
        )


class Producer:
    """
    A producer of one topic; made by ``Client.producer``.

    Ordering: Messages get their offsets in the order in which they were sent.

    Bounds: It holds at most 64 MiB that are not acknowledged; ``send`` and
        ``send_batch`` wait for room, ``send_nowait`` raises ``Overloaded``.
    """

    # What is done for every message looks at some of them.
    __slots__ = (
        "_access",
        "_alone_bytes",
        "_batch_bytes_max",
        "_channel",
        "_channel_end",
        "_client",
        "_closing",
        "_codec",
        "_connection",
        "_failure",
        "_full_bytes",
        "_has_receipt",
        "_is_reliable",
        "_line",
        "_loop",
        "_next_sequence",
        "_open",
        "_opened_at",
        "_options",
        "_outgoing",
        "_outgoing_bytes",
        "_pending_bytes",
        "_producer_epoch",
        "_producer_id",
        "_queued",
        "_room",
        "_schema_id",
        "_schema_version",
        "_unseen",
        "_waiting",
        "_wall_clock_ns",
        "_way",
        "name",
        "topic",
        "unacknowledged",
    )

    def __init__(self, client: Requester, topic: str, options: ProducerOptions) -> None:
        self.topic = topic
        self.name = options.name
        self._client = client
        self._options = options
        self._codec = options.codec
        self._schema_id = self._schema_version = 0
        if options.schema is not None:
            self._schema_id = options.schema.schema_id
            self._schema_version = options.schema.version
        self._wall_clock_ns = client.wall_clock_ns
        self._access = options.access
        self._is_reliable = True
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
        self._outgoing: deque[OutgoingBatch] = deque()
        self._outgoing_bytes = 0
        self._pending_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._way = asyncio.Event()
        # Who has to wait stands in line: first come, first sent.
        self._line = asyncio.Lock()
        self._queued = 0
        # When the channel was opened, and whether something was acknowledged on it.
        self._opened_at = 0.0
        self._has_receipt = False
        self._failure: BrokerError | None = None
        # What fire-and-forget messages ran into, until somebody flushes.
        self._unseen: BrokerError | None = None
        # Of closing; every word from the broker puts it off.
        self._closing: asyncio.Timeout | None = None
        self.unacknowledged = 0
        """How many messages were given up when closing took too long."""

    # Sending.

    async def send(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageId:
        """
        Publish one message and return its id.

        Args:
            payload: What consumers get; text is sent as UTF-8.
            key: Which messages belong together.
            attributes: What else there is to say about it.
            delivery: When it may be delivered.  ``deliver_after_s``: consumers get it
                so much later, on reliable topics; ``deliver_at``: the same as a
                moment, a datetime or seconds since 1970; ``ttl_s``: who has not
                got it after so long does not get it any more.

        Durability: On return the message is as safe as its topic promises; by
            default it is on disk.

        Cancellation: The message may or may not be published.

        Raises:
            MessageTooLarge: The broker takes no message of this size.
            ProducerFenced: Another producer of this name was opened.
            TimedOut: No broker has taken it for two minutes.
        """
        if self._queued or not self._room.is_set():
            await self._wait_in_line()
        is_plain = key is None and attributes is None and not delivery
        if is_plain and self._is_idle and self._codec is Codec.NONE:
            return await self._send_alone(payload)
        pending = self.send_nowait(
            payload,
            key=key,
            attributes=attributes,
            **delivery,
        )
        if not self._outgoing and not self._waiting:
            # Nothing is on its way: what others send in this turn of the loop
            # gathers behind this one.
            self._close_open()
        return await pending

    async def _send_alone(self, payload: bytes | str) -> MessageId:
        """Send a message that need not gather: what is done for batches takes time."""
        self._raise_if_failed()
        if type(payload) is not bytes:
            payload = to_bytes("payload", payload)
        byte_count = len(payload) + MESSAGE_OVERHEAD_BYTES
        if byte_count > self._alone_bytes:
            self._check_size(byte_count)
        return MessageId(self.topic, await self._send_few([payload]))

    async def _send_few(self, payloads: Sequence[bytes]) -> int:
        """Send a small batch at once; its first offset."""
        now = self._wall_clock_ns() // 1000
        frame = encode_payloads(payloads, self._header(now, now))
        future: asyncio.Future[int] = self._loop.create_future()
        outgoing = self._dispatch(frame, future)
        try:
            return await future
        except asyncio.CancelledError:
            # Others may wait for the batch itself, which goes on.
            outgoing.future = self._loop.create_future()
            outgoing.future.add_done_callback(_retrieve)
            raise

    def send_nowait(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> Pending:
        """
        Publish one message soon, together with others; await the result for its id.

        Args: As for ``send``.

        Raises:
            Overloaded: Too much is not acknowledged yet: await ``flush()``, or
                use ``send``.
            MessageTooLarge: The broker takes no message of this size.
            Closed: The producer is closed, or has failed before.
        """
        if type(payload) is not bytes:
            payload = to_bytes("payload", payload)
        byte_count = len(payload) + MESSAGE_OVERHEAD_BYTES
        extras = None
        if key is not None or attributes is not None or delivery:
            extras = (
                None if key is None else to_bytes("key", key),
                attributes,
                self._window_of(delivery),
            )
            byte_count += _byte_count_of(*extras)
        if byte_count > self._alone_bytes:
            self._check_size(byte_count)
            self._close_open()
        batch = self._open
        if batch is None:
            batch = self._begin()
        payloads = batch.payloads
        index = len(payloads)
        if extras is not None or not batch.is_plain:
            batch.add_extras(*(extras or NO_EXTRAS))
        payloads.append(payload)
        batch.times_ns.append(self._wall_clock_ns())
        batch.byte_count += byte_count
        if batch.byte_count >= self._full_bytes or index + 1 >= OPEN_BATCH_MESSAGES_MAX:
            self._close_open()
        return Pending((batch, index))

    async def send_batch(
        self, messages: BatchData, **delivery: Unpack[DeliveryOptions]
    ) -> MessageIds:
        """
        Publish many messages and return their ids, in their order.

        Args:
            messages: Payloads; or Arrow data with the column ``payload`` and, if
                wanted, ``key``, ``attributes``, ``publish_time``, ``deliver_at``
                and ``expires_at``.
            delivery: As for ``send``, for all of them.

        Durability, Cancellation, Raises: As ``send``, for all of them; the
            messages may travel, and on an error be stored, in several batches.
        """
        if not delivery and self._may_go_as_few(messages):
            self._close_open()
            if not self._waiting and self._has_way():
                base = await self._send_few(messages)
                return MessageIds(self.topic, range(base, base + len(messages)))
        shipped = await self.ship(batches_of(messages, self._window_of(delivery)))
        return MessageIds(self.topic, concat_offsets(await wait_for_offsets(shipped)))

    def _may_go_as_few(self, messages: BatchData) -> TypeGuard[list[bytes]]:
        """Whether *messages* may travel without Arrow, and nobody stands in line."""
        return (
            type(messages) is list
            and 0 < len(messages) <= SMALL_MESSAGES_MAX
            and self._codec is Codec.NONE
            and not self._queued
            and self._failure is None
            and all(type(payload) is bytes for payload in messages)
            and sum(map(len, messages)) <= self._full_bytes
        )

    async def ship(
        self,
        batches: Sequence[pa.RecordBatch],
        schema: tuple[int, int] | None = None,
    ) -> list[SentPiece]:
        """
        Put batches of the envelope on their way, as soon as there is one.

        *schema* is the id and the version of theirs, if not the producer's.

        Returns: How many messages are in each piece that travels, and the future
            of its first offset.
        """
        shipped = []
        self._queued += 1
        try:
            async with self._line:
                self._close_open()
                for batch in batches:
                    if has_delivery_window(batch):
                        self._check_window(is_delayed=is_delayed(batch))
                    for piece in cut(batch, self._batch_bytes_max):
                        await self._free_way()
                        shipped.append((piece.num_rows, self._ship(piece, schema)))
        finally:
            self._queued -= 1
        return shipped

    async def _free_way(self) -> None:
        while self._waiting or not self._has_way():
            self._raise_if_failed()
            self._way.clear()
            await self._way.wait()

    async def _wait_in_line(self) -> None:
        self._queued += 1
        try:
            async with self._line:
                await self._room.wait()
        finally:
            self._queued -= 1

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
    def _is_idle(self) -> bool:
        return not self._outgoing and not self._waiting and self._open is None

    @property
    def is_gathering(self) -> bool:
        """Whether there is an open batch, which the next message goes to."""
        return self._open is not None

    @property
    def is_connected(self) -> bool:
        """Whether the broker has the producer open at the moment."""
        return self._connection is not None

    @property
    def has_capacity(self) -> bool:
        """Whether ``send_nowait`` takes a message at the moment."""
        return self._room.is_set()

    async def wait_for_capacity(self) -> None:
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

    def on_frame(self, frame: ReceivedFrame) -> None:
        """See ``connection.Channel``."""
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
        for sequence, offset in zip(sequences, offsets, strict=True):
            self._acknowledge(sequence, offset)
            self._has_receipt = True
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
        await retry(self._open_channel, OPEN_TIMEOUT_S)

    async def run(self) -> None:
        """Keep the producer open, whatever happens to its channel, until it fails."""
        backoff = Backoff()
        while self._failure is None:
            if self.is_connected:
                self._take_in(await self._channel_end)
                # Not so if it was closed over what we had sent again, as it is
                # while the broker's disk is full.
                if self._has_receipt or self._loop.time() > self._opened_at + STEADY_S:
                    backoff.reset()
                    continue
            else:
                try:
                    await self._open_channel()
                    continue
                except BrokerError as error:
                    self._take_in(error)
            await backoff.wait()

    async def aclose(self) -> None:
        """
        Send what is open, wait for its acknowledgement, and close.

        Raises:
            TimedOut: Messages are not acknowledged, and the broker has said nothing
                for the client's ``close_timeout_s``.
        """
        try:
            if self._failure is None:
                # Where the broker slows us down, it says so now and then.
                async with self._client.closing() as self._closing:
                    await self.flush()
                    if self._connection is not None:
                        await self._close_channel(self._connection)
        except TimeoutError:
            self.unacknowledged = self.pending_count
            if self.unacknowledged:
                raise close_timeout_error(
                    self.unacknowledged, self.topic, self._client
                ) from None
        finally:
            self._closing = None
            self._fail_all(Closed("the producer is closed"))

    async def _close_channel(self, connection: BrokerConnection) -> None:
        try:
            await connection.request(
                Kind.CLOSE_PRODUCER, pb.CloseProducer(), self._channel
            )
        except Unavailable:
            # The broker is gone; everything that was sent is acknowledged.
            return
        connection.release_channel(self._channel)

    def abandon(self) -> None:
        """Close without waiting; what is not acknowledged may or may not be stored."""
        if self._connection is not None:
            self._connection.request_nowait(
                Kind.CLOSE_PRODUCER, pb.CloseProducer(), self._channel
            ).add_done_callback(_retrieve)
            self._connection.release_channel(self._channel)
        self._fail_all(Closed("the producer is closed"))

    async def _open_channel(self) -> None:
        connection = await self._client.connection()
        options = self._options
        if self._access is not ProducerAccess.SHARED:
            self._client.require(1, "exclusive producers")
        if options.schema is not None:
            self._client.require(2, "schemas")
        channel = connection.new_channel(self)
        self._channel_end = self._loop.create_future()
        try:
            opened = await connection.request(
                Kind.OPEN_PRODUCER,
                pb.OpenProducer(
                    topic=self.topic,
                    name=self.name,
                    policy=policy_to_wire(options.policy),
                    takes_any_kind=options.takes_any_kind,
                    producer_id=self._producer_id,
                    producer_epoch=self._producer_epoch,
                    is_anonymous=options.is_anonymous,
                    access=access_to_wire(self._access),
                    schema=(
                        None
                        if options.schema is None
                        else reference_to_wire(options.schema.reference)
                    ),
                ),
                channel,
            )
        except asyncio.CancelledError:
            connection.abandon_channel(Kind.CLOSE_PRODUCER, pb.CloseProducer(), channel)
            raise
        except BaseException:
            connection.release_channel(channel)
            raise
        self._is_reliable = opened.reliable
        if self._access is not ProducerAccess.SHARED:
            # Who loses the place with the connection, and finds another one there,
            # must hear of it: neither wait in silence nor drive it out.
            self._access = ProducerAccess.EXCLUSIVE
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
        self._opened_at, self._has_receipt = self._loop.time(), False
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
        if self._open is batch and not self._outgoing:
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
            and not self._outgoing
            and self._connection is not None
        ):
            self._close_open()

    def _ship_open(self, batch: OpenBatch) -> None:
        header = self._header(*batch.publish_times)
        if batch.is_small and self._codec is Codec.NONE:
            frame = encode_payloads(batch.payloads, header, batch.small_times())
            self._dispatch(frame, batch.future)
            return
        try:
            arrow = batch.to_arrow()
        except (pa.ArrowException, ValueError, TypeError) as error:
            _fail(batch.future, InvalidRequest(f"not a batch: {error}"))
            return
        self._dispatch(encode(arrow, header, self._codec), batch.future)

    def _ship(
        self, batch: pa.RecordBatch, schema: tuple[int, int] | None
    ) -> asyncio.Future[int]:
        self._raise_if_failed()
        future: asyncio.Future[int] = self._loop.create_future()
        future.add_done_callback(_retrieve)
        times = times_of(batch, self._wall_clock_ns() // 1000)
        header = self._header(*times)
        if schema is not None:
            header.schema_id, header.schema_version = schema
        frame = encode(batch, header, self._codec)
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
            schema_id=self._schema_id,
            schema_version=self._schema_version,
            producer=self.name,
        )

    def _dispatch(
        self, frame: BatchFrame, future: asyncio.Future[int]
    ) -> OutgoingBatch:
        """Put *frame* on its way, and keep it until it is acknowledged."""
        self._next_sequence += frame.count
        self._pending_bytes += frame.byte_count
        self._outgoing_bytes += frame.byte_count
        deadline = self._loop.time() + DELIVERY_TIMEOUT_S
        outgoing = OutgoingBatch(frame, future, deadline)
        self._outgoing.append(outgoing)
        if self._connection is not None:
            self._connection.publish(frame, self._channel)
        return outgoing

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

    def _drop(self, outgoing: OutgoingBatch, reason: BrokerError) -> None:
        self._release(outgoing)
        _fail(outgoing.future, reason)

    def _release(self, outgoing: OutgoingBatch) -> None:
        self._outgoing_bytes -= outgoing.frame.byte_count
        self._pending_bytes -= outgoing.frame.byte_count

    def _make_room(self) -> None:
        if self._pending_bytes < PENDING_BYTES_MAX:
            self._room.set()
        if not self._waiting and self._has_way():
            self._way.set()

    def _check_size(self, byte_count: int) -> None:
        """A message must fit into a batch alone."""
        if byte_count + 1024 > self._batch_bytes_max:
            raise MessageTooLarge(
                f"a message of {byte_count} bytes; the broker takes batches of at most "
                f"{self._batch_bytes_max}"
            )

    def _window_of(self, options: DeliveryOptions) -> DeliveryWindow | None:
        window = delivery_window(self._wall_clock_ns() // 1000, **options)
        if window is not None:
            self._check_window(is_delayed=window.deliver_at is not None)
        return window

    def _check_window(self, *, is_delayed: bool) -> None:
        self._client.require(1, "delays and times to live")
        if is_delayed and not self._is_reliable:
            raise InvalidRequest(
                f"{self.topic} is not reliable: its messages cannot be delayed"
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
    client: Requester, topic: str, options: ProducerOptions
) -> AsyncIterator[Producer]:
    """A producer of *topic* alone, open while the body runs."""
    producer = Producer(client, topic, options)
    await producer.open()
    running = client.tasks.run(producer.run(), f"producer {producer.name} of {topic}")
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


def parse_codec(compression: str | None) -> Codec:
    """
    How batches are compressed.

    Raises:
        InvalidRequest: *compression* is none that we know.
    """
    if compression not in _CODECS:
        raise InvalidRequest(
            f"compression is 'lz4', 'zstd' or None, not {compression!r}"
        )
    return _CODECS[compression]


def close_timeout_error(count: int, topic: str, client: Requester) -> TimedOut:
    """What is raised if *count* messages were not acknowledged in time on closing."""
    messages = "1 message" if count == 1 else f"{count} messages"
    return TimedOut(
        f"the broker did not acknowledge {messages} to {topic} within "
        f"{client.close_timeout_s:g} s of closing; it may or may not have stored them: "
        f"check that the broker at {client.url} answers, and send them again"
    )


async def wait_for_offsets(shipped: Sequence[SentPiece]) -> list[range]:
    """The offsets of batches on their way, when all are acknowledged."""
    offsets = []
    for count, future in shipped:
        # Whoever stops waiting must not fail the batch.
        base = await asyncio.shield(future)
        offsets.append(range(base, base + count))
    return offsets


def concat_offsets(offsets: Sequence[range]) -> Sequence[int]:
    """Offsets of pieces as one sequence; a range where there is no gap."""
    if not offsets:
        return range(0)
    first, last = offsets[0], offsets[-1]
    if last.stop - first.start == sum(map(len, offsets)):
        return range(first.start, last.stop)
    return [offset for run in offsets for offset in run]


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


def _fail(future: asyncio.Future[Any], reason: BrokerError) -> None:
    if not future.done():
        future.set_exception(reason)


def _retrieve(future: asyncio.Future[Any]) -> None:
    # Whoever waited may be gone; that is no reason for a warning.
    if not future.cancelled():
        future.exception()
