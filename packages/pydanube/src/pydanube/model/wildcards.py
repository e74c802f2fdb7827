"""Patterns in which ``*`` stands for any text and ``?`` for one character."""

from __future__ import annotations

import re
from fnmatch import translate


def has_wildcards(text: str) -> bool:
    """Return whether *text* is a pattern rather than a name."""
    return "*" in text or "?" in text


def compile_wildcards(pattern: str) -> re.Pattern[str]:
    """Return the regular expression that matches whole texts as *pattern* does."""
    # A bracket stands for itself, not for a set of characters.
    return re.compile(translate(pattern.replace("[", "[[]")))
