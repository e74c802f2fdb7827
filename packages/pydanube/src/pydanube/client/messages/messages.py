"""
The messages that consumers and readers return, and batches of them.

A batch is decoded a column at a time: payloads and offsets when its messages are first
handed out, each other column when it is first read.  A ``Message`` has its payload, its
offset, and a reference to its batch for all the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import (
    Awaitable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from functools import cache, cached_property
from itertools import chain, groupby, repeat
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, overload

from pydanube.model import arrow
from pydanube.model.arrow import pa
from pydanube.model.batch import Column, attributes_of
from pydanube.model.errors import InvalidPayload, InvalidRequest, SchemaNotFound
from pydanube.model.positions import to_datetime
from pydanube.model.range_blocks import ranges_of_offsets
from pydanube.model.ranges import Range
from pydanube.schemas.language import Decoder, reason_of
from pydanube.wire.batches import ArrowColumns, BatchFrame, ReadColumns

if TYPE_CHECKING:
    # Type checkers know this one; Python's own has defaults from version 3.13 on.
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)


class MessageAcknowledger(Protocol):
    """The consumer of a message, as ``Message.ack`` and ``Message.nack`` use it."""

    def _ack_nowait(self, messages: Message) -> None: ...

    def _nack_nowait(
        self, messages: Message, *, delay_s: float, reason: str
    ) -> None: ...

    def _extend_nowait(
        self, messages: Message | MessageBatch, ack_timeout_s: float | None
    ) -> None: ...

    def reply(
        self, request: Message, payload: bytes | str, *, attributes: Any, error: Any
    ) -> Awaitable[None] | None: ...


class Source:
    """
    The subscription of a topic that messages were delivered to.

    A consumer that seeks begins with a new source.
    """

    __slots__ = ("consumer", "is_over", "subscription", "topic")

    def __init__(
        self, topic: str, subscription: str, consumer: MessageAcknowledger
    ) -> None:
        self.topic = topic
        self.subscription = subscription
        self.consumer = consumer
        """The consumer that handed the messages out."""
        self.is_over = False
        """True if the consumer has moved its subscription since the delivery."""

    def pass_to(self, consumer: MessageAcknowledger) -> None:
        """Let *consumer*, for which another one received, hand the messages out."""
        self.consumer = consumer


class MessageId(NamedTuple):
    """The id of a message: its topic or partition, and its offset there."""

    topic: str
    offset: int


class MessageIds(Sequence[MessageId]):
    """The ids of messages that were published together, made when they are read."""

    __slots__ = ("_offsets", "topic")

    def __init__(self, topic: str, offsets: Sequence[int]) -> None:
        self.topic = topic
        self._offsets = offsets

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each message."""
        return self._offsets

    @overload
    def __getitem__(self, index: int) -> MessageId: ...
    @overload
    def __getitem__(self, index: slice) -> MessageIds: ...
    def __getitem__(self, index: int | slice) -> MessageId | MessageIds:
        return self._part(index) if isinstance(index, slice) else self._id(index)

    def _part(self, index: slice) -> MessageIds:
        return MessageIds(self.topic, self._offsets[index])

    def _id(self, index: int) -> MessageId:
        return MessageId(self.topic, self._offsets[index])

    def counts(self) -> dict[str, int]:
        """Return the number of messages that went to each topic or partition."""
        return {self.topic: len(self)}

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # Equal to lists, which have none.

    def __repr__(self) -> str:
        return f"MessageIds({self.topic!r}, {self._offsets!r})"


def _column(column: Column) -> cached_property[list[Any] | None]:
    """Return the property with the values of *column*; times are in microseconds."""

    def values(batch: ReceivedBatch) -> list[Any] | None:
        if not batch.frame.header.columns & column:
            return None
        return batch.columns.values(column)

    return cached_property(values)


class ReceivingConsumer(Protocol):
    """The consumer of one topic or partition, as transactions use it."""

    def return_received(
        self, receiver: Receiver, ranges: Iterable[Range], failure: str | None
    ) -> None: ...


class Receiver(NamedTuple):
    """A consumer of one topic or partition, between two connections to the broker."""

    consumer_id: int
    consumer: ReceivingConsumer


