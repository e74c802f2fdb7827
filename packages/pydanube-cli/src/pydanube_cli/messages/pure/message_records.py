"""
The records of the input of ``danube produce``, as messages.  Pure.

A parser receives lines and yields records.  It raises at the first one that is
malformed, with its line number, after it has yielded those before it.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from pydanube.model.batch import batch_of
from pydanube.model.errors import InvalidPayload, InvalidRequest
from pydanube.model.field_paths import ABSENT, Path, find_field
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.positions import TIME_MAX, TIME_MIN, to_microseconds
from pydanube.model.schemas import SchemaType
from pydanube.model.shown_text import excerpt
from pydanube.model.suggestions import did_you_mean
from pydanube.schemas.language import Encoder, reason_of

T = TypeVar("T")

RECORD_BYTES_MAX = 64 * 1024 * 1024
"""A longer row of CSV is refused before it fills the memory."""

SHOWN_CHARACTERS = 60


class Input(Enum):
    """The form of the input."""

    RAW = "raw"
    JSON = "json"
    CSV = "csv"


@dataclass(slots=True, kw_only=True)
class Record:
    """One message of the input."""

    line: int
    """The number of its first line, from 1."""
    payload: bytes
    value: Any = ABSENT
    """The value that a schema encodes, if the record has one."""
    key: bytes | None = None
    id: str | None = None
    """The id: the topic does not store the message if it knows it."""
    attributes: dict[str, str] = field(default_factory=dict)
    publish_time: int | None = None
    """Microseconds since 1970, UTC, as the other times."""
    deliver_at: int | None = None
    expires_at: int | None = None


class RefusedRecord(Exception):
    """A record is malformed."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOptions:
    """The fields of a record's value that become its key, id and attributes."""

    key: Path | None = None
    id: Path | None = None
    attributes: Mapping[str, Path] = field(default_factory=dict)
    """The path of each attribute, by name."""

    def __bool__(self) -> bool:
        return bool(self.key or self.id or self.attributes)

    def apply(self, record: Record) -> None:
        """
        Set the key, the id and the attributes of *record* from its value.

        Raises:
            RefusedRecord: The value does not have the fields, or they are no text or
                numbers.
        """
        if not self:
            return
        value = record.value
        if value is ABSENT:
            value = _decode_json(record.line, record.payload)
        if self.key is not None:
            record.key = _text_at(record.line, value, self.key).encode()
        if self.id is not None:
            record.id = _text_at(record.line, value, self.id)
        for name, path in self.attributes.items():
            record.attributes[name] = _text_at(record.line, value, path)


class RawParser:
    """Makes each line a message, unchanged."""

    def __init__(self, fields: FieldOptions) -> None:
        self._fields = fields
        self._line = 0

    def feed(self, lines: Iterable[bytes]) -> Iterator[Record]:
        """Yield the records of the next *lines*."""
        for payload in lines:
            self._line += 1
            record = Record(line=self._line, payload=payload)
            self._fields.apply(record)
            yield record

    def finish(self) -> None:
        """Check that the last record is whole."""


class JsonParser(RawParser):
    """Makes each line, an object as ``danube read -o json`` prints it, a message."""

    def feed(self, lines: Iterable[bytes]) -> Iterator[Record]:
        """Yield the records of the next *lines*; empty ones are skipped."""
        for line in lines:
            self._line += 1
            if line.strip():
                record = _parse_object(self._line, line)
                self._fields.apply(record)
                yield record


