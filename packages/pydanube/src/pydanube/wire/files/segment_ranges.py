"""
Reading a segment in ranges, for stores where each request takes long.

The footer is read with one request, whose range is guessed from the manifest entry, and
each row group with one.  ``RangeFile`` shows the bytes of one range as a file.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa

from pydanube.model.segments import SegmentEntry
from pydanube.wire.buffer import Buffer

Span = tuple[int, int]
"""The positions ``begin … end`` of bytes in a file."""

WHOLE_BYTES_MAX = 512 * 1024
"""Segments up to this size are read with one request."""

# Generous, because a second request costs more than some kilobytes.
_FOOTER_BYTES = 16 * 1024
_FOOTER_CHUNK_BYTES = 256


def footer_span(entry: SegmentEntry) -> Span:
    """Return the end of the segment that, as a rule, has the whole footer."""
    size = entry.byte_count
    if size <= WHOLE_BYTES_MAX:
        return 0, size
    chunk_count = len(entry.part_checksums or b"") // 4
    return max(0, size - _FOOTER_BYTES - chunk_count * _FOOTER_CHUNK_BYTES), size


class BytesMissing(Exception):
    """Bytes are needed that a RangeFile does not have."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__(f"the bytes {begin} to {end} were not read")
        self.span: Span = begin, end


class RangeFile(io.RawIOBase):
    """
    The bytes of a file from *begin* on, as if it was the whole file.

    Reading other bytes raises BytesMissing.
    """

    def __init__(self, begin: int, data: Buffer | pa.Buffer, size: int) -> None:
        super().__init__()
        self._begin = begin
        self._data = memoryview(data).cast("B")
        self._size = size
        self._position = 0

    def size(self) -> int:
        """Return the length of the whole file."""
        return self._size

    def has(self, begin: int, end: int) -> bool:
        """Return whether the bytes ``begin … end`` can be read."""
        return self._begin <= begin and end <= self._begin + len(self._data)

    def read_buffer(self, byte_count: int) -> pa.Buffer:
        """Return the next *byte_count* bytes, without a copy."""
        return pa.py_buffer(self._take(byte_count))

    def read(self, byte_count: int | None = -1) -> bytes:
        if byte_count is None or byte_count < 0:
            byte_count = self._size - self._position
        return bytes(self._take(byte_count))

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        data = self._take(len(view))
        view[: len(data)] = data
        return len(data)

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_CUR: self._position, io.SEEK_END: self._size}.get(whence, 0)
        self._position = begin + position
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def _take(self, byte_count: int) -> memoryview:
        begin = self._position
        end = min(begin + byte_count, self._size)
        first = begin - self._begin
        last = end - self._begin
        if begin < end and not 0 <= first <= last <= len(self._data):
            raise BytesMissing(begin, end)
        self._position = max(begin, end)
        return self._data[first:last] if begin < end else self._data[:0]
