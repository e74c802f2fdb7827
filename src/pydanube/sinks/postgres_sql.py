"""
What PostgreSQL is told: its types for Arrow's, and the statements of a commit.

The tasks of a batch copy their rows into staging tables, one for each attempt.  One
transaction then remembers the batch in ``danube_commits``, moves the rows and drops
those tables; a batch that is remembered already moves nothing.  Staged rows have the
types of the DataFrame and are cast as they move, to whatever the target's columns are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pydanube.model.errors import InvalidConfig
from pydanube.sinks.json_text import is_writable
from pydanube.spark.sink import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydanube.spark.sink import BatchKey

COMMITS = "danube_commits"
RESERVED = "_danube_"
"""What staging tables, and the columns that only they have, begin with."""

_ROW = RESERVED + "row"
_PIECE = RESERVED + "piece"
_GONE = RESERVED + "gone"

STAGING_AGE_MAX_HOURS = 7 * 24
"""How long what a killed job has staged may stay, if its query never goes on."""

HOUR = "SELECT floor(extract(epoch FROM now()) / 3600)::bigint"
"""A question for the hour, by the server's clock."""

_STAGING = re.compile(
    rf"{RESERVED}[0-9a-f]+_(?P<number>[0-9]+)_(?P<hour>[0-9]+)_[0-9a-f]+"
)
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
    """A table, with its schema unless that is the connection's own."""

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """
        A name as ``table`` or ``schema.table``, in double quotes if need be.

        Raises:
            InvalidConfig: It is malformed.
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
        """Another table of the same schema."""
        return TableName(self.schema, name)

    def __str__(self) -> str:
        own = quote_identifier(self.name)
        return own if self.schema is None else f"{quote_identifier(self.schema)}.{own}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the target, as far as writing goes."""

    name: str
    type: str
    is_required: bool = False
    """It must have a value and has none by itself."""
    is_computed: bool = False
    """Nobody can write it."""


