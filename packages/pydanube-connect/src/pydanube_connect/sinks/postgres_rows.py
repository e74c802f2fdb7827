"""Messages as rows of a table, and the statements that write them.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from msgspec import Raw
from msgspec.json import decode, encode

from pydanube.client.messages.messages import Message
from pydanube.model.names import TopicName
from pydanube_connect.postgres_access import quoted
from pydanube_connect.pure.failures import JSON_ERRORS
from pydanube_connect.sources.pure.change_events import UNAVAILABLE

Values = Mapping[str, Raw]
"""The JSON texts of values, by column."""

NULL = Raw(b"null")
_UNAVAILABLE = Raw(encode(UNAVAILABLE))


class Envelope(Enum):
    """How a message describes a row."""

    ROW = "row"
    DEBEZIUM = "debezium"


class Truncate(Enum):
    """The treatment of an event that empties the table which the events come from."""

    FAIL = "fail"
    IGNORE = "ignore"
    APPLY = "apply"


class InvalidRow(Exception):
    """A message is no row of the table."""


class UnknownColumn(InvalidRow):
    """A message has a column that the table did not have when it was looked at."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row to insert or to delete."""

    values: Values
    """Those of the key if the row is deleted; none if all rows are."""
    is_deleted: bool

    @property
    def is_truncation(self) -> bool:
        """Whether all rows of the table are deleted."""
        return self.is_deleted and not self.values

    @property
    def kind(self) -> tuple[bool, frozenset[str]]:
        """Rows of the same kind are written by the same statement."""
        return self.is_deleted, frozenset(self.values)


