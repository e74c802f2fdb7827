"""
HTTP/2 as a server speaks it (RFC 9113), as a machine without I/O.

Received bytes go in, events come out; what is to be sent piles up as frames until it
is taken.  It does what gRPC needs and refuses the rest: no upgrade from HTTP/1, no
push, no priorities.

What a peer may make us keep is bounded.  A stream's window lets it send
``STREAM_WINDOW`` bytes.  ``request_window`` lets it send more, up to
``EXTRA_WINDOW_BYTES_MAX`` on a connection at a time, first come, first served.  The
connection's own window never matters: it is refilled at once.

What a peer may make us do is bounded twice.  ``receive`` stops after the work that its
caller allows, so one connection cannot keep others from a turn of the event loop.  And
every frame that does not bring a request forward spends from the connection's
*allowance*; answered requests, sent messages and time refill it, and a peer that has
used it up is told to calm down and disconnected.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from pydanube.model.errors import ProtocolViolation
from pydanube.wire.grpc.hpack import LIST_BYTES_MAX, HeaderDecoder, byte_count_of

if TYPE_CHECKING:
    from pydanube.wire.grpc.hpack import Headers

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

FRAME_BYTES_MAX = 16_384
"""The longest frame body that either side sends."""
STREAM_WINDOW = 65_535
"""What a peer may send on a stream before it is granted more."""
CONNECTION_WINDOW = 16 * 1024 * 1024
"""What a peer may send on all streams before the window is refilled."""
EXTRA_WINDOW_BYTES_MAX = 64 * 1024 * 1024
"""What may be granted to streams, beyond their first window, at a time."""
STREAMS_MAX = 1000
"""So many requests of one connection are answered at a time."""
BLOCK_BYTES_MAX = LIST_BYTES_MAX
"""The longest block of headers, in however many frames; none is longer than what it
stands for."""
ALLOWANCE = 10_000
"""How many frames that bring no request forward a peer may send before the next call of
``refill_allowance``, unless it earns more."""
ALLOWANCE_MAX = 2 * ALLOWANCE
"""The largest allowance that a peer can earn."""
RESPONSE_EARNS = 64
"""What an answered request adds to the allowance: a client may send its window
updates, pings and long headers with every call."""
MESSAGE_EARNS = 4
"""What each message sent to the peer adds to the allowance."""
MESSAGE_BYTES_EARN = 1024
"""Each time so many bytes of a message add one more."""
DATA_BYTES_MIN = 1024
"""A shorter DATA frame spends from the allowance unless it ends its request."""
WORK_BYTES = 1024
"""Each time so many bytes of a frame count as one unit of work."""
HEADER_WORK_BYTES = 128
HEADER_WORK_COUNT = 8
"""Each time so many bytes of a block of headers, and each time so many headers, count
as one unit of work."""
WORK_UNBOUNDED = 2**62
PENDING_BYTES_MAX = 16 * 1024 * 1024
"""If so many bytes wait for the peer's windows, new requests are refused."""
WINDOW_MAX = 2**31 - 1
VALID_MAX = 64
"""So many headers are remembered to be good."""
VALID_BYTES_MAX = 2048
"""And none whose names and values are longer than this together."""

_HEADER = struct.Struct(">HBBBI")
_U32 = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
HEADER_BYTES = 9
_KIND_AT = 3


class FrameType(IntEnum):
    """What a frame is."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class ErrorCode(IntEnum):
    """Why a stream or connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    """What a SETTINGS frame sets."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


_SETTING_BOUNDS: dict[int, tuple[int, int]] = {
    Setting.ENABLE_PUSH: (0, 1),
    Setting.INITIAL_WINDOW_SIZE: (0, WINDOW_MAX),
    Setting.MAX_FRAME_SIZE: (FRAME_BYTES_MAX, 2**24 - 1),
}

# What a request says about itself, once each; the first three it must say.
_PSEUDO_HEADERS = (b":method", b":scheme", b":path", b":authority")
# What belongs to HTTP/1.
_CONNECTION_HEADERS = {
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
}

_ACK = 0x1
_END_STREAM = 0x1
_END_HEADERS = 0x4
_PADDED = 0x8
_PRIORITY = 0x20
_PRIORITY_BYTES = 5


class Http2Error(Exception):
    """The peer broke the protocol; nothing it sends any more can be trusted."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


