"""
What ClickHouse is told: its types for Arrow's, and the statements of a commit.

ClickHouse has no transactions, so a batch becomes visible in steps that can be taken
up again.  Tasks stage their rows in tables of their own.  The commit first writes down
which of them make up the batch; then it moves one after the other, each with a
deduplication token, so that one which was moved before is not moved again; then it
writes down that the batch is done.  Who finds a batch that was written down and is not
done goes on with the staging tables that were noted, not with its own: the rows of a
batch may be spread over other tasks when it is run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pydanube.model.errors import InvalidConfig
from pydanube.spark.sink import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydanube.spark.sink import BatchKey

COMMITS = "danube_commits"
RESERVED = "_danube_"
ROW = RESERVED + "row"
"""The column of a staging table that keeps its rows in order."""

DEDUPLICATION_WINDOW = 10_000
"""How many inserts a table that is made here can tell from repetitions."""

MOVING, DONE = 0, 1

STAGING_AGE_MAX_DAYS = 7
"""How long what a killed job has staged may stay, if its query never goes on."""

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
    """The last batch of a query that was begun."""

    number: int
    is_done: bool
    query: str
    stagings: tuple[str, ...]
    """What the batch consists of, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the rows of a DataFrame become those of a table."""

    database: str
    table: str
    schema: pa.Schema
    engine: str = "MergeTree"
    order: tuple[str, ...] = ()

    def problems(self) -> list[str]:
        """What is wrong with the DataFrame, whatever the table is like."""
        found = [
            f"the column {field.name!r} has the type {field.type}, which ClickHouse "
            "cannot be given; cast it, to a string for example"
            for field in self.schema
            if column_type(field.type) is None
        ]
        found += [
            f"the name of the column {name!r} begins with {RESERVED}, which is reserved"
            for name in self.schema.names
            if name.startswith(RESERVED)
        ]
        return found

    def problems_with(self, kinds: Mapping[str, str]) -> list[str]:
        """
        What keeps such rows from being written to a table with such columns.

        *kinds* has the kind of each column's default, ``MATERIALIZED`` for example.
        """
        found = []
        for name in self.schema.names:
            if name not in kinds:
                there = ", ".join(kinds)
                found.append(f"{self.target} has no column {name!r}; it has {there}")
            elif kinds[name] in ("MATERIALIZED", "ALIAS"):
                found.append(f"{self.target}: the column {name!r} cannot be written")
        return found

    @property
    def target(self) -> str:
        return self.place(self.table)

    def place(self, name: str) -> str:
        """A table of the same database, as it stands in a statement."""
        return f"{quote_identifier(self.database)}.{quote_identifier(name)}"

    # What is said.

    def create_target(self) -> str:
        """The table of the option ``createTable``."""
        columns = ", ".join(
            f"{quote_identifier(field.name)} "
            + str(column_type(field.type, may_be_null=field.name not in self.order))
            for field in self.schema
        )
        order = ", ".join(map(quote_identifier, self.order)) or "tuple()"
        # The others know repetitions by themselves.
        is_own = not self.engine.startswith(("Replicated", "Shared"))
        return (
            f"CREATE TABLE IF NOT EXISTS {self.target} ({columns}) "
            f"ENGINE = {self.engine} ORDER BY ({order})" + (_window() if is_own else "")
        )

    def create_staging(self, staging: str) -> str:
        """A table for what one attempt of a task writes."""
        columns = ", ".join(
            f"{quote_identifier(field.name)} {column_type(field.type)}"
            for field in self.schema
        )
        return (
            f"CREATE TABLE IF NOT EXISTS {self.place(staging)} "
            f"({ROW} UInt64, {columns}) "
            f"ENGINE = MergeTree ORDER BY {ROW}{_window()}"
        )

    def insert(self, staging: str) -> str:
        """What goes before an Arrow stream with the rows, ``ROW`` first."""
        names = ", ".join([ROW, *map(quote_identifier, self.schema.names)])
        return f"INSERT INTO {self.place(staging)} ({names}) FORMAT ArrowStream"

    def count(self, staging: str) -> str:
        return f"SELECT toString(count()) FROM {self.place(staging)}"

    def move(self, staging: str) -> str:
        """
        Everything that one attempt has staged, into the table.

        With ``MOVE_SETTINGS`` the rows make the same blocks each time.
        """
        names = ", ".join(map(quote_identifier, self.schema.names))
        return (
            f"INSERT INTO {self.target} ({names}) SELECT {names} FROM "
            f"{self.place(staging)} ORDER BY {ROW}"
        )

    def create_commits(self) -> str:
        """The table that remembers the last batch of each query."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.place(COMMITS)} (app String, "
            "target String, step UInt64, query String, stagings Array(String), "
            "at DateTime64(3) DEFAULT now64(3)) "
            "ENGINE = ReplacingMergeTree(step) ORDER BY (app, target)"
        )

    def insert_commit(self, key: BatchKey, stagings: Sequence[str], state: int) -> str:
        """Write down that the batch consists of *stagings*, or that it is done."""
        values = ", ".join(
            (
                literal(key.app),
                literal(self.table),
                str(_step(key.number, state)),
                literal(key.query),
                f"[{', '.join(map(literal, stagings))}]",
            )
        )
        return (
            f"INSERT INTO {self.place(COMMITS)} (app, target, step, query, stagings) "
            f"VALUES ({values})"
        )

    def select_commit(self, key: BatchKey) -> str:
        """A question for what ``decision`` reads."""
        return (
            "SELECT toString(step), query, arrayStringConcat(stagings, ',') FROM "
            f"{self.place(COMMITS)} WHERE app = {literal(key.app)} AND "
            f"target = {literal(self.table)} ORDER BY step DESC LIMIT 1"
        )

    def describe(self) -> str:
        """A question for the columns of the table, and the kinds of their defaults."""
        return (
            "SELECT name, default_kind, type FROM system.columns WHERE "
            f"database = {literal(self.database)} AND table = {literal(self.table)} "
            "ORDER BY position"
        )

    def staging_name(self, key: BatchKey, suffix: str) -> str:
        """A name for what an attempt stages; *suffix* is its own."""
        return f"{self._prefix(key)}{key.number}_{suffix}"

    def staging_names(self) -> str:
        """
        A question for all staging tables, whosever they are: name and is forgotten.

        Those that a batch was decided to consist of are never forgotten.
        """
        needed = f"SELECT arrayJoin(stagings) FROM {self.place(COMMITS)} FINAL"
        return (
            "SELECT name, toString(metadata_modification_time < now() - INTERVAL "
            f"{STAGING_AGE_MAX_DAYS} DAY AND name NOT IN ({needed})) "
            f"FROM system.tables WHERE database = {literal(self.database)} AND "
            f"startsWith(name, {literal(RESERVED)})"
        )

    def stale_tables(self, key: BatchKey, rows: Iterable[Sequence[str]]) -> list[str]:
        """Of what ``staging_names`` gives, the tables that nobody can need any more."""
        start = self._prefix(key)
        found = []
        for name, is_expired in rows:
            number = name.removeprefix(start).partition("_")[0]
            is_ours = name.startswith(start) and number.isdecimal()
            if is_expired == "1" or (is_ours and int(number) <= key.number):
                found.append(name)
        return found

    def _prefix(self, key: BatchKey) -> str:
        return f"{RESERVED}{digest(key.app, self.table)}_"


