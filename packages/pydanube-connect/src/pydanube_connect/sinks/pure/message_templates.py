"""Texts with places for what belongs to a message, such as ``{value.name}``.  Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC
from typing import Any

import msgspec

from pydanube.client.messages.messages import Message
from pydanube.model.errors import InvalidRequest
from pydanube.model.field_paths import ABSENT, find_field, parse_path
from pydanube_connect.pure.failures import JSON_ERRORS

_PARTS: dict[str, Callable[[Message], str]] = {
    "topic": lambda message: message.topic,
    "key": lambda message: (message.key_bytes or b"").decode(errors="replace"),
    "offset": lambda message: str(message.offset),
    "payload": lambda message: message.payload.decode(errors="replace"),
    "time": lambda message: message.publish_time.astimezone(UTC).isoformat(),
}
_FIELD = "value."
_TIME = "time:"
_PLACE = re.compile(r"\{([^{}]+)\}")
_TIME_FORMAT = re.compile(r"(?:[^%]|%[YmdHMSjyGVuF])+")
"""The directives that mean the same on every machine."""


def template_problem(template: str) -> str | None:
    """Return what is wrong with *template*, or None."""
    for name in _PLACE.findall(template):
        if name.startswith(_FIELD):
            try:
                parse_path(name.removeprefix(_FIELD))
            except InvalidRequest as error:
                return str(error)
        elif name.startswith(_TIME):
            if not _TIME_FORMAT.fullmatch(name.removeprefix(_TIME)):
                return (
                    f"{{{name}}} is not a format of a time such as {{time:%Y-%m-%d}}, "
                    "with %Y, %y, %m, %d, %F, %j, %G, %V, %u, %H, %M and %S"
                )
        elif name not in _PARTS:
            return (
                f"{{{name}}} stands for nothing; known are {{topic}}, {{key}}, "
                "{offset}, {payload}, {time}, {time:%Y-%m-%d} and {value.FIELD}"
            )
    return None


def _as_it_is(text: str) -> str:
    return text


def fill(
    template: str, message: Message, escape: Callable[[str], str] = _as_it_is
) -> str:
    """
    Return *template* with what belongs to *message*.

    ``{topic}`` stands for its topic, ``{key}``, ``{offset}`` and ``{payload}`` for
    those, ``{time}`` for the time when it was published, as ISO 8601 or in a format,
    and ``{value.a.b}`` for a field of its JSON; an unknown field is empty.

    Args:
        template: A text without a ``template_problem``.
        message: The message.
        escape: What each of these texts is replaced by.
    """
    return _PLACE.sub(lambda place: escape(_text_of(place[1], message)), template)


def _text_of(name: str, message: Message) -> str:
    if name in _PARTS:
        return _PARTS[name](message)
    if name.startswith(_TIME):
        return message.publish_time.astimezone(UTC).strftime(name.removeprefix(_TIME))
    return _shown(_field_of(message, name.removeprefix(_FIELD)))


def _field_of(message: Message, path: str) -> Any:
    try:
        value = msgspec.json.decode(message.payload)
    except JSON_ERRORS:
        return ABSENT
    return find_field(value, parse_path(path))


def _shown(found: Any) -> str:
    if found is ABSENT or found is None:
        return ""
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()
