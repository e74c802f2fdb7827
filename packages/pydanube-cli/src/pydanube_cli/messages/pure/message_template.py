"""
Templates by which messages are printed, such as ``%o %k %v``.  Pure.

A template is parsed once, to a list of literal bytes and of functions of a message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.model.errors import InvalidRequest
from pydanube_cli.messages.message_formats import iso_time, text_of, value_or_payload

TEMPLATE_CHARACTERS_MAX = 1000

Field = Callable[[Message], bytes]

FIELDS: dict[str, tuple[str, Field]] = {
    "t": ("topic", lambda message: message.topic.encode()),
    "o": ("offset", lambda message: b"%d" % message.offset),
    "T": ("publish time", lambda message: iso_time(message.publish_time).encode()),
    "k": ("key", lambda message: message.key_bytes or b""),
    "v": ("value as JSON, or payload", value_or_payload),
    "p": ("payload", lambda message: message.payload),
    "s": ("bytes of the payload", lambda message: b"%d" % len(message.payload)),
    "a": (
        "attributes as JSON",
        lambda message: json.dumps(message.attributes, ensure_ascii=False).encode(),
    ),
}
"""The letters after ``%``: what each stands for, and how it is printed."""

FIELDS_HELP = ", ".join(f"%{letter} {text}" for letter, (text, _) in FIELDS.items())

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

_PART = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|[^x]|x|)|[^%\\]+", re.DOTALL)


class MessageTemplate:
    """A renderer of messages by a template."""

    def __init__(self, text: str, *, is_for_terminal: bool) -> None:
        """
        Parse the template *text*.

        On a terminal, the control characters of messages are escaped.

        Raises:
            InvalidRequest: A letter or an escape is unknown; the error names its place.
        """
        if len(text) > TEMPLATE_CHARACTERS_MAX:
            raise InvalidRequest(
                f"the template has {len(text)} characters; at most "
                f"{TEMPLATE_CHARACTERS_MAX} are allowed"
            )
        self._is_for_terminal = is_for_terminal
        self._parts = [_parse_part(each) for each in _PART.finditer(text)]

    def __call__(self, batch: MessageBatch) -> list[bytes]:
        """Return the text of each message."""
        return [self._render(message) for message in batch]

    def _render(self, message: Message) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else self._shown(part(message))
            for part in self._parts
        )

    def _shown(self, content: bytes) -> bytes:
        return text_of(content).encode() if self._is_for_terminal else content


def _parse_part(match: re.Match[str]) -> bytes | Field:
    letter, escape = match.groups()
    if letter is not None:
        if letter == "%":
            return b"%"
        if letter not in FIELDS:
            raise InvalidRequest(
                f"the template has {match[0]!r} at character {match.start() + 1}; it "
                f"may have {FIELDS_HELP}, and %% for a percent sign"
            )
        return FIELDS[letter][1]
    if escape is None:
        return match[0].encode(errors="surrogateescape")
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in ESCAPES:
        raise InvalidRequest(
            f"the template has {match[0]!r} at character {match.start() + 1}; it may "
            r"have \n, \t, \r, \0, \\ and \xHH with two hexadecimal digits"
        )
    return ESCAPES[escape]
