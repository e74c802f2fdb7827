"""
The server side of gRPC over HTTP/2 as a state machine without I/O.

A call is a stream: a path that names the method, messages prefixed with their lengths,
and a status at the end.  Compressed messages are not supported; clients compress only
if they are configured to.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.credentials import CREDENTIAL_HEADERS
from pydanube_broker.wire.grpc.hpack import Headers, byte_count_of, encode_headers
from pydanube_broker.wire.grpc.http2 import (
    EXTRA_WINDOW_BYTES_MAX,
    VALID_BYTES_MAX,
    WORK_UNBOUNDED,
    Http2Connection,
)
from pydanube_broker.wire.grpc.http2_events import (
    DataReceived,
    RequestReceived,
    SendCompleted,
    StreamReset,
)
from pydanube_broker.wire.grpc.http2_frames import ErrorCode, Response
from pydanube_broker.wire.grpc.http2_stream import STREAM_WINDOW
from pydanube_broker.wire.grpc.status import StatusCode

_Request = tuple[str, float | None, Headers, str, bytes | None]

PREFIX_BYTES = 5
STATUS_TEXT_MAX = 4096
"""The most characters of a status message; longer ones are truncated."""

PARSED_REQUESTS_MAX = 64
"""How many different header lists of a connection are cached in parsed form."""
PUBLIC_MESSAGE_BYTES_MAX = 32 * 1024
"""The longest message to a method that callers may call without credentials."""
UNREAD_RESPONSE_BYTES_MAX = 64 * 1024 * 1024
"""If so many bytes of responses wait for the peer's windows, further calls end with
RESOURCE_EXHAUSTED."""

BROKER_URL = b"x-danube-broker-url"
"""The header with the broker that a client means, if it is connected to a proxy."""
FORWARDED = b"x-danube-forwarded"
"""The header of calls that another broker forwards."""

_PREFIX = struct.Struct(">BI")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_TIMEOUT_UNITS_S = {
    b"H": 3600.0,
    b"M": 60.0,
    b"S": 1.0,
    b"m": 1e-3,
    b"u": 1e-6,
    b"n": 1e-9,
}


_HEADERS = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity"),
)
_HEADERS_BLOCK = encode_headers(_HEADERS)
_OK_BLOCK = encode_headers([(b"grpc-status", b"0")])
_OK = Response(_HEADERS_BLOCK, _OK_BLOCK)
_NOT_GRPC_BLOCK = encode_headers(
    [
        (b":status", b"415"),
        (b"grpc-status", b"3"),
        (b"grpc-message", b"this port speaks gRPC"),
    ]
)


# Events.


@dataclass(slots=True)
class CallStarted:
    """A call begins."""

    call: int
    method: str
    """``/package.Service/Method``"""
    timeout_s: float | None
    """The caller's deadline, from now."""
    credentials: Headers = ()
    """The headers with credentials of the caller."""
    broker_url: str = ""
    """The broker that the caller means, if it is connected to a proxy."""
    forwarded: bytes | None = None
    """The value of ``FORWARDED``, if another broker forwards the call."""
    message: bytes | None = None
    """The only message, if it was received together with the headers.  The caller will
    send no more messages then."""

    @property
    def is_forwarded(self) -> bool:
        """Whether another broker forwards the call."""
        return self.forwarded is not None


@dataclass(slots=True)
class MessageReceived:
    """The caller has sent a message."""

    call: int
    data: bytes
    is_last: bool = False
    """Whether the caller will send no more messages."""


@dataclass(slots=True)
class HalfClosed:
    """The caller will send no more messages; it was not known with the last one."""

    call: int


@dataclass(slots=True)
class CallCancelled:
    """The call is over; a response would be ignored."""

    call: int


@dataclass(slots=True)
class WriteCompleted:
    """All messages of a call that waited for the peer's windows were sent."""

    call: int


Event = CallStarted | MessageReceived | HalfClosed | CallCancelled | WriteCompleted


class _Call:
    __slots__ = (
        "has_headers",
        "held_bytes",
        "message_bytes_max",
        "missing",
        "received",
    )

    def __init__(self, message_bytes_max: int) -> None:
        self.message_bytes_max = message_bytes_max
        self.received: bytearray | None = None
        """The received part of an incomplete message."""
        self.missing = 0
        """How many bytes of it are missing; 0 if this is not known yet."""
        self.held_bytes = 0
        """Received bytes of messages that are not consumed yet."""
        self.has_headers = False
        """Whether the response headers were sent."""


