"""
Compatibility modes: which schema version must be able to read data written by which.
"""

from __future__ import annotations

from enum import Enum

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.schemas import Compatibility
from pydanube.schemas.language import Incompatibility
from pydanube.schemas.parsed_schema import ParsedSchema


class Direction(Enum):
    """Which of two versions reads data written with the other."""

    BACKWARD = "backward"
    """The new version reads data of the old one."""
    FORWARD = "forward"
    """The old version reads data of the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An incompatibility of a new version with an older one."""

    version: int
    direction: Direction
    incompatibility: Incompatibility

    def __str__(self) -> str:
        if self.direction is Direction.BACKWARD:
            way = f"the new schema cannot read data of version {self.version}"
        else:
            way = f"version {self.version} cannot read data of the new schema"
        return f"{way}: {self.incompatibility}"


def find_violations(
    mode: Compatibility, new: ParsedSchema, version: int, old: ParsedSchema
) -> list[Violation]:
    """
    Return the incompatibilities of *new* with the older *version* under *mode*.

    A subject cannot change its type, unless the mode is NONE.
    """
    found: list[tuple[Direction, Incompatibility]] = []
    if mode.new_reads_old:
        reasons = [*new.incompatibilities(old), *new.reuses(old)]
        found += [(Direction.BACKWARD, each) for each in reasons]
    if mode.old_reads_new:
        found += [(Direction.FORWARD, each) for each in old.incompatibilities(new)]
    return [
        Violation(version=version, direction=direction, incompatibility=each)
        for direction, each in found
    ]
