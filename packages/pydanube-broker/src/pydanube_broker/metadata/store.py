"""
The interface of metadata stores: values under typed keys.

A store has one revision, a number that each change increases; a transaction is one
change.  Each value has the revision at which it was written.  Callers can write a
value on condition that it has not changed since they read it, and get
``RevisionConflict`` if it has.

Keys may belong to a session, and are deleted when it ends; see ``sessions``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import cached_property
from typing import Any, Generic, NewType, TypeAlias, TypeVar

from pydanube.aio.long_work import LongWork
from pydanube.aio.tasks import gather
from pydanube.model.errors import Corrupt, RevisionConflict
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.metadata.damaged_records import DamagedRecords
from pydanube_broker.metadata.key import Key, Prefix
from pydanube_broker.metadata.sessions import Session

T = TypeVar("T")

ATTEMPTS_MAX = 100
"""More conflicts than this are no coincidence but a bug."""

OPERATIONS_MAX = 100
"""Transactions of more operations should be divided where that is possible: etcd by
default refuses more than 128 operations and comparisons."""

Revision = NewType("Revision", int)
"""
The number of a change of a store.

A broker that is alone in its store sees numbers without gaps.  In a store with other
users, such as etcd, their changes have the numbers between.
"""

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
    """
    A transaction's operation: write *value*.

    With *session*, the key belongs to it, and is deleted when it ends.  Otherwise the
    key belongs to no session from then on.
    """

    key: Key[T]
    value: T
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class Delete(Generic[T]):
    """A transaction's operation: delete *key*, if it exists."""

    key: Key[T]


@dataclass(frozen=True, slots=True)
class Changes(Generic[T]):
    """The state of some paths at one revision, as a watch reports it."""

    revision: Revision
    values: Mapping[str, Stored[T] | None]
    """The newest value of each changed path; None: the path was deleted."""
    damaged: frozenset[str] = frozenset()
    """The changed paths whose newest values cannot be decoded."""


RawChanges = Changes[bytes]

Comparison = Unchanged[Any] | HasValue[Any]
Operation = Put[Any] | Delete[Any]

OnChange: TypeAlias = "Callable[[Revision, list[str]], None]"