class GrpcConnection:
    """The server side of one connection."""

    def __init__(
        self, message_bytes_max: int, public: frozenset[str] = frozenset()
    ) -> None:
        """
        Accept messages of up to *message_bytes_max*.

        Messages to the methods *public* have at most ``PUBLIC_MESSAGE_BYTES_MAX``.
        """
        assert message_bytes_max + PREFIX_BYTES <= EXTRA_WINDOW_BYTES_MAX
        self.http2 = Http2Connection()
        self._message_bytes_max = message_bytes_max
        self._public = public
        self._calls: dict[int, _Call] = {}
        self.held_bytes = 0
        """Received bytes of all calls that are not consumed yet."""
        self._events: list[Event] = []
        # A client sends the same headers again and again.
        self._parsed_requests: dict[Headers, _Request] = {}

    # Receiving.

    def receive(self, data: bytes, *, work_max: int = WORK_UNBOUNDED) -> list[Event]:
        """
        Process bytes from the peer and return the events.

        See ``Http2Connection.receive`` about *work_max* and the error.
        """
        events: list[Event] = []
        self._events = events
        for event in self.http2.receive(data, work_max=work_max):
            # A match statement would take several times as long.
            if type(event) is DataReceived:
                self._take_data(event.stream, event.data, is_last=event.is_last)
            elif type(event) is RequestReceived:
                self._open(event)
            elif type(event) is StreamReset:
                if self._end(event.stream) is not None:
                    events.append(CallCancelled(event.stream))
            elif type(event) is SendCompleted:
                events.append(WriteCompleted(event.stream))
        self._events = []
        return events

    def _open(self, event: RequestReceived) -> None:
        number, headers = event.stream, event.headers
        request = self._parsed_requests.get(headers)
        if request is None:
            request = self._parse_request(headers)
            if request is None:
                self.http2.send_trailers(number, _NOT_GRPC_BLOCK)
                return
        message_bytes_max = self._message_bytes_max
        if request[0] in self._public:
            message_bytes_max = min(message_bytes_max, PUBLIC_MESSAGE_BYTES_MAX)
        call = self._calls[number] = _Call(message_bytes_max)
        body = event.body
        if _is_message(body, message_bytes_max):
            # The usual case: all of a short request.
            call.held_bytes = len(body)
            self.held_bytes += call.held_bytes
            message = body[PREFIX_BYTES:]
            self._events.append(CallStarted(number, *request, message))
            return
        self._events.append(CallStarted(number, *request))
        if body:
            self._take_data(number, body, is_last=True)
        elif event.is_last:
            self._events.append(HalfClosed(number))

    def _parse_request(self, headers: Headers) -> _Request | None:
        """Return what the headers say, and cache it; None if they are not of gRPC."""
        request, parsed = _request_of(headers), self._parsed_requests
        if request is not None and byte_count_of(headers) <= VALID_BYTES_MAX:
            if len(parsed) >= PARSED_REQUESTS_MAX:
                parsed.clear()
            parsed[headers] = request
        return request

    def _take_data(self, number: int, part: bytes, *, is_last: bool) -> None:
        call = self._calls.get(number)
        if call is None:
            return
        part_bytes = len(part)
        call.held_bytes += part_bytes
        self.held_bytes += part_bytes
        received: bytes | bytearray = part
        if call.received:
            call.received += part
            call.missing -= part_bytes
            if call.missing > 0 and not is_last:
                return
            received, call.received = call.received, None
        elif is_last and _is_message(part, call.message_bytes_max):
            self._events.append(
                MessageReceived(number, part[PREFIX_BYTES:], is_last=True)
            )
            return
        rest = self._take_messages(number, call, received, is_last=is_last)
        if rest is not None and is_last:
            if rest:
                self._refuse(
                    number, StatusCode.INVALID_ARGUMENT, "a message is truncated"
                )
            else:
                self._half_close(number)

    def _half_close(self, number: int) -> None:
        last = self._events[-1] if self._events else None
        if type(last) is MessageReceived and last.call == number:
            last.is_last = True
        else:
            self._events.append(HalfClosed(number))

    def _take_messages(
        self,
        number: int,
        call: _Call,
        received: bytes | bytearray,
        *,
        is_last: bool,
    ) -> int | None:
        """Return the bytes left, or None if refused."""
        call.missing = 0
        at, count = 0, len(received)
        while count - at >= PREFIX_BYTES:
            is_compressed, size = _PREFIX.unpack_from(received, at)
            if is_compressed:
                self._refuse(
                    *(number, StatusCode.UNIMPLEMENTED),
                    "compressed messages are not supported",
                )
                return None
            if size > call.message_bytes_max:
                self._refuse(
                    *(number, StatusCode.INVALID_ARGUMENT),
                    f"Message size {size} exceeds maximum allowed "
                    f"{call.message_bytes_max}",
                )
                return None
            end = at + PREFIX_BYTES + size
            if count < end:
                call.missing = end - count
                if PREFIX_BYTES + size > STREAM_WINDOW:
                    self.http2.request_window(number, PREFIX_BYTES + size)
                break
            with memoryview(received) as view:
                self._events.append(
                    MessageReceived(number, bytes(view[at + PREFIX_BYTES : end]))
                )
            at = end
        if at < count and not is_last:
            call.received = bytearray(received[at:])
        return count - at

    def _refuse(self, number: int, status: StatusCode, text: str) -> None:
        self.finish(number, status, text)
        self._events.append(CallCancelled(number))

    def consumed(self, number: int, message: bytes) -> None:
        """Let the caller send more, because *message* was processed."""
        call = self._calls.get(number)
        if call is not None:
            byte_count = PREFIX_BYTES + len(message)
            call.held_bytes -= byte_count
            self.held_bytes -= byte_count
            self.http2.acknowledge_data(number, byte_count)

    # Sending.

    def answer(self, number: int, message: bytes) -> None:
        """Answer a call with one message and the status OK."""
        http2 = self.http2
        if http2.pending_bytes + len(message) > UNREAD_RESPONSE_BYTES_MAX:
            self.finish(
                *(number, StatusCode.RESOURCE_EXHAUSTED),
                f"{UNREAD_RESPONSE_BYTES_MAX} bytes of responses wait to be read",
            )
            return
        if self._end(number) is None:
            return
        data = _PREFIX.pack(0, len(message)) + message
        http2.send_response(number, _OK, data)

    def begin(self, number: int) -> None:
        """Send the response headers, so that the caller knows its call is accepted."""
        call = self._calls.get(number)
        if call is not None and not call.has_headers:
            call.has_headers = True
            self.http2.send_headers(number, _HEADERS_BLOCK)

    def write(self, number: int, messages: Sequence[bytes]) -> bool:
        """
        Send messages of a stream; return whether the peer's windows allow it.

        If not, a ``WriteCompleted`` follows when they do.
        """
        self.begin(number)
        data = b"".join(
            part
            for message in messages
            for part in (_PREFIX.pack(0, len(message)), message)
        )
        return self.http2.send_data(number, data, len(messages))

    def finish(self, number: int, status: StatusCode, text: str = "") -> None:
        """End a call with a status, after all messages that were written."""
        call = self._end(number)
        if call is None:
            return
        if status is StatusCode.OK:
            if not call.has_headers:
                self.http2.send_headers(number, _HEADERS_BLOCK)
            self.http2.send_trailers(number, _OK_BLOCK)
            return
        trailers = [
            (b"grpc-status", str(int(status)).encode()),
            (b"grpc-message", _encode_text(text[:STATUS_TEXT_MAX])),
        ]
        if not call.has_headers:
            trailers = [*_HEADERS, *trailers]
        self.http2.send_trailers(number, encode_headers(trailers))

    def cancel(self, number: int) -> None:
        """End a call without a status."""
        if self._end(number) is not None:
            self.http2.reset(number, ErrorCode.CANCEL)

    def forget_calls(self) -> None:
        """Drop all calls, because the connection is being closed."""
        self._calls.clear()
        self.held_bytes = 0

    def _end(self, number: int) -> _Call | None:
        """Remove and return a call; None if it has already ended."""
        call = self._calls.pop(number, None)
        if call is not None:
            self.held_bytes -= call.held_bytes
        return call


