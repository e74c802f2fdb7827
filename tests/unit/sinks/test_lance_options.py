"""Tests of the options of danube-lancedb."""

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.sinks.lance_options import LanceOptions
from pydanube.sinks.vectors import vector_type

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32())})


def options(**given):
    return LanceOptions.parse({"uri": "/x", "table": "t"} | given)


def test_added_rows_name_their_batch():
    assert options().batch_column == "_batch"
    assert options(batchColumn="none").batch_column is None
    assert options(keyColumns="id").batch_column is None


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
        options(**given)


def test_storage_options_are_not_shown():
    assert "sesame" not in repr(options(**{"storage.secret_access_key": "sesame"}))


def test_unsuitable_columns_are_reported():
    found = options(vectorColumn="id", keyColumns="no").column_problems(SCHEMA)
    assert found == [
        "keyColumns: the DataFrame has no column 'no'; it has id, v",
        "vectorColumn: 'id' is int64, not an array of numbers",
    ]
    found = options(vectorColumn="v", createTable="true").column_problems(SCHEMA)
    assert found == ["dimension: is required with createTable=true"]
    reserved = pa.schema({"_batch": pa.string(), "_danube_row": pa.int64()})
    assert len(options().column_problems(reserved)) == 2


def test_incompatible_table_is_reported():
    there = pa.schema({"id": pa.string(), "v": vector_type(3), "_batch": pa.string()})
    assert options(vectorColumn="v").problems_with(SCHEMA, there) == []
    found = options(vectorColumn="v", dimension="4").problems_with(SCHEMA, there)
    assert found == ["dimension: 'v' has 3 numbers in the table"]
    other = pa.schema({"id": pa.list_(pa.int8()), "v": pa.list_(pa.float32())})
    assert options(vectorColumn="v").problems_with(SCHEMA, other) == [
        "the table 't' has no column '_batch'; it has id, v",
        "the column 'id' is int64 and cannot be cast to list<item: int8>",
        "vectorColumn: 'v' is list<item: float> in the table",
    ]
