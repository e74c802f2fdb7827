"""
Conditions on messages, and which topics, offsets and row groups they rule out.

A condition is on the topic, partition, offset, publish time or key of a message.  It
removes whole topics and offsets from the plan, then row groups by their statistics,
then single messages before they are decoded.

As in SQL a condition is true, false or unknown; only messages for which it is true
are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.positions import to_microseconds
from pydanube_spark.reader.pure.bounds import split_name

COLUMNS = ("topic", "partition", "offset", "publish_time", "key")
"""The columns that conditions may be on."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column of a message."""

    column: str
    test: str
    """A comparison, ``in``, ``is null``, ``starts``, ``ends`` or ``contains``."""
    value: Any = None
    """Times are in microseconds since 1970, keys are bytes; a tuple for ``in``."""
    is_negated: bool = False


def may_match_topic(conditions: Iterable[Condition], topic: str) -> bool:
    """Return whether messages of the topic or partition *topic* may match."""
    here = [each for each in conditions if each.column in ("topic", "partition")]
    if not here:
        return True
    base, number = split_name(topic)
    one = pa.record_batch({"topic": pa.array([base]), "partition": pa.array([number])})
    return bool(pc.all(_matches(here, one)).as_py())


def clip(conditions: Iterable[Condition], base: int, end: int) -> tuple[int, int]:
    """
    Reduce ``base … end`` to the offsets that may match.

    No offset matches if the returned base is not less than the returned end.
    """
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


def may_match(conditions: Iterable[Condition], column: str, statistics: Any) -> bool:
    """
    Return whether a row group may have matching messages.

    *statistics* are Parquet's statistics of *column* in the row group, or None.
    """
    here = [each for each in conditions if each.column == column]
    if statistics is None or not here:
        return True
    lowest = highest = None
    if statistics.num_values == 0:
        return all(each.test == "is null" and not each.is_negated for each in here)
    if statistics.has_min_max:
        lowest, highest = map(_stored, (statistics.min, statistics.max))
    nulls = statistics.null_count if statistics.has_null_count else None
    return all(_may_be_true(each, lowest, highest, nulls) for each in here)


def _stored(value: Any) -> Any:
    return to_microseconds(value) if isinstance(value, datetime) else value


def _may_be_true(each: Condition, lowest: Any, highest: Any, nulls: int | None) -> bool:
    if each.test == "is null":
        return each.is_negated or nulls != 0
    may = _MAY_BE.get(each.test)
    if each.is_negated or lowest is None or may is None:
        return True
    return may(each.value, lowest, highest)


# Whether the test may be true for a value between the lowest and the highest.
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
    """Return the messages of *batch* from *topic* that meet all *conditions*."""
    here = [
        each
        for each in conditions
        # The plan has already applied these.
        if each.column not in ("topic", "partition")
    ]
    if not here or not batch.num_rows:
        return batch
    wanted = _matches(here, batch)
    if pc.all(wanted, min_count=0).as_py() and not wanted.null_count:
        return batch
    return batch.filter(wanted)


def _matches(conditions: Sequence[Condition], batch: pa.RecordBatch) -> Any:
    """Return for each message of *batch* whether all *conditions* are true, or null."""
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
        # A batch in which no message has a key lacks the column.
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
        # In SQL, x IN (…, NULL) is unknown unless x equals another value.
        found = pc.if_else(found, found, unknown)
    return pc.if_else(pc.is_null(column), unknown, found)
