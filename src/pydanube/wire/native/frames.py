"""
Frames of the native protocol, and the reader that cuts a byte stream into them.

A frame is ``u32 length | u8 kind | u8 flags | u16 channel | u32 correlation |
body``, little-endian; *length* counts the bytes after it.  ``docs/format/stream.md``
is the normative description; ``kinds`` declares the kinds of frames.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.model.errors import ProtocolViolation
from pydanube.wire.native.kinds import Kind

if TYPE_CHECKING:
    from pydanube.wire.batches import Buffer

FRAME_BYTES_MAX = 8 * 1024 * 1024
"""The longest frame, unless the two sides agree on another limit."""
FRAME_OVERHEAD_BYTES = 64
"""What stands before a batch in a frame takes less."""
GROWTH_BYTES_MAX = 16 * 1024
"""
A batch grows by less after it was published.

Sealing adds the producer's name, the publish time and the offset as columns. A dead
letter names its origin: 6 KiB of attributes, and ``HISTORY_BYTES_MAX`` of earlier
ones.
"""
HANDSHAKE_BYTES_MAX = 64 * 1024
"""The longest frame before the client is known."""

_LENGTH = struct.Struct("<I")
_HEADER = struct.Struct("<IBBHI")
HEADER_BYTES = _HEADER.size
_COUNTED_HEADER_BYTES = HEADER_BYTES - _LENGTH.size

RECEIVE_BUFFER_BYTES = 32 * 1024
FREE_BUFFERS_MAX = 16
"""How many receive buffers are kept for whoever receives next."""
"""Every connection keeps one; a longer frame gets a buffer of its own size."""


def batch_bytes_max(frame_bytes_max: int) -> int:
    """
    The longest batch, before compression, that a broker takes from producers.

    Whatever becomes of its messages, they fit into frames of *frame_bytes_max*.
    """
    return frame_bytes_max - FRAME_OVERHEAD_BYTES - GROWTH_BYTES_MAX


_KIND_NUMBERS = {int(kind): kind for kind in Kind}


@dataclass(slots=True)
class RawFrame:
    """One frame whose body has not been looked at."""

    kind: Kind
    channel: int
    correlation: int
    body: bytearray


def header(kind: Kind, channel: int, correlation: int, body_length: int) -> bytes:
    """The 12 bytes before a body of *body_length* bytes."""
    return _HEADER.pack(
        _COUNTED_HEADER_BYTES + body_length, kind, 0, channel, correlation
    )


class FrameReader:
    """
    Cuts received bytes into frames.

    Made for ``asyncio.BufferedProtocol``: the socket writes into ``get_buffer``.
    Bounds: It holds one receive buffer while part of a frame is there, and the body
    of one frame that is longer.  The length of that frame was checked before, and
    its memory is taken by the next ``get_buffer``.
    """

    def __init__(self, frame_bytes_max: int = HANDSHAKE_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        # A frame that does not fit into the buffer, and its body as far as it came.
        self._long: RawFrame | None = None
        self._long_filled = 0
        self._long_bytes = 0

    @property
    def long_frame_bytes(self) -> int:
        """How long a frame is that does not fit into the buffer; 0 without one."""
        return self._long_bytes

    @property
    def has_partial_frame(self) -> bool:
        """Whether bytes are there that make no complete frame."""
        return self._start != self._end or self._long_bytes > 0

    def get_buffer(self) -> memoryview:
        """Where the next received bytes go; empty only if frames fill the buffer."""
        long = self._long
        if long is not None:
            if len(long.body) < self._long_bytes:
                body = bytearray(self._long_bytes)
                body[: self._long_filled] = long.body
                long.body = body
            return memoryview(long.body)[self._long_filled :]
        if self._view is None:
            self._view = _take_buffer()
        elif self._start:
            self._move_to_front(self._view)
        return self._view[self._end :]

    def received(self, count: int) -> list[RawFrame]:
        """
        Take note of *count* bytes in the buffer; return the frames they complete.

        Raises:
            ProtocolViolation: A frame is longer than allowed or of no known
                kind; nothing after it can be trusted.
        """
        self.add(count)
        frames = []
        while (frame := self.next_frame()) is not None:
            frames.append(frame)
        return frames

    def feed(self, data: Buffer) -> list[RawFrame]:
        """Take bytes that somebody else received; return the frames they complete."""
        frames: list[RawFrame] = []
        view = memoryview(data)
        while view:
            buffer = self.get_buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            frames += self.received(count)
        return frames

    def add(self, count: int) -> None:
        """Take note of *count* bytes in the buffer."""
        if self._long is None:
            self._end += count
        else:
            self._long_filled += count

    def next_frame(self) -> RawFrame | None:
        """
        Return the next complete frame, or None if more bytes are needed.

        Raises: As ``received``.
        """
        long, view = self._long, self._view
        if long is not None:
            if self._long_filled < self._long_bytes:
                return None
            self._long, self._long_bytes = None, 0
            return long
        start, end = self._start, self._end
        if end - start < HEADER_BYTES or view is None:
            if start == end:
                self._release_buffer()
            return None
        length, number, flags, channel, correlation = _HEADER.unpack_from(view, start)
        body_length = length - _COUNTED_HEADER_BYTES
        if body_length < 0 or length > self.frame_bytes_max:
            raise ProtocolViolation(
                f"a frame of {length} bytes; allowed are "
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
            body = bytearray(view[body_at:end])
            self._long = RawFrame(kind, channel, correlation, body)
            self._long_filled = end - body_at
            self._long_bytes = body_length
            self._release_buffer()
        return None

    def release(self) -> None:
        """Give all memory back; nothing more is received."""
        self._long, self._long_bytes, self._long_filled = None, 0, 0
        self._release_buffer()

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
"""Receive buffers that no connection needs at the moment."""


def _take_buffer() -> memoryview:
    try:
        return _free_buffers.pop()
    except IndexError:
        return memoryview(bytearray(RECEIVE_BUFFER_BYTES))