# What has happened.


@dataclass(slots=True)
class RequestReceived:
    """A request begins."""

    stream: int
    headers: Headers
    is_last: bool
    """Whether nothing follows."""


@dataclass(slots=True)
class DataReceived:
    """A part of a request's body."""

    stream: int
    data: bytes
    is_last: bool


@dataclass(slots=True)
class StreamReset:
    """The peer wants no answer any more; the stream is gone."""

    stream: int


@dataclass(slots=True)
class SendCompleted:
    """All that was to be sent on a stream has been handed over."""

    stream: int


Event = RequestReceived | DataReceived | StreamReset | SendCompleted


class _Stream:
    __slots__ = (
        *("closing", "extra_window", "is_closed_by_peer", "is_drained", "pending"),
        *("pending_bytes", "receivable", "sendable"),
    )

    def __init__(self, sendable: int) -> None:
        self.sendable = sendable
        """What the peer's window still takes."""
        self.receivable = STREAM_WINDOW
        """What the peer may still send."""
        self.extra_window = 0
        """Of what it may send, so much was granted beyond the first window."""
        self.pending: deque[memoryview] = deque()
        """Data that the windows do not take yet."""
        self.pending_bytes = 0
        self.closing: bytes | None = None
        """The frames that come behind the data and end the stream."""
        self.is_closed_by_peer = False
        self.is_drained = True
        """Whether the user knows that nothing is pending."""


