"""
The enums of the model as numbers in Danube's protocols.

Danube's names of the members are ours, written as ``KeyShared`` for ``KEY_SHARED``.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

from pydanube.model.errors import InvalidRequest

E = TypeVar("E", bound=Enum)


def danube_name(member: Enum) -> str:
    """Return Danube's name of *member*."""
    return member.name.title().replace("_", "")


def number_of(member: Enum, danube_enum: Any) -> Any:
    """Return the number of *member* in *danube_enum*."""
    return danube_enum.Value(danube_name(member))


def member_of(enum: type[E], danube_enum: Any, number: int, problem: str) -> E:
    """
    Return the member of *enum* that has this number in *danube_enum*.

    Raises:
        InvalidRequest: There is none; the text is *problem* and the number.
    """
    members = {danube_name(member): member for member in enum}
    try:
        return members[danube_enum.Name(number)]
    except ValueError:
        raise InvalidRequest(f"{problem} {number}") from None
