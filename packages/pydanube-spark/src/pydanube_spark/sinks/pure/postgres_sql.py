"""
The SQL for PostgreSQL: column types, and the statements of a commit.

Each task attempt copies its rows into its own staging table.  One transaction then
records the batch in ``danube_commits``, moves the rows and drops the staging tables; it
moves nothing if the batch is already recorded.  Staged rows have the types of the
DataFrame and are cast to those of the target's columns when they move.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from pydanube.model.errors import InvalidConfig
from pydanube.schemas.pure.json_text import is_writable
from pydanube.schemas.pure.value_limits import ValueLimits, years_limits
from pydanube_spark.pure.sink import BatchKey
from pydanube_spark.sinks.pure.staging import (
    COMMITS,
    RESERVED,
    STAGING_AGE_MAX_DAYS,
    column_problems,
    literal,
    reserved_columns,
    staging_prefix,
    unsupported_columns,
)

_ROW = RESERVED + "row"
_PIECE = RESERVED + "piece"
_GONE = RESERVED + "gone"
_ORDER = RESERVED + "order"
_KNOWN = RESERVED + "known"
_VALUE = RESERVED + "value"
_MISSING = RESERVED + "missing"

LIMITS = ValueLimits(
    name="PostgreSQL",
    # 4714 BC is the year -4713.
    dates=("-4713-11-24", "5874898-01-01"),
    times=("-4713-11-24", "294277-01-01"),
    has_nul=False,
)
JSON_LIMITS = replace(years_limits("JSON in PostgreSQL"), has_nul=False)

HOUR = "SELECT floor(extract(epoch FROM now()) / 3600)::bigint"
"""The query for the current hour by the server's clock."""

_STAGING = re.compile(rf"{RESERVED}[0-9a-f]+_[0-9]+_(?P<hour>[0-9]+)_[0-9a-f]+")
_PART = r'"(?:[^"]|"")+"|[^".\s]+'
_TABLE = re.compile(rf"^(?:({_PART})\.)?({_PART})$")

_SIMPLE = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp with time zone",
    pa.timestamp("us"): "timestamp without time zone",
}


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table; without a schema, it is in the connection's default one."""

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """
        Parse ``table`` or ``schema.table``; either may be in double quotes.

        Raises:
            InvalidConfig: *text* is malformed.
        """
        found = _TABLE.match(text)
        if found is None:
            raise InvalidConfig(f"table: must be table or schema.table, not {text!r}")
        schema, name = (
            part[1:-1].replace('""', '"') if part and part[0] == '"' else part
            for part in found.groups()
        )
        assert name is not None
        return cls(schema, name)

    def sibling(self, name: str) -> TableName:
        """Return the table *name* in the same schema."""
        return TableName(self.schema, name)

    def __str__(self) -> str:
        own = quote_identifier(self.name)
        return own if self.schema is None else f"{quote_identifier(self.schema)}.{own}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the target."""

    name: str
    type: str
    is_required: bool = False
    """Whether it is not nullable and has no default."""
    is_computed: bool = False
    """Whether it is generated, so that it cannot be written."""
    base: str = ""
    """The type of which ``type`` is a domain; otherwise the same type."""


