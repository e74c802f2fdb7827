"""
The runbooks as resources: what to do when an alert fires.

They are the sections of docs/guide/runbooks.md, which an installed package has beside
this file.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_SECTION = re.compile(
    r"^## (?P<name>\w+)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


@cache
def runbooks() -> dict[str, str]:
    """Return the text of each runbook, in Markdown, by the name of its alert."""
    packaged = Path(__file__).parents[1] / "runbooks.md"
    checkout = Path(__file__).parents[4] / "runbooks.md"
    page = packaged if packaged.is_file() else checkout
    # Links lead to other pages, which are not resources.
    text = _LINK.sub(r"\1", page.read_text(encoding="utf-8"))
    return {
        each["name"]: f"# {each['name']}\n{each['text']}"
        for each in _SECTION.finditer(text)
    }
