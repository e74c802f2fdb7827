"""
Many JSON objects at once, by Arrow's own parser: three times as fast as one by one.

That parser reads a stream of values, and takes a little more than JSON.  So it gets a
batch only where both make no difference, and where it objects to anything the batch
is read value by value, which says what is wrong with which payload:

- Every payload begins with ``{`` and ends with ``}``, and they are joined by newlines.
  Between ``}``, a newline and ``{`` a stream can only be between two values: a
  string holds no raw newline, and inside of anything else a comma is missing.  So no
  value reaches over a border, each payload is one value or more, and if there are as
  many values as payloads, each is exactly one.
- ``NaN`` and ``Infinity`` are not in it, nor bytes that are not UTF-8.
- Nothing nests deeper than a few brackets can.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

BRACKETS_MAX = 256
"""A payload with more opening brackets of a kind is left to the other parser."""
BLOCK_BYTES_MAX = 2**30

_NO_JSON = re.compile(rb"[:,\[\s-](?:NaN|Inf)")


def read_objects(payloads: pa.Array, arrow_type: pa.StructType) -> pa.Array | None:
    """
    The values of *payloads* as a column of *arrow_type*.

    None if they have to be read one by one.
    """
    count = len(payloads)
    if not count or payloads.null_count or payloads.nbytes > BLOCK_BYTES_MAX:
        return None
    try:
        texts = payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    if not _are_objects(texts):
        return None
    whole = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), texts)
    block = pc.binary_join(whole, "\n")[0].as_buffer()
    if _has_other_words(block):
        return None
    try:
        table = json.read_json(
            pa.BufferReader(block),
            json.ReadOptions(use_threads=False, block_size=block.size),
            json.ParseOptions(
                explicit_schema=pa.schema(list(arrow_type)),
                newlines_in_values=False,
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != count:
        return None
    columns = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type))


def _are_objects(texts: pa.Array) -> bool:
    return all(
        pc.all(each).as_py()
        for each in (
            pc.starts_with(texts, "{"),
            pc.ends_with(texts, "}"),
            *(
                pc.less_equal(pc.count_substring(texts, bracket), BRACKETS_MAX)
                for bracket in "{["
            ),
        )
    )


def _has_other_words(block: pa.Buffer) -> bool:
    raw = block.to_pybytes()
    if b"NaN" not in raw and b"Inf" not in raw:
        return False
    return _NO_JSON.search(raw) is not None
