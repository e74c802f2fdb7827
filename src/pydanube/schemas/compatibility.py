"""
Compatibility modes: which schema version must be able to read data written by which.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pydanube.model.schemas import Compatibility
from pydanube.schemas.language import Incompatibility
from pydanube.schemas.parsed_schema import ParsedSchema

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    mode: Compatibility, new: ParsedSchema, versions: Sequence[tuple[int, ParsedSchema]]
) -> list[Violation]:
    """
    Return the incompatibilities of *new* with *versions* under *mode*.

    *versions* are in order.  A subject cannot change its type, unless the mode is NONE.
    """
    if mode is Compatibility.NONE or not versions:
        return []
    counted = versions if mode.is_transitive else versions[-1:]
    violations = []
    for version, old in reversed(counted):
        pairs = []
        if mode.new_reads_old:
            pairs.append((Direction.BACKWARD, new, old))
        if mode.old_reads_new:
            pairs.append((Direction.FORWARD, old, new))
        for direction, reader, writer in pairs:
            violations += [
                Violation(
                    version=version,
                    direction=direction,
                    incompatibility=incompatibility,
                )
                for incompatibility in incompatibilities(reader, writer)
            ]
    return violations


def incompatibilities(
    reader: ParsedSchema, writer: ParsedSchema
) -> list[Incompatibility]:
    """Return why *reader* cannot read some data that *writer* allows."""
    if reader.type is not writer.type:
        return [
            Incompatibility(
                path="/",
                rule="schema_type_changed",
                text="Schema types must match: the reader's is "
                f"{reader.type.value}, the writer's {writer.type.value}",
            )
        ]
    return reader.incompatibilities(writer)
