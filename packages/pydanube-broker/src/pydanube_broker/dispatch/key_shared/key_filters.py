"""
The filters by which a consumer of a key-shared subscription accepts keys.

A filter is a pattern: ``*`` matches any number of characters, ``?`` matches one
character, and all other characters match themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from re import Pattern

from pydanube.model.errors import InvalidRequest
from pydanube.model.wildcards import compile_wildcards

KEY_FILTERS_MAX = 100
KEY_FILTER_LENGTH_MAX = 256
"""In characters."""


class KeyFilters:
    """The filters of one consumer; without filters it accepts every key."""

    __slots__ = ("_patterns",)

    def __init__(self, filters: Sequence[str]) -> None:
        """
        Compile *filters*.

        Raises:
            InvalidRequest: A filter is empty or too long, or there are too many.
        """
        if len(filters) > KEY_FILTERS_MAX:
            raise InvalidRequest(
                f"the consumer has {len(filters)} key filters; "
                f"at most {KEY_FILTERS_MAX} are allowed"
            )
        self._patterns = [_compiled(each) for each in filters]

    def accept(self, key: bytes) -> bool:
        """Return whether *key* matches one of the filters."""
        if not self._patterns:
            return True
        # A byte that is not UTF-8 becomes one character that no filter contains.
        text = key.decode(errors="surrogateescape")
        return any(pattern.fullmatch(text) for pattern in self._patterns)

    def __bool__(self) -> bool:
        return bool(self._patterns)


def _compiled(key_filter: str) -> Pattern[str]:
    if not key_filter:
        raise InvalidRequest("a key filter is empty; use * to accept every key")
    if len(key_filter) > KEY_FILTER_LENGTH_MAX:
        raise InvalidRequest(
            f"the key filter {key_filter[:20]}… has {len(key_filter)} characters; at "
            f"most {KEY_FILTER_LENGTH_MAX} are allowed"
        )
    return compile_wildcards(key_filter)