@dataclass(frozen=True, slots=True)
class TableFormat:
    """The table that messages are written to."""

    name: str
    """The quoted name."""
    columns: Sequence[str]
    key: Sequence[str]
    """The columns that identify a row; empty: every message is a new row."""
    envelope: Envelope
    truncate: Truncate = Truncate.FAIL

    def row(self, message: Message) -> Row | None:
        """
        Return the row of *message*, or None if it changes none.

        Raises:
            InvalidRow: It is no row of the table.
        """
        if not message.payload:
            return self._tombstone(message)
        value: Values = _object_in(message.payload)
        is_deleted = False
        if self.envelope is Envelope.DEBEZIUM:
            # Its JSON converter adds a schema by default.
            event = value
            if "schema" in value and "payload" in value:
                event = _object_in(value["payload"])
            if _operation_of(event) == "t":
                return self._truncation(message)
            found, is_deleted = _row_of_event(event)
            if found is None:
                return None
            value = found
        return Row(self._checked(value, is_deleted=is_deleted), is_deleted)

    def _truncation(self, message: Message) -> Row | None:
        if self.truncate is Truncate.IGNORE:
            return None
        if self.truncate is Truncate.FAIL:
            raise InvalidRow(
                "the event empties the table that it comes from: set truncate: apply "
                "to empty this one, too, or truncate: ignore to keep its rows"
            )
        topic = message.topic
        if TopicName.parse(topic).split_partition() is not None:
            raise InvalidRow(
                "the event empties the table that it comes from, and has no order "
                f"among those in other partitions than {topic}: truncate: apply needs "
                "a topic with one partition"
            )
        return Row({}, is_deleted=True)

    def _tombstone(self, message: Message) -> Row | None:
        if self.envelope is Envelope.DEBEZIUM:
            return None  # It follows the event of the deletion.
        key = message.key_bytes
        if len(self.key) != 1 or key is None:
            raise InvalidRow("the payload is empty, and its key is no key of a row")
        try:
            return Row({self.key[0]: Raw(encode(key.decode()))}, is_deleted=True)
        except UnicodeDecodeError:
            raise InvalidRow("the payload is empty, and its key is no text") from None

    def _checked(self, value: Values, *, is_deleted: bool) -> Values:
        if is_deleted and not self.key:
            raise InvalidRow("it deletes a row, and the sink has no 'key'")
        for each in self.key:
            if value.get(each, NULL) == NULL:
                raise InvalidRow(f"the key column {each} has no value")
        if is_deleted:
            return {each: value[each] for each in self.key}
        unknown = next((each for each in value if each not in self.columns), None)
        if unknown is not None:
            raise UnknownColumn(f"the table has no column {unknown!r}")
        if not value:
            raise InvalidRow("the object is empty")
        return value

    def runs(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """
        Yield runs of rows that one statement can write, to the effect of *rows*.

        With a key, those of a key are merged: first a deletion, then an insertion.
        Rows before the last truncation have no effect.
        """
        for at in reversed(range(len(rows))):
            if rows[at].is_truncation:
                yield [rows[at]]
                rows = rows[at + 1 :]
                break
        if self.key:
            rows = self._merged(rows)
        runs: dict[tuple[bool, frozenset[str]], list[Row]] = {}
        for each in rows:
            runs.setdefault(each.kind, []).append(each)
        yield from runs.values()

    def _merged(self, rows: Sequence[Row]) -> list[Row]:
        deleted: dict[tuple[str, ...], Row] = {}
        present: dict[tuple[str, ...], Row] = {}
        for row in rows:
            key = tuple(_shown(row.values[each]) for each in self.key)
            if row.is_deleted:
                deleted[key] = row
                present.pop(key, None)
            else:
                before = present[key].values if key in present else {}
                present[key] = Row({**before, **row.values}, is_deleted=False)
        return [*deleted.values(), *present.values()]

    def statement(self, row: Row) -> str:
        """
        Return the statement for rows of the kind of *row*.

        It takes a JSON array, except if *row* is a truncation.
        """
        if row.is_truncation:
            return f"DELETE FROM {self.name}"
        source = f"jsonb_populate_recordset(NULL::{self.name}, %s::jsonb) AS new"
        if row.is_deleted:
            same = " AND ".join(f"t.{quoted(c)} = new.{quoted(c)}" for c in self.key)
            return f"DELETE FROM {self.name} AS t USING {source} WHERE {same}"
        columns = [each for each in self.columns if each in row.values]
        listed = ", ".join(map(quoted, columns))
        insert = f"INSERT INTO {self.name} ({listed}) SELECT {listed} FROM {source}"
        if not self.key:
            return insert
        others = [each for each in columns if each not in self.key]
        changes = ", ".join(f"{quoted(c)} = EXCLUDED.{quoted(c)}" for c in others)
        action = f"UPDATE SET {changes}" if changes else "NOTHING"
        keys = ", ".join(map(quoted, self.key))
        return f"{insert} ON CONFLICT ({keys}) DO {action}"


def _shown(value: Raw) -> str:
    try:
        return str(decode(value))
    except JSON_ERRORS:
        return bytes(value).decode()  # A number that is too large.


def _object_in(payload: bytes | Raw) -> dict[str, Raw]:
    try:
        bytes(payload).decode()  # The decoder does not look into the values.
        return decode(payload, type=dict[str, Raw])
    except JSON_ERRORS as error:
        raise InvalidRow(f"the payload is no JSON object: {error}") from error


def _operation_of(event: Values) -> str:
    return bytes(event.get("op", NULL)).decode().strip('"')


def _row_of_event(event: Values) -> tuple[Values | None, bool]:
    """Return the row of an event of Debezium, and whether it is deleted."""
    operation = _operation_of(event)
    if operation == "m":
        return None, False
    if operation not in {"c", "r", "u", "d"}:
        raise InvalidRow(f"the payload has no operation of Debezium but {operation!r}")
    is_deleted = operation == "d"
    row = event.get("before" if is_deleted else "after", NULL)
    if row == NULL:
        raise InvalidRow("the event has no row")
    found = _object_in(row)
    values = {name: each for name, each in found.items() if each != _UNAVAILABLE}
    if operation == "c" and len(values) < len(found):
        # The key has changed, and with it the row that has the values.
        raise InvalidRow(
            "a large value that did not change is not in the event: the table that it "
            "comes from needs REPLICA IDENTITY FULL"
        )
    return values, is_deleted
