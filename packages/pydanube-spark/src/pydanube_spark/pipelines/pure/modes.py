"""
The modes that sinks support.

In the mode ``update`` a micro-batch has the rows of an aggregate that have changed.  A
sink that only adds rows would keep the old ones beside them, so it refuses that mode
unless its options identify the row to replace.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydanube_spark.pipelines.pure import formats
from pydanube_spark.pipelines.pure.spec import Mode

LAKE_TABLES = frozenset({"danube-delta", "danube-iceberg"})

KEYED = LAKE_TABLES | {"danube-lancedb", "danube-postgres"}
"""Formats that replace rows by their ``keyColumns``."""

NEVER_REPLACED = frozenset({"danube-clickhouse", "danube-lancedb"})
"""Formats that cannot replace all rows at once."""

_TO_REPLACE = (
    "use danube-delta, danube-iceberg, danube-postgres or danube-lancedb with table: "
    "{key: …}, or mode: complete with jdbc, which replaces all rows"
)

_SET_KEYS = (
    "set table: {key: …} to the columns that identify a row, usually those of GROUP BY"
)

_SET_ENGINE = (
    "set options.createTable to true, options.engine to ReplacingMergeTree, and "
    "options.orderBy to the columns that identify a row"
)


def mode_problem(name: str, mode: Mode, options: Mapping[str, str]) -> str | None:
    """Return why the format *name* with *options* does not support *mode*."""
    if mode is Mode.UPDATE:
        return _update_problem(name, options)
    if mode in (Mode.COMPLETE, Mode.OVERWRITE):
        return _replace_problem(name, mode, options)
    return None


def write_mode(mode: Mode) -> str:
    """Return the save mode with which one micro-batch is written as a table."""
    return "overwrite" if mode is Mode.COMPLETE else "append"


def _replace_problem(name: str, mode: Mode, options: Mapping[str, str]) -> str | None:
    if name == "danube":
        return "rows can only be appended to a topic; use mode: append or update"
    if name in NEVER_REPLACED:
        return f"{name} cannot replace all rows; use mode: append"
    if name in LAKE_TABLES and _given(options).get("keycolumns"):
        return "all rows are replaced, so omit the key, or use mode: append or update"
    if name in formats.FILE_FORMATS and mode is Mode.COMPLETE:
        return "a stream can only append to files; use mode: append, or danube-delta"
    return None


def _update_problem(name: str, options: Mapping[str, str]) -> str | None:
    given = _given(options)
    if name in KEYED:
        replaces, remedy = bool(given.get("keycolumns")), _SET_KEYS
    elif name == "danube-clickhouse":
        replaces, remedy = "replacing" in given.get("engine", "").lower(), _SET_ENGINE
    else:
        replaces = name not in formats.BATCH_ONLY | formats.FILE_FORMATS
        remedy = _TO_REPLACE
    if replaces:
        return None
    return f"changed rows would be added beside the old ones; {remedy}"


def _given(options: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value.strip() for key, value in options.items()}
