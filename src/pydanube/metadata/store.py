"""
The interface of metadata stores: values under typed keys.

A store has one revision, a number that each change increases by one; a transaction is
one change.  Each value has the revision at which it was written.  Callers can write a
value on condition that it has not changed since they read it, and get
``RevisionConflict`` if it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NewType, TypeVar

from pydanube.metadata.key import Key, Prefix
from pydanube.model.errors import RevisionConflict

T = TypeVar("T")

ATTEMPTS_MAX = 100
"""More conflicts than this are no coincidence but a bug."""

Revision = NewType("Revision", int)
"""The number of changes of a store, from 0."""

ABSENT = Revision(0)
"""The revision of a key that does not exist."""


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A value, and the revision at which it was written."""

    value: T
    revision: Revision


@dataclass(frozen=True, slots=True)
class Unchanged(Generic[T]):
    """A transaction's condition: *key* still has this revision."""

    key: Key[T]
    expected: Revision


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


class MetadataStore(ABC):
    """
    Small values under typed keys.

    All methods raise ``MetadataUnavailable`` if the store does not answer.  Those that
    read values raise ``Corrupt`` if a value is not of the key's type.

    Durability: A change is on disk when its method returns, if the store has a disk.

    Cancellation: A cancelled change is made entirely or not at all.

    Ordering: Changes by one caller are made in the order of the calls.
    """

    @abstractmethod
    async def revision(self) -> Revision:
        """Return the current revision."""

    async def get(self, key: Key[T]) -> Stored[T] | None:
        """Return the value of *key*, or None if it is absent."""
        stored = await self._get(key.path)
        if stored is None:
            return None
        return Stored(key.decode(stored.value), stored.revision)

    async def scan(
        self, prefix: Prefix[T], *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, Stored[T]]]:
        """
        Return the paths below *prefix* and their values, in the order of the paths.

        Only paths after *after*, and at most *limit*, are returned: readers of many
        values read them in pages, each after the last path of the page before.
        """
        return [
            (path, Stored(prefix.decode(stored.value), stored.revision))
            for path, stored in await self._scan(prefix.path, after, limit)
        ]

    async def put(
        self, key: Key[T], value: T, *, expected: Revision | None = None
    ) -> Revision:
        """
        Write *value*, and return the revision of the change.

        Raises:
            RevisionConflict: The key is not as *expected*; nothing was written.
        """
        return await self.transaction(_conditions(key, expected), [Put(key, value)])

    async def delete(self, key: Key[T], *, expected: Revision | None = None) -> bool:
        """
        Delete *key*, and return whether it existed.

        Raises:
            RevisionConflict: The key is not as *expected*; nothing was deleted.
        """
        _, paths = await self._change(_conditions(key, expected), [Delete(key)])
        return bool(paths)

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
        revision, _ = await self._change(comparisons, operations)
        return revision

    @abstractmethod
    async def _get(self, path: str) -> Stored[bytes] | None: ...

    @abstractmethod
    async def _scan(
        self, prefix: str, after: str, limit: int | None
    ) -> Sequence[tuple[str, Stored[bytes]]]: ...

    @abstractmethod
    async def _change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        """Compare and write; return the revision and the changed paths."""


def encode_changes(operations: Sequence[Operation]) -> dict[str, bytes | None]:
    """Return the new value of each path that *operations* change; None: deleted."""
    changes: dict[str, bytes | None] = {}
    for operation in operations:
        match operation:
            case Put(key, value):
                changes[key.path] = key.encode(value)
            case Delete(key):
                changes[key.path] = None
    assert len(changes) == len(operations), "two operations change the same key"
    return changes


def _conditions(key: Key[T], expected: Revision | None) -> list[Comparison]:
    """Return the comparisons of a change that expects this revision of *key*."""
    return [] if expected is None else [Unchanged(key, expected)]


def check(comparison: Comparison, stored: Stored[bytes] | None) -> None:
    """Raise RevisionConflict if *comparison* does not hold for the entry *stored*."""
    expected: str | None
    found: str | None = None
    match comparison:
        case HasValue(key, value):
            expected = key.encode(value).decode()
            if stored is not None:
                found = stored.value.decode(errors="replace")
        case Unchanged(_, revision):
            expected = None if revision == ABSENT else f"revision {revision}"
            if stored is not None:
                found = f"revision {stored.revision}"
    if found != expected:
        raise RevisionConflict(
            f"{comparison.key.path} has {found or 'no value'}; expected "
            f"{expected or 'no value'}"
        )


def unchanged(key: Key[T], stored: Stored[T] | None) -> Unchanged[T]:
    """Return the condition that *key* has not changed since it was read."""
    return Unchanged(key, ABSENT if stored is None else stored.revision)


async def retry_on_conflict(attempt: Callable[[], Awaitable[T]]) -> T:
    """
    Return the result of *attempt*, which reads values and then changes them.

    The attempt is repeated if a value has changed between reading and writing.

    Raises:
        RevisionConflict: ``ATTEMPTS_MAX`` attempts had conflicts.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        with suppress(RevisionConflict):
            return await attempt()
    return await attempt()
