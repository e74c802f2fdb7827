"""
The SQL for ClickHouse: column types, and the statements of a commit.

ClickHouse has no transactions, so a commit has steps that can be resumed.  Each task
writes its rows into its own staging table.  The commit first records which staging
tables make up the batch.  It then moves one after the other, each with a deduplication
token, so that none is moved twice.  Finally it records that the batch is done.  A
driver that finds an unfinished commit resumes it with the recorded staging tables
instead of its own: a repeated batch may distribute its rows over other tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pydanube.schemas.pure.value_limits import ValueLimits
from pydanube_spark.pure.sink import BatchKey
from pydanube_spark.sinks.pure.staging import (
    COMMITS,
    RESERVED,
    STAGING_AGE_MAX_DAYS,
    column_problems,
    reserved_columns,
    unsupported_columns,
)

ROW = RESERVED + "row"
"""The column of a staging table that orders its rows."""

DEDUPLICATION_WINDOW = 10_000
"""The number of recent inserts that a created table deduplicates."""

_WINDOW = f" SETTINGS non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}"

MOVING, DONE = 0, 1

_YEARS = ("1900-01-01", "2300-01-01")
LIMITS = ValueLimits(
    name="ClickHouse", dates=_YEARS, times=_YEARS, has_broken_text=True
)
"""It would store other times, which it then shows as the first or last one."""

_SIMPLE = {
    pa.bool_(): "Bool",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "String",
    pa.binary(): "String",
    pa.date32(): "Date32",
    pa.timestamp("us", "UTC"): "DateTime64(6, 'UTC')",
    pa.timestamp("us"): "DateTime64(6)",
}


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The record of the last commit that a query has begun."""

    number: int
    is_done: bool
    query: str
    stagings: tuple[str, ...]
    """The staging tables of the batch, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the rows of a DataFrame are written to a table."""

    database: str
    table: str
    schema: pa.Schema
    engine: str = "MergeTree"
    order: tuple[str, ...] = ()

    def problems(self) -> list[str]:
        """Return what is wrong with the DataFrame, whatever the table."""
        found = unsupported_columns(self.schema, "danube-clickhouse", column_type)
        return found + reserved_columns(self.schema)

    def problems_with(self, kinds: Mapping[str, str]) -> list[str]:
        """
        Return what prevents writing to a table with the columns *kinds*.

        *kinds* has the kind of each column's default, such as ``MATERIALIZED``.
        """
        there = {
            name: kind not in ("MATERIALIZED", "ALIAS") for name, kind in kinds.items()
        }
        return column_problems(self.target, self.schema.names, there)

    @property
    def target(self) -> str:
        return self.qualified(self.table)

    def qualified(self, name: str) -> str:
        """Return the qualified name of a table in the same database."""
        return f"{quote_identifier(self.database)}.{quote_identifier(name)}"

    def create_target(self) -> str:
        """Return the statement for the option ``createTable``."""
        columns = ", ".join(
            f"{quote_identifier(field.name)} "
            + str(column_type(field.type, may_be_null=field.name not in self.order))
            for field in self.schema
        )
        order = ", ".join(map(quote_identifier, self.order)) or "tuple()"
        # Replicated engines deduplicate by default.
        is_own = not self.engine.startswith(("Replicated", "Shared"))
        return (
            f"CREATE TABLE IF NOT EXISTS {self.target} ({columns}) "
            f"ENGINE = {self.engine} ORDER BY ({order})" + (_WINDOW if is_own else "")
        )

    def create_staging(self, staging: str) -> str:
        """Return the statement that creates a staging table."""
        columns = ", ".join(
            f"{quote_identifier(field.name)} {column_type(field.type)}"
            for field in self.schema
        )
        return (
            f"CREATE TABLE IF NOT EXISTS {self.qualified(staging)} "
            f"({ROW} UInt64, {columns}) "
            f"ENGINE = MergeTree ORDER BY {ROW}{_WINDOW}"
        )

    def insert(self, staging: str) -> str:
        """Return the statement for an Arrow stream of rows, with ``ROW`` first."""
        names = ", ".join([ROW, *map(quote_identifier, self.schema.names)])
        return f"INSERT INTO {self.qualified(staging)} ({names}) FORMAT ArrowStream"

    def count(self, staging: str) -> str:
        return f"SELECT toString(count()) FROM {self.qualified(staging)}"

    def first_values(self, staging: str, of: Iterable[str]) -> str:
        """Return the query for the values that the SQL *of* returns."""
        return f"SELECT {', '.join(of)} FROM {self.qualified(staging)}"

    def move(self, staging: str) -> str:
        """
        Return the statement that copies the staging table into the target.

        With ``MOVE_SETTINGS`` the rows form the same blocks each time.
        """
        names = ", ".join(map(quote_identifier, self.schema.names))
        return (
            f"INSERT INTO {self.target} ({names}) SELECT {names} FROM "
            f"{self.qualified(staging)} ORDER BY {ROW}"
        )

    def create_commits(self) -> str:
        """Return the statement that creates the table of commit records."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.qualified(COMMITS)} (app String, "
            "target String, step UInt64, query String, stagings Array(String), "
            "at DateTime64(3) DEFAULT now64(3)) "
            "ENGINE = ReplacingMergeTree(step) ORDER BY (app, target)"
        )

    def insert_commit(self, key: BatchKey, stagings: Sequence[str], state: int) -> str:
        """Return the statement that records *stagings*, or that the batch is done."""
        names = ", ".join(map(literal, (key.app, self.table, key.query)))
        tables = ", ".join(map(literal, stagings))
        return (
            f"INSERT INTO {self.qualified(COMMITS)} (app, target, query, step, "
            f"stagings) VALUES ({names}, {key.number * 2 + state}, [{tables}])"
        )

    def select_commit(self, key: BatchKey) -> str:
        """Return the query for the row that ``parse_commit_record`` reads."""
        return (
            "SELECT toString(step), query, arrayStringConcat(stagings, ',') FROM "
            f"{self.qualified(COMMITS)} WHERE app = {literal(key.app)} AND "
            f"target = {literal(self.table)} ORDER BY step DESC LIMIT 1"
        )

    def find_database(self) -> str:
        """Return the query for the name of the database, if it exists."""
        name = literal(self.database)
        return f"SELECT name FROM system.databases WHERE name = {name}"

    def describe(self) -> str:
        """Return the query for the table's columns and the kinds of their defaults."""
        return (
            "SELECT name, default_kind, type FROM system.columns WHERE "
            f"database = {literal(self.database)} AND table = {literal(self.table)} "
            "ORDER BY position"
        )

    def staging_names(self) -> str:
        """
        Return the query for all staging tables: name, and whether it is expired.

        A table that a commit record names never expires.
        """
        needed = f"SELECT arrayJoin(stagings) FROM {self.qualified(COMMITS)} FINAL"
        return (
            "SELECT name, toString(metadata_modification_time < now() - INTERVAL "
            f"{STAGING_AGE_MAX_DAYS} DAY AND name NOT IN ({needed})) "
            f"FROM system.tables WHERE database = {literal(self.database)} AND "
            f"startsWith(name, {literal(RESERVED)})"
        )


