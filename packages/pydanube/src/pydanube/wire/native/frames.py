"""
Frames of the native protocol, and the reader that cuts a byte stream into them.

A frame is ``u32 length | u8 kind | u8 flags | u16 channel | u32 correlation |
body``, little-endian; *length* counts the bytes after it.  ``docs/format/stream.md``
is the normative description; ``kinds`` declares the kinds of frames.
"""

from __future__ import annotations

import struct

from pydanube.model.errors import ProtocolViolation
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.buffer import Buffer
from pydanube.wire.native.body_memory import BodyMemory
from pydanube.wire.native.kinds import Kind

FRAME_BYTES_MAX = 8 * 1024 * 1024
"""The longest frame, unless the two sides agree on another limit."""
FRAME_OVERHEAD_BYTES = 64
"""More than any frame has before its batch."""
GROWTH_BYTES_MAX = 16 * 1024
"""
More than a batch can grow after it was published.

Sealing adds the producer's name, the publish time and the offset as columns. A dead
letter has attributes that name its origin: 6 KiB, and ``HISTORY_BYTES_MAX`` for earlier
ones.
"""
HANDSHAKE_BYTES_MAX = 64 * 1024
"""The longest frame before the handshake is done."""

_LENGTH = struct.Struct("<I")
_HEADER = struct.Struct("<IBBHI")
HEADER_BYTES = _HEADER.size
_COUNTED_HEADER_BYTES = HEADER_BYTES - _LENGTH.size

_HTTP2_SETTINGS = 4
"""The type of the frame with which every HTTP/2 server begins, on stream 0."""

RECEIVE_BUFFER_BYTES = 32 * 1024
"""The buffer of a connection; a longer frame gets a buffer of its own size."""
FREE_BUFFERS_MAX = 16
"""How many unused receive buffers are kept for reuse."""


def batch_bytes_max(frame_bytes_max: int) -> int:
    """
    Return the longest batch, before compression, that a broker takes from producers.

    Its messages still fit into frames of *frame_bytes_max* when sealing or a dead
    letter has added columns.
    """
    return frame_bytes_max - FRAME_OVERHEAD_BYTES - GROWTH_BYTES_MAX


_KIND_NUMBERS = {int(kind): kind for kind in Kind}


@dataclass(slots=True)
class RawFrame:
    """A frame whose body is not decoded."""

    kind: Kind
    channel: int
    correlation: int
    body: Buffer


def header(kind: Kind, channel: int, correlation: int, body_length: int) -> bytes:
    """Return the 12 bytes before a body of *body_length* bytes."""
    return _HEADER.pack(
        _COUNTED_HEADER_BYTES + body_length, kind, 0, channel, correlation
    )


def foreign_protocol(beginning: bytes) -> str | None:
    """
    Return a sentence if *beginning* is that of an HTTP server's first answer.

    Both kinds begin with what would be the length of a frame that is too long.
    """
    if beginning.startswith(b"HTTP/"):
        found = "an HTTP port"
    elif beginning[3:9] == bytes([_HTTP2_SETTINGS, 0, 0, 0, 0, 0]):
        found = "a gRPC port (HTTP/2)"
    else:
        return None
    return (
        f"this is {found}, which does not speak pydanube's native protocol: connect "
        "to the broker's stream port, by default 6651"
    )


