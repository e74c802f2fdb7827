"""
Filter pushdown: Spark's filters as conditions that a scan evaluates.

Spark offers a batch source the conditions of its query one by one.  Those on the
columns in ``filters.COLUMNS`` are evaluated by the scan, all others by Spark.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql import datasource as spark

from pydanube.model.positions import to_microseconds
from pydanube_spark.reader.pure.filters import COLUMNS, Condition

_TESTS: dict[type, str] = {
    spark.EqualTo: "=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.In: "in",
    spark.IsNull: "is null",
    spark.StringStartsWith: "starts",
    spark.StringEndsWith: "ends",
    spark.StringContains: "contains",
}


def condition_of(filter_: Any) -> Condition | None:
    """Convert Spark's *filter_*; return None if a scan cannot evaluate it."""
    is_negated = isinstance(filter_, spark.Not)
    inner = filter_.child if is_negated else filter_
    if isinstance(inner, spark.IsNotNull):
        inner, is_negated = spark.IsNull(inner.attribute), not is_negated
    test = _TESTS.get(type(inner))
    if test is None or len(inner.attribute) != 1 or inner.attribute[0] not in COLUMNS:
        return None
    [column] = inner.attribute
    if test == "is null":
        return Condition(column, test, None, is_negated)
    if test in ("starts", "ends", "contains") and column not in ("topic", "key"):
        return None
    if test == "in":
        values = [_value(column, each) for each in inner.value if each is not None]
        if None in values:
            return None
        has_null = len(values) < len(inner.value)
        return Condition(column, test, (*values, *[None] * has_null), is_negated)
    value = _value(column, inner.value)
    return None if value is None else Condition(column, test, value, is_negated)


def _value(column: str, value: Any) -> Any:
    """Convert *value* to the type of the column, or return None if it has another."""
    match column, value:
        case "topic", str():
            return value
        case (("partition" | "offset"), int()) if not isinstance(value, bool):
            return value if abs(value) < 2**63 else None
        case "publish_time", datetime() if value.utcoffset() is not None:
            return to_microseconds(value)
        case "key", bytes() | bytearray():
            return bytes(value)
        case "key", str():
            # If keys are read as strings, Spark compares their UTF-8.
            return value.encode("utf-8", "surrogatepass")
    return None
