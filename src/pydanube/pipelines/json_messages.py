"""
The messages of rows that have neither a payload nor a value: JSON objects.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.spark.message_rows import COLUMNS, PAYLOAD, VALUE


def message_expressions(columns: Sequence[str]) -> list[str] | None:
    """
    Return the SQL expressions of messages with the values of *columns*.

    The columns that messages have, such as ``key``, stay; all others become the fields
    of ``value``.  Return None if there is a payload or value already, if no column is
    left for the fields, or if a name occurs twice.
    """
    fields = [name for name in columns if name not in COLUMNS]
    is_unique = len({name.lower() for name in columns}) == len(columns)
    if PAYLOAD in columns or VALUE in columns or not fields or not is_unique:
        return None
    own = [quote(name) for name in columns if name in COLUMNS]
    return [f"struct({', '.join(map(quote, fields))}) AS {VALUE}", *own]


def quote(name: str) -> str:
    """Return the column *name* in Spark's SQL."""
    quoted = name.replace("`", "``")
    return f"`{quoted}`"
