"""The forms in which messages are printed, one line for each message."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.model.errors import BrokerError, InvalidPayload
from pydanube.model.shown_text import printable

Renderer = Callable[[MessageBatch], list[bytes]]
"""A function that returns the line of each message."""


class Output(Enum):
    """The format in which messages are printed."""

    TEXT = "text"
    JSON = "json"


def _as_text(batch: MessageBatch) -> list[bytes]:
    if sys.stdout.isatty():
        # Escape control characters, so that a message cannot affect the terminal.
        return [_shown_line(payload) for payload in batch.payloads]
    return [payload + b"\n" for payload in batch.payloads]


def text_of(content: bytes) -> str:
    """Return a key or a payload as text without control characters."""
    return printable(content.decode(errors="backslashreplace"))


def _shown_line(payload: bytes) -> bytes:
    return f"{text_of(payload)}\n".encode()


def _value_line(message: Message) -> bytes:
    line = value_or_payload(message)
    return _shown_line(line) if sys.stdout.isatty() else line + b"\n"


def value_or_payload(message: Message) -> bytes:
    """Return the value as JSON, or the payload if there is no value."""
    try:
        return value_in_json(message.value)
    except BrokerError:
        return message.payload


def value_in_json(value: Any) -> bytes:
    """
    Return a decoded value as JSON, with bytes in base64, and times and UUIDs as text.

    Raises:
        InvalidPayload: JSON cannot represent the value, or it is nested too deeply.
    """
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (RecursionError, OverflowError, TypeError, ValueError) as error:
        raise InvalidPayload(f"the value cannot be shown as JSON: {error}") from error


def _json_line_with_value(message: Message) -> bytes:
    """Like ``json_line``, with the value, or the reason why there is none."""
    fields = fields_of(message)
    fields |= {"schema_id": message.schema_id, "schema_version": message.schema_version}
    try:
        value = json.loads(value_in_json(message.value))
        return _line_of(fields | {"value": value})
    except (BrokerError, RecursionError) as error:
        return _line_of(fields | {"value_error": str(error)})


def json_line(message: Message) -> bytes:
    """Return *message* as a line with a JSON object."""
    return _line_of(fields_of(message))


def _line_of(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


RENDERERS: dict[tuple[Output, bool], Renderer] = {
    (Output.TEXT, False): _as_text,
    (Output.TEXT, True): lambda batch: [*map(_value_line, batch)],
    (Output.JSON, False): lambda batch: [*map(json_line, batch)],
    (Output.JSON, True): lambda batch: [*map(_json_line_with_value, batch)],
}
"""By output format, and whether to decode payloads."""


def fields_of(message: Message) -> dict[str, Any]:
    """
    Return the fields of *message* for JSON, without loss.

    A key or a payload that is not UTF-8 is base64, under another name.
    """
    window = {"deliver_at": message.deliver_at, "expires_at": message.expires_at}
    return {
        "topic": message.topic,
        "offset": message.offset,
        "publish_time": iso_time(message.publish_time),
        **{name: iso_time(time) for name, time in window.items() if time is not None},
        **_text_or_base64("key", message.key_bytes),
        "attributes": message.attributes,
        "producer": message.producer,
        "attempt": message.attempt,
        **_text_or_base64("payload", message.payload),
    }


def iso_time(moment: datetime) -> str:
    """Return a UTC time to the microsecond, as in ``2025-03-01T09:30:00.125000Z``."""
    return moment.isoformat().replace("+00:00", "Z")


def _text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
