"""Tests of the sink danube-postgres without a server."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pydanube.model.errors import InvalidConfig
from pydanube_spark.sinks.postgres import PostgresSink

SCHEMA = pa.schema({"id": pa.int64(), "gone": pa.bool_()})


def sink(**given):
    options = {"uri": "postgresql://h/d", "table": "t"} | given
    return PostgresSink.parse(options, SCHEMA)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"orderColumns": "id"}, "orderColumns: only with keyColumns"),
        ({"deleteColumn": "id"}, "deleteColumn: only with keyColumns"),
        ({"keyColumns": "id", "deleteColumn": "id"}, "cannot be a key column"),
        ({"table": "a.b.c"}, "must be table or schema.table"),
        ({"uri": ""}, "'uri' is required"),
    ],
)
def test_invalid_options_are_refused(given, message):
    with pytest.raises(InvalidConfig, match=message):
        sink(**given)


def test_missing_option_columns_are_refused():
    with pytest.raises(InvalidConfig, match="no column 'Id'; did you mean 'id'"):
        sink(keyColumns="Id")
    found = sink(keyColumns="id", deleteColumn="gone")
    assert found.plan.written == ["id"]


def test_uri_is_not_shown():
    assert "sesame" not in repr(sink(uri="postgresql://ada:sesame@host/db"))
