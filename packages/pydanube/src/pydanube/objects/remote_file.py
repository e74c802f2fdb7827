"""Remote objects as files for random access."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import TracebackType

import pyarrow as pa

from pydanube.wire.buffer import Buffer

ReadInto = Callable[[int, memoryview], None]
"""Fills a buffer from a position of the object on, or raises OSError."""


class RemoteFile:
    """
    An object as a file: each read is a request, and nothing is buffered.

    It offers what users of pyarrow's files need.  Reads wait for the store, so they
    belong into threads; only one thread may use a file at a time.
    """

    def __init__(self, name: str, byte_count: int, read_into: ReadInto) -> None:
        self._name = name
        self._byte_count = byte_count
        self._read_into = read_into
        self._position = 0
        self.closed = False

    def __enter__(self) -> RemoteFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteFile({self._name!r}, {self._byte_count} bytes)"

    def size(self) -> int:
        """Return the length of the object in bytes."""
        return self._byte_count

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, and return it."""
        self._check_open()
        origin = {
            io.SEEK_SET: 0,
            io.SEEK_CUR: self._position,
            io.SEEK_END: self._byte_count,
        }[whence]
        if origin + position < 0:
            raise ValueError(f"{origin + position} is not a position in a file")
        self._position = origin + position
        return self._position

    def read(self, byte_count: int | None = None) -> bytes:
        """Read up to *byte_count* bytes, or all up to the end."""
        data: bytes = self.read_buffer(byte_count).to_pybytes()
        return data

    def read_buffer(self, byte_count: int | None = None) -> pa.Buffer:
        """Read up to *byte_count* bytes, or all up to the end, as an Arrow buffer."""
        found = pa.allocate_buffer(self._clamp(byte_count))
        self.readinto(memoryview(found))
        return found

    def readinto(self, target: Buffer) -> int:
        """Fill *target* as far as the object reaches; return the number of bytes."""
        with memoryview(target) as view, view.cast("B") as octets:
            byte_count = self._clamp(octets.nbytes)
            if byte_count:
                with octets[:byte_count] as wanted:
                    self._read_into(self._position, wanted)
        self._position += byte_count
        return byte_count

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing: files for reading have nothing to write."""

    def close(self) -> None:
        self.closed = True

    def _clamp(self, byte_count: int | None) -> int:
        self._check_open()
        left = max(0, self._byte_count - self._position)
        if byte_count is None or byte_count < 0:
            return left
        return min(byte_count, left)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"the file of {self._name} is closed")
