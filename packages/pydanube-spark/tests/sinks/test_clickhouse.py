"""Tests of the sink danube-clickhouse without a server."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pydanube.model.errors import (
    InvalidConfig,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from pydanube_spark.sinks.clickhouse import ClickHouseSink, translate

SCHEMA = pa.schema({"id": pa.int64()})


def sink(**given):
    return ClickHouseSink.parse({"table": "t"} | given, SCHEMA)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "clickhouse://h"}, "must begin with http"),
        ({"url": "http://u:p@h:8123"}, "use the options user and password"),
        ({"orderBy": "id"}, "orderBy: only with createTable"),
        *(
            ({"createTable": "true", "engine": engine}, "MergeTree family")
            for engine in ("Memory", "MergeTree; DROP TABLE x", "Log()")
        ),
        ({"tabel": "t"}, "did you mean 'table'"),
    ],
)
def test_invalid_options_are_refused(given, message):
    with pytest.raises(InvalidConfig, match=message):
        sink(**given)


def test_missing_option_columns_are_refused():
    with pytest.raises(InvalidConfig, match="orderBy: the DataFrame has no column"):
        sink(createTable="true", orderBy="no")


def test_engines_of_the_mergetree_family_are_allowed():
    found = sink(createTable="true", engine="ReplacingMergeTree(v)")
    assert found.plan.engine == "ReplacingMergeTree(v)"


def test_password_is_not_shown():
    assert "sesame" not in repr(sink(password="sesame"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(60, NotFound), (516, PermissionDenied), (252, Unavailable), (62, InvalidRequest)],
)
def test_error_codes_map_to_error_types(code, kind):
    assert type(translate(code, "said")) is kind
    assert type(translate(None, "said")) is InvalidRequest
