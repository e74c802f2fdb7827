"""
The messages of rows that have neither a payload nor a value: JSON objects.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydanube_spark.pure.message_rows import COLUMNS, PARTITION, PAYLOAD, TOPIC, VALUE


def message_expressions(
    columns: Sequence[str], *, names_topic: bool
) -> list[str] | None:
    """
    Return the SQL expressions of messages with the values of *columns*.

    The columns that messages have, such as ``key``, stay; all others become the fields
    of ``value``.  The number of a partition is a value and no property: it is usually
    that of a message that was read.  So is a topic, unless rows are written to the
    topics that they name, with *names_topic*.  Return None if the columns are written
    as they are, because there is a payload or value already, because no column is left
    for the fields, or because a name occurs twice.
    """
    others = {PARTITION} if names_topic else {PARTITION, TOPIC}
    if PAYLOAD in columns or VALUE in columns:
        kept = [quote(name) for name in columns if name not in others]
        return kept if len(kept) < len(columns) else None
    properties = set(COLUMNS) - others
    fields = [name for name in columns if name not in properties]
    is_unique = len({name.lower() for name in columns}) == len(columns)
    if not fields or not is_unique:
        return None
    own = [quote(name) for name in columns if name in properties]
    return [f"struct({', '.join(map(quote, fields))}) AS {VALUE}", *own]


def quote(name: str) -> str:
    """Return the column *name* in Spark's SQL."""
    quoted = name.replace("`", "``")
    return f"`{quoted}`"
