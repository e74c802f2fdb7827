"""
Dead letters grouped by what went wrong.

Pure.  Reasons such as ``ValueError: order 17 is too old`` differ by the values that
they name.  Two of them belong to one group if they have the same class and, apart from
such values, the same text.

Bounds: A reason counts with its first ``COMPARED_CHARACTERS_MAX`` characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

COMPARED_CHARACTERS_MAX = 300

_CLASS = re.compile(r"(?:[A-Za-z_]\w{0,99}\.){0,9}([A-Z]\w{0,99})(?=:\s|:?$)")
_VALUES = re.compile(
    r"(?P<time>\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
    r"(?:Z|[+-]\d\d:?\d\d)?)?)"
    r"|(?P<id>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)"
    r"|(?P<url>\b[a-z]{2,10}://[^\s'\"<>]+)"
    r"|(?P<mail>\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,8})"
    r"|(?P<address>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b)"
    r"|(?P<hex>\b0x[0-9a-fA-F]+\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b)"
    r"|(?P<text>'[^'\n]*'|\"[^\"\n]*\")"
    r"|(?P<number>\d+(?:[.,]\d+)*)"
)
_SPACE = re.compile(r"\s+")

_NAMING = frozenset(
    {"AttributeError", "ImportError", "KeyError", "ModuleNotFoundError", "NameError"}
)
"""The classes whose quoted text is a name in a program or a field, and no value."""


class HasReason(Protocol):
    """Something that has failed."""

    @property
    def reason(self) -> str:
        """The reason, as the consumer gave it."""


T = TypeVar("T", bound=HasReason)


@dataclass(frozen=True, slots=True)
class Failure:
    """The class and the text that the reasons of one group share."""

    kind: str
    """The class of the error; empty if the reason names none."""
    text: str
    """The rest, with ``<number>``, ``<time>`` and so on in the place of values."""


@dataclass(frozen=True, slots=True)
class FailureGroup(Generic[T]):
    """The members that have failed alike, in their order."""

    failure: Failure
    members: list[T] = field(default_factory=list)


@lru_cache(maxsize=4096)
def normalise_reason(reason: str) -> Failure:
    """Return the class and the text of *reason* without the values in it."""
    text = _SPACE.sub(" ", reason[:COMPARED_CHARACTERS_MAX]).strip()
    found = _CLASS.match(text)
    kind = ""
    if found is not None:
        kind, text = found[1], text[found.end() :].lstrip(": ")
    is_named = kind in _NAMING

    def placeholder(value: re.Match[str]) -> str:
        is_name = is_named and value.lastgroup == "text"
        return value[0] if is_name else f"<{value.lastgroup}>"

    return Failure(kind, _VALUES.sub(placeholder, text))


def group_by_failure(members: Iterable[T]) -> list[FailureGroup[T]]:
    """Return the groups of *members*, the largest first."""
    groups: dict[Failure, FailureGroup[T]] = {}
    for each in members:
        failure = normalise_reason(each.reason)
        groups.setdefault(failure, FailureGroup(failure)).members.append(each)
    return sorted(groups.values(), key=lambda group: -len(group.members))
