"""What ClickHouse is told."""

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.sinks.clickhouse_sql import (
    DONE,
    MOVING,
    CommitRecord,
    Plan,
    check_engine,
    column_type,
    literal,
    move_token,
    parse_commit_record,
    quote_identifier,
)
from pydanube.spark.sink import BatchKey

KEY = BatchKey("app", 7, "query")
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
def test_each_type_has_a_column_that_may_be_null(kind, wanted):
    assert column_type(kind) == wanted


def test_what_has_no_type_is_told():
    schema = pa.schema({"x": pa.duration("us"), "_danube_row": pa.int8()})
    assert len(plan(schema=schema).problems()) == 2


def test_a_table_that_is_made_can_tell_repetitions():
    said = plan(order=("id",)).create_target()
    assert "`id` Int64, `text` Nullable(String)" in said
    assert "ORDER BY (`id`) SETTINGS non_replicated_deduplication_window" in said
    replicated = plan(engine="ReplicatedMergeTree('/x', 'r')").create_target()
    assert "SETTINGS" not in replicated
    assert "ORDER BY (tuple())" in replicated


@pytest.mark.parametrize("text", ["Memory", "MergeTree; DROP TABLE x", "Log()"])
def test_only_engines_that_sort_are_taken(text):
    with pytest.raises(InvalidConfig, match="MergeTree family"):
        check_engine(text)
    assert check_engine("ReplacingMergeTree(v)") == "ReplacingMergeTree(v)"


def test_columns_that_are_not_there_or_cannot_be_written_are_told():
    found = plan().problems_with({"id": "ALIAS", "other": ""})
    assert found == [
        "`shop`.`orders`: the column 'id' cannot be written",
        "`shop`.`orders` has no column 'text'; it has id, other",
    ]


def test_what_was_noted_is_read_back():
    assert parse_commit_record([]) is None
    begun = CommitRecord(7, is_done=False, query="q", stagings=("a", "b"))
    assert parse_commit_record([[str(7 * 2 + MOVING), "q", "a,b"]]) == begun
    done = CommitRecord(7, is_done=True, query="q", stagings=())
    assert parse_commit_record([[str(7 * 2 + DONE), "q", ""]]) == done


def test_each_piece_of_a_batch_has_a_token_of_its_own():
    assert move_token(KEY, 3) == "app:7:3"


def test_staging_tables_are_dropped_when_nobody_can_need_them():
    this, other = plan(), plan(table="other")
    names = [this.staging_name(BatchKey("app", n, ""), "0123abcd") for n in (6, 7, 8)]
    strange = other.staging_name(KEY, "0123abcd")
    rows = [*([name, "0"] for name in names), [strange, "0"], ["_danube_old", "1"]]
    assert this.stale_tables(KEY, rows) == [*names[:2], "_danube_old"]


def test_names_and_texts_cannot_break_out():
    assert quote_identifier("a`b\\") == "`a\\`b\\\\`"
    assert literal("a'b\\") == "'a\\'b\\\\'"