class FrameReader:
    """
    Finds the frames in received bytes, for ``asyncio.BufferedProtocol``.

    Bounds: It holds at most one receive buffer, and the body of one longer frame,
        whose length is checked before the next ``get_buffer`` allocates its memory;
        and what *body_memory* keeps for longer frames.
    """

    def __init__(
        self,
        frame_bytes_max: int = HANDSHAKE_BYTES_MAX,
        body_memory: BodyMemory | None = None,
    ) -> None:
        """Without *body_memory*, each longer frame is received into new memory."""
        self.frame_bytes_max = frame_bytes_max
        self._body_memory = body_memory
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        # A frame that does not fit into the buffer, and its body as received so far.
        self._long: RawFrame | None = None
        self._long_filled = 0
        self.long_frame_bytes = 0
        """The body length of a frame that does not fit into the buffer, or 0."""

    @property
    def has_partial_frame(self) -> bool:
        """Whether bytes of an incomplete frame were received."""
        return self._start != self._end or self.long_frame_bytes > 0

    def get_buffer(self) -> memoryview:
        """
        Return the memory for the next received bytes.

        It is empty only if unread frames fill the buffer.
        """
        long = self._long
        if long is not None:
            if self._view is not None:
                body = self._take_memory(self.long_frame_bytes)
                body[: self._long_filled] = self._view[self._start : self._end]
                long.body = body
                self._release_buffer()
            return memoryview(long.body)[self._long_filled :]
        if self._view is None:
            self._view = _take_buffer()
        elif self._start:
            self._move_to_front(self._view)
        return self._view[self._end :]

    def add(self, count: int) -> None:
        """Add *count* bytes that are in the buffer."""
        if self._long is None:
            self._end += count
        else:
            self._long_filled += count

    def next_frame(self) -> RawFrame | None:
        """
        Return the next complete frame, or None if more bytes are needed.

        Raises:
            ProtocolViolation: A frame is longer than allowed or of no known kind;
                nothing after it can be trusted.
        """
        long, view = self._long, self._view
        if long is not None:
            if self._long_filled < self.long_frame_bytes:
                return None
            self._long, self.long_frame_bytes = None, 0
            return long
        start, end = self._start, self._end
        if end - start < HEADER_BYTES or view is None:
            if start == end:
                self._release_buffer()
            return None
        length, number, flags, channel, correlation = _HEADER.unpack_from(view, start)
        body_length = length - _COUNTED_HEADER_BYTES
        if body_length < 0 or length > self.frame_bytes_max:
            beginning = bytes(view[start : start + HEADER_BYTES])
            raise ProtocolViolation(
                foreign_protocol(beginning)
                or f"a frame of {length} bytes; allowed are "
                f"{_COUNTED_HEADER_BYTES} to {self.frame_bytes_max}"
            )
        kind = _KIND_NUMBERS.get(number)
        if kind is None or flags:
            raise ProtocolViolation(
                f"a frame of unknown kind {number} or flags {flags:#x}"
            )
        body_at = start + HEADER_BYTES
        if end - body_at >= body_length:
            self._start = body_at + body_length
            body = bytearray(view[body_at : self._start])
            return RawFrame(kind, channel, correlation, body)
        if HEADER_BYTES + body_length > RECEIVE_BUFFER_BYTES:
            self._long = RawFrame(kind, channel, correlation, bytearray())
            self._start = body_at
            self._long_filled = end - body_at
            self.long_frame_bytes = body_length
        return None

    def release(self) -> None:
        """Release all memory; nothing more is received."""
        self._long, self.long_frame_bytes, self._long_filled = None, 0, 0
        self._release_buffer()
        if self._body_memory is not None:
            self._body_memory.release()

    def _take_memory(self, byte_count: int) -> bytearray | memoryview:
        if self._body_memory is None:
            return bytearray(byte_count)
        return self._body_memory.take(byte_count)

    def _release_buffer(self) -> None:
        view, self._view = self._view, None
        self._start = self._end = 0
        if view is not None and len(_free_buffers) < FREE_BUFFERS_MAX:
            _free_buffers.append(view)

    def _move_to_front(self, view: memoryview) -> None:
        length = self._end - self._start
        view[:length] = bytes(view[self._start : self._end])
        self._start, self._end = 0, length


_free_buffers: list[memoryview] = []
"""Receive buffers that no connection uses."""


def _take_buffer() -> memoryview:
    try:
        return _free_buffers.pop()
    except IndexError:
        return memoryview(bytearray(RECEIVE_BUFFER_BYTES))
