"""
Reading a column of JSON objects with Arrow's parser, three times as fast as singly.

Arrow's parser reads a stream of values, and accepts a little more than JSON.  It gets a
batch only if this makes no difference; batches that it refuses are read value by value,
to find the invalid payload:

- Every payload begins with ``{`` and ends with ``}``, and they are joined by newlines.
  In a stream, ``}``, a newline and ``{`` can only occur between two values: a string
  contains no raw newline, and everywhere else a comma would be missing.  No value
  crosses payloads, each payload has at least one value, and if there are as many values
  as payloads, each payload has exactly one.
- The batch has no ``NaN`` or ``Infinity``, and only valid UTF-8.
- The nesting is limited by the number of brackets.
"""

from __future__ import annotations

import re

import pyarrow as pa
from pyarrow import json

from pydanube.model.arrow import pc

BRACKETS_MAX = 256
"""Batches with more opening brackets of a kind in a payload are read value by value."""
BLOCK_BYTES_MAX = 2**30

_NO_JSON = re.compile(rb"[:,\[\s-](?:NaN|Inf)")


def read_objects(payloads: pa.Array, arrow_type: pa.StructType) -> pa.Array | None:
    """
    Return *payloads* as a column of *arrow_type*, or None to read them one by one.
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
