"""Tests of the SQL for PostgreSQL."""

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pure.sink import BatchKey
from pydanube_spark.sinks.pure.postgres_sql import (
    Column,
    Plan,
    TableName,
    Target,
    column_type,
    is_expired,
    quote_identifier,
    staged_type,
    unique_columns,
)
from pydanube_spark.sinks.pure.staging import STAGING_AGE_MAX_DAYS

KEY = BatchKey("app", 7, "query")
SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string(), "gone": pa.bool_()})
TARGET = Target((Column("id", "bigint"), Column("text", "citext")))


def plan(**options):
    table = TableName.parse(options.pop("table", "shop.orders"))
    return Plan(**({"table": table, "schema": SCHEMA} | options))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("orders", '"orders"'),
        ("Shop.Orders", '"Shop"."Orders"'),
        ('"a.b".orders', '"a.b"."orders"'),
        ('"a ""b"""', '"a ""b"""'),
    ],
)
def test_table_name_is_parsed(text, wanted):
    assert str(TableName.parse(text)) == wanted


@pytest.mark.parametrize("text", ["", "a.b.c", "a b", ".a", "a.", '"a', 'x; DROP "y'])
def test_malformed_table_name_is_refused(text):
    with pytest.raises(InvalidConfig, match="must be table or schema"):
        TableName.parse(text)


@pytest.mark.parametrize(
    ("kind", "wanted", "staged"),
    [
        (pa.int8(), "smallint", "smallint"),
        (pa.timestamp("us", "UTC"), "timestamp with time zone", None),
        (pa.decimal128(10, 2), "numeric(10, 2)", None),
        (pa.list_(pa.string()), "text[]", None),
        (pa.list_(pa.list_(pa.int8())), "jsonb", "text"),
        (pa.map_(pa.string(), pa.int8()), "jsonb", "text"),
        (pa.struct([("x", pa.int8())]), "jsonb", "text"),
    ],
)
def test_types_map_to_columns_and_json_is_staged_as_text(kind, wanted, staged):
    assert column_type(kind) == wanted
    assert staged_type(kind) == (staged or wanted)


def test_unsupported_type_is_reported():
    schema = pa.schema({"x": pa.duration("us"), "_danube_x": pa.int8()})
    assert len(plan(schema=schema).problems()) == 2


def test_rows_are_cast_to_the_table_types():
    schema = SCHEMA.remove(2)
    assert plan(schema=schema).move(["a"], TARGET) == (
        'INSERT INTO "shop"."orders" ("id", "text") SELECT s."id"::bigint AS "id", '
        's."text"::citext AS "text" FROM (SELECT 0 AS _danube_piece, * FROM '
        '"shop"."a") AS s'
    )


def test_rows_with_only_keys_are_not_updated():
    schema = pa.schema({"id": pa.int64()})
    said = plan(schema=schema, keys=("id",)).move(["a"], TARGET)
    assert said.endswith('ON CONFLICT ("id") DO NOTHING')


def test_delete_column_of_latest_row_deletes_the_row():
    said = plan(keys=("id",), delete="gone").move(["a", "b"], TARGET)
    assert 'DELETE FROM "shop"."orders" AS t USING latest WHERE' in said
    assert 'DO UPDATE SET "text" = EXCLUDED."text"' in said
    assert '"gone" = EXCLUDED' not in said


def test_incompatible_target_is_reported():
    target = Target(
        (
            Column("id", "bigint", is_computed=True),
            Column("at", "date", is_required=True),
        ),
        unique_columns([(1, "id"), (1, "at"), (2, "at")]),
    )
    found = plan(keys=("id",)).problems_with(target)
    name = '"shop"."orders"'
    assert [problem.partition(";")[0].partition(",")[0] for problem in found] == [
        f"{name}: the column 'id' cannot be written",
        f"{name} has no column 'text'",
        f"{name} has no column 'gone'",
        f"{name}: the column 'at' must have a value",
        f"keyColumns: {name} has no unique index on exactly these columns",
    ]
    assert plan(keys=("at",)).problems_with(target)[-1].startswith('"shop"')


def test_expired_staging_tables_are_found():
    name = plan().staging_name(KEY, 1000, "0123abcd")
    hours_max = 24 * STAGING_AGE_MAX_DAYS
    assert not is_expired(name, 1000 + hours_max)
    assert is_expired(name, 1001 + hours_max)
    assert not is_expired("_danube_user", 1001 + hours_max)
    assert len(name) <= 63


def test_identifiers_are_escaped():
    assert quote_identifier('a"b') == '"a""b"'


def test_columns_that_the_table_lacks_are_added():
    wide = plan(
        schema=pa.schema({"id": pa.int64(), "a b": pa.string(), "at": pa.date32()}),
        delete="gone",
    )
    assert wide.add_columns(TARGET) == [
        (
            'ALTER TABLE "shop"."orders" ADD COLUMN IF NOT EXISTS "a b" text, '
            'ADD COLUMN IF NOT EXISTS "at" date'
        )
    ]
    merged = wide.with_new_columns(TARGET)
    assert [each.name for each in merged.columns] == ["id", "text", "a b", "at"]
    assert wide.problems_with(merged) == []
    assert wide.add_columns(merged) == []