class ReceivedBatch:
    """The messages of one frame, decoded when they are first read."""

    # Slots, because they are read for each message; cached properties need a dict.
    __slots__ = (
        "__dict__",
        "arrival",
        "attempt",
        "base",
        "count",
        "deadline",
        "decode",
        "frame",
        "receiver",
        "source",
        "topic",
    )

    def __init__(
        self,
        frame: BatchFrame,
        topic: str,
        attempt: int,
        source: Source | None = None,
    ) -> None:
        self.frame = frame
        self.topic = topic
        self.attempt = attempt
        self.source = source
        """The source of the messages; None: they were read without a subscription."""
        self.base = frame.base
        self.count = frame.count
        self.decode: Decoder | None = None
        """Decodes payloads to values; None: the messages have no schema."""
        self.arrival = 0
        """The number of the delivery, which rises for each consumer."""
        self.deadline: float | None = None
        """When its ack timeout ends, unless it is handed out before; None: never."""
        self.receiver: Receiver | None = None
        """The consumer that received it, as the broker knows it."""

    @cached_property
    def arrow(self) -> pa.RecordBatch:
        """The columns that were received, as Arrow data."""
        return self.frame.checked_arrow()

    @cached_property
    def columns(self) -> ReadColumns:
        """The columns that were received; without Arrow if it is not installed."""
        if arrow.is_installed():
            return ArrowColumns(self.arrow)
        return self.frame.read_columns()

    @cached_property
    def payloads(self) -> list[bytes]:
        """The payload of each message."""
        small = self.frame.decode_small_batch()
        if small is not None:
            return small.payloads()
        return self.columns.values(Column.PAYLOAD)

    @cached_property
    def values(self) -> list[Any] | None:
        """The value of each message, or None if a payload is invalid."""
        try:
            return self.decoder_at(0)(self.payloads)
        except InvalidPayload:
            return None

    def value_alone(self, index: int) -> Any:
        """
        Return the value of one message, even if other payloads are invalid.

        Raises:
            InvalidPayload: The payload does not conform to its schema.
        """
        try:
            [value] = self.decoder_at(index)([self.payloads[index]])
        except InvalidPayload as error:
            message = f"{self._named(index)}: {reason_of(error)}"
            raise InvalidPayload(message) from error
        return value

    def decoder_at(self, index: int) -> Decoder:
        """
        Return the decoder of the message with this index.

        Raises:
            SchemaNotFound: The message was published without a schema.
        """
        if self.decode is None:
            raise SchemaNotFound(
                f"{self._named(index)} was published without a schema: it has a "
                "payload and no value"
            )
        return self.decode

    keys: cached_property[list[bytes | None] | None] = _column(Column.KEY)
    """The key of each message, or None if no message has one."""

    @cached_property
    def key_texts(self) -> list[str | None] | None:
        """The keys as text; bytes that are not UTF-8 become surrogates."""
        if self.keys is None:
            return None
        return [
            None if key is None else key.decode(errors="surrogateescape")
            for key in self.keys
        ]

    attributes: cached_property[list[Any] | None] = _column(Column.ATTRIBUTES)
    """The attributes of each message, or None if no message has any."""
    times: cached_property[list[int] | None] = _column(Column.PUBLISH_TIME)
    """The publish times in microseconds, or None if all are the header's first."""
    deliver_at: cached_property[list[int | None] | None] = _column(Column.DELIVER_AT)
    """The time from which each may be delivered, or None if no message has one."""
    expires_at: cached_property[list[int | None] | None] = _column(Column.EXPIRES_AT)
    """The time at which each expires, or None if no message has one."""
    producers: cached_property[list[str] | None] = _column(Column.PRODUCER)
    """The producer of each message, or None if the header names the only one."""

    @cached_property
    def offsets(self) -> Sequence[int]:
        """The offset of each message."""
        if self.frame.header.columns & Column.OFFSET:
            return self.columns.values(Column.OFFSET)
        return range(self.base, self.base + self.count)

    @cached_property
    def offset_bits(self) -> int | None:
        """The offsets as bits, bit 0 of which is ``base``; None: they have no gaps."""
        if isinstance(self.offsets, range):
            return None
        last = self.offsets[-1]
        if last - self.base > OFFSET_BITS_MAX:
            return None
        # One character for each bit, highest first.
        text = bytearray(b"0") * (last - self.base + 1)
        for offset in self.offsets:
            text[last - offset] = 49
        return int(text, 2)

    def bits_of(self, base: int, end: int) -> tuple[int, int] | None:
        """
        Return the messages ``base … end`` as the first offset, and bits from it on.

        None: they have no gaps, or ranges of their offsets may be shorter.
        """
        bits = self.offset_bits
        if bits is None or end - base == self.count:
            return None if bits is None else (self.base, bits)
        if end - base < PART_BITS_MIN:
            return None
        first, last = self.offsets[base], self.offsets[end - 1]
        return first, bits >> first - self.base & (1 << last - first + 1) - 1

    def messages(self, base: int, end: int) -> Iterator[Message]:
        """Return the messages ``base … end``, each made when it is handed out."""
        return map(
            Message, repeat(self), self.offsets[base:end], self.payloads[base:end]
        )

    def index_of(self, offset: int) -> int:
        """Return the index of the message with this offset, which is in the batch."""
        if isinstance(self.offsets, range):
            return offset - self.base
        return bisect_left(self.offsets, offset)

    def to_arrow(self, base: int, end: int) -> pa.RecordBatch:
        """Return the messages ``base … end`` with all columns of ``MessageBatch``."""
        header, rows = self.frame.header, self.arrow
        constants = {
            "publish_time": header.first_publish_time,
            "producer": header.producer or None,
            "schema_id": header.schema_id,
            "schema_version": header.schema_version,
        }

        def column(field: pa.Field) -> pa.Array:
            if field.name == "offset":
                return pa.array(self.offsets, field.type)
            if field.name in rows.schema.names:
                return rows.column(field.name)
            value = pa.scalar(constants.get(field.name), field.type)
            return pa.repeat(value, self.count)

        arrays = [column(field) for field in arrow_schema()]
        whole = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema())
        return whole.slice(base, end - base)

    def consumer_of(self, offset: int) -> MessageAcknowledger:
        """
        Return the consumer that received the message with this offset.

        Raises:
            InvalidRequest: It was read without a subscription.
        """
        if self.source is None:
            raise InvalidRequest(
                f"message {offset} of {self.topic} was read without a subscription, so "
                "it cannot be acknowledged or rejected: receive it with a consumer"
            )
        return self.source.consumer

    def _named(self, index: int) -> str:
        return f"message {self.offsets[index]} of {self.topic}"


