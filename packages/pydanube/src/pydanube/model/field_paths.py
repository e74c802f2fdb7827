"""Paths to fields of JSON values, such as ``user.id`` or ``items[0].price``.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydanube.model.errors import InvalidRequest

STEPS_MAX = 32
"""The most fields and indexes of a path."""

ABSENT: Final = object()
"""The result of a search for a field that does not exist."""

_STEP = re.compile(r'(?P<name>[^\s.\[\]"\'=!<>~]+)|"(?P<quoted>[^"]+)"')
_INDEX = re.compile(r"\[(?P<index>\d{1,9})\]")

Path = tuple[str | int, ...]
"""The names of fields and the indexes of items, from the outside to the inside."""


def parse_path(text: str) -> Path:
    """
    Return the path that *text* is.

    Raises:
        InvalidRequest: It is not a path; the error names the position.
    """
    path, end = scan_path(text, 0)
    if end < len(text):
        raise malformed(text, end, "a dot, an index such as [0], or the end")
    return path


def scan_path(text: str, start: int) -> tuple[Path, int]:
    """
    Return the path that begins at *start* of *text*, and the position after it.

    Raises:
        InvalidRequest: There is no path, or it has more than ``STEPS_MAX`` steps.
    """
    steps: list[str | int] = []
    at = start
    while True:
        found = _STEP.match(text, at)
        if found is None:
            raise malformed(text, at, "the name of a field")
        steps.append(found["name"] or found["quoted"])
        at = found.end()
        while (found := _INDEX.match(text, at)) is not None:
            steps.append(int(found["index"]))
            at = found.end()
        if len(steps) > STEPS_MAX:
            raise InvalidRequest(
                f"{text!r} has a path of more than {STEPS_MAX} fields and indexes"
            )
        if not text.startswith(".", at):
            return tuple(steps), at
        at += 1


def quoted_step(name: str) -> str:
    """Return the field *name* as a step of a path, in quotation marks if needed."""
    found = _STEP.fullmatch(name)
    return name if found is not None and found["name"] else f'"{name}"'


def malformed(text: str, at: int, expected: str) -> InvalidRequest:
    """Return the error that *text* should have *expected* at position *at*, from 0."""
    found = f"not {text[at:]!r}" if at < len(text) else "and it ends there"
    return InvalidRequest(f"{text!r}: character {at + 1} should be {expected}, {found}")


def find_field(value: Any, path: Path) -> Any:
    """Return the field of *value* at *path*, or ``ABSENT``."""
    for step in path:
        if isinstance(step, str):
            is_there = isinstance(value, Mapping) and step in value
        else:
            is_there = isinstance(value, list | tuple) and step < len(value)
        if not is_there:
            return ABSENT
        value = value[step]
    return value
