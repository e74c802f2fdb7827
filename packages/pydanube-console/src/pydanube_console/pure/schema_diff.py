"""The differences of two versions of a schema.  Pure."""

from __future__ import annotations

import difflib
import json

from pydanube_console.pure.markup import Html, element, join

CHARACTERS_MAX = 200_000
"""Longer definitions are not compared."""


def pretty(definition: str) -> str:
    """Return a definition with one member in a line, if it is JSON."""
    try:
        return json.dumps(json.loads(definition), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return definition


def diff(before: str, after: str) -> Html:
    """Return the lines of *after*, with those that were added and removed marked."""
    if max(len(before), len(after)) > CHARACTERS_MAX:
        return element("p", "The definitions are too long to compare.", class_="muted")
    lines = [
        element("span", each, class_=_CLASSES[each[0]])
        for each in difflib.ndiff(
            pretty(before).splitlines(), pretty(after).splitlines()
        )
        if each[0] in _CLASSES
    ]
    return element("pre", join(lines), class_="code")


_CLASSES = {" ": "same", "+": "added", "-": "removed"}
