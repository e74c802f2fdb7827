"""
The native protocol as a state machine without I/O, for both sides.

The caller passes received bytes in and gets frames that are valid at this point of the
conversation: the handshake came first, the sender may send this kind, an answer belongs
to an open request and is of the right kind, and a frame on a channel belongs to a
producer, consumer or stage that is open there.  Anything else raises
``ProtocolViolation``, after which the connection is closed.

The client numbers the channels.  When the broker closes a channel (it fenced the
producer, or the topic moved), the client may send frames on it before it knows.  The
broker drops them until the client closes or reopens the channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from google.protobuf.message import DecodeError, Message

from pydanube.model.errors import CorruptBatch, ProtocolViolation
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.batches import BATCH_MESSAGES_MAX, BatchFrame
from pydanube.wire.batches import decode as decode_batch
from pydanube.wire.buffer import Buffer
from pydanube.wire.native.body_memory import BodyMemory
from pydanube.wire.native.frames import (
    FRAME_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    FrameReader,
    RawFrame,
    header,
)
from pydanube.wire.native.kinds import Kind, Side

REVISION = 1
"""The revision of the protocol that we know; see docs/format/compatibility.md."""
CORRELATION_MAX = 0xFFFF_FFFF
CHANNEL_MAX = 0xFFFF
DELIVERY_PREFIX_BYTES = 8
"""The bytes before the batch of a DELIVERY: u32 attempt, u32 zero."""


class ConnectionState(Enum):
    """The state of a connection."""

    HANDSHAKE = "handshake"
    OPEN = "open"
    CLOSED = "closed"


class ChannelState(Enum):
    """The state of a channel; the values are for error messages."""

    OPENING_PRODUCER = "being opened for a producer"
    OPENING_CONSUMER = "being opened for a consumer"
    OPENING_STAGE = "being opened for staging"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    STAGE = "stage"
    CLOSED_BY_BROKER = "closed by the broker"


@dataclass(slots=True)
class ReceivedFrame:
    """A decoded frame of the peer: a control message or a batch."""

    kind: Kind
    channel: int
    correlation: int
    message: Message | None = None
    batch: BatchFrame | None = None
    attempt: int = 1
    """For a DELIVERY: 1 for the first delivery, more for a redelivery."""
    byte_count: int = 0
    """The length of the frame's body."""


_HANDSHAKE_KINDS = frozenset({Kind.HELLO, Kind.WELCOME})
_CHANNEL_OF = {
    Kind.PUBLISH: ChannelState.PRODUCER,
    Kind.CLOSE_PRODUCER: ChannelState.PRODUCER,
    Kind.CREDIT: ChannelState.CONSUMER,
    Kind.ACK: ChannelState.CONSUMER,
    Kind.NACK: ChannelState.CONSUMER,
    Kind.EXTEND: ChannelState.CONSUMER,
    Kind.RELEASE: ChannelState.CONSUMER,
    Kind.SEEK: ChannelState.CONSUMER,
    Kind.CLOSE_CONSUMER: ChannelState.CONSUMER,
    Kind.STAGE: ChannelState.STAGE,
    Kind.CLOSE_STAGE: ChannelState.STAGE,
}
_OPENING = {
    Kind.OPEN_PRODUCER: ChannelState.OPENING_PRODUCER,
    Kind.OPEN_CONSUMER: ChannelState.OPENING_CONSUMER,
    Kind.OPEN_STAGE: ChannelState.OPENING_STAGE,
}
_CLOSING = {
    Kind.CLOSE_PRODUCER: ChannelState.OPENING_PRODUCER,
    Kind.CLOSE_CONSUMER: ChannelState.OPENING_CONSUMER,
    Kind.CLOSE_STAGE: ChannelState.OPENING_STAGE,
}
_OPENED = {
    Kind.PRODUCER_OPENED: ChannelState.PRODUCER,
    Kind.CONSUMER_OPENED: ChannelState.CONSUMER,
    Kind.STAGE_OPENED: ChannelState.STAGE,
}