@dataclass(frozen=True, slots=True)
class Target:
    """The columns and unique indexes of the target table."""

    columns: tuple[Column, ...]
    unique: tuple[frozenset[str], ...] = ()
    """The column sets of unique indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the rows of a DataFrame are written to a table."""

    table: TableName
    schema: pa.Schema
    """The schema of the DataFrame."""
    keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    delete: str | None = None
    truncate: str | None = None
    """The column that is true for rows that delete all earlier ones."""
    unavailable: str | None = None
    """The column with the names of the columns that keep their values."""
    is_overwrite: bool = False
    """Whether a batch replaces all rows of the table."""

    @property
    def written(self) -> list[str]:
        """Return the columns that are written to the table."""
        others = (self.delete, self.truncate, self.unavailable)
        return [name for name in self.schema.names if name not in others]

    def problems(self) -> list[str]:
        """Return what is wrong with the DataFrame, whatever the table."""
        found = unsupported_columns(self.schema, "danube-postgres", column_type)
        return found + reserved_columns(self.schema)

    def problems_with(self, target: Target) -> list[str]:
        """Return what prevents writing such rows to *target*."""
        there = {column.name: not column.is_computed for column in target.columns}
        found = column_problems(self.table, self.written, there)
        if not there:
            return found
        found += [
            f"{self.table}: the column {column.name!r} must have a value, and the "
            "DataFrame has no such column"
            for column in target.columns
            if column.is_required and column.name not in self.written
        ]
        if self.keys and frozenset(self.keys) not in target.unique:
            found.append(
                f"keyColumns: {self.table} has no unique index on exactly these "
                f"columns; CREATE UNIQUE INDEX ON {self.table} ({_list(self.keys)})"
            )
        return found

    def columns_by_limits(self) -> Iterator[tuple[ValueLimits, list[str]]]:
        """Yield limits for values, and the columns that have them."""
        is_json_by_name = {each.name: is_json(each.type) for each in self.schema}
        for limits, is_wanted in ((LIMITS, False), (JSON_LIMITS, True)):
            names = [
                name for name, each in is_json_by_name.items() if each is is_wanted
            ]
            if names:
                yield limits, names

    def create_target(self) -> str:
        """Return the statement for the option ``createTable``."""
        columns = [
            f"{quote_identifier(name)} {column_type(self.schema.field(name).type)}"
            for name in self.written
        ]
        if self.keys:
            columns.append(f"PRIMARY KEY ({_list(self.keys)})")
        return f"CREATE TABLE IF NOT EXISTS {self.table} ({', '.join(columns)})"

    def with_new_columns(self, target: Target) -> Target:
        """Return *target* as the option ``mergeSchema`` makes it."""
        there = {column.name for column in target.columns}
        new = [
            Column(name, column_type(self.schema.field(name).type) or "")
            for name in self.written
            if name not in there
        ]
        return replace(target, columns=(*target.columns, *new))

    def add_columns(self, target: Target) -> list[str]:
        """Return the statement that adds the columns that *target* lacks, if any."""
        new = self.with_new_columns(target).columns[len(target.columns) :]
        added = [
            f"ADD COLUMN IF NOT EXISTS {quote_identifier(each.name)} {each.type}"
            for each in new
        ]
        return [f"ALTER TABLE {self.table} {', '.join(added)}"] if added else []

    def create_staging(self, staging: str) -> str:
        """
        Return the statement that creates a staging table.

        The table is unlogged, so it is empty after a crash of the server; the commit
        counts the rows and fails, and Spark repeats the batch.
        """
        columns = [
            f"{quote_identifier(field.name)} {staged_type(field.type)}"
            for field in self.schema
        ]
        return (
            f"CREATE UNLOGGED TABLE {self.table.sibling(staging)} "
            f"({_ROW} bigserial, {', '.join(columns)})"
        )

    def find_staged(self, stagings: Sequence[str]) -> str:
        """Return the query for one row with each staging table's OID, or null."""
        found = (f"{_oid(self.table.sibling(name))}::bigint" for name in stagings)
        return f"SELECT {', '.join(found)}"

    def count_staged(self, stagings: Sequence[str]) -> str:
        """Return the query for one row with the row count of each staging table."""
        counts = (
            f"(SELECT count(*) FROM {self.table.sibling(name)})" for name in stagings
        )
        return f"SELECT {', '.join(counts)}"

    def delete_all(self) -> str:
        """Return the statement that deletes all rows; readers see it at the commit."""
        return f"DELETE FROM {self.table}"

    def find_truncation(self, stagings: Sequence[str]) -> str:
        """Return the query for a row if a staged row is a truncation."""
        truncate = quote_identifier(self.truncate or "")
        return f"SELECT 1 FROM ({self._rows(stagings)}) AS s WHERE s.{truncate} LIMIT 1"

    def drop_earlier(self, stagings: Sequence[str]) -> list[str]:
        """
        Return the statements that delete staged rows before the last truncation.

        The truncations themselves are deleted, too.
        """
        truncate = quote_identifier(self.truncate or "")
        by_time = ", ".join(
            f"{quote_identifier(name)} DESC NULLS LAST" for name in self.order
        )
        last = (
            f"SELECT {_list(self.order)} FROM ({self._rows(stagings)}) AS r "
            f"WHERE {truncate} ORDER BY {by_time} LIMIT 1"
        )
        tables = [self.table.sibling(name) for name in stagings]
        return [
            *(
                f"DELETE FROM {each} AS s USING ({last}) AS t WHERE "
                f"s.{truncate} IS NOT TRUE AND NOT {_is_later(self.order)}"
                for each in tables
            ),
            *(f"DELETE FROM {each} WHERE {truncate}" for each in tables),
        ]

    def lacking(self, stagings: Sequence[str]) -> str:
        """Return the query for the columns whose value some staged row lacks."""
        assert self.unavailable is not None
        each = f"unnest({quote_identifier(self.unavailable)})"
        return f"SELECT DISTINCT {each} FROM ({self._rows(stagings)}) AS s"

    def missing(
        self, stagings: Sequence[str], target: Target, lacking: Sequence[str]
    ) -> str:
        """Return the query for the key of a new row that lacks a value, as text."""
        latest = self._filled(self._rows(stagings), self._cast(target), lacking)
        keys = _list(self.keys)
        return (
            f"WITH latest AS ({latest}) SELECT ROW({keys})::text FROM latest "
            f"WHERE {_MISSING} AND {_GONE} IS NOT TRUE LIMIT 1"
        )

    def aggregate(self, stagings: Sequence[str], values: Sequence[str]) -> str:
        """Return the query for the aggregates *values* of all staged rows."""
        return f"SELECT {', '.join(values)} FROM ({self._rows(stagings)}) AS s"

    def move(
        self, stagings: Sequence[str], target: Target, lacking: Sequence[str] = ()
    ) -> str:
        """
        Return the statement that moves all staged rows into the table.

        *lacking* are the columns whose value some row does not have.
        """
        rows, cast = self._rows(stagings), self._cast(target)
        if self.keys:
            return self._upsert(rows, cast, lacking)
        names = _list(self.written)
        return f"INSERT INTO {self.table} ({names}) SELECT {cast} FROM ({rows}) AS s"

    def _rows(self, stagings: Sequence[str]) -> str:
        return " UNION ALL ".join(
            f"SELECT {index} AS {_PIECE}, * FROM {self.table.sibling(name)}"
            for index, name in enumerate(stagings)
        )

    def _cast(self, target: Target) -> str:
        types = {column.name: column.type for column in target.columns}
        return ", ".join(
            f"s.{quote_identifier(name)}::{types[name]} AS {quote_identifier(name)}"
            for name in self.written
        )

    def _filled(self, rows: str, cast: str, lacking: Sequence[str]) -> str:
        """
        Return the query for the latest row of each key, with the values that it lacks.

        A value is that of the last row of the key that has it, or else the table's.
        """
        order = [f"{_ORDER}{at}" for at in range(len(self.order))]
        values = {
            name: f"CASE WHEN f.{_KNOWN}{at} = 0 THEN t.{quote_identifier(name)} "
            f"ELSE f.{_VALUE}{at} END AS {quote_identifier(name)}"
            for at, name in enumerate(lacking)
        }
        chosen = ", ".join(
            values.get(name, f"f.{quote_identifier(name)}") for name in self.written
        )
        unknown = " OR ".join(f"f.{_KNOWN}{at} = 0" for at in range(len(lacking)))
        ours, theirs = _list(self.keys, "f."), _list(self.keys, "t.")
        last = [f"f.{each} DESC NULLS LAST" for each in order]
        by_key = ", ".join([ours, *last, f"f.{_PIECE} DESC", f"f.{_ROW} DESC"])
        return (
            f"SELECT DISTINCT ON ({ours}) {chosen}, f.{_GONE}, ({unknown}) AND "
            f"t.{quote_identifier(self.keys[0])} IS NULL AS {_MISSING} "
            f"FROM ({self._with_earlier_values(rows, cast, lacking)}) AS f "
            f"LEFT JOIN {self.table} AS t ON ({theirs}) = ({ours}) ORDER BY {by_key}"
        )

    def _with_earlier_values(self, rows: str, cast: str, lacking: Sequence[str]) -> str:
        """
        Return the query for all rows, with the last value of each column so far.

        A row that has a value and those after it that lack it have the same number; 0
        is that of rows before the first value.
        """
        assert self.unavailable is not None
        names = f"s.{quote_identifier(self.unavailable)}"
        gone = "false" if self.delete is None else f"s.{quote_identifier(self.delete)}"
        orders = "".join(
            f", s.{quote_identifier(name)} AS {_ORDER}{at}"
            for at, name in enumerate(self.order)
        )
        numbers = "".join(
            f", count(*) FILTER (WHERE {literal(name)} = ANY ({names}) IS NOT TRUE) "
            f"OVER w AS {_KNOWN}{at}"
            for at, name in enumerate(lacking)
        )
        by_time = [f"s.{quote_identifier(name)} NULLS FIRST" for name in self.order]
        by_time += [f"s.{_PIECE}", f"s.{_ROW}"]
        numbered = (
            f"SELECT {_list(self.written, 'k.')}, s.{_PIECE}, s.{_ROW}{orders}, {gone} "
            f"AS {_GONE}{numbers} FROM ({rows}) AS s, LATERAL (SELECT {cast}) AS k "
            f"WINDOW w AS (PARTITION BY {_list(self.keys, 'k.')} "
            f"ORDER BY {', '.join(by_time)})"
        )
        by_time = [f"{_ORDER}{at} NULLS FIRST" for at in range(len(self.order))]
        by_time += [_PIECE, _ROW]
        values = "".join(
            f", first_value({quote_identifier(name)}) OVER (PARTITION BY "
            f"{_list(self.keys)}, {_KNOWN}{at} ORDER BY {', '.join(by_time)}) "
            f"AS {_VALUE}{at}"
            for at, name in enumerate(lacking)
        )
        return f"SELECT *{values} FROM ({numbered}) AS c"

    def _upsert(self, rows: str, cast: str, lacking: Sequence[str]) -> str:
        names = _list(self.written)
        keys, on = _list(self.keys), _list(self.keys, "k.")
        # Orders by the staged values, which compare as they do in Spark.
        order = ", ".join(
            [
                on,
                *(f"s.{quote_identifier(name)} DESC NULLS LAST" for name in self.order),
                f"s.{_PIECE} DESC",
                f"s.{_ROW} DESC",
            ]
        )
        chosen = _list(self.written, "k.")
        updates = ", ".join(
            f"{quote_identifier(name)} = EXCLUDED.{quote_identifier(name)}"
            for name in self.written
            if name not in self.keys
        )
        action = f"DO UPDATE SET {updates}" if updates else "DO NOTHING"
        deleted = gone = condition = ""
        if self.delete is not None:
            deleted = f", s.{quote_identifier(self.delete)} AS {_GONE}"
            theirs, ours = _list(self.keys, "t."), _list(self.keys, "latest.")
            gone = (
                f", gone AS (DELETE FROM {self.table} AS t USING latest WHERE "
                f"latest.{_GONE} AND ({theirs}) = ({ours}))"
            )
            condition = f" WHERE {_GONE} IS NOT TRUE"
        latest = (
            f"SELECT DISTINCT ON ({on}) {chosen}{deleted} "
            f"FROM ({rows}) AS s, LATERAL (SELECT {cast}) AS k ORDER BY {order}"
        )
        if lacking:
            latest = self._filled(rows, cast, lacking)
        return (
            f"WITH latest AS MATERIALIZED ({latest}){gone} "
            f"INSERT INTO {self.table} ({names}) SELECT {names} FROM latest{condition} "
            f"ON CONFLICT ({keys}) {action}"
        )

    def create_commits(self) -> str:
        """Return the statement that creates the table of commit records."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table.sibling(COMMITS)} (app text, "
            "target text, batch bigint NOT NULL, query text NOT NULL, committed_at "
            "timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (app, target))"
        )

    def insert_commit(self, key: BatchKey) -> str:
        """Return the statement that records the batch; no row if it was recorded."""
        names = ", ".join(map(literal, (key.app, self.table.name, key.query)))
        return (
            f"INSERT INTO {self.table.sibling(COMMITS)} AS c (app, target, query, "
            f"batch) VALUES ({names}, {key.number}) ON CONFLICT (app, target) DO "
            "UPDATE SET batch = EXCLUDED.batch, query = EXCLUDED.query, committed_at = "
            "now() WHERE c.batch < EXCLUDED.batch RETURNING 1"
        )

    def select_commit(self, key: BatchKey) -> str:
        """Return the query for the last recorded batch and the query that wrote it."""
        return (
            f"SELECT batch, query FROM {self.table.sibling(COMMITS)} WHERE app = "
            f"{literal(key.app)} AND target = {literal(self.table.name)}"
        )

    def staging_name(self, key: BatchKey, hour: int, suffix: str) -> str:
        """Return the name of a staging table; *suffix* makes it unique."""
        return f"{staging_prefix(key, self.table.name)}{key.number}_{hour}_{suffix}"

    def staging_names(self) -> str:
        """Return the query for the names of all staging tables of all queries."""
        schema = self.table.schema
        place = "current_schema()" if schema is None else literal(schema)
        return (
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = "
            f"c.relnamespace WHERE n.nspname = {place} AND c.relkind = 'r' AND "
            f"starts_with(c.relname::text, {literal(RESERVED)})"
        )


def is_expired(name: str, hour: int) -> bool:
    """Return whether the staging table *name* belongs to an abandoned query."""
    found = _STAGING.match(name)
    return found is not None and int(found["hour"]) < hour - 24 * STAGING_AGE_MAX_DAYS


def column_type(kind: pa.DataType) -> str | None:
    """Return the column type for values of *kind*; None if there is none."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind) and kind.value_type in _SIMPLE:
        return f"{_SIMPLE[kind.value_type]}[]"
    if pa.types.is_nested(kind) and is_writable(kind):
        return "jsonb"
    return None


