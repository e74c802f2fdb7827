"""
Which keys a consumer of a key-shared subscription wants.

A filter is a pattern in which ``*`` stands for any run of characters, also an empty
one, and ``?`` for one character; everything else stands for itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_FILTERS_MAX = 100
KEY_FILTER_LENGTH_MAX = 256
"""In characters."""


class KeyFilters:
    """The filters of one consumer; without any it accepts every key."""

    __slots__ = ("_patterns",)

    def __init__(self, filters: Sequence[str]) -> None:
        """
        Understand *filters*.

        Raises:
            InvalidRequest: A filter is empty or too long, or there are too many.
        """
        if len(filters) > KEY_FILTERS_MAX:
            raise InvalidRequest(
                f"a consumer has at most {KEY_FILTERS_MAX} key filters, "
                f"not {len(filters)}"
            )
        self._patterns = [_compiled(each) for each in filters]

    def accept(self, key: bytes) -> bool:
        """Whether *key* matches one of the filters."""
        if not self._patterns:
            return True
        # A byte that is no text is one character, and none that a filter names.
        text = key.decode(errors="surrogateescape")
        return any(pattern.fullmatch(text) for pattern in self._patterns)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._patterns)


def _compiled(key_filter: str) -> re.Pattern[str]:
    if not key_filter:
        raise InvalidRequest("a key filter is empty; * accepts every key")
    if len(key_filter) > KEY_FILTER_LENGTH_MAX:
        raise InvalidRequest(
            f"a key filter has at most {KEY_FILTER_LENGTH_MAX} characters, "
            f"not {len(key_filter)}: {key_filter[:20]}…"
        )
    first, *rest = ["".join(map(_of_character, part)) for part in key_filter.split("*")]
    if not rest:
        return re.compile(first, re.DOTALL)
    # Each part matches at the first place where it can, and never anywhere else
    # afterwards: that is enough, and trying others would take for ever.
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)


def _of_character(character: str) -> str:
    return "." if character == "?" else re.escape(character)
