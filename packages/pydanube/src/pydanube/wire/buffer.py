"""The bytes that batches, frames and files are made of."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from operator import sub

Buffer = bytes | bytearray | memoryview


def padded_size(length: int) -> int:
    """Return *length*, rounded up to a multiple of 8."""
    return (length + 7) & ~7


def split(data: bytes, offsets: Sequence[int]) -> list[bytes]:
    """Return the parts of *data* between the rising *offsets*, one fewer than these."""
    reader = BytesIO(data)
    reader.seek(offsets[0])
    # Faster than slices, of which each would be an object.
    return list(map(reader.read, map(sub, offsets[1:], offsets)))
