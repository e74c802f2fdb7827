"""The mapping of records to messages: payload, key, attributes and id.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pydanube.model.deduplication import check_id
from pydanube.model.errors import InvalidRequest
from pydanube.model.field_paths import ABSENT, Path, find_field, parse_path
from pydanube_connect.pure import spec
from pydanube_connect.pure.failures import JSON_ERRORS
from pydanube_connect.pure.records import Record, RecordSchema


class InvalidRecord(Exception):
    """A record cannot become a message."""


UNUSABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""The errors that a value causes where it is converted, such as half a character."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A message whose payload is not encoded by a schema yet."""

    topic: str
    value: Any
    """The value to encode by the schema of the topic; bytes if it has none."""
    key: bytes | None
    attributes: Mapping[str, str]
    id: str | None
    number: int = 0
    """The number of the record that it was made of."""
    schema: RecordSchema | None = None
    """The schema by which *value* is encoded already."""


class RecordMapping:
    """The mapping that a connector declares."""

    def __init__(
        self,
        declared: spec.Mapping,
        topic: str,
        *,
        has_schema: bool = False,
        uses_ids: bool = False,
        keeps_schemas: bool = True,
    ) -> None:
        """Without *keeps_schemas*, the schemas of records are ignored."""
        self._topic = topic
        self._keeps_schemas = (
            keeps_schemas and not has_schema and declared.payload is None
        )
        self._uses_ids = uses_ids
        self._has_schema = has_schema
        self._key = _path(declared.key)
        self._id = _path(declared.id)
        self._payload = _path(declared.payload)
        self._attributes = {
            name: parse_path(text) for name, text in declared.attributes.items()
        }
        self._has_paths = bool(
            has_schema or self._key or self._id or self._payload or self._attributes
        )

    def draft(self, record: Record, number: int = 0) -> Draft:
        """
        Return the message of *record*, which has a *number*.

        Raises:
            InvalidRecord: The value is not JSON, although the mapping needs fields of
                it, or the schema values; or it lacks the field of the payload or id;
                or no message can have its id, key or attributes.
        """
        if record.problem is not None:
            raise InvalidRecord(record.problem)
        try:
            draft = self._draft(record, number)
            _check(draft)
        except (*UNUSABLE, InvalidRequest) as error:
            raise InvalidRecord(str(error)) from error
        return draft

    def _draft(self, record: Record, number: int) -> Draft:
        value = record.value
        schema = record.schema if self._keeps_schemas else None
        if not self._has_paths:
            return Draft(
                record.topic or self._topic,
                to_payload(value),
                _bytes(record.key),
                record.attributes,
                record.id if self._uses_ids else None,
                number,
                schema,
            )
        if isinstance(value, bytes | str):
            value = parse_json(value)
        attributes = dict(record.attributes)
        for name, path in self._attributes.items():
            found = find_field(value, path)
            if found is not ABSENT and found is not None:
                attributes[name] = _text(found)
        key = _bytes(record.key)
        if self._key is not None:
            found = find_field(value, self._key)
            if found is not ABSENT and found is not None:
                key = _text(found).encode()
        id_ = record.id if self._uses_ids else None
        if self._id is not None:
            id_ = _text(_required(value, self._id, "id"))
        content = record.value
        if self._has_schema:
            content = value
        if self._payload is not None:
            content = _required(value, self._payload, "payload")
        if not self._has_schema:
            content = to_payload(content)
        topic = record.topic or self._topic
        return Draft(topic, content, key, attributes, id_, number, schema)


def _check(draft: Draft) -> None:
    """
    Raise if no message can be like *draft*.

    Raises:
        InvalidRequest: Its id is too long or empty, or an attribute is no text.
        UnicodeEncodeError: A text has half a character.
    """
    if draft.id is not None:
        check_id(draft.id)
        _check_text(draft.id)
    for name, value in draft.attributes.items():
        for each in (name, value):
            if not isinstance(each, str):
                raise InvalidRequest(
                    f"the attribute {name!r} is {type(each).__name__}, not text"
                )
            _check_text(each)
    if draft.key is not None and not isinstance(draft.key, bytes):
        raise InvalidRequest(
            f"the key is {type(draft.key).__name__}, not text or bytes"
        )


def _check_text(text: str) -> None:
    if not text.isascii():
        text.encode()


def to_payload(value: Any) -> bytes:
    """
    Return bytes as they are, text as UTF-8, and any other value as JSON.

    Raises:
        InvalidRecord: The value cannot be JSON.
    """
    if isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    except UNUSABLE as error:
        raise InvalidRecord(f"the value cannot be JSON: {error}") from error


def _path(text: str | None) -> Path | None:
    return None if text is None else parse_path(text)


def parse_json(value: bytes | str) -> Any:
    """
    Return the value that *value* is in JSON.

    Raises:
        InvalidRecord: It is not JSON.
    """
    try:
        return msgspec.json.decode(value)
    except JSON_ERRORS as error:
        raise InvalidRecord(f"the value is not JSON: {error}") from error


def _required(value: Any, path: Path, what: str) -> Any:
    found = find_field(value, path)
    if found is ABSENT or found is None:
        names = ".".join(map(str, path))
        raise InvalidRecord(f"the value has no field {names}, which is the {what}")
    return found


def _bytes(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