@dataclass(frozen=True, slots=True)
class Target:
    """The table that rows go to, as it is."""

    columns: tuple[Column, ...]
    unique: tuple[frozenset[str], ...] = ()
    """Which columns together are unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the rows of a DataFrame become those of a table."""

    table: TableName
    schema: pa.Schema
    """Of the DataFrame."""
    keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    delete: str | None = None
    is_overwrite: bool = False
    """Whether a batch is all that the table has afterwards."""

    @property
    def written(self) -> list[str]:
        """The columns that reach the table."""
        return [name for name in self.schema.names if name != self.delete]

    def problems(self) -> list[str]:
        """What is wrong with the DataFrame, whatever the table is like."""
        found = [
            f"the column {field.name!r} has the type {field.type}, which PostgreSQL "
            "cannot be given; cast it, to a string for example"
            for field in self.schema
            if column_type(field.type) is None
        ]
        found += [
            f"the name of the column {name!r} begins with {RESERVED}, which is reserved"
            for name in self.schema.names
            if name.startswith(RESERVED)
        ]
        if self.delete in self.schema.names and (
            self.schema.field(self.delete).type != pa.bool_()
        ):
            found.append(f"deleteColumn: {self.delete!r} must be boolean")
        return found

    def problems_with(self, target: Target) -> list[str]:
        """What keeps such rows from being written to *target*."""
        by_name = {column.name: column for column in target.columns}
        found = []
        for name in self.written:
            if name not in by_name:
                there = ", ".join(by_name)
                found.append(f"{self.table} has no column {name!r}; it has {there}")
            elif by_name[name].is_computed:
                found.append(f"{self.table}: the column {name!r} cannot be written")
        found += [
            f"{self.table}: the column {column.name!r} must have a value, and the "
            "DataFrame has no such column"
            for column in target.columns
            if column.is_required and column.name not in self.written
        ]
        if self.keys and frozenset(self.keys) not in target.unique:
            names = ", ".join(map(quote_identifier, self.keys))
            found.append(
                f"keyColumns: {self.table} has no unique index on exactly these "
                f"columns; CREATE UNIQUE INDEX ON {self.table} ({names})"
            )
        return found

    # What is said.

    def create_target(self) -> str:
        """The table of the option ``createTable``."""
        columns = [
            f"{quote_identifier(name)} {column_type(self.schema.field(name).type)}"
            for name in self.written
        ]
        if self.keys:
            columns.append(f"PRIMARY KEY ({_list(self.keys)})")
        return f"CREATE TABLE IF NOT EXISTS {self.table} ({', '.join(columns)})"

    def create_staging(self, staging: str) -> str:
        """
        A table for what one attempt of a task writes.

        It is not logged: after a crash of the server it is empty, and the commit,
        which counts the rows, has the batch written again.
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
        """The number of each staging table, null if it is not there, in one row."""
        found = (f"{_oid(self.table.sibling(name))}::bigint" for name in stagings)
        return f"SELECT {', '.join(found)}"

    def count_staged(self, stagings: Sequence[str]) -> str:
        """How many rows there are in each staging table, in one row."""
        counts = (
            f"(SELECT count(*) FROM {self.table.sibling(name)})" for name in stagings
        )
        return f"SELECT {', '.join(counts)}"

    def delete_all(self) -> str:
        """Nothing any more; others go on reading what was there until the commit."""
        return f"DELETE FROM {self.table}"

    def move(self, stagings: Sequence[str], target: Target) -> str:
        """Everything that is staged, into the table."""
        rows = " UNION ALL ".join(
            f"SELECT {index} AS {_PIECE}, * FROM {self.table.sibling(name)}"
            for index, name in enumerate(stagings)
        )
        types = {column.name: column.type for column in target.columns}
        names = _list(self.written)
        cast = ", ".join(
            f"s.{quote_identifier(name)}::{types[name]} AS {quote_identifier(name)}"
            for name in self.written
        )
        if not self.keys:
            return (
                f"INSERT INTO {self.table} ({names}) SELECT {cast} FROM ({rows}) AS s"
            )
        return self._upsert(rows, cast, names)

    def _upsert(self, rows: str, cast: str, names: str) -> str:
        keys = _list(self.keys)
        # Orders by the staged values, which compare as they do in Spark.
        order = ", ".join(
            [
                *(f"k.{quote_identifier(name)}" for name in self.keys),
                *(f"s.{quote_identifier(name)} DESC NULLS LAST" for name in self.order),
                f"s.{_PIECE} DESC",
                f"s.{_ROW} DESC",
            ]
        )
        on = ", ".join(f"k.{quote_identifier(name)}" for name in self.keys)
        chosen = ", ".join(f"k.{quote_identifier(name)}" for name in self.written)
        deleted = (
            ""
            if self.delete is None
            else f", s.{quote_identifier(self.delete)} AS {_GONE}"
        )
        latest = (
            f"latest AS MATERIALIZED (SELECT DISTINCT ON ({on}) {chosen}{deleted} "
            f"FROM ({rows}) AS s, LATERAL (SELECT {cast}) AS k ORDER BY {order})"
        )
        updates = ", ".join(
            f"{quote_identifier(name)} = EXCLUDED.{quote_identifier(name)}"
            for name in self.written
            if name not in self.keys
        )
        action = f"DO UPDATE SET {updates}" if updates else "DO NOTHING"
        upsert = (
            f"INSERT INTO {self.table} ({names}) SELECT {names} FROM latest"
            f"{'' if self.delete is None else f' WHERE {_GONE} IS NOT TRUE'} "
            f"ON CONFLICT ({keys}) {action}"
        )
        if self.delete is None:
            return f"WITH {latest} {upsert}"
        same = " AND ".join(
            f"t.{quote_identifier(name)} = latest.{quote_identifier(name)}"
            for name in self.keys
        )
        gone = (
            f"gone AS (DELETE FROM {self.table} AS t USING latest "
            f"WHERE latest.{_GONE} AND {same})"
        )
        return f"WITH {latest}, {gone} {upsert}"

    def create_commits(self) -> str:
        """The table that remembers the last batch of each query."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table.sibling(COMMITS)} (app text, "
            "target text, batch bigint NOT NULL, query text NOT NULL, committed_at "
            "timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (app, target))"
        )

    def insert_commit(self, key: BatchKey) -> str:
        """Note the batch; gives a row unless it, or a later one, is noted already."""
        values = ", ".join(
            (
                literal(key.app),
                literal(self.target),
                str(key.number),
                literal(key.query),
            )
        )
        return (
            f"INSERT INTO {self.table.sibling(COMMITS)} AS c (app, target, batch, "
            f"query) VALUES ({values}) ON CONFLICT (app, target) DO UPDATE SET batch = "
            "EXCLUDED.batch, query = EXCLUDED.query, committed_at = now() WHERE "
            "c.batch < EXCLUDED.batch RETURNING 1"
        )

    def select_commit(self, key: BatchKey) -> str:
        """The last batch that is noted, and which query wrote it."""
        return (
            f"SELECT batch, query FROM {self.table.sibling(COMMITS)} WHERE app = "
            f"{literal(key.app)} AND target = {literal(self.target)}"
        )

    @property
    def target(self) -> str:
        """The table, as batches are remembered for it."""
        return self.table.name

    def staging_name(self, key: BatchKey, hour: int, suffix: str) -> str:
        """A name for what an attempt stages from *hour* on; *suffix* is its own."""
        return f"{self._staging_prefix(key)}{key.number}_{hour}_{suffix}"

    def stale_tables(self, key: BatchKey, names: Iterable[str]) -> list[str]:
        """Of *names*, the staging tables that no batch after this one can need."""
        start = self._staging_prefix(key)
        return [
            name
            for name in names
            if (found := _STAGING.match(name))
            and name.startswith(start)
            and int(found["number"]) <= key.number
        ]

    def expired(self, names: Iterable[str], hour: int) -> list[str]:
        """Of *names*, the staging tables of any query that nobody came back for."""
        return [
            name
            for name in names
            if (found := _STAGING.match(name))
            and int(found["hour"]) < hour - STAGING_AGE_MAX_HOURS
        ]

    def staging_names(self) -> str:
        """A question for the names of all staging tables, whosever they are."""
        schema = self.table.schema
        place = "current_schema()" if schema is None else literal(schema)
        return (
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = "
            f"c.relnamespace WHERE n.nspname = {place} AND c.relkind = 'r' AND "
            f"starts_with(c.relname::text, {literal(RESERVED)})"
        )

    def _staging_prefix(self, key: BatchKey) -> str:
        return f"{RESERVED}{digest(key.app, self.target)}_"


