"""Tests of the query for values that PostgreSQL would change."""

import pyarrow as pa
import pytest

from pydanube_spark.sinks.pure.postgres_conversions import conversions, problem
from pydanube_spark.sinks.pure.postgres_sql import Column, Plan, TableName, Target


def plan(kind):
    return Plan(table=TableName("shop", "t"), schema=pa.schema({"v": kind}))


@pytest.mark.parametrize(
    ("kind", "to", "value"),
    [
        (pa.int64(), "bigint", None),
        (pa.int64(), "integer", '"v"::integer::bigint IS DISTINCT FROM "v"'),
        (pa.float64(), "real", None),
        (pa.int64(), "money", None),
        (pa.string(), "jsonb", None),
        (pa.string(), "numeric(5,2)", '"v"::numeric(5,2)::numeric IS DISTINCT'),
        (pa.string(), "numeric", None),
        (pa.string(), "character varying", None),
        (pa.string(), "character(5)", '"v"::character(5)::bpchar IS DISTINCT'),
        (pa.string(), "daterange", None),
        (pa.string(), "date_of_day", None),
        (pa.string(), "numeric(5,2)[]", None),
        (pa.float64(), "numeric", None),
        (pa.decimal128(12, 3), "numeric(12,3)", None),
        (pa.list_(pa.string()), "character varying(3)[]", '"v"::character varying'),
        (pa.timestamp("us", "UTC"), "timestamp(0) with time zone", None),
        (pa.timestamp("us", "UTC"), "date", '"v"::date::timestamp with time zone IS'),
        (pa.map_(pa.string(), pa.int8()), "jsonb", None),
    ],
)
def test_columns_with_another_type_are_converted_and_back(kind, to, value):
    found = conversions(plan(kind), Target((Column("v", to), Column("w", "text"))))
    assert [value in each.value for each in found] == [True] * (value is not None)


def test_domains_are_checked_as_the_type_that_they_are_of():
    domain = Column("v", "code", base="character varying(3)")
    (found,) = conversions(plan(pa.string()), Target((domain,)))
    assert '"v"::code::text IS DISTINCT FROM "v"' in found.value


def test_values_that_are_not_stored_are_not_checked():
    """A row that deletes has only its key, and others lack what has not changed."""
    rows = Plan(
        table=TableName(None, "t"),
        schema=pa.schema(
            {
                "k": pa.string(),
                "v": pa.string(),
                "gone": pa.bool_(),
                "un'known": pa.list_(pa.string()),
            }
        ),
        keys=("k",),
        delete="gone",
        unavailable="un'known",
    )
    kind = "character varying(3)"
    target = Target((Column("k", kind), Column("v", kind)))
    key, value = conversions(rows, target)
    assert "gone" not in key.value
    assert "known" not in key.value
    assert '"gone" IS NOT TRUE' in value.value
    assert """('v' = ANY ("un'known")) IS NOT TRUE""" in value.value


def test_error_names_the_value_and_both_types():
    (found,) = conversions(plan(pa.int64()), Target((Column("v", "real"),)))
    said = problem(plan(pa.int64()), found, "16777217")
    assert "is real, which cannot store 16777217" in said
    assert '"shop"."t" ALTER COLUMN "v" TYPE bigint' in said