def staged_type(kind: pa.DataType) -> str:
    """Return the type of staged values of *kind*: JSON is staged as text."""
    return "text" if is_json(kind) else str(column_type(kind))


def is_json(kind: pa.DataType) -> bool:
    """Return whether values of *kind* are written as JSON."""
    return column_type(kind) == "jsonb"


def describe_columns(table: TableName) -> str:
    """Return the query for the fields of ``Column`` of each column."""
    return (
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull "
        "AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> '' OR "
        "a.attidentity = 'a', CASE WHEN t.typtype = 'd' THEN "
        "format_type(t.typbasetype, t.typtypmod) "
        "ELSE format_type(a.atttypid, a.atttypmod) END FROM pg_attribute a "
        f"JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = {_oid(table)} "
        "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )


def describe_unique(table: TableName) -> str:
    """Return the query for index and column, for each column of full unique indexes."""
    return (
        "SELECT i.indexrelid::bigint, a.attname::text FROM pg_index i CROSS JOIN "
        "LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place) JOIN "
        "pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE "
        f"i.indrelid = {_oid(table)} AND i.indisunique AND i.indimmediate AND "
        "i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts"
    )


def describe_privileges(table: TableName) -> str:
    """Return the query for the right to write to *table*; null if it does not exist."""
    return f"SELECT has_table_privilege({_oid(table)}, 'INSERT, UPDATE, DELETE')"


def try_cast(kind: pa.DataType, to: str) -> str:
    """Return a query that fails if values of *kind* cannot be cast to *to*."""
    return f"SELECT NULL::{staged_type(kind)}::{to}"


def unique_columns(rows: Iterable[tuple[int, str]]) -> tuple[frozenset[str], ...]:
    """Group the result of ``describe_unique`` by index."""
    by_index: dict[int, set[str]] = {}
    for index, name in rows:
        by_index.setdefault(index, set()).add(name)
    return tuple(frozenset(names) for names in by_index.values())


def quote_identifier(name: str) -> str:
    """Return *name* as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _is_later(order: Sequence[str]) -> str:
    """Return the condition that the row ``s`` is later than ``t``; null is least."""
    if not order:
        return "false"
    name = quote_identifier(order[0])
    return (
        f"(coalesce(s.{name} > t.{name}, false) OR "
        f"(t.{name} IS NULL AND s.{name} IS NOT NULL) OR "
        f"(s.{name} IS NOT DISTINCT FROM t.{name} AND {_is_later(order[1:])}))"
    )


def _list(names: Iterable[str], prefix: str = "") -> str:
    return ", ".join(prefix + quote_identifier(name) for name in names)


def _oid(table: TableName) -> str:
    return f"to_regclass({literal(str(table))})"


def all_rows(table: TableName, *, is_empty: bool = False) -> str:
    """Return the query for the rows of *table*, or only for its columns."""
    limit = " LIMIT 0" if is_empty else ""
    return f"SELECT * FROM {table}{limit}"
