"""
Staging tables, commit records and checks of columns, for all sinks of databases.

Each task writes its rows into its own staging table, and the commit of a batch moves
them into the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from pydanube.model.errors import Conflict
from pydanube_spark.pure.sink import BatchKey, digest
from pydanube_spark.reader.pure.option_parsing import Option

COMMITS = "danube_commits"
"""The table of commit records."""

RESERVED = "_danube_"
"""The prefix of staging tables, and of the columns that only they have."""

STAGING_AGE_MAX_DAYS = 7
"""The age at which the staging tables of abandoned queries are dropped."""

ORDER_COLUMNS = Option(
    "orderColumns",
    "",
    "The latest row of a key in a batch is the one with the greatest values in these "
    "columns, then the last one in the highest partition.",
)


def staging_prefix(key: BatchKey, table: str) -> str:
    """Return how the names of a query's staging tables begin, before the batch."""
    return f"{RESERVED}{digest(key.app, table)}_"


def is_stale(name: str, key: BatchKey, table: str) -> bool:
    """Return whether *name* is a staging table of this query, up to this batch."""
    prefix = staging_prefix(key, table)
    number = name.removeprefix(prefix).partition("_")[0]
    return name.startswith(prefix) and number.isdecimal() and int(number) <= key.number


def check_same_query(key: BatchKey, number: int, query: str) -> None:
    """
    Raise if *query*, which wrote the last batch *number*, is not that of *key*.

    Raises:
        Conflict: It is another one.
    """
    if query != key.query:
        raise Conflict(
            f"appId {key.app!r} was used by another query up to batch {number}, so "
            f"batch {key.number} counts as already written: use a new appId for a "
            "query with a new checkpoint"
        )


def unsupported_columns(
    schema: pa.Schema, system: str, is_supported: Callable[[pa.DataType], object]
) -> list[str]:
    """Return the problems with columns whose types *system* does not support."""
    return [
        f"the column {field.name!r} has the type {field.type}, which {system} does not "
        "support; cast it, for example to a string"
        for field in schema
        if not is_supported(field.type)
    ]


def reserved_columns(schema: pa.Schema) -> list[str]:
    """Return the problems with columns whose names are reserved."""
    return [
        f"the name of the column {name!r} begins with {RESERVED}, which is reserved"
        for name in schema.names
        if name.startswith(RESERVED)
    ]


def column_problems(
    table: object, wanted: Iterable[str], there: Mapping[str, bool]
) -> list[str]:
    """
    Return what prevents writing the columns *wanted* to *table*.

    *there* tells which columns the table has, and whether each can be written.  It is
    empty if there is no such table.
    """
    if not there:
        return [f"there is no table {table}; createTable=true creates it"]
    found = []
    for name in wanted:
        if name not in there:
            found.append(f"{table} has no column {name!r}; it has {', '.join(there)}")
        elif not there[name]:
            found.append(f"{table}: the column {name!r} cannot be written")
    return found


def cast_problem(name: str, has: object, to: object) -> str:
    """Return the problem of a column *name* whose type the table's cannot take."""
    return f"the column {name!r} is {has} and cannot be cast to {to}"


def literal(text: str) -> str:
    """Return *text* as a string literal of standard SQL."""
    return "'" + text.replace("'", "''") + "'"