MOVE_SETTINGS = {
    # One thread reads in order and hands on blocks that are cut by count alone, so a
    # repetition has the same blocks, and each is recognised by the token.
    "max_threads": "1",
    "max_insert_threads": "1",
    "max_block_size": "65536",
    "min_insert_block_size_rows": "1048576",
    "min_insert_block_size_bytes": "0",
    "insert_deduplicate": "1",
}


def move_token(key: BatchKey, index: int) -> str:
    """What piece *index* of a batch is recognised by."""
    return f"{key}:{index}"


def parse_commit_record(rows: Sequence[Sequence[str]]) -> CommitRecord | None:
    """What the answer to ``Plan.noted`` says."""
    if not rows:
        return None
    [(step, query, stagings)] = rows
    number, state = divmod(int(step), 2)
    names = tuple(name for name in stagings.split(",") if name)
    return CommitRecord(number, state == DONE, query, names)


def try_cast(kind: pa.DataType, to: str) -> str:
    """A question that fails if such values cannot become *to*."""
    columns = literal(f"x {column_type(kind)}")
    return f"SELECT CAST(x, {literal(to)}) FROM null({columns})"


def column_type(kind: pa.DataType, *, may_be_null: bool = True) -> str | None:
    """The type of a column for such values; None if there is none."""
    if pa.types.is_list(kind):
        inner = column_type(kind.value_type)
        return inner and f"Array({inner})"
    if pa.types.is_map(kind):
        key = column_type(kind.key_type, may_be_null=False)
        item = column_type(kind.item_type)
        return key and item and f"Map({key}, {item})"
    if pa.types.is_struct(kind):
        fields = [(field.name, column_type(field.type)) for field in kind]
        if not fields or not all(inner for _, inner in fields):
            return None
        parts = (f"{quote_identifier(name)} {inner}" for name, inner in fields)
        return f"Tuple({', '.join(parts)})"
    if pa.types.is_decimal(kind):
        plain = f"Decimal({kind.precision}, {kind.scale})"
    elif kind in _SIMPLE:
        plain = _SIMPLE[kind]
    else:
        return None
    return f"Nullable({plain})" if may_be_null else plain


def check_engine(text: str) -> str:
    """
    *text* as the engine of a table.

    Raises:
        InvalidConfig: It is something else.
    """
    if not text.split("(", maxsplit=1)[0].endswith("MergeTree") or ";" in text:
        raise InvalidConfig(
            f"engine: must be one of the MergeTree family, not {text!r}"
        )
    return text


def quote_identifier(name: str) -> str:
    """*name* as an identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    """*text* as a string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _window() -> str:
    return f" SETTINGS non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}"


def _step(number: int, state: int) -> int:
    return number * 2 + state
