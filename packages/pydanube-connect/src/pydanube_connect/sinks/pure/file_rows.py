"""Messages as rows of files, and the content of such files.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import Section
from pydanube.model.errors import InvalidRequest
from pydanube.model.field_paths import ABSENT, find_field, parse_path
from pydanube.wire.buffer import Buffer
from pydanube_connect.pure.failures import JSON_ERRORS


class FileFormat(Enum):
    """The content of the files."""

    LINES = "lines"
    CSV = "csv"
    PARQUET = "parquet"


class Compression(Enum):
    """The compression of the files."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"
    SNAPPY = "snappy"


class ColumnType(Enum):
    """The type of a column."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    DATE = "date"


class MessagePart(Enum):
    """A part of a message that can be a column."""

    TOPIC = "topic"
    OFFSET = "offset"
    PUBLISH_TIME = "publish_time"
    KEY = "key"
    PAYLOAD = "payload"


class Column(Section, frozen=True, kw_only=True):
    """A column that is not the field with its name."""

    field: str | None = None
    """The path of the field."""
    message: MessagePart | None = None
    """The part of the message, instead of a field."""
    type: ColumnType = ColumnType.TEXT


Columns = Mapping[str, ColumnType | Column]

_SUFFIXES = {
    FileFormat.LINES: "jsonl",
    FileFormat.CSV: "csv",
    FileFormat.PARQUET: "parquet",
}
_COMPRESSED_SUFFIXES = {Compression.GZIP: ".gz", Compression.ZSTD: ".zst"}
_ARROW = {
    ColumnType.TEXT: pa.string(),
    ColumnType.INTEGER: pa.int64(),
    ColumnType.NUMBER: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIME: pa.timestamp("us", "UTC"),
    ColumnType.DATE: pa.date32(),
}
_PYTHON: dict[ColumnType, Any] = {
    ColumnType.INTEGER: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    ColumnType.NUMBER: float,
    ColumnType.BOOLEAN: bool,
    ColumnType.DATE: date,
}
_PART_TYPES = {
    MessagePart.OFFSET: ColumnType.INTEGER,
    MessagePart.PUBLISH_TIME: ColumnType.TIME,
}
MESSAGE_COLUMNS = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("publish_time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string())),
    ]
)
"""The columns of messages as they are."""


class InvalidRow(Exception):
    """A message that cannot be a row."""


def column_problem(columns: Columns) -> str | None:
    """Return what is wrong with *columns*, or None."""
    for name, column in columns.items():
        if not name:
            return "a column has no name"
        if isinstance(column, Column) and column.message is not None:
            if column.field is not None:
                return f"{name}: has either a field or a part of the message"
            continue
        try:
            parse_path(_path_of(name, column))
        except InvalidRequest as error:
            return f"{name}: {error}"
    return None


def _path_of(name: str, column: ColumnType | Column) -> str:
    if isinstance(column, Column) and column.field is not None:
        return column.field
    return name if name.isidentifier() else f'"{name}"'


class FileEncoder:
    """The content of files of one format."""

    def __init__(
        self, file_format: FileFormat, compression: Compression | None, columns: Columns
    ) -> None:
        """With *columns*, rows are fields of messages; otherwise messages."""
        is_parquet = file_format is FileFormat.PARQUET
        usual = Compression.ZSTD if is_parquet else Compression.NONE
        self._format = file_format
        self._compression = compression or usual
        self._readers = [_reader_of(name, each) for name, each in columns.items()]
        self._schema = pa.schema(
            [
                pa.field(name, _ARROW[_type_of(each)], nullable=True)
                for name, each in columns.items()
            ]
        )
        self._reads_fields = any(
            not isinstance(each, Column) or each.message is None
            for each in columns.values()
        )

    @property
    def suffix(self) -> str:
        """The end of the names of files, without the first dot."""
        suffix = _SUFFIXES[self._format]
        if self._format is FileFormat.PARQUET:
            return suffix
        return suffix + _COMPRESSED_SUFFIXES.get(self._compression, "")

    def row_of(self, message: Message) -> Any:
        """
        Return the row of *message*.

        Raises:
            InvalidRow: It has none.
        """
        if self._readers:
            value = _object_of(message) if self._reads_fields else {}
            return [read(message, value) for read in self._readers]
        if self._format is FileFormat.LINES:
            return _line_of(message.payload)
        return message

    def encode(self, rows: Sequence[Any]) -> Buffer | pa.Buffer:
        """Return a file of *rows*."""
        if self._format is FileFormat.LINES:
            lines = map(self._json_of, rows) if self._readers else rows
            return self._compress(
                b"".join(part for row in lines for part in (row, b"\n"))
            )
        sink = pa.BufferOutputStream()
        table = self._table(rows)
        if self._format is FileFormat.CSV:
            from pyarrow import csv  # noqa: PLC0415  # It takes long to import.

            csv.write_csv(table, sink)
            return self._compress(sink.getvalue())
        import pyarrow.parquet as pq  # noqa: PLC0415  # It takes long to import.

        pq.write_table(table, sink, compression=self._compression.value)
        return sink.getvalue()

    def _json_of(self, row: Sequence[Any]) -> bytes:
        return msgspec.json.encode(dict(zip(self._schema.names, row, strict=True)))

    def _table(self, rows: Sequence[Any]) -> pa.Table:
        if not self._readers:
            columns = {
                "offset": [each.offset for each in rows],
                "publish_time": [each.publish_time for each in rows],
                "key": [each.key_bytes for each in rows],
                "payload": [each.payload for each in rows],
                "attributes": [list(each.attributes.items()) for each in rows],
            }
            return pa.Table.from_pydict(columns, schema=MESSAGE_COLUMNS)
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(zip(*rows, strict=True), self._schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _compress(self, data: Buffer | pa.Buffer) -> Buffer | pa.Buffer:
        if self._compression is Compression.NONE:
            return data
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, self._compression.value) as stream:
            stream.write(data)
        return sink.getvalue()


def _line_of(payload: bytes) -> bytes:
    if b"\n" not in payload:
        return payload
    try:
        # In JSON, line breaks are only between values.
        return bytes(msgspec.json.format(payload, indent=-1))
    except JSON_ERRORS:
        raise InvalidRow(
            "the payload has a line break and is not JSON: use 'format: parquet'"
        ) from None


def _object_of(message: Message) -> Any:
    try:
        value = msgspec.json.decode(message.payload)
    except JSON_ERRORS as error:
        raise InvalidRow(f"the payload is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRow("the payload is not a JSON object")
    return value


def _type_of(column: ColumnType | Column) -> ColumnType:
    if isinstance(column, ColumnType):
        return column
    if column.message is not None:
        return _PART_TYPES.get(column.message, ColumnType.TEXT)
    return column.type


def _reader_of(name: str, column: ColumnType | Column) -> Callable[[Message, Any], Any]:
    if isinstance(column, Column) and column.message is not None:
        part = column.message
        return lambda message, _: _part_of(name, part, message)
    path, kind = parse_path(_path_of(name, column)), _type_of(column)
    return lambda _, value: _convert(name, find_field(value, path), kind)


def _part_of(name: str, part: MessagePart, message: Message) -> Any:
    match part:
        case MessagePart.TOPIC:
            return message.topic
        case MessagePart.OFFSET:
            return message.offset
        case MessagePart.PUBLISH_TIME:
            return message.publish_time
    found = message.key_bytes if part is MessagePart.KEY else message.payload
    try:
        return None if found is None else found.decode()
    except UnicodeDecodeError as error:
        raise InvalidRow(
            f"the column {name!r}: the {part.value} is not text"
        ) from error


def _convert(name: str, found: Any, kind: ColumnType) -> Any:
    if found is ABSENT or found is None:
        return None
    if kind is ColumnType.TEXT:
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()
    try:
        if kind is ColumnType.TIME:
            return _time_of(found)
        return msgspec.convert(found, _PYTHON[kind])
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidRow(f"the column {name!r} is no {kind.value}: {error}") from error


def _time_of(found: Any) -> datetime:
    time = datetime.fromisoformat(msgspec.convert(found, str))
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
