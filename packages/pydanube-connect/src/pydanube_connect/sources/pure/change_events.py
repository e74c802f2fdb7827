"""
Changes of rows as messages, in the envelope of Debezium.  Pure.

Source: Debezium's documentation, "Change events".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pydanube.model.errors import InvalidName
from pydanube.model.names import TopicName
from pydanube_connect.pure.records import Record

ANY_TABLE = "*"
"""Stands for all tables that have no entry of their own."""

UNAVAILABLE = "__debezium_unavailable_value"
"""The value of a column that the database has not sent, because it did not change."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")

Values = Mapping[str, Any]
"""The values of a row, by column."""


class Snapshot(Enum):
    """Whether the rows of the tables are published first."""

    INITIAL = "initial"
    NEVER = "never"


SnapshotOption = Annotated[
    Snapshot,
    Meta(description="Whether the rows of the tables are published first."),
]
TombstonesOption = Annotated[
    bool,
    Meta(
        description="Whether an empty message with the key follows a deletion, for "
        "topics that are compacted."
    ),
]


class TableTopics:
    """
    The tables to publish, and the topics of their messages.

    A topic may have ``{schema}`` and ``{table}``; None: that of the connector.
    """

    def __init__(self, tables: Mapping[str, str | None]) -> None:
        self._tables = tables

    def problem(self) -> str | None:
        """Return what is wrong with them, or None."""
        if not self._tables:
            return "has no table, such as 'public.orders'; '*' stands for all"
        for name, topic in self._tables.items():
            if name != ANY_TABLE and not all(name.partition(".")[::2]):
                return f"{name!r} is not 'schema.table'"
            try:
                TopicName.parse(self._with_names(topic, "s", "t") or "/default/t")
            except InvalidName as error:
                return str(error)
        return None

    @property
    def names(self) -> list[tuple[str, str]]:
        """The schemas and names of the tables that have an entry of their own."""
        parts = (each.partition(".") for each in self._tables if each != ANY_TABLE)
        return [(schema, table) for schema, _, table in parts]

    def __contains__(self, table: tuple[str, str]) -> bool:
        return ANY_TABLE in self._tables or ".".join(table) in self._tables

    def topic_of(self, schema: str, table: str) -> str | None:
        """Return the topic; what names cannot have becomes ``_``."""
        found = self._tables.get(f"{schema}.{table}", self._tables.get(ANY_TABLE))
        return self._with_names(found, schema, table)

    def _with_names(self, topic: str | None, schema: str, table: str) -> str | None:
        if not topic:
            return None
        names = {"{schema}": schema, "{table}": table}
        for text, name in names.items():
            topic = topic.replace(text, _NOT_IN_NAMES.sub("_", name))
        return topic


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table, as its messages name it."""

    source: Mapping[str, Any]
    """The fields of ``source`` that all its messages share."""
    key_columns: Sequence[str]
    """The columns of the primary key; without one, messages have no key."""
    topic: str | None
    """Where its messages go; None: the topic of the connector."""
    attributes: Mapping[str, str]

    def key(self, row: Values) -> str | None:
        """Return the key of *row* as a text: one value, or a JSON array of several."""
        columns = self.key_columns
        if not columns or any(each not in row for each in columns):
            return None
        if len(columns) > 1:
            return msgspec.json.encode([row[each] for each in columns]).decode()
        value = row[columns[0]]
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@dataclass(frozen=True, slots=True)
class ChangeEvents:
    """Makes the messages of changes."""

    tombstones: bool
    """Whether an empty message follows a deletion, for topics that are compacted."""

    def of(
        self,
        table: TableFacts,
        operation: str,
        before: Values | None,
        after: Values | None,
        *,
        source: Values,
        time_ms: int,
    ) -> Iterator[Record]:
        """
        Yield the messages of a change.

        An update of the key is a deletion and an insertion, as in Debezium.

        Args:
            table: The table.
            operation: ``c``, ``u``, ``d``, ``r`` or ``t``.
            before: The row before the change, or the columns that identify it, or None.
            after: The row after the change; None: it is deleted, or, with ``t``, all
                rows are.
            source: The fields of ``source`` of this change.
            time_ms: The time now, in milliseconds since 1970.
        """
        old = None if before is None else table.key(before)
        new = None if after is None else table.key(after)
        if operation == "u" and old is not None and old != new:
            yield from self.of(table, "d", before, None, source=source, time_ms=time_ms)
            operation, before = "c", None
        key = old if after is None else new
        value = {
            "before": before,
            "after": after,
            "source": {**table.source, **source},
            "op": operation,
            "ts_ms": time_ms,
        }
        yield Record(
            value=value, key=key, attributes=table.attributes, topic=table.topic
        )
        if operation == "d" and self.tombstones and key is not None:
            yield Record(
                value=b"", key=key, attributes=table.attributes, topic=table.topic
            )
