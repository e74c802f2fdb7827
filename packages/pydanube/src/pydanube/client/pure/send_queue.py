"""
The messages of a producer, from publishing to the broker's receipt.  Pure.

Messages gather in the open batch.  A closed batch waits until the broker has
acknowledged enough of those in flight.  Batches in flight keep their sequence numbers,
and are sent again on a new channel, until the broker has acknowledged them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from pydanube.client.pure.outgoing import DeliveryWindow, OutgoingBatch
from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.message_columns import MessageColumns, column_of
from pydanube.wire.batches import (
    BatchFrame,
    BatchHeader,
    Codec,
    encode_columns,
    encode_payloads,
    restamp_producer,
)
from pydanube.wire.small_batch import SMALL_MESSAGES_MAX

OPEN_BATCH_MESSAGES_MAX = 8192
BATCH_BYTES = 512 * 1024
"""An open batch with this many payload bytes is full."""
INFLIGHT_BATCHES_MAX = 64
INFLIGHT_BYTES_MAX = 16 * 1024 * 1024
PENDING_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of a producer that are not acknowledged, in flight or not."""
DELIVERY_TIMEOUT_S = 120.0
"""A batch that no broker has acknowledged for this long has failed."""

Extras: TypeAlias = (
    "tuple[bytes | None, Mapping[str, str] | None, DeliveryWindow | None]"
)
"""The key, attributes and delivery window of a message."""
NO_EXTRAS: Extras = (None, None, None)


class Completion(Protocol):
    """
    The recipient of a batch's first offset or error, such as ``asyncio.Future``.

    If the batch has duplicates, it gets the offset of each message.
    """

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


C = TypeVar("C", bound=Completion)


@dataclass(slots=True, eq=False)
class OpenBatch(Generic[C]):
    """Messages that gather to become one batch."""

    topic: str
    completion: C
    payloads: list[bytes] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    """
    The publish times: the index of the first message, and the time in microseconds.

    The messages of one turn of the event loop have the same time.  Reading the clock
    for each, and sending a column of times, would take a tenth of the processor time.
    """
    extras: list[Extras] | None = None
    """The other columns of each message; None: all have payloads only."""
    byte_count: int = 0
    has_ids: bool = False
    """Whether its messages have ids; either all have one, or none."""
    uses_ids: bool = False
    """Whether the topic is to drop messages whose ids it knows."""
    is_awaited: bool = False
    """Whether a caller awaits one of its messages, and gets its error."""

    def add_extras(self, extras: Extras) -> None:
        """Add the other columns of a message; the caller adds its payload after it."""
        if self.extras is None:
            self.extras = [NO_EXTRAS] * len(self.payloads)
        self.extras.append(extras)

    def set_time(self, time: int) -> None:
        """Set the publish time of the following messages, in microseconds."""
        self.times.append((len(self.payloads), time))

    @property
    def publish_times(self) -> tuple[int, int]:
        """The publish times of the first and the last message, in microseconds."""
        return self.times[0][1], self.times[-1][1]

    @property
    def is_small(self) -> bool:
        """True if there are few messages, with payloads only."""
        return self.extras is None and len(self.payloads) <= SMALL_MESSAGES_MAX

    def time_column(self) -> list[int]:
        """Return the publish time of each message; empty if they are the same."""
        first, last = self.publish_times
        if first == last:
            return []
        ends = [index for index, _ in self.times[1:]] + [len(self.payloads)]
        column: list[int] = []
        for (begin, time), end in zip(self.times, ends, strict=True):
            column += [time] * (end - begin)
        return column

    def columns(self) -> MessageColumns:
        """Return the messages by column."""
        times = self.time_column() or None
        if self.extras is None:
            return MessageColumns(payloads=self.payloads, publish_times=times)
        keys, attributes, windows = zip(*self.extras, strict=True)
        return MessageColumns(
            payloads=self.payloads,
            keys=column_of(keys),
            attributes=column_of(attributes),
            publish_times=times,
            deliver_at=column_of([each and each.deliver_at for each in windows]),
            expires_at=column_of([each and each.expires_at for each in windows]),
        )


@dataclass(slots=True, eq=False)
class InflightBatch(Generic[C]):
    """A batch that was sent, or will be on the next channel."""

    frame: BatchFrame
    completion: C
    deadline: float


