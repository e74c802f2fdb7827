"""
The SQL of a merge into a Delta table.  Pure.

``t`` is the table, and ``s`` the changes, which have one row for each key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydanube_spark.pure.upserts import UpsertColumns

SOURCE = "s"
TARGET = "t"


def matches(columns: UpsertColumns) -> str:
    """Return the condition that a row of the table and a change have the same key."""
    return " AND ".join(
        f"{_column(TARGET, name)} = {_column(SOURCE, name)}" for name in columns.keys
    )


def is_deletion(columns: UpsertColumns) -> str:
    """Return the condition that a change deletes its row."""
    if columns.delete is None:
        return "false"
    return f"{_column(SOURCE, columns.delete)} IS TRUE"


def is_current(order: Sequence[str]) -> str:
    """Return the condition that the row of the table is not later than the change."""
    if not order:
        return "true"
    name, *further = order
    ours, theirs = _column(TARGET, name), _column(SOURCE, name)
    return (
        f"({theirs} > {ours} OR ({ours} IS NULL AND {theirs} IS NOT NULL) OR "
        # Without parentheses, AND would bind to the right side.
        f"(({theirs} IS NOT DISTINCT FROM {ours}) AND {is_current(further)}))"
    )


def assignments(names: Iterable[str]) -> dict[str, str]:
    """Return what writes the columns *names* of a change to its row."""
    return {_column(TARGET, name): _column(SOURCE, name) for name in names}


def quote(name: str) -> str:
    """Return *name* as an identifier."""
    quoted = name.replace('"', '""')
    return f'"{quoted}"'


def _column(table: str, name: str) -> str:
    return f"{table}.{quote(name)}"
