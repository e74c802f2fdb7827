"""
The server side of HTTP/2 (RFC 9113) as a state machine without I/O.

``receive`` takes bytes and returns events; ``take_output`` returns the bytes to send.
The machine supports what gRPC needs: no upgrade from HTTP/1, no push, no priorities.

The memory that a peer can use is bounded.  A stream's window lets it send
``STREAM_WINDOW`` bytes.  ``request_window`` lets it send more, up to
``EXTRA_WINDOW_BYTES_MAX`` on a connection at a time, first come, first served.  The
connection's own window is refilled at once, so it never limits the peer.

The work that a peer can cause is bounded twice.  ``receive`` stops after the work that
its caller allows, so one connection cannot starve the others on the event loop.  And
every frame that brings no request forward costs a part of the connection's *allowance*,
which answered requests, sent messages and time refill.  The machine disconnects a peer
that has used it up, with ENHANCE_YOUR_CALM.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from pydanube.model.errors import ProtocolViolation
from pydanube_broker.wire.grpc.hpack import (
    LIST_BYTES_MAX,
    HeaderDecoder,
    Headers,
    byte_count_of,
)
from pydanube_broker.wire.grpc.http2_allowance import RESPONSE_EARNS, Allowance
from pydanube_broker.wire.grpc.http2_events import (
    DataReceived,
    Event,
    RequestReceived,
    SendCompleted,
    StreamReset,
)
from pydanube_broker.wire.grpc.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_MAX,
    FRAME_HEADER,
    FRAME_SIZES,
    HEADER_BYTES,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PRIORITY_BYTES,
    SETTING,
    SETTING_BOUNDS,
    SETTINGS,
    TYPE_AT,
    TYPE_MASK,
    U32,
    WINDOW_MAX,
    ErrorCode,
    FrameType,
    Http2Error,
    Response,
    Setting,
    encode_frame,
    is_request,
    without_padding,
)
from pydanube_broker.wire.grpc.http2_stream import STREAM_WINDOW, Stream

CONNECTION_WINDOW = 16 * 1024 * 1024
"""The bytes that a peer may send on all streams before the window is refilled."""
EXTRA_WINDOW_BYTES_MAX = 64 * 1024 * 1024
"""The bytes that all streams together may be granted beyond ``STREAM_WINDOW``."""
STREAMS_MAX = 1000
"""The most requests of one connection at a time."""
BLOCK_BYTES_MAX = LIST_BYTES_MAX
"""The longest block of headers, in all its frames together."""
DATA_BYTES_MIN = 1024
"""A shorter DATA frame spends from the allowance unless it ends its request."""
WORK_BYTES = 1024
"""The bytes of a frame that count as one unit of work."""
HEADER_WORK_BYTES = 128
HEADER_WORK_COUNT = 8
"""The bytes of a header block, and the number of headers, that count as one unit of
work."""
WORK_UNBOUNDED = 2**62
PENDING_BYTES_MAX = 16 * 1024 * 1024
"""If more bytes wait for the peer's windows, new requests are refused."""
VALID_MAX = 64
"""How many validated header lists are cached."""
VALID_BYTES_MAX = 2048
"""Header lists with longer names and values are not cached."""


