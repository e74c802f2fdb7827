"""Fields of messages, which conditions and columns name by paths."""

from __future__ import annotations

from typing import Any

import msgspec

from pydanube.client.messages.messages import Message
from pydanube.model.errors import InvalidPayload, InvalidRequest, SchemaNotFound
from pydanube.model.field_paths import ABSENT, Path, find_field, parse_path
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_cli.messages.message_formats import text_of, value_in_json

FIELDS_MAX = 50
"""The most columns of a command."""


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field of messages: of the value, or an attribute, or the key."""

    text: str
    """The path as it was given."""
    root: str
    """The part that the path is in: ``key``, ``attributes`` or ``value``."""
    path: Path
    """The path below the root."""

    def content(self, message: Message) -> bytes:
        """Return the field: text as it is, the rest as JSON; empty without it."""
        return self.content_in(MessageParts(message))

    def content_in(self, parts: MessageParts) -> bytes:
        """Return the field of a message of which several are wanted; as ``content``."""
        try:
            found = find_field(parts.get(self.root), self.path)
        except InvalidPayload:
            return b""
        if found is ABSENT or found is None:
            return b""
        if isinstance(found, str):
            return found.encode(errors="replace")
        return found if isinstance(found, bytes) else value_in_json(found)

    def cell(self, message: Message) -> str:
        """Return the field as text without control characters."""
        return text_of(self.content(message))


class MessageParts:
    """The parts of one message, each decoded when it is first needed."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._known: dict[str, Any] = {}

    def get(self, root: str) -> Any:
        """
        Return the part that *root* stands for.

        A value is decoded by the schema of the message; without a schema, the payload
        is JSON.

        Raises:
            InvalidPayload: The payload cannot be decoded.
        """
        if root not in self._known:
            try:
                self._known[root] = _part_of(self._message, root)
            except InvalidPayload as error:
                self._known[root] = error
        found = self._known[root]
        if isinstance(found, InvalidPayload):
            raise found
        return found


def parse_fields(text: str) -> tuple[MessageField, ...]:
    """
    Return the fields whose paths *text* has, with commas between them.

    A path that does not begin with ``key``, ``attributes`` or ``value`` is one of the
    value.

    Raises:
        InvalidRequest: A path is malformed, or there are too many.
    """
    texts = [each.strip() for each in text.split(",")]
    if len(texts) > FIELDS_MAX:
        raise InvalidRequest(
            f"there are {len(texts)} columns; at most {FIELDS_MAX} are allowed"
        )
    return tuple(map(_parse_field, texts))


def _parse_field(text: str) -> MessageField:
    path = parse_path(text)
    match path:
        case ("key",):
            return MessageField(text, "key", ())
        case ("attributes", _):
            return MessageField(text, "attributes", path[1:])
        case ("value", *_):
            return MessageField(text, "value", path[1:])
    return MessageField(text, "value", path)


def _part_of(message: Message, root: str) -> Any:
    match root:
        case "key":
            return message.key
        case "attributes":
            return message.attributes
        case _:
            return _value_of(message)


def _value_of(message: Message) -> Any:
    try:
        return message.value
    except SchemaNotFound as error:
        if message.schema_id:
            raise InvalidPayload(str(error)) from error
    try:
        return msgspec.json.decode(message.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPayload(f"not JSON: {error}") from error
