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
        (pa.string(), "numeric(5,2)", '"v"::numeric::numeric(5,2)::numeric IS'),
        (pa.list_(pa.string()), "character varying(3)[]", '"v"::character varying'),
        (pa.timestamp("us", "UTC"), "timestamp(0) with time zone", None),
        (pa.timestamp("us", "UTC"), "date", '"v"::date::timestamp with time zone IS'),
        (pa.map_(pa.string(), pa.int8()), "jsonb", None),
    ],
)
def test_columns_with_another_type_are_converted_and_back(kind, to, value):
    found = conversions(plan(kind), Target((Column("v", to), Column("w", "text"))))
    assert [value in each.value for each in found] == [True] * (value is not None)


def test_error_names_the_value_and_both_types():
    (found,) = conversions(plan(pa.int64()), Target((Column("v", "real"),)))
    said = problem(plan(pa.int64()), found, "16777217")
    assert "is real, which cannot store 16777217" in said
    assert '"shop"."t" ALTER COLUMN "v" TYPE bigint' in said
