"""
The body of a batch: one encapsulated Arrow IPC record-batch message.

A body may be compressed as a whole.  Nothing here trusts the bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa

from pydanube.model.batch import schema_of
from pydanube.model.errors import CorruptBatch

if TYPE_CHECKING:
    from pydanube.wire.buffer import Buffer

_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")


def read_body(body: Buffer | pa.Buffer, columns: int, count: int) -> pa.RecordBatch:
    """
    Return the record batch in *body*, which is not copied.

    Raises:
        CorruptBatch: The body is not an Arrow batch of these *columns* and *count*.
    """
    _refuse_compressed_message(body)
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


def _refuse_compressed_message(body: Buffer | pa.Buffer) -> None:
    """
    Raise if the Arrow message in *body* has body compression of its own.

    Each of its buffers would announce a decompressed length that Arrow allocates
    without a check.  We compress bodies as a whole and check that one length instead.
    In Flatbuffers, a table begins with the distance back to its vtable, which holds
    the position of each field, or 0.
    """
    try:
        root = 8 + _u32(body, 8)
        message = root - _i32(body, root)
        # Message: version, header_type, header; 3 is RecordBatch.
        kind_at, header_at = _field(body, message, 1), _field(body, message, 2)
        if not kind_at or not header_at or memoryview(body)[root + kind_at] != 3:
            raise CorruptBatch("the body is not an Arrow record-batch message")
        batch = root + header_at + _u32(body, root + header_at)
        # RecordBatch: length, nodes, buffers, compression.
        if _field(body, batch - _i32(body, batch), 3):
            raise CorruptBatch("the Arrow message is compressed inside")
    except (struct.error, IndexError) as error:
        raise CorruptBatch("the Arrow message's metadata is truncated") from error


def _field(body: Buffer | pa.Buffer, vtable: int, index: int) -> int:
    at = 4 + 2 * index
    if at >= _U16.unpack_from(body, _inside(vtable))[0]:
        return 0
    return int(_U16.unpack_from(body, vtable + at)[0])


def _u32(body: Buffer | pa.Buffer, at: int) -> int:
    return int(_U32.unpack_from(body, _inside(at))[0])


def _i32(body: Buffer | pa.Buffer, at: int) -> int:
    return int(_I32.unpack_from(body, _inside(at))[0])


def _inside(at: int) -> int:
    # struct counts a negative position from the end, which no message means.
    if at < 0:
        raise IndexError(at)
    return at