def _is_message(body: bytes, message_bytes_max: int) -> bool:
    """Return whether *body* is one whole message, not compressed and not too long."""
    size = len(body)
    return PREFIX_BYTES <= size <= message_bytes_max and _PREFIX.unpack_from(body) == (
        0,
        size - PREFIX_BYTES,
    )


def _request_of(headers: Headers) -> _Request | None:
    """Return what the headers say; None if this is not a gRPC call."""
    values = dict(headers)
    if not values.get(b"content-type", b"").startswith(b"application/grpc"):
        return None
    timeout_s = _timeout_s_of(values.get(b"grpc-timeout", b""))
    credentials = tuple(each for each in headers if each[0] in CREDENTIAL_HEADERS)
    return (
        values.get(b":path", b"").decode("latin-1"),
        timeout_s,
        credentials,
        values.get(BROKER_URL, b"").decode("latin-1"),
        values.get(FORWARDED),
    )


def _encode_text(text: str) -> bytes:
    """Percent-encode *text* for a header; spaces stay as they are."""
    return b"".join(
        bytes((byte,)) if 0x20 <= byte < 0x7F and byte != 0x25 else b"%%%02X" % byte
        for byte in text.encode(errors="replace")
    )


def _timeout_s_of(text: bytes) -> float | None:
    found = _TIMEOUT.fullmatch(text)
    return None if found is None else int(found[1]) * _TIMEOUT_UNITS_S[found[2]]
