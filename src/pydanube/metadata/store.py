"""
The interface of metadata stores.

The store has one revision, a number that each change increases by one; a transaction
is one change.  Each value has the revision at which it was written.  Callers can
write a value on condition that it has not changed since they read it, and get
``RevisionConflict`` if it has.

Durability: A change is on disk when its method returns, if the store has a disk.

Cancellation: A cancelled change is made entirely or not at all.

Ordering: Changes by one caller are made in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, NewType, Protocol, TypeVar

from pydanube.metadata.key import Key, Prefix

T = TypeVar("T")

Revision = NewType("Revision", int)
"""The number of changes of a store, from 0."""


class Absent(Enum):
    """The type of ABSENT; an enum, so that the type checker can distinguish it."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""Expect that the key does not exist."""

Expected = Revision | Absent | None
"""The expected revision of a key for a change; None: any."""


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A value, and the revision at which it was written."""

    value: T
    revision: Revision


@dataclass(frozen=True, slots=True)
class Unchanged(Generic[T]):
    """A transaction's condition: *key* still has this revision, or is absent."""

    key: Key[T]
    expected: Revision | Absent


@dataclass(frozen=True, slots=True)
class HasValue(Generic[T]):
    """A transaction's condition: *key* has exactly this value."""

    key: Key[T]
    value: T


@dataclass(frozen=True, slots=True)
class Put(Generic[T]):
    """A transaction's operation: write *value*."""

    key: Key[T]
    value: T


@dataclass(frozen=True, slots=True)
class Delete(Generic[T]):
    """A transaction's operation: delete *key*, if it exists."""

    key: Key[T]


Comparison = Unchanged[Any] | HasValue[Any]
Operation = Put[Any] | Delete[Any]


class MetadataStore(Protocol):
    """
    Small values under typed keys.

    All methods raise ``MetadataUnavailable`` if the store cannot be reached.  Those
    that read values raise ``Corrupt`` if a value is not of the key's type.
    """

    async def revision(self) -> Revision:
        """Return the current revision."""

    async def get(self, key: Key[T]) -> Stored[T] | None:
        """Return the value of *key*, or None if it is absent."""

    async def scan(
        self, prefix: Prefix[T], *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, Stored[T]]]:
        """
        Return the paths below *prefix* and their values, in the order of the paths.

        Only paths after *after*, and at most *limit*, are returned: readers of many
        values read them in pages, each after the last path of the page before.
        """

    async def put(
        self, key: Key[T], value: T, *, expected: Expected = None
    ) -> Revision:
        """
        Write *value*, and return the revision of the change.

        Raises:
            RevisionConflict: The key is not as *expected*; nothing was written.
        """

    async def delete(self, key: Key[T], *, expected: Expected = None) -> bool:
        """
        Delete *key*, and return whether it existed.

        Raises:
            RevisionConflict: The key is not as *expected*; nothing was deleted.
        """

    async def transaction(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> Revision:
        """
        Apply all *operations* as one change, if all *comparisons* hold.

        Each key must be in at most one operation.  Returns the revision of the change,
        or the current one if there was nothing to change.

        Raises:
            RevisionConflict: A comparison does not hold; nothing was changed.
        """
