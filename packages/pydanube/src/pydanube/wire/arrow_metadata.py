"""
The metadata of an Arrow record batch: a Flatbuffers table, read and written as bytes.

A batch is an encapsulated message: the marker, the length of the metadata, the
metadata, the buffers.  ``docs/format/batch.md`` shows the layout that is written.  What
is read may have its tables in any order.  Nothing here trusts the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from pydanube.model.errors import CorruptBatch
from pydanube.wire.buffer import Buffer

_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_POSITIONS = [struct.Struct(f"<{count}H") for count in range(5)]
_PAIRS_MAX = 64
"""More nodes or buffers than all columns of a batch have."""
_PAIRS = [struct.Struct(f"<{2 * count}q") for count in range(_PAIRS_MAX + 1)]

Pair = tuple[int, int]


class Metadata(NamedTuple):
    """The metadata of a record batch."""

    body_at: int
    """The position at which the buffers begin."""
    row_count: int
    nodes: Sequence[Pair]
    """The length and the number of nulls of each array, depth first."""
    buffers: Sequence[Pair]
    """The position, from ``body_at`` on, and the length of each buffer."""


# Up to the vector of buffers: marker, length of the metadata; the message's position,
# padding, its vtable (version, kind, header, body length), the message, with the body
# length; the batch's vtable (length, nodes, buffers), the batch, with the positions
# of nodes and buffers and the number of rows; padding, the number of buffers.
_HEAD = struct.Struct("<II II 6H iBBBB I q HHHHHH i II q II")
_NODES_HEAD = struct.Struct("<II")


def encode_metadata(
    count: int, nodes: Sequence[Pair], buffers: Sequence[Pair], body_bytes: int
) -> bytes:
    """Return the marker and the metadata of a record batch, as Arrow writes them."""
    buffers_bytes = 16 * len(buffers)
    length = _HEAD.size + buffers_bytes + _NODES_HEAD.size + 16 * len(nodes) - 8
    head = _HEAD.pack(
        *(_MARKER, length),
        *(20, 0),
        *(12, 22, 6, 5, 8, 12),
        *(12, 0, _RECORD_BATCH, _VERSION_5, 0),
        24,
        body_bytes,
        *(0, 10, 24, 12, 4, 8),
        10,
        *(28 + buffers_bytes, 16),
        count,
        *(0, len(buffers)),
    )
    return b"".join(
        (
            head,
            _PAIRS[len(buffers)].pack(*chain.from_iterable(buffers)),
            _NODES_HEAD.pack(0, len(nodes)),
            _PAIRS[len(nodes)].pack(*chain.from_iterable(nodes)),
        )
    )


_MARKER = 0xFFFFFFFF
_RECORD_BATCH = 3
_VERSION_5 = 4


def decode_metadata(body: Buffer) -> Metadata:
    """
    Return the metadata of the record batch in *body*.

    Raises:
        CorruptBatch: As ``buffers_at``; or a buffer is not inside the body.
    """
    try:
        batch, at = buffers_at(body)
        marker, length = _NODES_HEAD.unpack_from(body)
        if marker != _MARKER:
            raise CorruptBatch("the body does not begin with the marker of a message")
        count_at, nodes_at, _, _ = _fields(body, batch, 4)
        count = _I64.unpack_from(body, batch + count_at)[0] if count_at else 0
        nodes_at += batch
        nodes = _pairs(body, nodes_at + _U32.unpack_from(body, nodes_at)[0])
        buffers = _pairs(body, at)
    except (struct.error, IndexError) as error:
        raise CorruptBatch(_TRUNCATED) from error
    body_at = 8 + length
    room = len(body) - body_at
    for begin, size in buffers:
        if begin < 0 or begin + size > room:
            raise CorruptBatch(
                f"a buffer of {size} bytes at {begin} is outside of the {room} bytes "
                "that follow the metadata"
            )
    return Metadata(body_at, count, nodes, buffers)


_TRUNCATED = "the Arrow message's metadata is truncated"


def check_metadata(body: Buffer) -> None:
    """
    Raise if the columns of the Arrow message in *body* may take more memory than it.

    Raises:
        CorruptBatch: As ``buffers_at``.
    """
    try:
        buffers_at(body)
    except (struct.error, IndexError) as error:
        raise CorruptBatch(_TRUNCATED) from error


def buffers_at(body: Buffer) -> Pair:
    """
    Return the positions of the record batch and of its vector of buffers.

    If the message had body compression of its own, each buffer would announce a
    decompressed length that Arrow allocates without a check.  We compress bodies as a
    whole and check that one length instead.  Buffers that overlap would take more
    memory when their columns are copied.

    Raises:
        CorruptBatch: The buffers are compressed or overlap, or this is no record batch.
        struct.error, IndexError: The metadata is truncated.
    """
    root = 8 + _U32.unpack_from(body, 8)[0]
    # Message: version, header_type, header.
    _, kind_at, header_at = _fields(body, root, 3)
    if (
        not kind_at
        or not header_at
        or memoryview(body)[root + kind_at] != _RECORD_BATCH
    ):
        raise CorruptBatch("the body is not an Arrow record-batch message")
    at = root + header_at
    batch = at + _U32.unpack_from(body, at)[0]
    # RecordBatch: length, nodes, buffers, compression.
    _, _, field_at, is_compressed = _fields(body, batch, 4)
    if is_compressed:
        raise CorruptBatch("the Arrow message is compressed inside")
    at = batch + field_at
    at += _U32.unpack_from(body, at)[0]
    count = min(_U32.unpack_from(body, at)[0], _PAIRS_MAX)
    # Each buffer is an offset and a length.
    lengths = _PAIRS[count].unpack_from(body, at + 4)[1::2]
    if sum(lengths) > len(body) or min(lengths, default=0) < 0:
        raise CorruptBatch(
            f"the columns take {sum(lengths)} bytes, the body has {len(body)}: "
            "buffers overlap"
        )
    return batch, at


def _pairs(body: Buffer, at: int) -> list[Pair]:
    """Return the pairs of numbers in the vector at *at*."""
    (count,) = _U32.unpack_from(body, at)
    if count > _PAIRS_MAX:
        raise CorruptBatch(f"the Arrow message has {count} nodes or buffers")
    numbers = _PAIRS[count].unpack_from(body, at + 4)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _fields(body: Buffer, table: int, count: int) -> tuple[int, ...]:
    """
    Return the positions of the first *count* fields in a Flatbuffers table, or 0.

    The table begins with the distance back to its vtable, which lists the positions.
    """
    vtable = table - _I32.unpack_from(body, table)[0]
    # struct counts a negative position from the end, which no message means.
    if vtable < 0:
        raise IndexError(vtable)
    known = max(0, min(count, (_U16.unpack_from(body, vtable)[0] - 4) // 2))
    positions: tuple[int, ...] = _POSITIONS[known].unpack_from(body, vtable + 4)
    return (*positions, *(0,) * (count - known))
