"""
Cutting one frame into pieces, the deliveries of several consumers.

A gather has a cost of its own, which is larger than that of copying a few hundred
messages.  So one gather collects the messages of all pieces, and each piece is a slice
of the result; it is encoded when it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from pydanube.model.arrow import pc
from pydanube.model.batch import Column, schema_of
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.batches import BatchFrame, BatchHeader, encode

GATHERED_BITS_MAX = 1 << 20
"""The bits of one gather: those of 16 pieces of the largest batch, or of more."""

Piece = tuple[int, int]
"""An offset, and a number: bit i stands for the message at the offset + i."""


@dataclass(slots=True)
class CutPiece:
    """Some messages of a frame, with the column ``offset``."""

    rows: pa.RecordBatch
    header: BatchHeader

    def encode(self) -> BatchFrame:
        """Return the messages as a frame."""
        return encode(self.rows, self.header)


def gathered_max(frame: BatchFrame) -> int:
    """Return the number of pieces of *frame* that one gather collects."""
    return max(1, GATHERED_BITS_MAX // _stride_of(frame))


def cut_frame(frame: BatchFrame, pieces: Sequence[Piece]) -> list[CutPiece]:
    """
    Return *pieces* of *frame*, each of which leaves a gap.

    Bit 0 of each piece is set, and the frame has no gaps and all messages.
    """
    assert not frame.has_gaps
    begin, stride = frame.base, _stride_of(frame)
    for base, bits in pieces:
        assert begin <= base < base + bits.bit_length() <= frame.end
    # One bit map after the other; the number of a bit tells the index of its message.
    maps = b"".join(
        (bits << base - begin).to_bytes(stride // 8, "little") for base, bits in pieces
    )
    mask = pa.Array.from_buffers(
        pa.bool_(), len(maps) * 8, [None, pa.py_buffer(maps)], 0
    )
    indices = pc.bit_wise_and(pc.indices_nonzero(mask).view(pa.int64()), stride - 1)
    taken = frame.arrow().take(indices)
    schema = schema_of(frame.header.columns | Column.OFFSET)
    arrays = [
        pc.add(indices, begin) if name == "offset" else taken.column(name)
        for name in schema.names
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    times = None
    if frame.header.columns & Column.PUBLISH_TIME:
        times = rows.column("publish_time").cast(pa.int64())
    cut, at = [], 0
    for base, bits in pieces:
        count = bits.bit_count()
        header = _header_of(frame.header, base, times and times.slice(at, count))
        cut.append(CutPiece(rows.slice(at, count), header))
        at += count
    return cut


def _stride_of(frame: BatchFrame) -> int:
    """Return the number of bits of one map: a power of 2, in whole bytes."""
    return 1 << max(3, (frame.count - 1).bit_length())


def _header_of(header: BatchHeader, base: int, times: pa.Array | None) -> BatchHeader:
    at = base - header.base_offset
    first, last = header.first_publish_time, header.last_publish_time
    if times is not None:
        first, last = times[0].as_py(), times[-1].as_py()
    return replace(
        header,
        base_offset=base,
        base_sequence=header.base_sequence + at,
        first_publish_time=first,
        last_publish_time=last,
    )
