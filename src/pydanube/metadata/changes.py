"""Common to all stores: checks of conditions, and changes from operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.metadata.store import (
    ABSENT,
    Change,
    Delete,
    Expected,
    Operation,
    Put,
    Revision,
    Stored,
)
from pydanube.model.errors import RevisionConflict

if TYPE_CHECKING:
    from collections.abc import Sequence


def plan_changes(
    operations: Sequence[Operation], revision: Revision
) -> list[Change[bytes]]:
    """Return the encoded changes of *operations*, at most one for each key."""
    changes: list[Change[bytes]] = []
    for operation in operations:
        match operation:
            case Put(key, value):
                changes.append(Change(key.path, key.encode(value), revision))
            case Delete(key):
                changes.append(Change(key.path, None, revision))
    paths = {change.path for change in changes}
    assert len(paths) == len(changes), "two operations change the same key"
    return changes


def check_revision(path: str, stored: Stored[bytes] | None, expected: Expected) -> None:
    """Raise RevisionConflict unless the revision *stored* at *path* is *expected*."""
    if expected is None:
        return
    if expected is ABSENT:
        if stored is not None:
            raise RevisionConflict(
                f"{path} already exists, since revision {stored.revision}"
            )
        return
    if stored is None:
        raise RevisionConflict(f"{path} does not exist; expected revision {expected}")
    if stored.revision != expected:
        raise RevisionConflict(
            f"{path} was changed at revision {stored.revision}; expected {expected}"
        )


def check_value(path: str, stored: Stored[bytes] | None, expected: bytes) -> None:
    """Raise RevisionConflict unless the value *stored* at *path* is *expected*."""
    if stored is None:
        raise RevisionConflict(f"{path} does not exist; expected {expected.decode()}")
    if stored.value != expected:
        value = stored.value.decode(errors="replace")
        raise RevisionConflict(f"{path} is {value}; expected {expected.decode()}")