class StreamConnection:
    """One side of one connection; see the module."""

    def __init__(self, side: Side, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        assert side is not Side.BOTH
        self.side = side
        self.state = ConnectionState.HANDSHAKE
        self.frame_bytes_max = frame_bytes_max
        """The longest frame that we accept."""
        self.peer_frame_bytes_max = HANDSHAKE_BYTES_MAX
        """The longest frame that the peer accepts."""
        self.body_memory = BodyMemory()
        """The memory that a client receives long frames into."""
        # A broker keeps the batches that it receives.
        reused = self.body_memory if side is Side.CLIENT else None
        self.reader = FrameReader(HANDSHAKE_BYTES_MAX, reused)
        self._channels: dict[int, ChannelState] = {}
        # Our requests that the peer has not answered, and the peer's that we have not.
        self._pending_requests: dict[int, Kind] = {}
        self._unanswered: dict[int, Kind] = {}
        self._correlation = 0
        self._has_handshake = False

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done and the connection is not closed."""
        return self.state is ConnectionState.OPEN

    # Receiving.

    def frames(self) -> Iterator[ReceivedFrame | None]:
        """
        Yield the complete frames in the reader's buffer; None for one that was dropped.

        A caller that stops iterating gets the remaining frames the next time.

        Raises:
            ProtocolViolation: The peer broke the protocol; the state is CLOSED.
        """
        try:
            while self.state is not ConnectionState.CLOSED:
                frame = self.reader.next_frame()
                if frame is None:
                    return
                yield self._accept(frame)
        except ProtocolViolation:
            self.close()
            raise
        self.reader.release()

    def close(self) -> None:
        """Mark the connection as closed and release its memory."""
        self.state = ConnectionState.CLOSED
        self.reader.release()
        self._channels.clear()
        self._pending_requests.clear()
        self._unanswered.clear()

    # Sending.

    def request(
        self, kind: Kind, message: Message, channel: int = 0
    ) -> tuple[int, bytes]:
        """Return the correlation of a new request, and the bytes to send."""
        assert kind.answer is not None
        correlation = self._free_correlation()
        self._pending_requests[correlation] = kind
        if kind in _OPENING:
            self._channels[channel] = _OPENING[kind]
        return correlation, self.send(kind, message, channel, correlation)

    def answer(self, to: ReceivedFrame, kind: Kind, message: Message) -> bytes:
        """
        Return the bytes that answer the request *to*.

        If the answer opens a channel, it is open now; if it closes one, it is free.
        """
        request = self._unanswered.pop(to.correlation, None)
        if request is None:
            # The connection was closed while the request was being handled.
            return b""
        assert kind in (request.answer, Kind.ERROR), (request, kind)
        if kind is Kind.ERROR and request in _OPENING:
            self._channels.pop(to.channel, None)
        elif kind in _OPENED:
            self._channels[to.channel] = _OPENED[kind]
        if request in _CLOSING:
            self._channels.pop(to.channel, None)
        return self.send(kind, message, to.channel, to.correlation)

    def close_channel(self, channel: int, reason: Message) -> bytes:
        """Return the bytes by which the broker closes a channel for *reason*."""
        assert self.side is Side.BROKER
        if channel not in self._channels:
            return b""
        self._channels[channel] = ChannelState.CLOSED_BY_BROKER
        return self.send(Kind.ERROR, reason, channel)

    def send(
        self, kind: Kind, message: Message, channel: int = 0, correlation: int = 0
    ) -> bytes:
        """Return the bytes of one control frame."""
        assert kind.sender in (self.side, Side.BOTH), kind
        if kind is Kind.WELCOME:
            self._open()
        body = message.SerializeToString()
        return header(kind, channel, correlation, len(body)) + body

    def send_batch(
        self,
        kind: Kind,
        batch: BatchFrame,
        channel: int,
        correlation: int = 0,
        attempt: int = 1,
    ) -> tuple[bytes, Buffer]:
        """Return the bytes of one data frame in two parts; the batch is not copied."""
        length = len(batch.buffer)
        if kind is Kind.DELIVERY:
            prefix = attempt.to_bytes(DELIVERY_PREFIX_BYTES, "little")
            return header(kind, channel, 0, len(prefix) + length) + prefix, batch.buffer
        return header(kind, channel, correlation, length), batch.buffer

    def welcome(self, hello_frame_bytes_max: int) -> None:
        """Accept the client's HELLO, so that WELCOME may be sent."""
        self.peer_frame_bytes_max = hello_frame_bytes_max or FRAME_BYTES_MAX

    # Checks.

    def _accept(self, frame: RawFrame) -> ReceivedFrame | None:
        if frame.kind.sender is self.side:
            raise ProtocolViolation(f"{frame.kind.name} may not be sent by the peer")
        self._check_handshake(frame.kind)
        if self.side is Side.BROKER:
            if not self._check_request(frame):
                return None
        else:
            self._check_answer(frame)
        received = _decode(frame)
        batch = received.batch
        if batch is not None and batch.plain_body_bytes > self.frame_bytes_max:
            raise ProtocolViolation(
                f"a body of {batch.plain_body_bytes} bytes before compression; at most "
                f"{self.frame_bytes_max} are allowed"
            )
        if (
            batch is not None
            and self.side is Side.CLIENT
            and batch.count > BATCH_MESSAGES_MAX
        ):
            raise ProtocolViolation(
                f"a batch of {batch.count} messages; at most {BATCH_MESSAGES_MAX} "
                "are allowed"
            )
        if frame.kind is Kind.WELCOME:
            welcome: Any = received.message
            self.peer_frame_bytes_max = welcome.frame_bytes_max or FRAME_BYTES_MAX
            self._open()
        return received

    def _check_handshake(self, kind: Kind) -> None:
        is_handshake = kind in _HANDSHAKE_KINDS
        if self.state is ConnectionState.OPEN:
            if is_handshake:
                raise ProtocolViolation(f"{kind.name} after the handshake")
            return
        if self.side is Side.CLIENT and kind in (Kind.ERROR, Kind.GOODBYE):
            return
        if not is_handshake or self._has_handshake:
            raise ProtocolViolation(f"{kind.name} before the handshake is done")
        self._has_handshake = True

    def _check_request(self, frame: RawFrame) -> bool:
        """Check a client's frame; return False if it has to be dropped."""
        if frame.kind.on_channel != (frame.channel != 0):
            raise ProtocolViolation(f"{frame.kind.name} on channel {frame.channel}")
        needs_answer = frame.kind.answer is not None
        # An ACK is answered only if the client asks for it.
        if needs_answer != (frame.correlation != 0) and frame.kind is not Kind.ACK:
            raise ProtocolViolation(
                f"{frame.kind.name} with correlation {frame.correlation}"
            )
        if frame.correlation in self._unanswered:
            raise ProtocolViolation(f"correlation {frame.correlation} is in use")
        state = self._channels.get(frame.channel)
        if frame.kind in _OPENING:
            if state not in (None, ChannelState.CLOSED_BY_BROKER):
                raise ProtocolViolation(f"channel {frame.channel} is in use")
            self._channels[frame.channel] = _OPENING[frame.kind]
        elif frame.kind.on_channel and state is not _CHANNEL_OF[frame.kind]:
            # A client may close a channel before it knows whether it was opened.
            is_closing = frame.kind in _CLOSING and state in (
                None,
                _CLOSING[frame.kind],
            )
            if not is_closing and state is not ChannelState.CLOSED_BY_BROKER:
                raise ProtocolViolation(
                    f"{frame.kind.name} on channel {frame.channel}, which is "
                    f"{state.value if state else 'not open'}"
                )
            if not needs_answer or not frame.correlation:
                return False
        if frame.correlation:
            self._unanswered[frame.correlation] = frame.kind
        return True

    def _check_answer(self, frame: RawFrame) -> None:
        if not frame.correlation:
            if frame.kind in _OPENED or frame.kind in (Kind.OK, Kind.FETCHED):
                raise ProtocolViolation(f"{frame.kind.name} answers no request")
            if frame.kind is Kind.ERROR and frame.channel:
                self._channels.pop(frame.channel, None)
            return
        request = self._pending_requests.get(frame.correlation)
        if request is None:
            raise ProtocolViolation(
                f"{frame.kind.name} answers correlation {frame.correlation}, "
                "but there is no such request"
            )
        if frame.kind is Kind.FETCHED and request is Kind.FETCH:
            return
        if frame.kind not in (request.answer, Kind.ERROR):
            raise ProtocolViolation(f"{frame.kind.name} answers {request.name}")
        del self._pending_requests[frame.correlation]
        if request in _CLOSING or (request in _OPENING and frame.kind is Kind.ERROR):
            self._channels.pop(frame.channel, None)
        elif frame.kind in _OPENED:
            self._channels[frame.channel] = _OPENED[frame.kind]

    def _open(self) -> None:
        self.state = ConnectionState.OPEN
        self.reader.frame_bytes_max = self.frame_bytes_max

    def _free_correlation(self) -> int:
        while True:
            self._correlation = self._correlation % CORRELATION_MAX + 1
            if self._correlation not in self._pending_requests:
                return self._correlation


def _decode(frame: RawFrame) -> ReceivedFrame:
    received = ReceivedFrame(
        frame.kind, frame.channel, frame.correlation, byte_count=len(frame.body)
    )
    if frame.kind.body is not None:
        received.message = frame.kind.body()
        try:
            received.message.ParseFromString(bytes(frame.body))
        except DecodeError as error:
            raise ProtocolViolation(
                f"the body of {frame.kind.name}: {error}"
            ) from error
        return received
    body: Buffer = frame.body
    if frame.kind is Kind.DELIVERY:
        if len(body) < DELIVERY_PREFIX_BYTES:
            raise ProtocolViolation("a DELIVERY without its prefix")
        received.attempt = int.from_bytes(body[:4], "little")
        body = memoryview(body)[DELIVERY_PREFIX_BYTES:]
    try:
        received.batch = decode_batch(body)
    except CorruptBatch as error:
        raise ProtocolViolation(f"the batch of {frame.kind.name}: {error}") from error
    return received