class CsvParser:
    """Makes each row a message: an object with the text of each cell, as JSON."""

    def __init__(self, fields: FieldOptions) -> None:
        self._fields = fields
        self._names: list[str] | None = None
        self._line = 0
        # The lines of a row whose quotation mark is not closed yet.
        self._open: list[bytes] = []
        self._open_line = 0
        self._open_bytes = 0
        self._is_quoted = False

    def feed(self, lines: Iterable[bytes]) -> Iterator[Record]:
        """Yield the records of the next *lines*; the first row has the names."""
        for line in lines:
            self._line += 1
            if not self._open:
                self._open_line = self._line
            self._open.append(line)
            self._open_bytes += len(line) + 1
            self._is_quoted ^= bool(line.count(b'"') % 2)
            if self._open_bytes > RECORD_BYTES_MAX:
                raise RefusedRecord(
                    self._open_line, f"the row is longer than {RECORD_BYTES_MAX} bytes"
                )
            if self._is_quoted:
                continue
            row, self._open, self._open_bytes = b"\n".join(self._open), [], 0
            if row.strip():
                yield from self._parse_row(self._open_line, row)

    def finish(self) -> None:
        """
        Check that the last record is whole.

        Raises:
            RefusedRecord: The input ends in quotation marks.
        """
        if self._is_quoted:
            raise RefusedRecord(self._open_line, "a quotation mark is not closed")

    def _parse_row(self, line: int, row: bytes) -> Iterator[Record]:
        if self._names is None:
            self._names = _cells(line, row.removeprefix(codecs.BOM_UTF8))
            if len(set(self._names)) < len(self._names) or not all(self._names):
                raise RefusedRecord(
                    line,
                    "the first row names the columns, and a name is missing or "
                    f"repeated: {', '.join(self._names)}",
                )
            return
        cells = _cells(line, row)
        if len(cells) != len(self._names):
            raise RefusedRecord(
                line,
                f"the row has {len(cells)} cells, and the first row has "
                f"{len(self._names)}",
            )
        value = dict(zip(self._names, cells, strict=True))
        record = Record(line=line, payload=msgspec.json.encode(value), value=value)
        self._fields.apply(record)
        yield record


Parser = RawParser | CsvParser

PARSERS: Mapping[Input, type[Parser]] = {
    Input.RAW: RawParser,
    Input.JSON: JsonParser,
    Input.CSV: CsvParser,
}


