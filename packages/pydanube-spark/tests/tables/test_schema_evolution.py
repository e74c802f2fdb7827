"""Tests of schema evolution."""

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_spark.tables.pure.schema_evolution import (
    added_columns,
    is_widening,
    plain_type,
    rows_schema,
    stored_schema,
    widened_columns,
)

X, Y = ("x", pa.int32()), ("y", pa.string())
TABLE = pa.schema([("n", pa.int64()), ("s", pa.struct([X]))])


def test_equal_schemas_add_no_columns():
    assert len(added_columns(TABLE, TABLE, merge=False)) == 0
    assert len(added_columns(TABLE, pa.schema([("n", pa.int64())]), merge=False)) == 0


def test_new_columns_and_struct_fields_are_added():
    rows = pa.schema([("s", pa.struct([X, Y])), ("more", pa.list_(pa.int8()))])
    added = added_columns(TABLE, rows, merge=True)
    assert added.names == ["s", "more"]
    assert added.field("s").type == pa.struct([Y])
    with pytest.raises(InvalidRequest, match="no columns s, more"):
        added_columns(TABLE, rows, merge=False)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("n", pa.float64())], "n is int64, not double"),
        ([("s", pa.struct([("x", pa.string())]))], "s.x is int32, not string"),
        ([("s", pa.string())], "s is struct"),
        ([("N", pa.int64())], "differ in case only"),
        ([("a", pa.int64()), ("A", pa.int64())], "differ in case only"),
        ([("a", pa.int64()), ("a", pa.int64())], "occurs twice"),
    ],
)
def test_incompatible_schema_is_refused(rows, message):
    with pytest.raises(InvalidRequest, match=message):
        added_columns(TABLE, pa.schema(rows), merge=True)


DECIMALS = [("short", pa.decimal128(9, 2)), ("long", pa.decimal128(20, 2))]


def test_rows_may_be_narrower_and_are_stored_as_the_table_has_them():
    rows = pa.schema([("n", pa.int8()), ("s", pa.struct([("x", pa.int16())]))])
    assert len(added_columns(TABLE, rows, merge=False)) == 0
    assert widened_columns(TABLE, rows) == []
    assert stored_schema(TABLE, rows).equals(TABLE)
    (_, short), (_, long) = DECIMALS
    assert is_widening(short, long)
    assert not is_widening(long, short)
    assert not is_widening(short, pa.decimal128(20, 3))
    assert not is_widening(pa.int32(), pa.float64())
    assert not is_widening(pa.uint8(), pa.uint16())


def test_wider_rows_need_merge_schema_and_a_table_that_can_widen():
    rows = pa.schema([("s", pa.struct([("x", pa.int64())]))])
    assert widened_columns(TABLE, rows) == [("s.x", pa.int32(), pa.int64())]
    assert len(added_columns(TABLE, rows, merge=True)) == 0
    with pytest.raises(InvalidRequest, match=r"s\.x is int32, not int64.*mergeSchema"):
        added_columns(TABLE, rows, merge=False)
    with pytest.raises(InvalidRequest, match=r"s\.x is int32.*, or rewrite it"):
        added_columns(TABLE, rows, merge=True, widening="rewrite it")


def test_missing_required_column_is_refused():
    table = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(InvalidRequest, match="requires the columns n"):
        added_columns(table, pa.schema([("m", pa.int64())]), merge=True)


def test_offset_widths_are_ignored():
    large = pa.large_list(pa.struct([("a", pa.large_string())]))
    small = pa.list_(pa.field("item", pa.struct([("a", pa.string())])))
    assert plain_type(large) == plain_type(small)
    assert plain_type(pa.dictionary(pa.int8(), pa.string())) == pa.string()
    large, small = pa.large_binary(), pa.binary()
    assert plain_type(pa.map_(pa.string(), large)) == pa.map_(pa.string(), small)
    assert plain_type(pa.timestamp("us")) == pa.timestamp("us")
    assert plain_type(pa.timestamp("ns", "Europe/Paris")) == pa.timestamp("us", "UTC")


def test_rows_schema_is_nullable():
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    schema = pa.schema([pa.field("s", inner, nullable=False)])
    found = rows_schema(schema).field("s")
    assert found.nullable
    assert found.type[0].nullable
