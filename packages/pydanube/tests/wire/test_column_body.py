"""Bodies written and read without Arrow are those that Arrow writes and reads."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.batch import Column, attributes_of, columns_of, schema_of
from pydanube.model.errors import CorruptBatch, InvalidRequest
from pydanube.model.message_columns import FIELDS, MessageColumns
from pydanube.wire.arrow_body import read_body, validate
from pydanube.wire.batches import ArrowColumns
from pydanube.wire.column_body import LAYOUTS, ColumnBody, encode_body

TIMES = st.integers(-(2**55), 2**55)
TEXTS = st.text(max_size=6)
VALUES = {
    "keys": st.none() | st.binary(max_size=9),
    "attributes": st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3),
    "publish_times": TIMES,
    "producers": st.none() | TEXTS,
    "deliver_at": st.none() | TIMES,
    "expires_at": st.none() | TIMES,
}


@st.composite
def batches(draw):
    """Columns of some messages, any of which may be absent."""
    payloads = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=20))
    count = len(payloads)
    names = draw(st.sets(st.sampled_from(sorted(VALUES))))
    columns = {
        name: draw(st.lists(VALUES[name], min_size=count, max_size=count))
        for name in sorted(names)
    }
    return MessageColumns(payloads=payloads, **columns)


def values_of(read, columns):
    """Return all values of what was read, with attributes as they were given."""
    found = {each: read.values(each) for each in LAYOUTS if each & columns}
    if Column.ATTRIBUTES in found:
        found[Column.ATTRIBUTES] = [
            None if each is None else attributes_of(each)
            for each in found[Column.ATTRIBUTES]
        ]
    return found


def read_with_arrow(body, columns, count):
    return values_of(ArrowColumns(validate(read_body(body, columns, count))), columns)


def read_without(body, columns, count):
    return values_of(ColumnBody(body, columns, count), columns)


@given(batches())
def test_the_bytes_are_those_that_arrow_writes(batch):
    assert encode_body(batch) == batch.to_arrow().serialize().to_pybytes()


@given(batches())
def test_what_was_written_is_read(batch):
    columns, count = batch.columns(), len(batch.payloads)
    found = read_without(encode_body(batch), columns, count)
    assert found == {
        column: getattr(batch, name)
        for column, name in FIELDS.items()
        if column & columns
    }


@given(batches(), st.data())
def test_slices_that_arrow_writes_are_read(batch, data):
    rows = batch.to_arrow()
    base = data.draw(st.integers(0, rows.num_rows - 1))
    rows = rows.slice(base, data.draw(st.integers(1, rows.num_rows - base)))
    columns = columns_of(rows)
    body = rows.serialize().to_pybytes()
    assert read_without(body, columns, rows.num_rows) == read_with_arrow(
        body, columns, rows.num_rows
    )


def test_offsets_with_gaps_are_read():
    columns = Column.PAYLOAD | Column.OFFSET
    arrays = [pa.array([b"a", b"b"]), pa.array([3, 9])]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))
    found = read_without(rows.serialize().to_pybytes(), columns, 2)
    assert found == {Column.PAYLOAD: [b"a", b"b"], Column.OFFSET: [3, 9]}


@given(batches(), st.data())
def test_changed_bytes_are_refused_or_read_as_by_arrow(batch, data):
    columns, count = batch.columns(), len(batch.payloads)
    body = bytearray(encode_body(batch))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] ^= data.draw(st.integers(1, 255))
    try:
        found = read_without(body, columns, count)
    except CorruptBatch:
        return
    try:
        expected = read_with_arrow(body, columns, count)
    except CorruptBatch:
        # Arrow also looks at what no value depends on.
        return
    assert found == expected


@given(batches(), st.data())
def test_changed_numbers_of_the_metadata_do_no_harm(batch, data):
    body = bytearray(encode_body(batch))
    words = (struct.unpack_from("<I", body, 4)[0] + 8) // 4
    at = 4 * data.draw(st.integers(0, words - 1))
    numbers = st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1, len(body)])
    struct.pack_into("<I", body, at, data.draw(numbers | st.integers(0, 2**32 - 1)))
    try:
        found = read_without(body, batch.columns(), len(batch.payloads))
    except CorruptBatch:
        return
    # What is read is no longer than what was sent.
    assert sum(map(len, found[Column.PAYLOAD])) <= len(body)


@given(batches(), st.data())
def test_truncated_body_is_corrupt(batch, data):
    body = encode_body(batch)
    # The last padding may be missing.
    end = data.draw(st.integers(0, len(body) - 8))
    with pytest.raises(CorruptBatch):
        read_without(body[:end], batch.columns(), len(batch.payloads))


@given(st.binary(max_size=400), st.integers(0, 255), st.integers(0, 2**40))
def test_arbitrary_bytes_are_corrupt(data, columns, count):
    with pytest.raises(CorruptBatch):
        ColumnBody(data, columns | Column.PAYLOAD, count)


@given(batches(), st.integers(0, 255))
def test_other_columns_than_those_of_the_header_do_no_harm(batch, columns):
    columns |= Column.PAYLOAD
    count = len(batch.payloads)
    body = encode_body(batch)
    if columns == batch.columns():
        return
    try:
        found = read_without(body, columns, count)
    except CorruptBatch:
        return
    assert found == read_with_arrow(body, columns, count)


def corrupted(change, columns=Column.PAYLOAD, **fields):
    """Return the message of the error about a body that *change* has changed."""
    batch = MessageColumns(payloads=[b"ab", b"c"], **fields)
    body = bytearray(encode_body(batch))
    change(body)
    with pytest.raises(CorruptBatch) as raised:
        read_without(body, columns, 2)
    return str(raised.value)


def put(kind, at, *values):
    return lambda body: struct.pack_into(f"<{kind}", body, at, *values)


# The positions are those of docs/format/batch.md: buffers from 88 on, the node of the
# payload at 144, and the offsets of two payloads at 160.
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("I", 0, 0), "does not begin with the marker"),
        (put("q", 72, 3), "the header counts 2 messages, the body has 3"),
        (put("q", 128, 2**40), "buffers overlap"),
        (put("q", 128, -8), "buffers overlap"),
        (put("q", 120, 1000), "a buffer of 3 bytes at 1000 is outside of the"),
        (put("q", 120, -8), "a buffer of 3 bytes at -8 is outside of the"),
        (put("I", 84, 2), "has 1 arrays and 2 buffers, its columns 1 and 3"),
        (put("q", 144, 3), "a column has 3 values, the batch 2 messages"),
        (put("q", 152, 1), "the column payload has nulls"),
        (put("q", 112, 4), "a buffer of 4 bytes for 3 numbers"),
        (put("3i", 160, 0, 4, 3), "offsets in the body are not rising from 0 to 3"),
        (put("3i", 160, 0, 2, 4), "offsets in the body are not rising from 0 to 3"),
        (put("3i", 160, -1, 2, 3), "offsets in the body are not rising from 0 to 3"),
    ],
)
def test_lengths_counts_and_offsets_out_of_bounds_are_corrupt(change, message):
    assert message in corrupted(change)


def test_nulls_that_no_bit_counts_are_corrupt():
    columns = Column.PAYLOAD | Column.KEY
    node = 88 + 6 * 16 + 8
    for null_count in (2, 3, -1):
        found = corrupted(put("q", node + 8, null_count), columns, keys=[None, b"k"])
        assert f"other than {null_count} nulls" in found


def test_text_that_is_not_utf_8_is_corrupt():
    found = corrupted(
        lambda body: body.__setitem__(body.rindex(b"n"), 0xFF),
        Column.PAYLOAD | Column.ATTRIBUTES,
        attributes=[{"n": "v"}, None],
    )
    assert "not UTF-8" in found


def test_null_attributes_are_read_as_none():
    """Arrow has them; clients do not write them."""
    columns = Column.PAYLOAD | Column.ATTRIBUTES
    maps = pa.MapArray.from_arrays(
        pa.array([0, 2], pa.int32()), pa.array(["a", "b"]), pa.array([None, "x"])
    )
    schema = schema_of(columns)
    rows = pa.RecordBatch.from_arrays([pa.array([b""]), maps], schema=schema)
    body = ColumnBody(rows.serialize().to_pybytes(), columns, 1)
    assert body.values(Column.ATTRIBUTES) == [[("a", None), ("b", "x")]]


@pytest.mark.parametrize(
    "columns",
    [
        {"attributes": [{"name": 5}]},
        {"attributes": [{"name": "\ud800"}]},
        {"deliver_at": [2**63]},
        {"keys": ["text"]},
    ],
)
def test_values_of_other_types_are_refused(columns):
    with pytest.raises(InvalidRequest, match="invalid batch"):
        encode_body(MessageColumns(payloads=[b""], **columns))
