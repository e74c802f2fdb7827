"""What a user can say to the sink danube-lancedb."""

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.sinks.lance_options import LanceOptions
from pydanube.sinks.vectors import vector_type

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32())})


def options(**given):
    return LanceOptions.parse({"uri": "/x", "table": "t"} | given)


def test_rows_that_are_added_say_of_which_batch_they_are():
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
def test_options_that_contradict_each_other_are_refused(given, message):
    with pytest.raises(InvalidConfig, match=message):
        options(**given)


def test_secrets_of_the_store_are_not_shown():
    assert "sesame" not in repr(options(**{"storage.secret_access_key": "sesame"}))


def test_columns_that_do_not_do_are_told():
    found = options(vectorColumn="id", keyColumns="no").column_problems(SCHEMA)
    assert found == [
        "keyColumns: the DataFrame has no column 'no'; it has id, v",
        "vectorColumn: 'id' is int64, not an array of numbers",
    ]
    found = options(vectorColumn="v", createTable="true").column_problems(SCHEMA)
    assert found == ["dimension: is needed where a table may be created"]
    reserved = pa.schema({"_batch": pa.string(), "_danube_row": pa.int64()})
    assert len(options().column_problems(reserved)) == 2


def test_a_table_that_does_not_fit_is_told():
    there = pa.schema({"id": pa.string(), "v": vector_type(3), "_batch": pa.string()})
    assert options(vectorColumn="v").problems_with(SCHEMA, there) == []
    found = options(vectorColumn="v", dimension="4").problems_with(SCHEMA, there)
    assert found == ["dimension: 'v' has 3 numbers in the table"]
    other = pa.schema({"id": pa.list_(pa.int8()), "v": pa.list_(pa.float32())})
    assert options(vectorColumn="v").problems_with(SCHEMA, other) == [
        "the table 't' has no column '_batch'; it has id, v",
        "the column 'id' is int64 and cannot become list<item: int8>",
        "vectorColumn: 'v' is list<item: float> in the table",
    ]
