"""
What Spark's filters mean for messages: which need not be read at all.

Spark hands the conditions of a batch read to its source, one by one.  Those on where
and when a message is (topic, partition, offset, publish time) and on its key are
carried out here, in full: whole topics and offsets are left out of the plan, row
groups by their statistics, and the rest message by message, before anything else is
done with it.  Others are left to Spark.

A condition is true, false or unknown, as in SQL; a message is read where it is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from pydanube.spark.bounds import split_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

COLUMNS = ("topic", "partition", "offset", "publish_time", "key")
"""Columns whose conditions are carried out here."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Condition:
    """What one column of a message has to be."""

    column: str
    test: str
    """A comparison, ``"in"``, ``"is null"``, or what a key or topic has to contain."""
    value: Any = None
    """Times in microseconds since 1970, keys in bytes; of ``"in"`` a tuple."""
    is_negated: bool = False


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
_NEEDS_VALUE = {"=", "<", "<=", ">", ">=", "starts", "ends", "contains"}
_OF_TEXT = {"starts", "ends", "contains"}


def condition_of(filter_: Any) -> Condition | None:
    """What Spark's *filter_* means; None if it is not for us to carry out."""
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
    if test in _OF_TEXT and column not in ("topic", "key"):
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
    """*value* as the column is stored; None if it is not of its type."""
    match column, value:
        case "topic", str():
            return value
        case (("partition" | "offset"), int()) if not isinstance(value, bool):
            return value if abs(value) < 2**63 else None
        case "publish_time", datetime() if value.utcoffset() is not None:
            return (value - _EPOCH) // _MICROSECOND
        case "key", bytes() | bytearray():
            return bytes(value)
        case "key", str():
            # Where keys are asked for as text, Spark compares their UTF-8.
            return value.encode("utf-8", "surrogatepass")
    return None


def accept_topic(conditions: Iterable[Condition], topic: str) -> bool:
    """Whether messages of the topic or partition *topic* may be wanted."""
    here = [each for each in conditions if each.column in ("topic", "partition")]
    return bool(pc.all(_matches(here, _one_of(topic))).as_py()) if here else True


def clip(conditions: Iterable[Condition], base: int, end: int) -> tuple[int, int]:
    """Where in ``base … end`` all wanted offsets are; empty if *base* is not below."""
    for each in conditions:
        if each.column != "offset" or each.is_negated:
            continue
        match each.test:
            case "=":
                base, end = max(base, each.value), min(end, each.value + 1)
            case "in":
                wanted = [value for value in each.value if value is not None]
                base = max(base, min(wanted, default=end))
                end = min(end, max(wanted, default=base - 1) + 1)
            case "<":
                end = min(end, each.value)
            case "<=":
                end = min(end, each.value + 1)
            case ">":
                base = max(base, each.value + 1)
            case ">=":
                base = max(base, each.value)
            case "is null":
                end = min(end, base)
    return base, end


def may_hold(conditions: Iterable[Condition], column: str, statistics: Any) -> bool:
    """
    Whether a row group may have wanted messages, by the *statistics* of *column*.

    They are those of Parquet; None if there are none.
    """
    here = [each for each in conditions if each.column == column]
    if statistics is None or not here:
        return True
    lowest = highest = None
    if statistics.num_values == 0:
        return all(each.test == "is null" and not each.is_negated for each in here)
    if statistics.has_min_max:
        lowest, highest = _stored(statistics.min), _stored(statistics.max)
    nulls = statistics.null_count if statistics.has_null_count else None
    return all(_may_be_true(each, lowest, highest, nulls) for each in here)


def _stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    return value


def _may_be_true(each: Condition, lowest: Any, highest: Any, nulls: int | None) -> bool:
    if each.test == "is null":
        return each.is_negated or nulls != 0
    may = _MAY_BE.get(each.test)
    if each.is_negated or lowest is None or may is None:
        return True
    return may(each.value, lowest, highest)


# Whether a value is there that compares so, where all are between two others.
_MAY_BE: dict[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda value, lowest, highest: lowest <= value <= highest,
    "in": lambda values, lowest, highest: any(
        lowest <= value <= highest for value in values if value is not None
    ),
    "<": lambda value, lowest, _: lowest < value,
    "<=": lambda value, lowest, _: lowest <= value,
    ">": lambda value, _, highest: highest > value,
    ">=": lambda value, _, highest: highest >= value,
    "starts": lambda value, lowest, highest: (
        lowest[: len(value)] <= value <= highest[: len(value)]
    ),
}


def select(
    conditions: Sequence[Condition], batch: pa.RecordBatch, topic: str
) -> pa.RecordBatch:
    """The messages of *batch*, a piece of *topic*, that are wanted."""
    here = [
        each
        for each in conditions
        # The plan has seen to these.
        if each.column not in ("topic", "partition")
    ]
    if not here or not batch.num_rows:
        return batch
    wanted = _matches(here, batch)
    if pc.all(wanted, min_count=0).as_py() and not wanted.null_count:
        return batch
    return batch.filter(wanted)


def _one_of(topic: str) -> pa.RecordBatch:
    base, number = split_name(topic)
    return pa.record_batch(
        {"topic": pa.array([base]), "partition": pa.array([number], pa.int64())}
    )


def _matches(conditions: Sequence[Condition], batch: pa.RecordBatch) -> Any:
    """For each message of *batch* whether all *conditions* are true; or null."""
    found = None
    for each in conditions:
        column = _column(batch, each.column)
        matches = _outcome(each, column)
        if each.is_negated:
            matches = pc.invert(matches)
        found = matches if found is None else pc.and_kleene(found, matches)
    return found


def _column(batch: pa.RecordBatch, name: str) -> Any:
    at = batch.schema.get_field_index(name)
    if at < 0:
        # A batch in which no message has a key is without the column.
        return pa.nulls(batch.num_rows, pa.binary())
    column = batch.column(at)
    return column.cast(pa.int64()) if name == "publish_time" else column


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _outcome(each: Condition, column: Any) -> Any:
    match each.test:
        case "is null":
            return pc.is_null(column)
        case "in":
            return _is_in(column, each.value)
        case "starts":
            return pc.starts_with(column, pattern=each.value)
        case "ends":
            return pc.ends_with(column, pattern=each.value)
        case "contains":
            return pc.match_substring(column, pattern=each.value)
    return _COMPARISONS[each.test](column, pa.scalar(each.value, column.type))


def _is_in(column: Any, values: tuple[Any, ...]) -> Any:
    known = [value for value in values if value is not None]
    found = pc.is_in(column, value_set=pa.array(known, column.type))
    unknown = pa.scalar(None, pa.bool_())
    if len(known) < len(values):
        # It might be the one that nobody knows.
        found = pc.if_else(found, found, unknown)
    return pc.if_else(pc.is_null(column), unknown, found)
