"""Suggestions for names that were mistyped, for error messages."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """
    Return ``; did you mean 'topic'?`` if one of the *known* names resembles *name*.

    Returns an empty string otherwise.  Upper and lower case are not distinguished.
    """
    from difflib import get_close_matches  # noqa: PLC0415  # Few names are mistyped.

    by_key = {each.lower(): each for each in known}
    nearest = get_close_matches(name.lower(), by_key, n=1)
    return f"; did you mean {by_key[nearest[0]]!r}?" if nearest else ""