MOVE_SETTINGS = {
    # One thread reads in order and divides blocks by row count alone, so a repetition
    # has the same blocks, and the token identifies each.
    "max_threads": "1",
    "max_insert_threads": "1",
    "max_block_size": "65536",
    "min_insert_block_size_rows": "1048576",
    "min_insert_block_size_bytes": "0",
    "insert_deduplicate": "1",
}


def parse_commit_record(rows: Sequence[Sequence[str]]) -> CommitRecord | None:
    """Parse the result of ``Plan.select_commit``."""
    if not rows:
        return None
    [(step, query, stagings)] = rows
    number, state = divmod(int(step), 2)
    names = tuple(name for name in stagings.split(",") if name)
    return CommitRecord(number, state == DONE, query, names)


def try_cast(kind: pa.DataType, to: str) -> str:
    """Return a query that fails if values of *kind* cannot be cast to *to*."""
    columns = literal(f"x {column_type(kind)}")
    return f"SELECT CAST(x, {literal(to)}) FROM null({columns})"


def plain_type(kind: pa.DataType) -> str | None:
    """Return the column type for values of *kind*, which has no parts, without null."""
    if pa.types.is_decimal(kind):
        return f"Decimal({kind.precision}, {kind.scale})"
    return _SIMPLE.get(kind)


def column_type(
    kind: pa.DataType,
    *,
    may_be_null: bool = True,
    plain: Callable[[pa.DataType], str | None] = plain_type,
) -> str | None:
    """Return the column type for values of *kind*; None if there is none."""
    if pa.types.is_list(kind):
        inner = column_type(kind.value_type, plain=plain)
        return inner and f"Array({inner})"
    if pa.types.is_map(kind):
        key = column_type(kind.key_type, may_be_null=False, plain=plain)
        item = column_type(kind.item_type, plain=plain)
        return key and item and f"Map({key}, {item})"
    if pa.types.is_struct(kind):
        fields = [(field.name, column_type(field.type, plain=plain)) for field in kind]
        if not fields or not all(inner for _, inner in fields):
            return None
        parts = (f"{quote_identifier(name)} {inner}" for name, inner in fields)
        return f"Tuple({', '.join(parts)})"
    found = plain(kind)
    return found and (f"Nullable({found})" if may_be_null else found)


def quote_identifier(name: str) -> str:
    """Return *name* as an SQL identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    """Return *text* as an SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
