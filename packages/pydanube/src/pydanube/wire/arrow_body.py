"""
The body of a batch: one encapsulated Arrow IPC record-batch message.

A body may be compressed as a whole.  Nothing here trusts the bytes.
"""

from __future__ import annotations

import struct

from pydanube.model.arrow import pa
from pydanube.model.batch import schema_of
from pydanube.model.errors import CorruptBatch
from pydanube.wire.buffer import Buffer

_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_POSITIONS = [struct.Struct(f"<{count}H") for count in range(5)]
_BUFFERS_MAX = 64
"""More buffers than all columns of a batch have."""
_BUFFERS = [struct.Struct(f"<{2 * count}q") for count in range(_BUFFERS_MAX + 1)]


def read_body(body: Buffer | pa.Buffer, columns: int, count: int) -> pa.RecordBatch:
    """
    Return the record batch in *body*, which is not copied.

    Raises:
        CorruptBatch: The body is not an Arrow batch of these *columns* and *count*.
    """
    _check_metadata(body)
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(body), schema_of(columns))
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise CorruptBatch(f"the body is not an Arrow batch: {error}") from error
    if batch.num_rows != count:
        raise CorruptBatch(
            f"the header counts {count} messages, the body has {batch.num_rows}"
        )
    return batch


def validate(batch: pa.RecordBatch) -> pa.RecordBatch:
    """
    Return *batch* after checking every length and offset inside it.

    Raises:
        CorruptBatch: One of them is invalid.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptBatch(f"the Arrow body is invalid: {error}") from error
    return batch


def decompress(
    body: memoryview, codec: str, length: int, *, exactly: bool
) -> pa.Buffer:
    """
    Return the *length* bytes that *body* holds compressed.

    If an LZ4 body holds fewer, Arrow does not report it and leaves the rest of the
    buffer uninitialised; with *exactly*, which costs time, this is found.

    Raises:
        CorruptBatch: The body does not decompress to *length* bytes.
    """
    try:
        # For ZSTD, Arrow compares the lengths itself.  A stream would also reserve a
        # window as large as the body asks for.
        if exactly and codec != "zstd":
            source = pa.BufferReader(pa.py_buffer(body))
            with pa.CompressedInputStream(source, codec) as stream:
                plain = stream.read_buffer(length + 1)
        else:
            plain = pa.decompress(
                pa.py_buffer(body), decompressed_size=length, codec=codec, asbytes=False
            )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptBatch(f"the body does not decompress: {error}") from error
    if plain.size != length:
        raise CorruptBatch(
            f"the body decompresses to {plain.size} bytes, its header says {length}"
        )
    return plain


def _check_metadata(body: Buffer | pa.Buffer) -> None:
    """
    Raise if the columns of the Arrow message in *body* may take more memory than it.

    If the message had body compression of its own, each buffer would announce a
    decompressed length that Arrow allocates without a check.  We compress bodies as a
    whole and check that one length instead.  Buffers that overlap would take more
    memory when their columns are copied.

    Raises:
        CorruptBatch: The buffers are compressed or overlap, or this is no record batch.
    """
    try:
        root = 8 + _U32.unpack_from(body, 8)[0]
        # Message: version, header_type, header; 3 is RecordBatch.
        _, kind_at, header_at = _fields(body, root, 3)
        if not kind_at or not header_at or memoryview(body)[root + kind_at] != 3:
            raise CorruptBatch("the body is not an Arrow record-batch message")
        at = root + header_at
        batch = at + _U32.unpack_from(body, at)[0]
        # RecordBatch: length, nodes, buffers, compression.
        _, _, buffers_at, is_compressed = _fields(body, batch, 4)
        if is_compressed:
            raise CorruptBatch("the Arrow message is compressed inside")
        at = batch + buffers_at
        at += _U32.unpack_from(body, at)[0]
        count = min(_U32.unpack_from(body, at)[0], _BUFFERS_MAX)
        # Each buffer is an offset and a length.
        lengths = _BUFFERS[count].unpack_from(body, at + 4)[1::2]
    except (struct.error, IndexError) as error:
        raise CorruptBatch("the Arrow message's metadata is truncated") from error
    if sum(lengths) > len(body) or min(lengths, default=0) < 0:
        raise CorruptBatch(
            f"the columns take {sum(lengths)} bytes, the body has {len(body)}: "
            "buffers overlap"
        )


def _fields(body: Buffer | pa.Buffer, table: int, count: int) -> tuple[int, ...]:
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