class SendQueue(Generic[C]):
    """
    The unacknowledged messages of one producer.

    Ordering: Batches are sent, and acknowledged, in the order in which they were added.

    Bounds: ``INFLIGHT_BATCHES_MAX`` and ``INFLIGHT_BYTES_MAX`` limit what is in
        flight.  Callers check ``has_capacity`` before they add to the open batch, and
        ``can_send`` before they send a batch.
    """

    def __init__(
        self,
        producer: str,
        codec: Codec,
        schema: tuple[int, int],
        clock: Callable[[], float],
    ) -> None:
        self.open: OpenBatch[C] | None = None
        self.waiting: deque[OpenBatch[C]] = deque()
        self.inflight: deque[InflightBatch[C]] = deque()
        self.senders = 0
        """The number of callers that send a message each, and wait for its receipt."""
        self.pending_bytes = 0
        """The bytes that are waiting or in flight."""
        self.publish: Callable[[BatchFrame], None] | None = None
        """Sends a frame on the channel; None while there is no channel."""
        self.batch_bytes_max = 0
        """The longest batch that the broker accepts."""
        self.full_bytes = 0
        """The size from which an open batch is full."""
        self.alone_bytes = 0
        """The size above which a message gets a batch of its own."""
        self._producer = producer
        self._codec = codec
        self._schema = schema
        self._clock = clock
        self._producer_id = 0
        self._producer_epoch = 0
        self._next_sequence = 0
        self._inflight_bytes = 0

    # State.

    @property
    def is_idle(self) -> bool:
        """True if there is no unacknowledged message."""
        return not self.inflight and not self.waiting and self.open is None

    @property
    def has_capacity(self) -> bool:
        """True if an open batch may be started."""
        return self.pending_bytes < PENDING_BYTES_MAX

    @property
    def can_send(self) -> bool:
        """True if a batch may be sent now, after all others."""
        return not self.waiting and self._has_window

    @property
    def _has_window(self) -> bool:
        return (
            len(self.inflight) < INFLIGHT_BATCHES_MAX
            and self._inflight_bytes < INFLIGHT_BYTES_MAX
        )

    @property
    def message_count(self) -> int:
        """The number of messages that are not acknowledged."""
        return (
            (len(self.open.payloads) if self.open else 0)
            + sum(len(batch.payloads) for batch in self.waiting)
            + sum(batch.frame.count for batch in self.inflight)
        )

    @property
    def last_completion(self) -> C | None:
        """The completion of the last closed batch."""
        if self.waiting:
            return self.waiting[-1].completion
        return self.inflight[-1].completion if self.inflight else None

    # Sending.

    def close_open(self) -> None:
        """Close the open batch, and send it as soon as the window allows."""
        batch, self.open = self.open, None
        if batch is not None and batch.payloads:
            self.waiting.append(batch)
            self.pending_bytes += batch.byte_count
            self.send_waiting()

    def send_waiting(self) -> None:
        """Send the batches that wait, as far as the window allows."""
        while self.waiting and self._has_window:
            batch = self.waiting.popleft()
            self.pending_bytes -= batch.byte_count
            self._send_gathered(batch)
        # With nothing in flight, gathering longer only delays the open batch; unless
        # senders, whose messages were just acknowledged, are about to send others.
        if (
            self.open is not None
            and not self.waiting
            and not self.inflight
            and self.publish is not None
            and self.senders <= len(self.open.payloads)
        ):
            self.close_open()

    def send_small(
        self, payloads: Sequence[bytes], time: int, completion: C
    ) -> InflightBatch[C]:
        """Send a few payloads, published at *time*, without Arrow."""
        frame = encode_payloads(payloads, self._header(time, time))
        return self._send(frame, completion)

    def send_batch(
        self,
        batch: OutgoingBatch,
        times: tuple[int, int],
        completion: C,
        schema: tuple[int, int] | None,
        *,
        uses_ids: bool = False,
    ) -> None:
        """
        Send *batch*; *times* are the first and the last publish time.

        With *uses_ids*, the topic drops messages whose ids it knows.
        """
        header = self._header(*times)
        header.has_ids = uses_ids
        if schema is not None:
            header.schema_id, header.schema_version = schema
        self._send(batch.encode(header, self._codec), completion)

    def _send_gathered(self, batch: OpenBatch[C]) -> None:
        header = self._header(*batch.publish_times)
        header.has_ids = batch.uses_ids
        if batch.is_small and self._codec is Codec.NONE:
            frame = encode_payloads(batch.payloads, header, batch.time_column())
            self._send(frame, batch.completion)
            return
        try:
            frame = encode_columns(batch.columns(), header, self._codec)
        except InvalidRequest as error:
            fail(batch.completion, error)
            return
        self._send(frame, batch.completion)

    def _header(self, first_time: int, last_time: int) -> BatchHeader:
        """Return the next batch's header."""
        schema_id, schema_version = self._schema
        return BatchHeader(
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._next_sequence,
            first_publish_time=first_time,
            last_publish_time=last_time,
            schema_id=schema_id,
            schema_version=schema_version,
            producer=self._producer,
        )

    def _send(self, frame: BatchFrame, completion: C) -> InflightBatch[C]:
        self._next_sequence += frame.count
        self.pending_bytes += frame.byte_count
        self._inflight_bytes += frame.byte_count
        batch = InflightBatch(frame, completion, self._clock() + DELIVERY_TIMEOUT_S)
        self.inflight.append(batch)
        if self.publish is not None:
            self.publish(frame)
        return batch

    # What the broker answers.

    def resume(
        self,
        producer_id: int,
        producer_epoch: int,
        next_sequence: int,
        publish: Callable[[BatchFrame], None],
    ) -> None:
        """Continue on a new channel, whose broker expects *next_sequence*."""
        self.publish = publish
        self._producer_id, self._producer_epoch = producer_id, producer_epoch
        first = self.inflight[0].frame.header if self.inflight else None
        if first is None:
            self._next_sequence = next_sequence
        elif (
            first.base_sequence > next_sequence
            or first.producer_id != producer_id
            or first.producer_epoch != producer_epoch
        ):
            # An earlier batch failed, or the broker has forgotten this producer:
            # number the batches again from where the broker is.
            for batch in self.inflight:
                restamp_producer(
                    batch.frame, producer_id, producer_epoch, next_sequence
                )
                next_sequence += batch.frame.count
            self._next_sequence = next_sequence
        for batch in self.inflight:
            publish(batch.frame)
        self.send_waiting()

    @property
    def identity(self) -> tuple[int, int]:
        """The producer id and epoch that the broker assigned; 0 before that."""
        return self._producer_id, self._producer_epoch

    def set_batch_bytes_max(self, batch_bytes_max: int) -> None:
        """Adapt to the longest batch that the broker accepts."""
        self.batch_bytes_max = batch_bytes_max
        # An open batch and one more message always fit into a frame.
        self.full_bytes = min(BATCH_BYTES, batch_bytes_max // 2)
        self.alone_bytes = batch_bytes_max // 4

    def acknowledge(
        self,
        sequence: int,
        offset: int,
        deduplicated: Mapping[int, Sequence[int]] | None = None,
    ) -> int:
        """
        Complete the batches up to *sequence*, the first message at *offset*.

        *deduplicated* has the offset of each message of the batches with duplicates, by
        their base sequence.

        Returns the number of their messages.
        """
        count = 0
        while self.inflight:
            header = self.inflight[0].frame.header
            if header.base_sequence > sequence:
                break
            count += header.count
            completion = self._pop_inflight()
            if not completion.done():
                base = header.base_sequence
                completion.set_result(
                    deduplicated[base]
                    if deduplicated and base in deduplicated
                    else offset + base - sequence
                )
        return count

    def fail_first(self, reason: BrokerError) -> None:
        fail(self._pop_inflight(), reason)

    def fail_inflight(self, reason: BrokerError) -> None:
        while self.inflight:
            self.fail_first(reason)

    def fail_all(self, reason: BrokerError) -> None:
        """Fail all batches, and send nothing any more."""
        self.publish = None
        if self.open is not None:
            self.waiting.append(self.open)
            self.open = None
        self.fail_inflight(reason)
        while self.waiting:
            fail(self.waiting.popleft().completion, reason)
        self.pending_bytes = 0

    def _pop_inflight(self) -> C:
        batch = self.inflight.popleft()
        self._inflight_bytes -= batch.frame.byte_count
        self.pending_bytes -= batch.frame.byte_count
        return batch.completion


def fail(completion: Completion, reason: BrokerError) -> None:
    """Set *reason* as the error of *completion*, unless it is done."""
    if not completion.done():
        completion.set_exception(reason)
