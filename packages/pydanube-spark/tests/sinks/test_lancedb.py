"""Tests of the sink danube-lancedb without a database."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pydanube.model.errors import InvalidConfig
from pydanube_spark.sinks.lancedb import LanceSink
from pydanube_spark.sinks.pure.lance_rows import vector_type

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32())})


def sink(schema=SCHEMA, **given):
    return LanceSink.parse({"uri": "/x", "table": "t"} | given, schema)


def test_added_rows_name_their_batch():
    assert sink().batch_column == "_batch"
    assert sink(batchColumn="none").batch_column is None
    assert sink(keyColumns="id").batch_column is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"orderColumns": "id"}, "only with keyColumns"),
        ({"keyColumns": "id", "batchColumn": "b"}, "only without keyColumns"),
        ({"dimension": "3"}, "only with vectorColumn"),
        ({"index": "IvfPq"}, "only with vectorColumn"),
        ({"vectorColumn": "v", "index": "ivf_pq"}, "did you mean 'IvfPq'"),
    ],
)
def test_contradicting_options_are_refused(given, message):
    with pytest.raises(InvalidConfig, match=message):
        sink(**given)


def test_storage_options_are_not_shown():
    assert "sesame" not in repr(sink(**{"storage.secret_access_key": "sesame"}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keyColumns": "no"}, "keyColumns: the DataFrame has no column 'no'; it has"),
        ({"vectorColumn": "id"}, "'id' is int64, not an array of numbers"),
        ({"vectorColumn": "v", "createTable": "true"}, "dimension: is required with"),
        ({"batchColumn": "id"}, "the name of the column 'id' is reserved"),
    ],
)
def test_unsuitable_columns_are_refused(given, message):
    with pytest.raises(InvalidConfig, match=message):
        sink(**given)


def test_reserved_columns_are_refused():
    reserved = pa.schema({"_danube_row": pa.int64()})
    with pytest.raises(InvalidConfig, match="begins with _danube_, which is reserved"):
        sink(reserved)


def test_incompatible_table_is_reported():
    there = pa.schema({"id": pa.string(), "v": vector_type(3), "_batch": pa.string()})
    assert sink(vectorColumn="v").problems_with(there) == []
    found = sink(vectorColumn="v", dimension="4").problems_with(there)
    assert found == ["dimension: 'v' has 3 numbers in the table"]
    other = pa.schema({"id": pa.list_(pa.int8()), "v": pa.list_(pa.float32())})
    assert sink(vectorColumn="v").problems_with(other) == [
        "'t' has no column '_batch'; it has id, v",
        "the column 'id' is int64 and cannot be cast to list<item: int8>",
        "vectorColumn: 'v' is list<item: float> in the table",
    ]
