"""Payloads of messages as text, and the search in them.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHOWN_BYTES_MAX = 4096
"""Longer payloads are truncated in lists."""
_HEX_LINE = 16


@dataclass(frozen=True, slots=True)
class ShownPayload:
    """A payload as text."""

    form: str
    """``json``, ``text`` or ``hex``."""
    text: str
    is_truncated: bool


def show_payload(
    payload: bytes, value: Any = None, *, bytes_max: int = SHOWN_BYTES_MAX
) -> ShownPayload:
    """Return *payload* as text; *value* is what its schema decodes it to, if any."""
    if value is not None and not isinstance(value, bytes | str):
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
        return ShownPayload("json", text[:bytes_max], len(text) > bytes_max)
    part = payload[:bytes_max]
    is_truncated = len(payload) > bytes_max
    try:
        # The limit may be within a character.
        text = part.decode("utf-8", "ignore" if is_truncated else "strict")
    except UnicodeDecodeError:
        return ShownPayload("hex", _hex(part), is_truncated)
    if "\x00" in text:
        return ShownPayload("hex", _hex(part), is_truncated)
    if not is_truncated and text[:1] in {"{", "["}:
        try:
            found = json.loads(text)
            text = json.dumps(found, indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
        else:
            return ShownPayload("json", text, is_truncated=False)
    return ShownPayload("text", text, is_truncated)


def describe_payload(payload: bytes) -> str:
    """Return what a masked payload is, without its content."""
    return f"{len(payload)} bytes, not shown"


def is_match(
    word: bytes, payload: bytes, key: bytes | None, attributes: Mapping[str, str]
) -> bool:
    """Return whether *word*, in lower case, is in a message in any case."""
    if word in payload.lower() or (key is not None and word in key.lower()):
        return True
    return any(
        word in f"{name}={value}".lower().encode("utf-8", "surrogatepass")
        for name, value in attributes.items()
    )


def _hex(data: bytes) -> str:
    lines = []
    for start in range(0, len(data), _HEX_LINE):
        part = data[start : start + _HEX_LINE]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {text}")
    return "\n".join(lines)