class Http2Connection:
    """One connection, seen from the server."""

    def __init__(self) -> None:
        # Received bytes, and the position in them of what is not processed yet.
        self._received = b""
        self._at = 0
        self.work = 0
        """Units of work done for the peer so far: one for each frame, more for long
        ones and for headers."""
        self.has_backlog = False
        """Whether received frames wait for the next call of ``receive``."""
        self.has_settings_ack = False
        """Whether the peer has acknowledged our settings."""
        self._allowance = ALLOWANCE
        self._preface_received = False
        self._settings_received = False
        self._decoder = HeaderDecoder()
        # Headers that were found good, by their identity.
        self._valid: dict[int, Headers] = {}
        self._streams: dict[int, _Stream] = {}
        self._last_stream = 0
        # Streams that we ended before the peer did: what comes of them was on its
        # way, and does not matter.
        self._abandoned: dict[int, None] = {}
        # A block of headers that goes on in the next frame: stream, flags, block.
        self._block: tuple[int, int, bytearray] | None = None
        self._output: list[bytes] = []
        self._sendable = STREAM_WINDOW
        self._initial_window = STREAM_WINDOW
        self._receivable = CONNECTION_WINDOW
        self._extra_window_bytes = 0
        # Streams that wait for being granted more, and how much.
        self._window_requests: OrderedDict[int, int] = OrderedDict()
        # Streams with pending data that their own windows take, in the order in which
        # they are served.
        self._blocked: OrderedDict[int, None] = OrderedDict()
        self._pending_bytes = 0
        self._events: list[Event] = []
        self.is_going_away = False
        """Whether no more requests are taken."""
        self._write(
            FrameType.SETTINGS,
            0,
            0,
            _SETTING.pack(Setting.MAX_CONCURRENT_STREAMS, STREAMS_MAX)
            + _SETTING.pack(Setting.MAX_HEADER_LIST_SIZE, BLOCK_BYTES_MAX),
        )
        self._write(
            FrameType.WINDOW_UPDATE, 0, 0, _U32.pack(CONNECTION_WINDOW - STREAM_WINDOW)
        )

    # What is received.

    def receive(self, data: bytes, *, work_max: int = WORK_UNBOUNDED) -> list[Event]:
        """
        Process bytes from the peer and return what has happened.

        Processing stops after *work_max* units of work.  ``has_backlog`` then says that
        there is more to process; call again, with no data, in a later turn.

        Raises:
            Http2Error: They are not HTTP/2, or do what a peer must not do.  The output
                then tells the peer so, and the connection is to be closed.
        """
        events: list[Event] = []
        self._events = events
        if data:
            rest = self._received
            self._received = rest[self._at :] + data if rest else data
            self._at = 0
        try:
            self._receive_frames(self.work + work_max)
        except Http2Error as error:
            self._received, self._at, self.has_backlog = b"", 0, False
            self.go_away(error.code, str(error))
            raise
        finally:
            self._events = []
        return events

    def _receive_frames(self, work_end: int) -> None:
        """Process complete frames until ``work`` reaches *work_end*."""
        received, at = self._received, self._at
        end = len(received)
        self.has_backlog = False
        if not self._preface_received:
            if received[: len(PREFACE)] != PREFACE[:end]:
                raise Http2Error(
                    ErrorCode.PROTOCOL_ERROR, "the peer does not speak HTTP/2"
                )
            if end < len(PREFACE):
                return
            self._preface_received = True
            at = len(PREFACE)
        while end - at >= HEADER_BYTES:
            if self.work >= work_end:
                self.has_backlog = True
                self._at = at
                return
            high, low, kind, flags, stream = _HEADER.unpack_from(received, at)
            length = high << 8 | low
            if length > FRAME_BYTES_MAX:
                raise Http2Error(
                    ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes"
                )
            body_at = at + HEADER_BYTES
            if end - body_at < length:
                break
            at = body_at + length
            self.work += 1 + length // WORK_BYTES
            self._receive_frame(kind, flags, stream & WINDOW_MAX, received[body_at:at])
        self._received, self._at = received[at:], 0

    def _receive_frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if self._block is not None and kind != FrameType.CONTINUATION:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "headers do not go on")
        if not self._settings_received and kind != FrameType.SETTINGS:
            raise Http2Error(
                ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS"
            )
        take = _RECEIVE.get(kind)
        if take is None:
            # RFC 9113 wants unknown frames to be ignored.
            self._spend(1)
        else:
            take(self, flags, stream, body)

    def _receive_headers(self, flags: int, stream: int, body: bytes) -> None:
        if flags & (_PADDED | _PRIORITY):
            body = _without_padding(flags, body)
            if flags & _PRIORITY:
                if len(body) < _PRIORITY_BYTES:
                    raise Http2Error(
                        ErrorCode.FRAME_SIZE_ERROR, "headers without a priority"
                    )
                body = body[_PRIORITY_BYTES:]
        if flags & _END_HEADERS:
            self._open(stream, flags, body)
        else:
            self._block = (stream, flags, bytearray(body))

    def _receive_continuation(self, flags: int, stream: int, body: bytes) -> None:
        if self._block is None or self._block[0] != stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "no headers go on here")
        self._spend(1)
        _, first_flags, block = self._block
        block += body
        if len(block) > BLOCK_BYTES_MAX or not body:
            raise Http2Error(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"headers of more than {BLOCK_BYTES_MAX} bytes",
            )
        if flags & _END_HEADERS:
            self._block = None
            self._open(stream, first_flags, bytes(block))

    def _open(self, number: int, flags: int, block: bytes) -> None:
        # Also those of a request that is refused: they change the table.
        try:
            headers = self._decoder.decode(block)
        except ProtocolViolation as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, str(error)) from error
        work = len(block) // HEADER_WORK_BYTES + len(headers) // HEADER_WORK_COUNT
        if work:
            self.work += work
            self._spend(work)
        is_last = bool(flags & _END_STREAM)
        stream = self._streams.get(number)
        if stream is not None:
            # Trailers: gRPC has none in requests, but they end one.
            if not is_last or stream.is_closed_by_peer:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "headers behind a request")
            stream.is_closed_by_peer = True
            self._events.append(DataReceived(number, b"", is_last=True))
            return
        if not number & 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a request on stream {number}")
        if number <= self._last_stream:
            if number in self._abandoned:
                self._spend(1)
                return
            raise Http2Error(
                ErrorCode.STREAM_CLOSED, f"a request on the old stream {number}"
            )
        self._last_stream = number
        if (
            self.is_going_away
            or len(self._streams) >= STREAMS_MAX
            or self._pending_bytes > PENDING_BYTES_MAX
        ):
            self._refuse(number, ErrorCode.REFUSED_STREAM)
            return
        if not self._is_request(headers):
            self._refuse(number, ErrorCode.PROTOCOL_ERROR)
            return
        stream = self._streams[number] = _Stream(self._initial_window)
        stream.is_closed_by_peer = is_last
        self._events.append(RequestReceived(number, headers, is_last))

    def _is_request(self, headers: Headers) -> bool:
        # The decoder gives the same object for the same block.
        valid = self._valid
        if id(headers) in valid:
            return True
        if not _is_request(headers):
            return False
        if byte_count_of(headers) > VALID_BYTES_MAX:
            return True
        if len(valid) >= VALID_MAX:
            valid.clear()
        valid[id(headers)] = headers
        return True

    def _refuse(self, number: int, code: ErrorCode) -> None:
        self._spend(1)
        self._abandon(number)
        self._write(FrameType.RST_STREAM, 0, number, _U32.pack(code))

    def _receive_data(self, flags: int, number: int, body: bytes) -> None:
        size = len(body)
        if number > self._last_stream or not number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"data on stream {number}")
        self._receivable -= size
        if self._receivable < 0:
            raise Http2Error(
                ErrorCode.FLOW_CONTROL_ERROR, "more data than the window takes"
            )
        if self._receivable * 2 < CONNECTION_WINDOW:
            self._write(
                *(FrameType.WINDOW_UPDATE, 0, 0),
                _U32.pack(CONNECTION_WINDOW - self._receivable),
            )
            self._receivable = CONNECTION_WINDOW
        stream = self._streams.get(number)
        if stream is None:
            if number in self._abandoned:
                self._spend(1)
            else:
                self._refuse(number, ErrorCode.STREAM_CLOSED)
            return
        if stream.is_closed_by_peer:
            raise Http2Error(
                ErrorCode.STREAM_CLOSED, "data behind the end of a request"
            )
        stream.receivable -= size
        if stream.receivable < 0:
            raise Http2Error(
                ErrorCode.FLOW_CONTROL_ERROR, "more data than a stream takes"
            )
        if flags & _PADDED:
            body = _without_padding(flags, body)
            self.acknowledge_data(number, size - len(body))
        is_last = bool(flags & _END_STREAM)
        stream.is_closed_by_peer = is_last
        if not is_last and len(body) < DATA_BYTES_MIN:
            self._spend(1)
            if not body:
                return
        self._events.append(DataReceived(number, body, is_last=is_last))

    def _receive_window_update(self, _: int, number: int, body: bytes) -> None:
        if len(body) != 4:
            raise Http2Error(
                ErrorCode.FRAME_SIZE_ERROR, "a WINDOW_UPDATE of another size"
            )
        increment = _U32.unpack(body)[0] & WINDOW_MAX
        if not increment:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a window grows by nothing")
        self._spend(1)
        if number:
            if number > self._last_stream:
                raise Http2Error(
                    ErrorCode.PROTOCOL_ERROR, f"a window of stream {number}"
                )
            stream = self._streams.get(number)
            if stream is None:
                return
            stream.sendable += increment
            if stream.sendable > WINDOW_MAX:
                self._refuse(number, ErrorCode.FLOW_CONTROL_ERROR)
                self._forget(number)
                self._events.append(StreamReset(number))
                return
            if stream.pending and stream.sendable > 0:
                self._blocked.setdefault(number)
        else:
            self._sendable += increment
            if self._sendable > WINDOW_MAX:
                raise Http2Error(
                    ErrorCode.FLOW_CONTROL_ERROR, "the window grows too large"
                )
        self._send_blocked()

    def _receive_reset(self, _: int, number: int, body: bytes) -> None:
        if len(body) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a RST_STREAM of another size")
        if not number or number > self._last_stream:
            raise Http2Error(
                ErrorCode.PROTOCOL_ERROR, f"stream {number} was never there"
            )
        # Requests that are taken back at once cost us more than their sender.
        self._spend(1)
        if number in self._streams:
            self._forget(number)
            self._events.append(StreamReset(number))

    def _receive_settings(self, flags: int, stream: int, body: bytes) -> None:
        if stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "settings of a stream")
        work = len(body) // HEADER_WORK_BYTES
        self.work += work
        self._spend(1 + work)
        if flags & _ACK:
            if body:
                raise Http2Error(
                    ErrorCode.FRAME_SIZE_ERROR, "settings in an acknowledgement"
                )
            self.has_settings_ack = True
            return
        if len(body) % _SETTING.size:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "settings that are cut")
        window = self._initial_window
        for number, value in _SETTING.iter_unpack(body):
            low, high = _SETTING_BOUNDS.get(number, (0, 2**32 - 1))
            if not low <= value <= high:
                code = ErrorCode.PROTOCOL_ERROR
                if number == Setting.INITIAL_WINDOW_SIZE:
                    code = ErrorCode.FLOW_CONTROL_ERROR
                raise Http2Error(code, f"the setting {number} is {value}")
            # That frames may be longer does not matter: they would only let one
            # stream keep the others waiting.
            if number == Setting.INITIAL_WINDOW_SIZE:
                window = value
        if window != self._initial_window:
            self._set_initial_window(window)
        self._settings_received = True
        self._write(FrameType.SETTINGS, _ACK, 0, b"")
        self._send_blocked()

    def _set_initial_window(self, window: int) -> None:
        change = window - self._initial_window
        self._initial_window = window
        work = len(self._streams) // HEADER_WORK_COUNT
        self.work += work
        self._spend(work)
        for number, stream in self._streams.items():
            stream.sendable += change
            if stream.sendable > WINDOW_MAX:
                raise Http2Error(
                    ErrorCode.FLOW_CONTROL_ERROR, "a window grows too large"
                )
            if stream.pending and stream.sendable > 0:
                self._blocked.setdefault(number)

    def _receive_ping(self, flags: int, stream: int, body: bytes) -> None:
        if stream or len(body) != 8:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a PING of another size")
        self._spend(1)
        if not flags & _ACK:
            self._write(FrameType.PING, _ACK, 0, body)

    def _receive_priority(self, _: int, stream: int, body: bytes) -> None:
        # It has no meaning any more, but a form.
        self._spend(1)
        if not stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a priority of no stream")
        if len(body) != _PRIORITY_BYTES:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a PRIORITY of another size")

    def _receive_goaway(self, _: int, stream: int, __: bytes) -> None:
        # That the peer will send no more requests, we shall see.
        self._spend(1)
        if stream:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a GOAWAY of a stream")

    def _receive_push(self, _: int, __: int, ___: bytes) -> None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a client does not push")

    # What is sent.

    def take_output(self) -> list[bytes]:
        """What is to be sent, in order; it is forgotten here."""
        output, self._output = self._output, []
        return output

    def send_headers(self, number: int, block: bytes) -> None:
        """Begin the answer to a request, with a block made by ``encode_headers``."""
        if number in self._streams:
            self._write(FrameType.HEADERS, _END_HEADERS, number, block)

    def send_data(self, number: int, data: bytes) -> bool:
        """
        Go on with the answer; whether all of it could be handed over.

        If not, a ``SendCompleted`` follows when it has been; more may be sent before.
        """
        stream = self._streams.get(number)
        if stream is None:
            return True
        if not data:
            return not stream.pending
        self._earn(MESSAGE_EARNS + len(data) // MESSAGE_BYTES_EARN)
        if (
            not stream.pending
            and len(data) <= FRAME_BYTES_MAX
            and len(data) <= min(stream.sendable, self._sendable)
        ):
            # As most are.
            stream.sendable -= len(data)
            self._sendable -= len(data)
            self._write(FrameType.DATA, 0, number, data)
            return True
        stream.pending.append(memoryview(data))
        stream.pending_bytes += len(data)
        self._pending_bytes += len(data)
        stream.is_drained = True
        self._send_pending(number, stream)
        stream.is_drained = not stream.pending
        return stream.is_drained

    def send_response(self, number: int, block: bytes, data: bytes, end: bytes) -> None:
        """Send a whole answer: headers, data and trailers; see the three methods."""
        stream = self._streams.get(number)
        if stream is None:
            return
        size = len(data)
        if (
            stream.is_closed_by_peer
            and not stream.pending
            and 0 < size <= min(FRAME_BYTES_MAX, stream.sendable, self._sendable)
        ):
            # As most are: three frames as one piece of output.
            self._sendable -= size
            self._earn(MESSAGE_EARNS + size // MESSAGE_BYTES_EARN)
            self._output.append(
                _frame(FrameType.HEADERS, _END_HEADERS, number, block)
                + _frame(FrameType.DATA, 0, number, data)
                + _frame(FrameType.HEADERS, _END_HEADERS | _END_STREAM, number, end)
            )
            self._finish(number)
            return
        self.send_headers(number, block)
        self.send_data(number, data)
        self.send_trailers(number, end)

    def send_trailers(self, number: int, block: bytes) -> None:
        """End the answer with trailers; the stream is gone when they are sent."""
        stream = self._streams.get(number)
        if stream is None:
            return
        end = _frame(FrameType.HEADERS, _END_HEADERS | _END_STREAM, number, block)
        if not stream.is_closed_by_peer:
            # The rest of the request does not matter, and need not be sent.
            self._abandon(number)
            end += _frame(
                FrameType.RST_STREAM, 0, number, _U32.pack(ErrorCode.NO_ERROR)
            )
        if stream.pending:
            stream.closing = end
            return
        self._output.append(end)
        self._finish(number)

    def reset(self, number: int, code: ErrorCode) -> None:
        """End a stream without an answer."""
        if number in self._streams:
            self._abandon(number)
            self._write(FrameType.RST_STREAM, 0, number, _U32.pack(code))
            self._forget(number)

    def request_window(self, number: int, byte_count: int) -> None:
        """
        Let the peer send *byte_count* in all on a stream that has just been opened.

        It is granted when there is room; see the module.
        """
        stream = self._streams.get(number)
        if stream is not None and byte_count > STREAM_WINDOW:
            assert byte_count <= EXTRA_WINDOW_BYTES_MAX
            self._window_requests[number] = byte_count - STREAM_WINDOW
            self._grant()

    def acknowledge_data(self, number: int, byte_count: int) -> None:
        """Let the peer send so much more, for what has been dealt with."""
        stream = self._streams.get(number)
        if stream is not None and not stream.is_closed_by_peer and byte_count:
            stream.receivable += byte_count
            self._write(FrameType.WINDOW_UPDATE, 0, number, _U32.pack(byte_count))

    def refill_allowance(self) -> None:
        """Refill the allowance; to be called at regular times."""
        self._allowance = max(self._allowance, ALLOWANCE)

    def ping(self) -> None:
        """Ask the peer for a sign of life; anything that comes is one."""
        self._write(FrameType.PING, 0, 0, b"pydanube")

    def go_away(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """Take no more requests; those that are being answered go on."""
        self.is_going_away = True
        self._write(
            *(FrameType.GOAWAY, 0, 0),
            _U32.pack(self._last_stream) + _U32.pack(code) + why.encode()[:1000],
        )

    # What is known.

    @property
    def stream_count(self) -> int:
        """How many requests are not answered completely."""
        return len(self._streams)

    @property
    def has_only_ping_ack(self) -> bool:
        """Whether the answer to one PING is all that is to be sent."""
        output = self._output
        return len(output) == 1 and output[0][_KIND_AT] == FrameType.PING

    @property
    def has_preface(self) -> bool:
        """Whether the peer has sent its preface and settings."""
        return self._settings_received

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait for the peer's windows."""
        return self._pending_bytes

    # What follows.

    def _grant(self) -> None:
        while self._window_requests:
            number, byte_count = next(iter(self._window_requests.items()))
            if self._extra_window_bytes + byte_count > EXTRA_WINDOW_BYTES_MAX:
                return
            del self._window_requests[number]
            stream = self._streams[number]
            self._extra_window_bytes += byte_count
            stream.extra_window = byte_count
            stream.receivable += byte_count
            self._write(FrameType.WINDOW_UPDATE, 0, number, _U32.pack(byte_count))

    def _send_blocked(self) -> None:
        blocked = self._blocked
        while blocked and self._sendable > 0:
            number = next(iter(blocked))
            stream = self._streams[number]
            self._send_pending(number, stream)
            if not stream.pending and number in self._streams and not stream.is_drained:
                stream.is_drained = True
                self._events.append(SendCompleted(number))

    def _send_pending(self, number: int, stream: _Stream) -> None:
        """Send what the windows take, and the end if that is all."""
        self._blocked.pop(number, None)
        while stream.pending:
            data = stream.pending[0]
            size = min(len(data), stream.sendable, self._sendable, FRAME_BYTES_MAX)
            if size <= 0:
                if stream.sendable > 0:
                    # Behind the other streams that wait for the connection's window.
                    self._blocked[number] = None
                return
            stream.sendable -= size
            stream.pending_bytes -= size
            self._sendable -= size
            self._pending_bytes -= size
            self.work += 1
            self._write(FrameType.DATA, 0, number, bytes(data[:size]))
            if size < len(data):
                stream.pending[0] = data[size:]
            else:
                stream.pending.popleft()
        if stream.closing is not None:
            self._output.append(stream.closing)
            self._finish(number)

    def _finish(self, number: int) -> None:
        self._earn(RESPONSE_EARNS)
        self._forget(number)

    def _forget(self, number: int) -> None:
        stream = self._streams.pop(number)
        self._blocked.pop(number, None)
        self._window_requests.pop(number, None)
        self._pending_bytes -= stream.pending_bytes
        if stream.extra_window:
            self._extra_window_bytes -= stream.extra_window
        if self._window_requests:
            self._grant()

    def _abandon(self, number: int) -> None:
        self._abandoned[number] = None
        if len(self._abandoned) > STREAMS_MAX:
            del self._abandoned[next(iter(self._abandoned))]

    def _earn(self, units: int) -> None:
        self._allowance = min(self._allowance + units, ALLOWANCE_MAX)

    def _spend(self, units: int) -> None:
        self._allowance -= units
        if self._allowance < 0:
            raise Http2Error(
                ErrorCode.ENHANCE_YOUR_CALM,
                "too many frames that bring no request forward",
            )

    def _write(self, kind: FrameType, flags: int, stream: int, body: bytes) -> None:
        self._output.append(_frame(kind, flags, stream, body))


_RECEIVE: dict[int, Callable[[Http2Connection, int, int, bytes], None]] = {
    FrameType.DATA: Http2Connection._receive_data,  # noqa: SLF001  # The table of this class.
    FrameType.HEADERS: Http2Connection._receive_headers,  # noqa: SLF001
    FrameType.PRIORITY: Http2Connection._receive_priority,  # noqa: SLF001
    FrameType.RST_STREAM: Http2Connection._receive_reset,  # noqa: SLF001
    FrameType.SETTINGS: Http2Connection._receive_settings,  # noqa: SLF001
    FrameType.PUSH_PROMISE: Http2Connection._receive_push,  # noqa: SLF001
    FrameType.PING: Http2Connection._receive_ping,  # noqa: SLF001
    FrameType.GOAWAY: Http2Connection._receive_goaway,  # noqa: SLF001
    FrameType.WINDOW_UPDATE: Http2Connection._receive_window_update,  # noqa: SLF001
    FrameType.CONTINUATION: Http2Connection._receive_continuation,  # noqa: SLF001
}


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    length = len(body)
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream) + body


def _is_request(headers: Headers) -> bool:
    """Whether *headers* are those of a request, as RFC 9113 wants them."""
    pseudo: dict[bytes, bytes] = {}
    names: set[bytes] = set()
    for name, value in headers:
        if name[:1] == b":":
            if names or name in pseudo or name not in _PSEUDO_HEADERS:
                return False
            pseudo[name] = value
            continue
        if not name or name != name.lower() or name in _CONNECTION_HEADERS:
            return False
        if name == b"te" and value != b"trailers":
            return False
        names.add(name)
    return all(pseudo.get(name) for name in _PSEUDO_HEADERS[:3])


def _without_padding(flags: int, body: bytes) -> bytes:
    if not flags & _PADDED:
        return body
    if not body or body[0] >= len(body):
        raise Http2Error(
            ErrorCode.PROTOCOL_ERROR, "more padding than there is room for"
        )
    return body[1 : len(body) - body[0]]
