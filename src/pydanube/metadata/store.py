"""
What every metadata store promises.

The whole store has one revision, a number that rises by one with every change;
a transaction with several operations is one change.  Each value remembers the
revision at which it was written.  Whoever read a value can therefore write "only
if nobody changed it since", and learns of a lost race by ``RevisionConflict``,
never by a silent overwrite.

Durability: A change that returned has reached the disk, if the store has one.

Cancellation: A change whose await was cut may or may not have been made; it is
never half made.

Ordering: Changes by one caller are made in the order in which they were called.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, NewType, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pydanube.metadata.key import Key, Prefix

T = TypeVar("T")

Revision = NewType("Revision", int)
"""The store's count of changes: 0 for one that was never written to."""


class Absent(Enum):
    """The type of ABSENT; an enum, so that the type checker can tell it apart."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""As an expectation: only if there is no such key."""

Expected = Revision | Absent | None
"""What must be true of a key for a change to be made; None for nothing at all."""


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A value, and the revision at which it was written."""

    value: T
    revision: Revision


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """That a key was written (value) or deleted (None)."""

    path: str
    value: T | None
    revision: Revision


@dataclass(frozen=True, slots=True)
class Unchanged(Generic[T]):
    """A transaction's condition: nobody has written *key* since, or it is absent."""

    key: Key[T]
    expected: Revision | Absent


@dataclass(frozen=True, slots=True)
class Holds(Generic[T]):
    """A transaction's condition: *key* holds exactly *value*."""

    key: Key[T]
    value: T


@dataclass(frozen=True, slots=True)
class Put(Generic[T]):
    """A transaction's operation: write *value*."""

    key: Key[T]
    value: T


@dataclass(frozen=True, slots=True)
class Delete(Generic[T]):
    """A transaction's operation: remove *key*; nothing happens if it is absent."""

    key: Key[T]


Comparison = Unchanged[Any] | Holds[Any]
Operation = Put[Any] | Delete[Any]


class MetadataStore(Protocol):
    """
    Small values under typed keys, shared by whoever has the store.

    Any method may raise ``MetadataUnavailable`` if the store cannot be reached,
    and whatever reads a value raises ``Corrupt`` if it is not of the key's type.
    """

    async def revision(self) -> Revision:
        """The store's present revision."""

    async def get(self, key: Key[T]) -> Stored[T] | None:
        """The value of *key*, or None if it is absent."""

    async def scan(
        self, prefix: Prefix[T], *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, Stored[T]]]:
        """
        The paths that *prefix* covers and their values, in the order of the paths.

        Only paths behind *after*, and at most *limit* of them: readers of very many
        values read them page by page, each page after the last path of the one before.
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
        Remove *key*, and say whether it was there.

        Raises:
            RevisionConflict: The key is not as *expected*; nothing was removed.
        """

    async def transaction(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> Revision:
        """
        Carry out all *operations* if all *comparisons* hold, as one change.

        Names each key in at most one operation.  Returns the revision of the
        change, or the present one if there was nothing to change.

        Raises:
            RevisionConflict: A comparison does not hold; nothing was changed.
        """

    def watch(self, prefix: Prefix[T], after: Revision) -> AsyncIterator[Change[T]]:
        """
        Every change below *prefix* later than the revision *after*, in order.

        Take ``revision()`` first, then ``scan()``, then watch after that revision:
        no change is missed, and one that the scan has seen may come once more.
        Ends when the store is closed.

        Bounds: The store remembers a limited number of changes.  Iterating raises
        ``RevisionConflict`` if what follows *after* is no longer among them; scan
        again then.
        """
