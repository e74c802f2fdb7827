"""
Record batches of version 2 from columns in Arrow, without an object for each record.

The bytes are those of ``record_batches``.  A record is a sequence of numbers of
variable length between its key and its value, so a table has the bytes of all small
numbers, and Arrow takes them from there and joins them.  Batches with other numbers,
and those with headers, are left to ``record_batches``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from pydanube.model.arrow import pc
from pydanube_kafka.wire.record_batches import (
    BatchFacts,
    encode_varint,
    pack_batch,
)

NUMBER_END = 65_536
"""Numbers from here on are not in the table."""
RECORDS_MIN = 500
"""Below, the calls of Arrow take longer than the records."""
_NULL = encode_varint(-1)


@cache
def _numbers() -> pa.Array:
    return pa.array([encode_varint(value) for value in range(NUMBER_END)], pa.binary())


def encode_columns(
    values: pa.Array,
    keys: pa.Array | None,
    times_ms: pa.Array | int,
    offsets: pa.Array | int,
    *,
    prefix: bytes = b"",
    leader_epoch: int = 0,
) -> bytes | None:
    """
    Return records without headers as one batch; None if numbers are not in the table.

    Args:
        values: The values, none of them null; *prefix* is written before each.
        keys: The keys; None: they are all null.
        times_ms: The times; a number if all have the same.
        offsets: The offsets; the first one if there are no gaps.
        prefix: See *values*.
        leader_epoch: The epoch of the batch.
    """
    count, numbers = len(values), _numbers()
    deltas: pa.Array | bytes | None
    lengths = pc.add(pc.binary_length(values), len(prefix))
    if isinstance(offsets, int):
        base, last = offsets, offsets + count - 1
        places = numbers.slice(0, count) if count <= NUMBER_END else None
    else:
        base, last = offsets[0].as_py(), offsets[-1].as_py()
        places = _encoded(pc.subtract(offsets, base))
    if isinstance(times_ms, int):
        first, newest, deltas = times_ms, times_ms, b"\0"
    else:
        first, newest = times_ms[0].as_py(), pc.max(times_ms).as_py()
        deltas = _encoded(pc.subtract(times_ms, first))
    parts = [b"\0", deltas, places, *_key_parts(keys), _encoded(lengths)]
    if any(part is None for part in parts):
        return None
    # Besides the prefix and the value, a byte says that there are no headers.
    sizes, fixed = lengths, 1
    for part in parts:
        if isinstance(part, bytes):
            fixed += len(part)
        else:
            sizes = pc.add(sizes, pc.binary_length(part))
    encoded_sizes = _encoded(pc.add(sizes, fixed))
    if encoded_sizes is None:
        return None
    columns = [encoded_sizes, *parts, *([prefix] if prefix else ()), values, b"\0"]
    # The last one is written between the others.
    rows = pc.binary_join_element_wise(*map(_as_column, [*columns, b""]))
    facts = BatchFacts(
        base_offset=base,
        last_offset=last,
        base_timestamp=first,
        max_timestamp=newest,
        count=count,
        leader_epoch=leader_epoch,
    )
    return pack_batch(_data_of(rows), facts)


def _key_parts(keys: pa.Array | None) -> list[Any]:
    if keys is None:
        return [_NULL]
    own = keys.fill_null(b"")
    lengths = _encoded(pc.binary_length(own))
    if lengths is None or not keys.null_count:
        return [lengths, own]
    return [pc.if_else(keys.is_null(), _as_column(_NULL), lengths), own]


def _as_column(part: pa.Array | bytes) -> pa.Array | pa.Scalar:
    return pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part


def _encoded(values: pa.Array) -> pa.Array | None:
    """Return the bytes of numbers; None if one of them is not in the table."""
    bounds = pc.min_max(values)
    if bounds["min"].as_py() < 0 or bounds["max"].as_py() >= NUMBER_END:
        return None
    return _numbers().take(values)


def _data_of(rows: pa.Array) -> memoryview:
    """Return the bytes of all *rows*, which Arrow has just joined."""
    _, offsets, data = rows.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[rows.offset] : ends[rows.offset + len(rows)]]
