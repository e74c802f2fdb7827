"""Tests of the query for values that ClickHouse would change."""

import pyarrow as pa
import pytest

from pydanube_spark.sinks.pure.clickhouse_conversions import conversions, problem

NESTED = pa.list_(pa.map_(pa.string(), pa.struct([("x", pa.list_(pa.int64()))])))


@pytest.mark.parametrize(
    ("kind", "to", "paths"),
    [
        (pa.int64(), "Int64", []),
        (pa.int64(), "Nullable(Int64)", []),
        (pa.int64(), "Variant(Int64, String)", []),
        (pa.string(), "JSON", []),
        (pa.string(), "Array(Int64)", []),
        (pa.list_(pa.decimal128(12, 3)), "LowCardinality(String)", []),
        (pa.struct([("x", pa.int64())]), "Tuple(x Nullable(Int64))", []),
        (pa.string(), "SimpleAggregateFunction(anyLast, Nullable(String))", []),
        (pa.list_(pa.int64()), "Array(Nullable(Int64))", []),
        (pa.int64(), "Nullable(Int16)", ["v"]),
        (pa.int32(), "LowCardinality(Int16)", ["v"]),
        (pa.list_(pa.list_(pa.int64())), "Array(Array(Int8))", ["v[][]"]),
        (NESTED, "Array(Map(String, Tuple(x Array(Int8))))", ["v[][]", "v[][].x[]"]),
    ],
)
def test_each_part_of_a_column_with_another_type_is_converted(kind, to, paths):
    found = conversions(pa.schema({"v": kind}), {"v": to, "more": "Int8"})
    assert [each.path for each in found] == paths
    assert conversions(pa.schema({"v": kind}), {"more": to}) == []


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        ("Int8", "Nullable(Int8)"),
        ("Nullable(Int8)", "Nullable(Int8)"),
        ("LowCardinality(Int8)", "Nullable(Int8)"),
        ("LowCardinality(Nullable(Int8))", "Nullable(Int8)"),
        ("SimpleAggregateFunction(max, Nullable(Int8))", "Nullable(Int8)"),
        ("SimpleAggregateFunction(sum, Int8)", "Nullable(Int8)"),
    ],
)
def test_null_is_converted_to_null(to, wanted):
    (found,) = conversions(pa.schema({"v": pa.int64()}), {"v": to})
    assert f"CAST(`v`, '{wanted}')" in found.query


def test_error_names_the_value_and_both_types():
    (found,) = conversions(pa.schema({"v": pa.list_(pa.int64())}), {"v": "Array(Int8)"})
    said = problem("`shop`.`t`", found, "300")
    assert "'v' of `shop`.`t` is Array(Int8), which cannot store 300 of v[]" in said
    assert "MODIFY COLUMN `v` Array(Nullable(Int64))" in said