def column_type(kind: pa.DataType) -> str | None:
    """The type of a column for such values; None if there is none."""
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
    """The type in which such values are staged: JSON is still text there."""
    return "text" if is_json(kind) else str(column_type(kind))


def is_json(kind: pa.DataType) -> bool:
    """Whether such values are written as JSON."""
    return column_type(kind) == "jsonb"


def describe_columns(table: TableName) -> str:
    """Name, type, is required, is computed: the columns of *table*, if it is there."""
    return (
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull "
        "AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> '' OR "
        f"a.attidentity = 'a' FROM pg_attribute a WHERE a.attrelid = {_oid(table)} "
        "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )


def describe_unique(table: TableName) -> str:
    """Index and column, for each column of a unique index that covers all rows."""
    return (
        "SELECT i.indexrelid::bigint, a.attname::text FROM pg_index i CROSS JOIN "
        "LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place) JOIN "
        "pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE "
        f"i.indrelid = {_oid(table)} AND i.indisunique AND i.indimmediate AND "
        "i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts"
    )


def describe_privileges(table: TableName) -> str:
    """Whether rows may be written to *table*, null if it is not there."""
    return f"SELECT has_table_privilege({_oid(table)}, 'INSERT, UPDATE, DELETE')"


def try_cast(kind: pa.DataType, to: str) -> str:
    """A question that fails if such values cannot become *to*."""
    return f"SELECT NULL::{staged_type(kind)}::{to}"


def unique_columns(rows: Iterable[tuple[int, str]]) -> tuple[frozenset[str], ...]:
    """What ``describe_unique`` has found, by index."""
    by_index: dict[int, set[str]] = {}
    for index, name in rows:
        by_index.setdefault(index, set()).add(name)
    return tuple(frozenset(names) for names in by_index.values())


def lost_rows(expected: Mapping[str, int], found: Sequence[int]) -> list[str]:
    """The staging tables that do not have the rows which were written there."""
    return [
        name
        for (name, count), there in zip(expected.items(), found, strict=True)
        if count != there
    ]


def quote_identifier(name: str) -> str:
    """*name* as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """*text* as a string."""
    return "'" + text.replace("'", "''") + "'"


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(quote_identifier, names))


def _oid(table: TableName) -> str:
    return f"to_regclass({literal(str(table))})"
