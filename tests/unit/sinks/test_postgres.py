"""Tests of the sink danube-postgres without a server."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pydanube.model.errors import InvalidConfig
from pydanube.sinks.postgres import PostgresOptions

SCHEMA = pa.schema({"id": pa.int64(), "gone": pa.bool_()})


def options(**given):
    return PostgresOptions.parse({"uri": "postgresql://h/d", "table": "t"} | given)


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
        options(**given)


def test_missing_option_columns_are_refused():
    with pytest.raises(InvalidConfig, match="no column 'Id'; did you mean 'id'"):
        options(keyColumns="Id").plan(SCHEMA)
    found = options(keyColumns="id", deleteColumn="gone").plan(SCHEMA)
    assert found.written == ["id"]


def test_uri_is_not_shown():
    assert "sesame" not in repr(options(uri="postgresql://ada:sesame@host/db"))