class _Done:
    """The result of a call that need not be awaited, and may be."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_DONE = _Done()


class Message(Generic[T_co]):
    """
    One message.

    A consumer or reader that was opened with the class ``Order`` returns messages of
    the type ``Message[Order]``.
    """

    # The texts are docstrings.
    __slots__ = {
        "_batch": "The batch that the message arrived in.",
        "offset": "The message's position in its topic.",
        "payload": "The content that the producer sent.",
    }
    offset: Final[int]
    payload: Final[bytes]

    def __init__(self, batch: ReceivedBatch, offset: int, payload: bytes) -> None:
        self._batch = batch
        self.offset = offset
        self.payload = payload

    @property
    def location(self) -> tuple[ReceivedBatch, int]:
        """The batch that the message arrived in, and its index there."""
        return self._batch, self._index

    def ack(self) -> Awaitable[None]:
        """
        Acknowledge the message with the consumer that received it.

        The call does the same as ``Consumer.ack``, and does not wait; awaiting its
        result is optional, and for ``pydanube.sync`` there is nothing to await.

        Raises:
            InvalidRequest: The message was read without a subscription, or the
                consumer has received it before a seek.
            BrokerError: The consumer is closed or has failed.
        """
        source = self._batch.source
        # A faster way to do the same as _consumer().
        consumer = self._consumer() if source is None else source.consumer
        consumer._ack_nowait(self)
        return _DONE

    def nack(self, *, delay_s: float = 0.0, reason: str = "") -> Awaitable[None]:
        """
        Report that the message was not processed: the broker delivers it again.

        Args:
            delay_s: The shortest delay before redelivery; the failure policy may
                require a longer one.
            reason: A text for people; it is stored with a dead letter.

        Raises: As ``ack``, and the result is as for it.
        """
        self._consumer()._nack_nowait(self, delay_s=delay_s, reason=reason)
        return _DONE

    def extend(self, ack_timeout_s: float | None = None) -> Awaitable[None]:
        """
        Report that the message is still being processed; see ``Consumer.extend``.

        Args:
            ack_timeout_s: The time to acknowledge it from now on; None: the ack
                timeout of the subscription.

        Raises: As ``Consumer.extend``, and the result is as for ``ack``.
        """
        self._consumer()._extend_nowait(self, ack_timeout_s)
        return _DONE

    def reply(
        self,
        payload: bytes | str,
        *,
        attributes: Mapping[str, str] | None = None,
        error: str | None = None,
    ) -> Awaitable[None]:
        """
        Reply to the message, which is a request; see ``Consumer.reply``.

        Await the result; for ``pydanube.sync`` the call itself waits.
        """
        consumer = self._consumer()
        replying = consumer.reply(self, payload, attributes=attributes, error=error)
        return _DONE if replying is None else replying

    @property
    def value(self) -> T_co:
        """
        The payload, decoded by the schema that it was written with.

        It is an instance of the class that the consumer was opened with; without one,
        it consists of plain values, lists and dicts.

        Raises:
            SchemaNotFound: The message was published without a schema, or the
                broker no longer has the schema.
            InvalidPayload: The payload does not conform to its schema, or to the
                class.
        """
        values = self._batch.values
        if values is None:
            alone: T_co = self._batch.value_alone(self._index)
            return alone
        value: T_co = values[self._index]
        return value

    @property
    def key(self) -> str | None:
        """The key as text; bytes that are not UTF-8 become surrogates."""
        keys = self._batch.key_texts
        return None if keys is None else keys[self._index]

    @property
    def key_bytes(self) -> bytes | None:
        """The key as bytes."""
        keys = self._batch.keys
        return None if keys is None else keys[self._index]

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes that the producer set; empty if there are none."""
        attributes = self._batch.attributes
        return {} if attributes is None else attributes_of(attributes[self._index])

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._batch.topic

    @property
    def id(self) -> MessageId:
        """Topic and offset."""
        return MessageId(self._batch.topic, self.offset)

    @property
    def publish_time(self) -> datetime:
        """The time at which the producer accepted the message, in UTC."""
        times = self._batch.times
        first = self._batch.frame.header.first_publish_time
        return to_datetime(first if times is None else times[self._index])

    @property
    def deliver_at(self) -> datetime | None:
        """The time from which the message may be delivered, if the producer set one."""
        return self._time(self._batch.deliver_at)

    @property
    def expires_at(self) -> datetime | None:
        """The time at which the message expires, if the producer set one."""
        return self._time(self._batch.expires_at)

    @property
    def producer(self) -> str:
        """The name of the producer."""
        producers = self._batch.producers
        if producers is None:
            return self._batch.frame.header.producer
        return producers[self._index] or ""

    @property
    def attempt(self) -> int:
        """1 for the first delivery, more for a redelivery."""
        return self._batch.attempt

    @property
    def redeliveries(self) -> int:
        """The number of earlier deliveries."""
        return self._batch.attempt - 1

    @property
    def schema_id(self) -> int:
        """The schema's number, 0 if the message has none."""
        return self._batch.frame.header.schema_id

    @property
    def schema_version(self) -> int:
        """The schema's version, 0 if the message has none."""
        return self._batch.frame.header.schema_version

    @property
    def _index(self) -> int:
        return self._batch.index_of(self.offset)

    def _consumer(self) -> MessageAcknowledger:
        return self._batch.consumer_of(self.offset)

    def _time(self, times: list[int | None] | None) -> datetime | None:
        time = None if times is None else times[self._index]
        return None if time is None else to_datetime(time)

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, offset={self.offset}, "
            f"key={self.key!r}, payload={self.payload[:40]!r})"
        )


