"""The parts that the formats of the journal and of staged parts have in common."""

from __future__ import annotations

import struct

from pydanube.wire.buffer import Buffer, padded_size
from pydanube.wire.checksum import crc32c

FRAME_CHECKED = 20
"""An entry's checksum covers a frame up to here, where that of the frame begins."""

_CRC = struct.Struct("<I")
_CRC_AT = 4
_CHECKED_FROM = 8


def seed_of(file_header: bytes) -> int:
    """Return the checksum of a file header, in which bytes 12 to 16 hold it."""
    return int(crc32c(file_header[16:], crc32c(file_header[:12])))


def complete_entry(head: bytes, body: bytes, seed: int) -> bytes:
    """Return an entry with its checksum and padding."""
    crc = crc32c(body, crc32c(head[_CHECKED_FROM:], seed))
    padding = bytes(-(len(head) + len(body)) % 8)
    return b"".join((head[:_CRC_AT], _CRC.pack(crc), head[8:], body, padding))


def complete_batch_entry(
    head: bytearray, frame: Buffer, seed: int
) -> tuple[list[Buffer], int]:
    """
    Return the buffers of a batch entry, and their length.

    *head* is all that comes before *frame*, which is not copied; its checksum is set.
    """
    crc = crc32c(frame[:FRAME_CHECKED], crc32c(memoryview(head)[_CHECKED_FROM:], seed))
    _CRC.pack_into(head, _CRC_AT, crc)
    length = len(head) + len(frame)
    size = padded_size(length)
    buffers: list[Buffer] = [head, frame]
    if size != length:
        buffers.append(bytes(size - length))
    return buffers, size


def checksums_of(
    buffer: memoryview, position: int, end: int, seed: int
) -> tuple[int, int]:
    """Return the checksum of the entry ``position … end``, and the one stored in it."""
    (stored,) = _CRC.unpack_from(buffer, position + _CRC_AT)
    return int(crc32c(buffer[position + _CHECKED_FROM : end], seed)), stored