class Http2Connection:
    """The server side of one connection."""

    def __init__(self) -> None:
        # Received bytes, and the position of the first that is not processed yet.
        self._received = b""
        self._at = 0
        self.work = 0
        """Units of work done so far: 1 for each frame, more for long frames and for
        headers."""
        self.has_backlog = False
        """Whether received frames wait for the next call of ``receive``."""
        self.has_settings_ack = False
        """Whether the peer has acknowledged our settings."""
        self.allowance = Allowance()
        self._spend = self.allowance.spend
        self._preface_received = False
        self._settings_received = False
        # The only type that the next frame may have; None: any.
        self._expected: int | None = SETTINGS
        self._decoder = HeaderDecoder()
        # Valid header lists, by identity.
        self._valid: dict[int, Headers] = {}
        self._streams: dict[int, Stream] = {}
        self._last_stream = 0
        # Streams that we closed before the peer did: frames that the peer has sent
        # before it knew are ignored.
        self._abandoned: dict[int, None] = {}
        # A header block that continues in the next frame: stream, flags, block.
        self._block: tuple[int, int, bytearray] | None = None
        self._output: list[bytes] = []
        self._sendable = STREAM_WINDOW
        self._initial_window = STREAM_WINDOW
        self._receivable = CONNECTION_WINDOW
        self._extra_window_bytes = 0
        # Streams that wait for a larger window, and how many bytes.
        self._window_requests: OrderedDict[int, int] = OrderedDict()
        # Streams with pending data that wait only for the connection's window, in the
        # order in which they are served.
        self._blocked: OrderedDict[int, None] = OrderedDict()
        self._pending_bytes = 0
        self._events: list[Event] = []
        self.is_going_away = False
        """Whether new requests are refused."""
        self._write(
            FrameType.SETTINGS,
            0,
            0,
            SETTING.pack(Setting.MAX_CONCURRENT_STREAMS, STREAMS_MAX)
            + SETTING.pack(Setting.MAX_HEADER_LIST_SIZE, BLOCK_BYTES_MAX),
        )
        self._write(
            FrameType.WINDOW_UPDATE, 0, 0, U32.pack(CONNECTION_WINDOW - STREAM_WINDOW)
        )

    # Receiving.

    def receive(self, data: bytes, *, work_max: int = WORK_UNBOUNDED) -> list[Event]:
        """
        Process bytes from the peer and return the events.

        Processing stops after *work_max* units of work.  If ``has_backlog`` is true
        then, call again with no data in a later turn.

        Raises:
            Http2Error: The peer violated HTTP/2.  Send the output, which tells the peer
                so, and close the connection.
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
                raise Http2Error("the peer does not speak HTTP/2")
            if end < len(PREFACE):
                return
            self._preface_received = True
            at = len(PREFACE)
        unpack, receive = FRAME_HEADER.unpack_from, _RECEIVE
        while (body_at := at + HEADER_BYTES) <= end:
            if self.work >= work_end:
                self.has_backlog = True
                self._at = at
                return
            start, flags, stream = unpack(received, at)
            length = start >> 8
            if length > FRAME_BYTES_MAX:
                raise Http2Error(
                    f"a frame of {length} bytes", ErrorCode.FRAME_SIZE_ERROR
                )
            if body_at + length > end:
                break
            at = body_at + length
            kind = start & TYPE_MASK
            self.work += 1 + length // WORK_BYTES
            if self._expected is not None and kind != self._expected:
                raise Http2Error(
                    "the first frame is not SETTINGS"
                    if self._expected == SETTINGS
                    else "another frame within a header block"
                )
            take, size = receive.get(kind, _IGNORED)
            if size is not None and length != size:
                raise Http2Error(
                    f"a frame of type {kind} has {length} bytes instead of {size}",
                    ErrorCode.FRAME_SIZE_ERROR,
                )
            take(self, flags, stream & WINDOW_MAX, received[body_at:at])
        self._received, self._at = received[at:], 0

    def _receive_headers(self, flags: int, stream: int, body: bytes) -> None:
        if flags & (PADDED | PRIORITY):
            body = without_padding(flags, body)
            if flags & PRIORITY:
                if len(body) < PRIORITY_BYTES:
                    raise Http2Error(
                        "headers without a priority", ErrorCode.FRAME_SIZE_ERROR
                    )
                body = body[PRIORITY_BYTES:]
        if flags & END_HEADERS:
            self._open(stream, flags, body)
        else:
            self._block = (stream, flags, bytearray(body))
            self._expected = CONTINUATION

    def _receive_continuation(self, flags: int, stream: int, body: bytes) -> None:
        if self._block is None or self._block[0] != stream:
            raise Http2Error("CONTINUATION without a header block")
        self._spend(1)
        _, first_flags, block = self._block
        block += body
        if len(block) > BLOCK_BYTES_MAX or not body:
            raise Http2Error(
                f"headers of more than {BLOCK_BYTES_MAX} bytes",
                ErrorCode.ENHANCE_YOUR_CALM,
            )
        if flags & END_HEADERS:
            self._block = self._expected = None
            self._open(stream, first_flags, bytes(block))

    def _open(self, number: int, flags: int, block: bytes) -> None:
        # Also decode the headers of refused requests: they change the table.
        try:
            headers = self._decoder.decode(block)
        except ProtocolViolation as error:
            raise Http2Error(str(error), ErrorCode.COMPRESSION_ERROR) from error
        work = len(block) // HEADER_WORK_BYTES + len(headers) // HEADER_WORK_COUNT
        if work:
            self.work += work
            self._spend(work)
        is_last = bool(flags & END_STREAM)
        stream = self._streams.get(number)
        if stream is not None:
            # Trailers: gRPC requests have none, but they end a request.
            if not is_last or stream.is_closed_by_peer:
                raise Http2Error("headers after a request")
            stream.is_closed_by_peer = True
            self._events.append(DataReceived(number, b"", is_last=True))
            return
        if not number & 1:
            raise Http2Error(f"a request on stream {number}")
        if number <= self._last_stream:
            if number in self._abandoned:
                self._spend(1)
                return
            raise Http2Error(
                f"a request on the closed stream {number}", ErrorCode.STREAM_CLOSED
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
        stream = self._streams[number] = Stream(self._initial_window)
        stream.is_closed_by_peer = is_last
        self._events.append(RequestReceived(number, headers, is_last))

    def _is_request(self, headers: Headers) -> bool:
        # The decoder returns the same object for the same block.
        valid = self._valid
        if id(headers) in valid:
            return True
        if not is_request(headers):
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
        self._write(FrameType.RST_STREAM, 0, number, U32.pack(code))

    def _receive_data(self, flags: int, number: int, body: bytes) -> None:
        size = len(body)
        if number > self._last_stream or not number:
            raise Http2Error(f"data on stream {number}")
        self._receivable -= size
        if self._receivable < 0:
            raise Http2Error(
                "more data than the connection's window", ErrorCode.FLOW_CONTROL_ERROR
            )
        if self._receivable * 2 < CONNECTION_WINDOW:
            self._write(
                *(FrameType.WINDOW_UPDATE, 0, 0),
                U32.pack(CONNECTION_WINDOW - self._receivable),
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
            raise Http2Error("data after the end of a request", ErrorCode.STREAM_CLOSED)
        stream.receivable -= size
        if stream.receivable < 0:
            raise Http2Error(
                "more data than a stream's window", ErrorCode.FLOW_CONTROL_ERROR
            )
        if flags & PADDED:
            body = without_padding(flags, body)
            self.acknowledge_data(number, size - len(body))
        if flags & END_STREAM:
            stream.is_closed_by_peer = True
            self._add_last(number, body)
            return
        if len(body) < DATA_BYTES_MIN:
            self._spend(1)
            if not body:
                return
        self._events.append(DataReceived(number, body, is_last=False))

    def _add_last(self, number: int, body: bytes) -> None:
        """Add the end of a request's body to the events."""
        last = self._events[-1] if self._events else None
        if type(last) is RequestReceived and last.stream == number:
            # The usual case: all of a short request.
            last.body, last.is_last = body, True
        else:
            self._events.append(DataReceived(number, body, is_last=True))

    def _receive_window_update(self, _: int, number: int, body: bytes) -> None:
        increment = U32.unpack(body)[0] & WINDOW_MAX
        if not increment:
            raise Http2Error("a window update of 0")
        self._spend(1)
        if number:
            if number > self._last_stream:
                raise Http2Error(f"a window update of the idle stream {number}")
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
                    "the connection's window is too large", ErrorCode.FLOW_CONTROL_ERROR
                )
        if self._blocked:
            self._send_blocked()

    def _receive_reset(self, _: int, number: int, __: bytes) -> None:
        if not number or number > self._last_stream:
            raise Http2Error(f"a RST_STREAM of the idle stream {number}")
        # Requests that are cancelled at once cost us more than their sender.
        self._spend(1)
        if number in self._streams:
            self._forget(number)
            self._events.append(StreamReset(number))

    def _receive_settings(self, flags: int, stream: int, body: bytes) -> None:
        if stream:
            raise Http2Error("SETTINGS on a stream")
        work = len(body) // HEADER_WORK_BYTES
        self.work += work
        self._spend(1 + work)
        if flags & ACK:
            if body:
                raise Http2Error(
                    "settings in an acknowledgement", ErrorCode.FRAME_SIZE_ERROR
                )
            self.has_settings_ack = True
            return
        if len(body) % SETTING.size:
            raise Http2Error(
                f"SETTINGS of {len(body)} bytes", ErrorCode.FRAME_SIZE_ERROR
            )
        window = self._initial_window
        for number, value in SETTING.iter_unpack(body):
            low, high = SETTING_BOUNDS.get(number, (0, 2**32 - 1))
            if not low <= value <= high:
                code = ErrorCode.PROTOCOL_ERROR
                if number == Setting.INITIAL_WINDOW_SIZE:
                    code = ErrorCode.FLOW_CONTROL_ERROR
                raise Http2Error(f"the setting {number} is {value}", code)
            # MAX_FRAME_SIZE is ignored: with longer frames, one stream would delay the
            # others.
            if number == Setting.INITIAL_WINDOW_SIZE:
                window = value
        if window != self._initial_window:
            self._set_initial_window(window)
        self._settings_received, self._expected = True, None
        self._write(FrameType.SETTINGS, ACK, 0, b"")
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
                    "a stream's window is too large", ErrorCode.FLOW_CONTROL_ERROR
                )
            if stream.pending and stream.sendable > 0:
                self._blocked.setdefault(number)

    def _receive_ping(self, flags: int, stream: int, body: bytes) -> None:
        if stream:
            raise Http2Error("a PING on a stream")
        self._spend(1)
        if not flags & ACK:
            self._output.append(encode_frame(PING, ACK, 0, body))

    def _receive_priority(self, _: int, stream: int, __: bytes) -> None:
        # Priorities are obsolete, but the frame must be well-formed.
        self._spend(1)
        if not stream:
            raise Http2Error("a PRIORITY without a stream")

    def _ignore(self, _: int, __: int, ___: bytes) -> None:
        # RFC 9113 requires unknown frames to be ignored.
        self._spend(1)

    def _receive_goaway(self, _: int, stream: int, __: bytes) -> None:
        self._spend(1)
        if stream:
            raise Http2Error("a GOAWAY on a stream")

    def _receive_push(self, _: int, __: int, ___: bytes) -> None:
        raise Http2Error("PUSH_PROMISE from a client")

    # Sending.

    def take_output(self) -> list[bytes]:
        """Return and clear the bytes to send, in order."""
        output, self._output = self._output, []
        return output

    def send_headers(self, number: int, block: bytes) -> None:
        """Begin the response to a request, with a block made by ``encode_headers``."""
        if number in self._streams:
            self._write(FrameType.HEADERS, END_HEADERS, number, block)

    def send_data(self, number: int, data: bytes, messages: int = 1) -> bool:
        """
        Send a part of the response body; return whether the peer's windows allow it.

        If not, a ``SendCompleted`` follows when they do; more may be sent before.  The
        part has so many *messages*, which earn the peer frames that it may send.
        """
        stream = self._streams.get(number)
        if stream is None:
            return True
        if not data:
            return not stream.pending
        self.allowance.earn_messages(messages, len(data))
        if (
            not stream.pending
            and len(data) <= FRAME_BYTES_MAX
            and len(data) <= min(stream.sendable, self._sendable)
        ):
            # The usual case.
            stream.sendable -= len(data)
            self._sendable -= len(data)
            self._write(DATA, 0, number, data)
            return True
        if stream.pending is None:
            stream.pending = deque()
        stream.pending.append(memoryview(data))
        stream.pending_bytes += len(data)
        self._pending_bytes += len(data)
        stream.is_drained = True
        self._send_pending(number, stream)
        stream.is_drained = not stream.pending
        return stream.is_drained

    def send_response(self, number: int, response: Response, data: bytes) -> None:
        """Send a complete response: headers, *data* and trailers."""
        stream = self._streams.get(number)
        if stream is None:
            return
        size = len(data)
        if (
            stream.is_closed_by_peer
            and not stream.pending
            and 0 < size <= min(FRAME_BYTES_MAX, stream.sendable, self._sendable)
        ):
            # The usual case: three frames as one piece of output.
            self._sendable -= size
            self.allowance.earn_messages(1, size)
            self._output.append(response.encode(number, data))
            self._finish(number)
            return
        self.send_headers(number, response.block)
        self.send_data(number, data)
        self.send_trailers(number, response.end)

    def send_trailers(self, number: int, block: bytes) -> None:
        """End the response with trailers; the stream is closed when they are sent."""
        stream = self._streams.get(number)
        if stream is None:
            return
        end = encode_frame(FrameType.HEADERS, END_HEADERS | END_STREAM, number, block)
        if not stream.is_closed_by_peer:
            # The peer need not send the rest of the request.
            self._abandon(number)
            end += encode_frame(
                FrameType.RST_STREAM, 0, number, U32.pack(ErrorCode.NO_ERROR)
            )
        if stream.pending:
            stream.closing = end
            return
        self._output.append(end)
        self._finish(number)

    def reset(self, number: int, code: ErrorCode) -> None:
        """Close a stream without a response."""
        if number in self._streams:
            self._abandon(number)
            self._write(FrameType.RST_STREAM, 0, number, U32.pack(code))
            self._forget(number)

    def request_window(self, number: int, byte_count: int) -> None:
        """
        Let the peer send *byte_count* in total on a stream that was just opened.

        This takes effect when ``EXTRA_WINDOW_BYTES_MAX`` allows it.
        """
        stream = self._streams.get(number)
        if stream is not None and byte_count > STREAM_WINDOW:
            assert byte_count <= EXTRA_WINDOW_BYTES_MAX
            self._window_requests[number] = byte_count - STREAM_WINDOW
            self._grant()

    def acknowledge_data(self, number: int, byte_count: int) -> None:
        """Let the peer send *byte_count* more, because as much was processed."""
        stream = self._streams.get(number)
        if stream is not None and not stream.is_closed_by_peer and byte_count:
            stream.receivable += byte_count
            self._write(FrameType.WINDOW_UPDATE, 0, number, U32.pack(byte_count))

    def ping(self) -> None:
        """Send a PING, so that a peer that is alive sends something."""
        self._write(FrameType.PING, 0, 0, b"pydanube")

    def go_away(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """Send GOAWAY: refuse new requests, and continue those in progress."""
        self.is_going_away = True
        self._write(
            *(FrameType.GOAWAY, 0, 0),
            U32.pack(self._last_stream) + U32.pack(code) + why.encode()[:1000],
        )

    # State.

    @property
    def stream_count(self) -> int:
        """The number of requests without a complete response."""
        return len(self._streams)

    @property
    def has_only_ping_ack(self) -> bool:
        """Whether the output consists of the answer to one PING."""
        output = self._output
        return len(output) == 1 and output[0][TYPE_AT] == FrameType.PING

    @property
    def has_preface(self) -> bool:
        """Whether the peer has sent its preface and settings."""
        return self._settings_received

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that wait for the peer's windows."""
        return self._pending_bytes

    # Internals.

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
            self._write(FrameType.WINDOW_UPDATE, 0, number, U32.pack(byte_count))

    def _send_blocked(self) -> None:
        blocked = self._blocked
        while blocked and self._sendable > 0:
            number = next(iter(blocked))
            stream = self._streams[number]
            self._send_pending(number, stream)
            if not stream.pending and number in self._streams and not stream.is_drained:
                stream.is_drained = True
                self._events.append(SendCompleted(number))

    def _send_pending(self, number: int, stream: Stream) -> None:
        """Send as much as the windows allow, and the trailers after the last data."""
        self._blocked.pop(number, None)
        while stream.pending:
            data = stream.pending[0]
            size = min(len(data), stream.sendable, self._sendable, FRAME_BYTES_MAX)
            if size <= 0:
                if stream.sendable > 0:
                    # At the end of the queue for the connection's window.
                    self._blocked[number] = None
                return
            stream.sendable -= size
            stream.pending_bytes -= size
            self._sendable -= size
            self._pending_bytes -= size
            self.work += 1
            self._write(DATA, 0, number, bytes(data[:size]))
            if size < len(data):
                stream.pending[0] = data[size:]
            else:
                stream.pending.popleft()
        if stream.closing is not None:
            self._output.append(stream.closing)
            self._finish(number)

    def _finish(self, number: int) -> None:
        self.allowance.earn(RESPONSE_EARNS)
        self._forget(number)

    def _forget(self, number: int) -> None:
        stream = self._streams.pop(number)
        if self._blocked:
            self._blocked.pop(number, None)
        self._pending_bytes -= stream.pending_bytes
        self._extra_window_bytes -= stream.extra_window
        if self._window_requests:
            self._window_requests.pop(number, None)
            self._grant()

    def _abandon(self, number: int) -> None:
        self._abandoned[number] = None
        if len(self._abandoned) > STREAMS_MAX:
            del self._abandoned[next(iter(self._abandoned))]

    def _write(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        self._output.append(encode_frame(kind, flags, stream, body))


_Receive = Callable[[Http2Connection, int, int, bytes], None]
_IGNORED: tuple[_Receive, int | None] = (Http2Connection._ignore, None)  # noqa: SLF001  # A table of this class.
_RECEIVE: dict[int, tuple[_Receive, int | None]] = {
    kind: (receive, FRAME_SIZES.get(kind))
    for kind, receive in (
        (DATA, Http2Connection._receive_data),  # noqa: SLF001
        (HEADERS, Http2Connection._receive_headers),  # noqa: SLF001
        (FrameType.PRIORITY, Http2Connection._receive_priority),  # noqa: SLF001
        (FrameType.RST_STREAM, Http2Connection._receive_reset),  # noqa: SLF001
        (SETTINGS, Http2Connection._receive_settings),  # noqa: SLF001
        (FrameType.PUSH_PROMISE, Http2Connection._receive_push),  # noqa: SLF001
        (PING, Http2Connection._receive_ping),  # noqa: SLF001
        (FrameType.GOAWAY, Http2Connection._receive_goaway),  # noqa: SLF001
        (FrameType.WINDOW_UPDATE, Http2Connection._receive_window_update),  # noqa: SLF001
        (CONTINUATION, Http2Connection._receive_continuation),  # noqa: SLF001
    )
}
"""How a frame of each type is received, and how many bytes its body must have."""
