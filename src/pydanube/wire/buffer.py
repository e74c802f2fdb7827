"""The type of bytes that batches, frames and files are made of."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
