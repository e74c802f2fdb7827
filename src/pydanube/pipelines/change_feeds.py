"""
The change feeds of databases: the events of Debezium as rows.

An event has the row before and after a change; tombstones, which follow deletions, are
dropped.  Events are JSON, with or without the schema that Debezium's converter adds, or
records that the topic's schema decodes.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

OPERATION = "_op"
"""The column with the operation: c(reate), r(ead by a snapshot), u(pdate), d(elete)."""
TIME = "_ts"
"""The column with the time at which Debezium processed the change."""
OFFSET = "_offset"
"""The column with the offset of the event in its topic partition."""

IS_TOMBSTONE = "coalesce(length(payload), 0) = 0"
"""The condition that a message is a tombstone."""

_ERROR = "_error"
_EVENT = "_danube_event"
_ROW = "_danube_row"


def rows_of_debezium(messages: DataFrame, columns: str | None) -> DataFrame:
    """
    Return the row of each change event of *messages*, with the three columns above.

    *columns* are those of the row, in Spark's syntax, if the events are JSON; without
    them the events are decoded.  A message that is no change of a row fails the query.
    """
    event = "value" if columns is None else _parsed(columns)
    events = messages.selectExpr("*", f"{event} AS {_EVENT}")
    if columns is not None:
        bare = f"struct({_EVENT}.before, {_EVENT}.after, {_EVENT}.op, {_EVENT}.ts_ms)"
        wrapped = f"coalesce({_EVENT}.payload, {bare})"
        events = events.withColumn(_EVENT, F.expr(wrapped))
    row = f"coalesce({_EVENT}.after, {_EVENT}.before)"
    rows = events.selectExpr("*", f"{row} AS {_ROW}")
    return rows.where(_is_change(has_errors=_ERROR in messages.columns)).selectExpr(
        f"{_ROW}.*",
        f"{_EVENT}.op AS {OPERATION}",
        f"timestamp_millis({_EVENT}.ts_ms) AS {TIME}",
        f"offset AS {OFFSET}",
    )


def _parsed(columns: str) -> str:
    fields = (
        f"before STRUCT<{columns}>, after STRUCT<{columns}>, op STRING, ts_ms BIGINT"
    )
    schema = f"{fields}, payload STRUCT<{fields}>".replace("'", "\\'")
    text = "nullif(CAST(payload AS STRING), '')"
    return f"from_json({text}, '{schema}', map('mode', 'FAILFAST'))"


def _is_change(*, has_errors: bool) -> str:
    """Return the condition that a message changes a row; it fails for other ones."""
    place = "concat('the message at offset ', offset, ' of ', topic, "
    failed = f"WHEN {_ERROR} IS NOT NULL THEN raise_error({place}': ', {_ERROR}))"
    return (
        f"CASE WHEN {IS_TOMBSTONE} THEN false "
        f"{failed if has_errors else ''} "
        f"WHEN {_EVENT}.op IN ('c', 'r', 'u', 'd') AND {_ROW} IS NOT NULL THEN true "
        f"WHEN {_EVENT}.op = 'm' THEN false "
        f"WHEN {_EVENT}.op = 't' THEN raise_error({place}' truncates the table, which "
        "is not supported; set skipped.operations=t in Debezium')) "
        f"ELSE raise_error({place}' is no change of a row by Debezium')) END"
    )
