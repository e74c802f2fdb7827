"""The bytes that batches, frames and files are made of."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview


def padded_size(length: int) -> int:
    """Return *length*, rounded up to a multiple of 8."""
    return (length + 7) & ~7
