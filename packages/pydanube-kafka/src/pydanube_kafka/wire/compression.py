"""
The compression of record batches.

The sizes that compressed data claims are not believed: data is decompressed in pieces,
and no more than a limit.  Snappy says its size at the beginning, and is refused there.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import pyarrow as pa

from pydanube.wire.buffer import Buffer

_PIECE_BYTES = 64 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_LENGTH = struct.Struct(">i")


class Compression(IntEnum):
    """The codecs, with their numbers in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_STREAMS = {
    Compression.GZIP: "gzip",
    Compression.LZ4: "lz4",
    Compression.ZSTD: "zstd",
}


class BadCompression(Exception):
    """Compressed data is damaged, or longer than allowed when decompressed."""


def decompress(data: Buffer, codec: Compression, bytes_max: int) -> Buffer:
    """
    Return *data* decompressed.

    Raises:
        BadCompression: It is damaged, or longer than *bytes_max* then.
    """
    if codec is Compression.NONE:
        return data
    try:
        if codec is Compression.SNAPPY:
            return _from_snappy(memoryview(data), bytes_max)
        return _from_stream(data, _STREAMS[codec], bytes_max)
    except (OSError, pa.ArrowException) as error:
        raise BadCompression(f"{codec.name.lower()}: {error}") from error


def compress(data: bytes, codec: Compression) -> bytes:
    """Return *data* compressed."""
    if codec is Compression.NONE:
        return data
    compressed: bytes = pa.compress(data, codec=codec.name.lower(), asbytes=True)
    return compressed


def _from_stream(data: Buffer, codec: str, bytes_max: int) -> bytes:
    pieces, length = list[bytes](), 0
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        while piece := stream.read(_PIECE_BYTES):
            length += len(piece)
            _check_length(length, bytes_max)
            pieces.append(piece)
    return b"".join(pieces)


def _from_snappy(data: memoryview, bytes_max: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _from_snappy_block(data, bytes_max)
    # Clients in Java write blocks, each after its length.
    pieces, length, at = list[bytes](), 0, _XERIAL_HEADER_BYTES
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise BadCompression("snappy: the length of a block is cut off")
        (block_bytes,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < block_bytes <= len(data) - at:
            raise BadCompression(f"snappy: a block of {block_bytes} bytes")
        piece = _from_snappy_block(data[at : at + block_bytes], bytes_max - length)
        length += len(piece)
        pieces.append(piece)
        at += block_bytes
    return b"".join(pieces)


def _from_snappy_block(data: memoryview, bytes_max: int) -> bytes:
    length, shift = 0, 0
    for byte in data[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise BadCompression("snappy: the length of a block is damaged")
    _check_length(length, bytes_max)
    block: bytes = pa.decompress(
        data, decompressed_size=length, codec="snappy", asbytes=True
    )
    return block


def _check_length(length: int, bytes_max: int) -> None:
    if length > bytes_max:
        raise BadCompression(f"it is longer than {bytes_max} bytes when decompressed")