class MetadataStore(ABC):
    """
    Small values under typed keys.

    All methods raise ``MetadataUnavailable`` if the store does not answer.  Those that
    read values raise ``Corrupt`` if a value is not of the key's type, except those that
    are said to leave such values out.  ``damaged`` has all that were found.

    Durability: A change is on disk when its method returns, if the store has a disk.

    Cancellation: A cancelled change is made entirely or not at all.

    Failure: A change that raises ``MetadataUnavailable`` is made entirely or not at
        all.

    Ordering: Changes by one caller are made in the order of the calls.  A change that
        failed or was cancelled is not made after the caller's next change.
    """

    _on_change: OnChange | None = None

    @contextmanager
    def reporting(self, on_change: OnChange) -> Iterator[None]:
        """
        Report changes that this object makes during the body.

        *on_change* is called in the event loop with the revision and the changed paths
        of each change.
        """
        self._on_change = on_change
        try:
            yield
        finally:
            self._on_change = None

    @cached_property
    def damaged(self) -> DamagedRecords:
        """The values that could not be decoded when they were read last."""
        return DamagedRecords()

    @abstractmethod
    async def revision(self) -> Revision:
        """Return the current revision."""

    async def get(self, key: Key[T]) -> Stored[T] | None:
        """Return the value of *key*, or None if it is absent."""
        stored = await self._get(key.path)
        if stored is None:
            self.damaged.forget(key.path)
            return None
        return self._decode(key, key.path, stored)

    async def get_each(self, keys: Sequence[Key[T]]) -> list[Stored[T] | None]:
        """
        Return for each of *keys* what ``get`` does, with few requests.

        The results may be of different revisions.
        """
        found = await self._get_each([each.path for each in keys])
        return [
            None
            if stored is None
            else Stored(key.decode(stored.value), stored.revision)
            for key, stored in zip(keys, found, strict=True)
        ]

    async def scan(
        self, prefix: Prefix[T], *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, Stored[T]]]:
        """
        Return the paths below *prefix* and their values, in the order of the paths.

        Only paths after *after*, and at most *limit*, are returned: readers of many
        values read them in pages, each after the last path of the page before.
        """
        return self._decode_all(prefix, await self._scan(prefix.path, after, limit))

    async def scan_valid(
        self, prefix: Prefix[T], *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, Stored[T]]]:
        """
        Return what ``scan`` does, and leave out values that cannot be decoded.

        Not for those who delete, or create, what is not in the result.

        Other tasks run while many values are decoded.
        """
        valid: list[tuple[str, Stored[T]]] = []
        work = LongWork()
        while True:
            left = None if limit is None else limit - len(valid)
            found = await self._scan(prefix.path, after, left)
            for path, stored in found:
                if (value := self._decode_valid(prefix, path, stored)) is not None:
                    valid.append((path, value))
                await work.did()
            # Readers of pages take a short one for the last one.
            if left is None or len(found) < left or len(valid) == limit:
                return valid
            after = found[-1][0]

    async def paths(self, prefix: Prefix[Any]) -> list[str]:
        """Return the paths below *prefix*, whatever their values are."""
        return [path for path, _ in await self._scan(prefix.path, "", None)]

    async def scan_each(
        self, prefixes: Sequence[Prefix[T]]
    ) -> list[list[tuple[str, Stored[T]]]]:
        """
        Return for each of *prefixes* what ``scan`` does, with few requests.

        The results may be of different revisions.
        """
        found = await self._scan_each([each.path for each in prefixes])
        return [self._decode_all(*each) for each in zip(prefixes, found, strict=True)]

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
    def open_session(self, ttl_s: float) -> AbstractAsyncContextManager[Session]:
        """
        Open a session; its keys are deleted at the end of the body.

        The store also deletes them when it has not heard of this process for *ttl_s*,
        or for the next longer time that it supports.  By then, the session is lost
        for its holder.  A session of a store within this process is never lost: its
        keys are deleted, at the latest, when the store is opened again.

        Raises:
            MetadataUnavailable: On entry.  At the end, keys that cannot be deleted
                stay until the TTL has passed.
        """

    @asynccontextmanager
    async def watch(
        self, prefix: Prefix[T]
    ) -> AsyncIterator[AsyncIterator[Changes[T]]]:
        """
        Watch the values below *prefix*.

        The first changes have all present values.  Each later one has at least one
        path that was changed, in the order of revisions, and all paths that its
        transaction changed.  A reader that is late, or was cut off from the store, may
        miss values that were replaced, but never the newest value or a deletion.

        Values that cannot be decoded are left out; ``Changes.damaged`` has their paths.

        A store that does not answer delays the changes; only the first ones raise
        ``MetadataUnavailable``.  Changes that other processes make to an SQLite file
        are not reported.

        Raises:
            Closed: The store was closed.
        """

        async def decoded() -> AsyncIterator[Changes[T]]:
            async for changes in raw:
                yield self._decode_changes(prefix, changes)

        async with self._watch(prefix.path) as raw:
            yield decoded()

    def _decode_changes(self, prefix: Prefix[T], changes: RawChanges) -> Changes[T]:
        values: dict[str, Stored[T] | None] = {}
        damaged = set()
        for path, stored in changes.values.items():
            if stored is None:
                self.damaged.forget(path)
            if not prefix.has_name(path):
                # It says nothing about anything; a value is noted.
                if stored is not None:
                    self._decode_valid(prefix, path, stored)
            elif stored is None:
                values[path] = None
            elif (value := self._decode_valid(prefix, path, stored)) is not None:
                values[path] = value
            else:
                damaged.add(path)
        return Changes(changes.revision, values, frozenset(damaged))

    def _decode_valid(
        self, prefix: Prefix[T], path: str, stored: Stored[bytes]
    ) -> Stored[T] | None:
        """Return the decoded value; None, and note it, if it is damaged."""
        if not prefix.has_name(path):
            error = Corrupt(f"the metadata store has the invalid key {path!r}")
            self.damaged.note(path, error)
            return None
        try:
            return self._decode(prefix, path, stored)
        except Corrupt:
            return None

    def _decode_all(
        self, prefix: Prefix[T], found: Sequence[tuple[str, Stored[bytes]]]
    ) -> list[tuple[str, Stored[T]]]:
        return [(path, self._decode(prefix, path, stored)) for path, stored in found]

    def _decode(
        self, key: Key[T] | Prefix[T], path: str, stored: Stored[bytes]
    ) -> Stored[T]:
        try:
            value = key.decode(stored.value)
        except Corrupt as error:
            named = Corrupt(f"the record {path} of the metadata store: {error}")
            self.damaged.note(path, named)
            raise named from error
        self.damaged.forget(path)
        return Stored(value, stored.revision)

    @abstractmethod
    async def _get(self, path: str) -> Stored[bytes] | None: ...

    async def _get_each(self, paths: Sequence[str]) -> Sequence[Stored[bytes] | None]:
        return await gather(map(self._get, paths))

    @abstractmethod
    async def _scan(
        self, prefix: str, after: str, limit: int | None
    ) -> Sequence[tuple[str, Stored[bytes]]]: ...

    async def _scan_each(
        self, prefixes: Sequence[str]
    ) -> Sequence[Sequence[tuple[str, Stored[bytes]]]]:
        return await gather(self._scan(each, "", None) for each in prefixes)

    @abstractmethod
    async def _change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        """Compare and write; return the revision and the changed paths."""

    @abstractmethod
    def _watch(
        self, prefix: str
    ) -> AbstractAsyncContextManager[AsyncIterator[RawChanges]]:
        """See watch()."""


class SharedStore(MetadataStore):
    """A store that several brokers can reach, so one may be replaced by another."""

    @abstractmethod
    def guard(self, session: Session, key: Key[T], revision: Revision) -> None:
        """
        Require for each later change that *key*, of *session*, still has *revision*.

        If it has not, or if the session is lost, changes raise SessionLost: a broker
        that was replaced can change nothing.
        """


def encode_changes(operations: Sequence[Operation]) -> dict[str, bytes | None]:
    """Return the new value of each path that *operations* change; None: deleted."""
    changes: dict[str, bytes | None] = {}
    for operation in operations:
        match operation:
            case Put(key, value, _):
                changes[key.path] = key.encode(value)
            case Delete(key):
                changes[key.path] = None
    assert len(changes) == len(operations), "two operations change the same key"
    return changes


def sessions_of(operations: Sequence[Operation]) -> dict[str, Session]:
    """
    Return the session of each path that will belong to one.

    Raises:
        SessionLost: One of the sessions is lost.
    """
    sessions = {}
    for operation in operations:
        if isinstance(operation, Put) and operation.session is not None:
            operation.session.check()
            sessions[operation.key.path] = operation.session
    return sessions


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
