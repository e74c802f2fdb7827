"""Tests of the SQL for ClickHouse."""

import pyarrow as pa
import pytest

from pydanube_spark.sinks.pure.clickhouse_sql import (
    DONE,
    MOVING,
    CommitRecord,
    Plan,
    column_type,
    literal,
    parse_commit_record,
    quote_identifier,
)

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string()})


def plan(**options):
    return Plan(**({"database": "shop", "table": "orders", "schema": SCHEMA} | options))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.int8(), "Nullable(Int8)"),
        (pa.decimal128(10, 2), "Nullable(Decimal(10, 2))"),
        (pa.list_(pa.list_(pa.string())), "Array(Array(Nullable(String)))"),
        (pa.map_(pa.string(), pa.int8()), "Map(String, Nullable(Int8))"),
        (pa.struct([("a`b", pa.int8())]), "Tuple(`a\\`b` Nullable(Int8))"),
        (pa.duration("us"), None),
        (pa.list_(pa.duration("us")), None),
        (pa.struct([]), None),
    ],
)
def test_types_map_to_nullable_columns(kind, wanted):
    assert column_type(kind) == wanted


def test_unsupported_type_is_reported():
    schema = pa.schema({"x": pa.duration("us"), "_danube_row": pa.int8()})
    assert len(plan(schema=schema).problems()) == 2


def test_created_table_deduplicates_inserts():
    said = plan(order=("id",)).create_target()
    assert "`id` Int64, `text` Nullable(String)" in said
    assert "ORDER BY (`id`) SETTINGS non_replicated_deduplication_window" in said
    replicated = plan(engine="ReplicatedMergeTree('/x', 'r')").create_target()
    assert "SETTINGS" not in replicated
    assert "ORDER BY (tuple())" in replicated


def test_missing_and_computed_columns_are_reported():
    found = plan().problems_with({"id": "ALIAS", "other": ""})
    assert found == [
        "`shop`.`orders`: the column 'id' cannot be written",
        "`shop`.`orders` has no column 'text'; it has id, other",
    ]


def test_commit_record_is_parsed():
    assert parse_commit_record([]) is None
    begun = CommitRecord(7, is_done=False, query="q", stagings=("a", "b"))
    assert parse_commit_record([[str(7 * 2 + MOVING), "q", "a,b"]]) == begun
    done = CommitRecord(7, is_done=True, query="q", stagings=())
    assert parse_commit_record([[str(7 * 2 + DONE), "q", ""]]) == done


def test_identifiers_and_literals_are_escaped():
    assert quote_identifier("a`b\\") == "`a\\`b\\\\`"
    assert literal("a'b\\") == "'a\\'b\\\\'"