def _cells(line: int, row: bytes) -> list[str]:
    csv.field_size_limit(RECORD_BYTES_MAX)
    try:
        text = io.StringIO(row.decode(), newline="")
        return next(csv.reader(text, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise RefusedRecord(line, f"the row is not CSV in UTF-8: {error}") from error


# Records as JSON.


def _parse_object(line: int, text: bytes) -> Record:
    fields = _decode_json(line, text)
    if not isinstance(fields, dict):
        raise RefusedRecord(line, f"a record is a JSON object, not {_shown(fields)}")
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise RefusedRecord(
            line,
            f"a record has no field {_shown(unknown[0])}"
            f"{did_you_mean(unknown[0], FIELDS)}; the fields of a record are those of "
            "'danube read -o json', and the message itself is in payload or value; "
            "--input raw publishes whole lines",
        )
    record = Record(line=line, payload=b"")
    record.value = fields.get("value", ABSENT)
    payload = _bytes_in(line, fields, "payload")
    if payload is None and record.value is ABSENT:
        raise RefusedRecord(
            line, "the record has none of payload, payload_base64 and value"
        )
    record.payload = msgspec.json.encode(record.value) if payload is None else payload
    record.key = _bytes_in(line, fields, "key")
    record.attributes = _attributes_in(line, fields)
    for name in ("publish_time", "deliver_at", "expires_at"):
        setattr(record, name, _time_in(line, fields, name))
    return record


FIELDS = frozenset(
    {
        "payload",
        "payload_base64",
        "value",
        "key",
        "key_base64",
        "attributes",
        "publish_time",
        "deliver_at",
        "expires_at",
        # These are printed, and not published.
        "topic",
        "offset",
        "producer",
        "attempt",
        "schema_id",
        "schema_version",
        "value_error",
    }
)


def _decode_json(line: int, text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedRecord(line, f"not JSON: {error}") from error


def _bytes_in(line: int, fields: Mapping[str, Any], name: str) -> bytes | None:
    text, encoded = fields.get(name), fields.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise RefusedRecord(line, f"the record has both {name} and {name}_base64")
    if isinstance(text, str):
        return text.encode()
    if text is not None:
        raise RefusedRecord(line, f"{name} is {_shown(text)}: it should be a text")
    if encoded is None:
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise RefusedRecord(
            line, f"{name}_base64 is {_shown(encoded)}: it should be base64"
        ) from None


def _attributes_in(line: int, fields: Mapping[str, Any]) -> dict[str, str]:
    attributes = fields.get("attributes")
    if attributes is None:
        return {}
    if not isinstance(attributes, dict):
        raise RefusedRecord(
            line, f"attributes are {_shown(attributes)}: they should be an object"
        )
    for name, value in attributes.items():
        if not isinstance(value, str):
            raise RefusedRecord(
                line, f"the attribute {name} is {_shown(value)}: it should be a text"
            )
    return attributes


def _time_in(line: int, fields: Mapping[str, Any], name: str) -> int | None:
    text = fields.get(name)
    if text is None:
        return None
    try:
        time = to_microseconds(datetime.fromisoformat(text))
    except (InvalidRequest, TypeError, ValueError):
        time = None
    if time is None or not TIME_MIN <= time <= TIME_MAX:
        raise RefusedRecord(
            line,
            f"{name} is {_shown(text)}: it should be a time with its time zone, such "
            "as 2025-03-01T09:30:00Z",
        )
    return time


def _text_at(line: int, value: Any, path: Path) -> str:
    found = find_field(value, path)
    name = ".".join(map(str, path))
    if found is ABSENT:
        raise RefusedRecord(line, f"the value has no field {name}")
    if isinstance(found, str):
        return found
    if isinstance(found, int | float) and not isinstance(found, bool):
        return msgspec.json.encode(found).decode()
    raise RefusedRecord(
        line, f"the field {name} is {_shown(found)}: it should be a text or a number"
    )


def _shown(value: Any) -> str:
    return excerpt(msgspec.json.encode(value).decode(), SHOWN_CHARACTERS)


# Encoding by a schema.


def values_of(type_: SchemaType, payloads: Sequence[bytes]) -> list[Any]:
    """
    Return input messages as values for a schema of type *type_*.

    Raises:
        InvalidPayload: A message is not JSON, or not text.
    """
    values: list[Any] = []
    try:
        for payload in payloads:
            if type_ is SchemaType.BYTES:
                values.append(payload)
            elif type_ is SchemaType.STRING:
                values.append(payload.decode())
            else:
                values.append(msgspec.json.decode(payload))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        excerpt = payloads[len(values)][:80].decode(errors="backslashreplace")
        raise InvalidPayload(
            f"a schema of type {type_.value} takes messages in "
            f"{'UTF-8' if type_ is SchemaType.STRING else 'JSON'}, not {excerpt!r}: "
            f"{error}"
        ) from error
    return values


def encode_records(
    type_: SchemaType, encode: Encoder, records: list[Record]
) -> tuple[list[Record], RefusedRecord | None]:
    """
    Encode the payloads of *records* by a schema of type *type_* with its encoder.

    Returns: The records before the first one that does not conform, and the reason.
    """
    values: list[Any] = []
    refused: RefusedRecord | None = None
    for each in records:
        try:
            is_missing = each.value is ABSENT
            values += values_of(type_, [each.payload]) if is_missing else [each.value]
        except InvalidPayload as error:
            refused = RefusedRecord(each.line, str(error))
            break
    payloads: list[bytes] = []
    try:
        payloads += encode(values)
    except InvalidPayload:
        for each, value in zip(records, values, strict=False):
            try:
                payloads += encode([value])
            except InvalidPayload as error:
                refused = RefusedRecord(each.line, reason_of(error))
                break
    for each, payload in zip(records, payloads, strict=False):
        each.payload = payload
    return records[: len(payloads)], refused


def batch_of_records(
    records: Sequence[Record],
    *,
    now: int,
    key: bytes | None,
    attributes: Mapping[str, str],
    has_delay: bool,
    has_ttl: bool,
) -> pa.RecordBatch:
    """
    Return *records* as a batch of messages.

    Args:
        records: The records, at least one.
        now: The publish time of records without one.
        key: The key of records without one.
        attributes: Attributes that records may override, one by one.
        has_delay: Leave out the times from which messages may be delivered.
        has_ttl: Leave out the times at which messages expire.
    """
    keys = [key if each.key is None else each.key for each in records]
    merged = [{**attributes, **each.attributes} for each in records]
    times = [each.publish_time for each in records]
    return batch_of(
        [each.payload for each in records],
        keys=_unless_empty(keys),
        attributes=merged if any(merged) else None,
        publish_times=None
        if _unless_empty(times) is None
        else [now if time is None else time for time in times],
        deliver_at=None
        if has_delay
        else _unless_empty([each.deliver_at for each in records]),
        expires_at=None
        if has_ttl
        else _unless_empty([each.expires_at for each in records]),
    )


def _unless_empty(values: list[T | None]) -> list[T | None] | None:
    return None if all(value is None for value in values) else values
