"""
The body of a batch: one encapsulated Arrow IPC record-batch message.

A body may be compressed as a whole.  Nothing here trusts the bytes.
"""

from __future__ import annotations

from pydanube.model.arrow import pa
from pydanube.model.batch import schema_of
from pydanube.model.errors import CorruptBatch
from pydanube.wire.arrow_metadata import check_metadata
from pydanube.wire.buffer import Buffer


def read_body(body: Buffer | pa.Buffer, columns: int, count: int) -> pa.RecordBatch:
    """
    Return the record batch in *body*, which is not copied.

    Raises:
        CorruptBatch: The body is not an Arrow batch of these *columns* and *count*.
    """
    check_metadata(body)
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
