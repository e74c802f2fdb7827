"""Which columns the table of a topic has."""

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.wire.files import segment_format
from pydanube_spark.reader.decoding import ERROR, VALUE
from pydanube_spark.reader.scan_reader import SCHEMA
from pydanube_spark.tables.export.table_columns import TableColumns, TableLayout
from pydanube_spark.tables.pure.table_options import UndecodablePolicy

ORDER = pa.struct([("number", pa.int64()), ("tags", pa.list_(pa.string()))])
AROUND = ["_offset", "_publish_time", "_key", "_attributes", "_producer"]


def columns(undecodable=UndecodablePolicy.FAIL, *, value=ORDER, is_partitioned=False):
    return TableColumns(TableLayout.TYPED, is_partitioned, value, undecodable)


def batch(of, values, errors=None):
    """Messages as they are read for *of*."""
    schema = of.read_schema()
    found = {
        VALUE: pa.array(values, of.value_type),
        ERROR: pa.array(errors or [None] * len(values), pa.string()),
        "offset": pa.array(range(len(values)), pa.int64()),
        "payload": pa.array([b"p%d" % n for n in range(len(values))]),
    }
    return pa.RecordBatch.from_arrays(
        [
            found[name]
            if name in found
            else pa.nulls(len(values), schema.field(name).type)
            for name in schema.names
        ],
        schema=schema,
    )


def test_a_raw_table_has_what_a_segment_has():
    raw = TableColumns(TableLayout.RAW, is_partitioned=False)
    assert raw.table_schema().names == segment_format.SCHEMA.names
    assert raw.read_schema() == raw.table_schema()
    parts = TableColumns(TableLayout.RAW, is_partitioned=True)
    assert parts.table_schema().names == ["partition", *segment_format.SCHEMA.names]


def test_fields_of_values_are_columns():
    of = columns()
    assert of.table_schema().names == ["number", "tags", *AROUND, "_schema_version"]
    rows = of.rows(batch(of, [{"number": 1, "tags": ["a"]}, None])).to_pylist()
    assert rows[0]["number"] == 1
    assert rows[0]["_offset"] == 0
    assert (rows[1]["number"], rows[1]["tags"]) == (None, None)


def test_partitions_are_numbered():
    assert columns(is_partitioned=True).table_schema().names[2] == "_partition"


def test_values_without_fields_are_one_column():
    of = columns(value=pa.string())
    assert of.rows(batch(of, ["x"])).column("value").to_pylist() == ["x"]


def test_undecodable_message_keeps_its_payload():
    of = columns(UndecodablePolicy.NULL)
    found = of.rows(batch(of, [None, {"number": 1, "tags": []}], ["broken", None]))
    assert found.column("_payload").to_pylist() == [b"p0", None]
    assert found.column("_error").to_pylist() == ["broken", None]
    assert of.split_dead_letters(batch(of, []))[1] is None


def test_dead_letters_are_whole_messages():
    of = columns(UndecodablePolicy.DEAD_LETTER)
    values = [{"number": 1, "tags": []}, None, {"number": 2, "tags": []}]
    rows, dead = of.split_dead_letters(batch(of, values, [None, "broken", None]))
    assert rows.column("number").to_pylist() == [1, 2]
    assert rows.schema.equals(of.table_schema())
    assert dead.schema.equals(of.dead_letter_schema())
    assert dead.column("offset").to_pylist() == [1]
    assert dead.column("error").to_pylist() == ["broken"]
    assert of.split_dead_letters(batch(of, values))[1] is None


def test_read_schema_has_only_columns_of_topics():
    for undecodable in UndecodablePolicy:
        of = columns(undecodable, is_partitioned=True)
        for field in of.read_schema():
            if field.name not in (VALUE, ERROR):
                assert field.equals(SCHEMA.field(field.name))


@pytest.mark.parametrize("name", ["_offset", "_OFFSET"])
def test_a_field_that_is_called_like_another_column_is_refused(name):
    with pytest.raises(InvalidRequest, match="--raw"):
        columns(value=pa.struct([(name, pa.int64())])).table_schema()
    twice = pa.struct([("a", pa.int64()), ("A", pa.int64())])
    with pytest.raises(InvalidRequest, match="--raw"):
        columns(value=twice).table_schema()