class MessageBatch(Sequence[Message[T_co]]):
    """
    Messages that were received together, to iterate or to read as Arrow columns.

    ``to_arrow()`` returns the columns offset, publish_time, key, payload, attributes,
    producer, schema_id, schema_version, deliver_at and expires_at, always all of them.
    """

    __slots__ = ("_count", "slices", "topic")

    def __init__(
        self, topic: str, slices: Sequence[tuple[ReceivedBatch, int, int]]
    ) -> None:
        self.topic = topic
        self.slices = slices
        """Received batches, each with the index of its first message, and its end."""
        self._count = sum(end - base for _, base, end in slices)

    @classmethod
    def of(cls, topic: str, messages: Iterable[Message]) -> MessageBatch:
        """Return a batch of single messages, in their order."""
        slices: list[tuple[ReceivedBatch, int, int]] = []
        for message in messages:
            batch, index = message.location
            if slices and slices[-1][0] is batch and slices[-1][2] == index:
                slices[-1] = (batch, slices[-1][1], index + 1)
            else:
                slices.append((batch, index, index + 1))
        return cls(topic, slices)

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of every message."""
        runs = [batch.offsets[base:end] for batch, base, end in self.slices]
        if len(runs) == 1:
            return runs[0]
        return list(chain.from_iterable(runs))

    @property
    def payloads(self) -> list[bytes]:
        """The payload of each message."""
        return _payloads_of(self.slices)

    def values(self) -> list[T_co]:
        """
        Return the value of each message; see ``Message.value``.

        Raises:
            SchemaNotFound: A message has no schema, or the broker does not have it.
            InvalidPayload: A payload does not conform to its schema; the error names
                the message.  The other messages can be read one by one.
        """
        values: list[T_co] = []
        for decode, slices in groupby(self.slices, key=_decoder_of):
            runs = list(slices)
            payloads = _payloads_of(runs)
            try:
                values += decode(payloads)
            except InvalidPayload:
                for batch, base, end in runs:
                    values += map(batch.value_alone, range(base, end))
        return values

    def extend(self, ack_timeout_s: float | None = None) -> Awaitable[None]:
        """Report that the messages are still being processed; see ``Message``."""
        for batch, base, end in self.slices:
            part = MessageBatch(batch.topic, [(batch, base, end)])
            batch.consumer_of(batch.offsets[base])._extend_nowait(part, ack_timeout_s)
        return _DONE

    def ranges(self) -> Iterator[Range]:
        """Yield the offsets as half-open ranges."""
        for batch, base, end in self.slices:
            yield from ranges_of_slice(batch, base, end)

    def to_arrow(self) -> pa.RecordBatch:
        """Return all messages as one Arrow record batch."""
        batches = [batch.to_arrow(base, end) for batch, base, end in self.slices]
        if len(batches) == 1:
            return batches[0]
        table = pa.Table.from_batches(batches, arrow_schema()).combine_chunks()
        whole = table.to_batches()
        return whole[0] if whole else arrow_schema().empty_table().to_batches()[0]

    def __iter__(self) -> Iterator[Message[T_co]]:
        runs = [batch.messages(base, end) for batch, base, end in self.slices]
        return runs[0] if len(runs) == 1 else chain.from_iterable(runs)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Message[T_co]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message[T_co]]: ...
    def __getitem__(self, index: int | slice) -> Message[T_co] | list[Message[T_co]]:
        if isinstance(index, slice):
            return list(self)[index]
        at = index + self._count if index < 0 else index
        for batch, base, end in self.slices:
            if 0 <= at < end - base:
                [message] = batch.messages(base + at, base + at + 1)
                return message
            at -= end - base
        raise IndexError(index)

    def __repr__(self) -> str:
        return f"MessageBatch({self.topic!r}, {len(self)} messages)"


@cache
def arrow_schema() -> pa.Schema:
    """Return the schema of ``MessageBatch.to_arrow``."""
    # It consists of Arrow types; see pydanube.model.arrow.
    from pydanube.wire.files.segment_format import SCHEMA  # noqa: PLC0415

    return pa.schema([field.with_nullable(True) for field in SCHEMA])


def _decoder_of(batch: tuple[ReceivedBatch, int, int]) -> Decoder:
    return batch[0].decoder_at(batch[1])


def _payloads_of(slices: Iterable[tuple[ReceivedBatch, int, int]]) -> list[bytes]:
    """Return the payloads of *slices*, in a list of the caller's own."""
    payloads: list[bytes] = []
    for batch, base, end in slices:
        whole = batch.payloads
        # A slice would copy the list once more.
        payloads += whole if end - base == len(whole) else whole[base:end]
    return payloads


PART_BITS_MIN = 32
"""Fewer messages of a delivery are acknowledged as ranges."""
OFFSET_BITS_MAX = 1 << 16
"""The offsets of a received batch are kept as bits if they lie no further apart."""


def ranges_of_slice(batch: ReceivedBatch, base: int, end: int) -> list[Range]:
    """Return the offsets of the messages ``base … end`` of *batch* as ranges."""
    if isinstance(batch.offsets, range):
        return [(batch.base + base, batch.base + end)]
    return ranges_of_offsets(batch.offsets[base:end])
