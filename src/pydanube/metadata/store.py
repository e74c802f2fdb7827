"""
The metadata store: values under typed keys in an SQLite file.

The store has one revision, a number that each change increases by one; a transaction
is one change.  Each value has the revision at which it was written.  Callers can
write a value on condition that it has not changed since they read it, and get
``RevisionConflict`` if it has.

One thread owns the connection, so the event loop never waits for the disk and
statements never interleave.  The file is in write-ahead mode with ``synchronous=FULL``:
commits are synced to disk.  The revision has its own row, because it must not decrease
when the newest value is deleted.

Changes of the file by other programs are visible to reads and comparisons, but not
reported to ``on_change``; the lock of the data directory prevents a second broker.

Durability: A change is on disk when its method returns, if the store has a disk.

Cancellation: A cancelled change is made entirely or not at all.

Ordering: Changes by one caller are made in the order of the calls.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, NewType, TypeVar

from pydanube.aio.lock_sharing import LockSharing
from pydanube.metadata.key import Key, Prefix
from pydanube.model.errors import (
    Closed,
    DiskFull,
    MetadataUnavailable,
    RevisionConflict,
)

T = TypeVar("T")
R = TypeVar("R")

FORMAT_VERSION = 1

APPLICATION_ID = int.from_bytes(b"DANU")
"""In the file's header; it identifies the database, also to ``file``."""

LOCK_TIMEOUT_S = 2.0
"""The time that a statement waits for another program that has locked the file."""

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

_SCHEMA = (
    """
    CREATE TABLE entries (
        path TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE TABLE store (revision INTEGER NOT NULL)",
    "INSERT INTO store VALUES (0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT_VERSION}",
)


@asynccontextmanager
async def open_sqlite(
    path: Path | None, *, make_room: Callable[[], bool] = lambda: False
) -> AsyncIterator[MetadataStore]:
    """
    Open the store in the file *path*, which is created if it is missing.

    Without *path*, the store is in memory.

    When the disk is full, the store calls *make_room* in its thread; if that returns
    True, the store tries the change once more.

    Raises:
        MetadataUnavailable: The file cannot be opened, is locked by another
            program, is damaged, or is not a metadata store of this version.
    """
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, thread_name_prefix="metadata") as thread:
        file = _StoreFile(path, make_room)
        try:
            await loop.run_in_executor(thread, file.run, file.open)
            store = MetadataStore(file, thread)
            try:
                yield store
            finally:
                store.is_closed = True
        finally:
            # The task is not awaited: the thread closes the file even if this task is
            # cancelled, and leaving the pool waits for it.
            thread.submit(file.close)


class MetadataStore:
    """
    Small values under typed keys; made by ``open_sqlite``.

    All methods raise ``MetadataUnavailable`` if the file cannot be used.  Those that
    read values raise ``Corrupt`` if a value is not of the key's type.
    """

    def __init__(self, file: _StoreFile, thread: ThreadPoolExecutor) -> None:
        self.is_closed = False
        self.on_change: Callable[[Revision, list[str]], None] | None = None
        """Called in the event loop with each later revision and the changed paths."""
        self._file = file
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._sharing = LockSharing()

    async def revision(self) -> Revision:
        """Return the current revision."""
        return await self._run(self._file.revision)

    async def get(self, key: Key[T]) -> Stored[T] | None:
        """Return the value of *key*, or None if it is absent."""
        stored = await self._run(lambda: self._file.get(key.path))
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
        entries = await self._run(lambda: self._file.scan(prefix.path, after, limit))
        return [
            (path, Stored(prefix.decode(stored.value), stored.revision))
            for path, stored in entries
        ]

    async def put(
        self, key: Key[T], value: T, *, expected: Revision | None = None
    ) -> Revision:
        """
        Write *value*, and return the revision of the change.

        Raises:
            RevisionConflict: The key is not as *expected*; nothing was written.
        """
        return await self.transaction(conditions(key, expected), [Put(key, value)])

    async def delete(self, key: Key[T], *, expected: Revision | None = None) -> bool:
        """
        Delete *key*, and return whether it existed.

        Raises:
            RevisionConflict: The key is not as *expected*; nothing was deleted.
        """
        _, paths = await self._change(conditions(key, expected), [Delete(key)])
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

    async def raise_revision(self, revision: int) -> None:
        """Raise the store's revision to *revision*, if it is lower."""
        await self._run(lambda: self._file.raise_revision(revision))

    async def _change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        def change() -> tuple[Revision, list[str]]:
            revision, paths = self._file.change(comparisons, operations)
            if paths and self.on_change is not None:
                # Not after the await: the caller may be cancelled meanwhile.
                self._loop.call_soon_threadsafe(self.on_change, revision, paths)
            return revision, paths

        return await self._run(change)

    async def _run(self, work: Callable[[], R]) -> R:
        if self.is_closed:
            raise Closed("the metadata store is closed")
        self._sharing.on_job_started()
        try:
            return await self._loop.run_in_executor(self._thread, self._file.run, work)
        finally:
            self._sharing.on_job_ended()


class _StoreFile:
    """The SQLite file, used by one thread only: paths and bytes."""

    def __init__(self, path: Path | None, make_room: Callable[[], bool]) -> None:
        self._path = path or ":memory:"
        self._make_room = make_room

    def open(self) -> None:
        if isinstance(self._path, Path):
            self._create_private(self._path)
        self._connection = sqlite3.connect(
            self._path, timeout=LOCK_TIMEOUT_S, isolation_level=None
        )
        self._prepare()
        self.revision()

    def _create_private(self, path: Path) -> None:
        """Create the file for its owner only; SQLite copies its mode to other files."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise MetadataUnavailable(
                f"the metadata file {path} cannot be opened: {error.strerror}"
            ) from error

    def close(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.close()

    def scan(
        self, prefix: str, after: str, limit: int | None
    ) -> list[tuple[str, Stored[bytes]]]:
        # A prefix ends with a slash, and "0" is the next character.
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        rows = self._connection.execute(
            "SELECT path, value, revision FROM entries"
            " WHERE path > ? AND path < ? ORDER BY path LIMIT ?",
            (max(prefix, after), end, -1 if limit is None else limit),
        )
        return [(path, Stored(value, revision)) for path, value, revision in rows]

    def raise_revision(self, revision: int) -> None:
        with self._transaction():
            if revision > self.revision():
                self._connection.execute("UPDATE store SET revision = ?", (revision,))

    def change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        """Compare and write; return the revision and the changed paths."""
        try:
            return self.run(partial(self._change, comparisons, operations))
        except DiskFull:
            if not self._make_room():
                raise
            return self._change(comparisons, operations)

    def _change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        with self._transaction():
            for comparison in comparisons:
                check(comparison, self.get(comparison.key.path))
            before = self.revision()
            revision = Revision(before + 1)
            changes = encode_changes(operations)
            paths = [
                path for path in changes if self._write(path, changes[path], revision)
            ]
            if not paths:
                return before, []
            self._connection.execute("UPDATE store SET revision = ?", (revision,))
        return revision, paths

    def _prepare(self) -> None:
        execute = self._connection.execute
        (application_id,) = execute("PRAGMA application_id").fetchone()
        (version,) = execute("PRAGMA user_version").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and application_id != APPLICATION_ID:
            raise MetadataUnavailable(
                f"{self._path} is a database of another program, not a metadata store"
            )
        if tables and version != FORMAT_VERSION:
            raise MetadataUnavailable(
                f"{self._path} has format {version}; this version of pydanube "
                f"supports format {FORMAT_VERSION}"
            )
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        if not tables:
            with self._transaction():
                for statement in _SCHEMA:
                    execute(statement)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # IMMEDIATE: compared values cannot change before the write.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # A failed COMMIT may have rolled back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _write(self, path: str, value: bytes | None, revision: Revision) -> bool:
        execute = self._connection.execute
        if value is None:
            return execute("DELETE FROM entries WHERE path = ?", (path,)).rowcount > 0
        execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (path, value, revision)
        )
        return True

    def revision(self) -> Revision:
        rows = self._connection.execute("SELECT revision FROM store").fetchall()
        if len(rows) != 1:
            raise MetadataUnavailable(f"{self._path} is damaged: it has no revision")
        return Revision(rows[0][0])

    def get(self, path: str) -> Stored[bytes] | None:
        row = self._connection.execute(
            "SELECT value, revision FROM entries WHERE path = ?", (path,)
        ).fetchone()
        return None if row is None else Stored(row[0], Revision(row[1]))

    def run(self, work: Callable[[], R]) -> R:
        """Return the result of *work*; translate the errors of SQLite."""
        try:
            return work()
        except sqlite3.Error as error:
            # The low byte is the primary code; higher bits refine it.
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if kind == sqlite3.SQLITE_FULL:
                raise DiskFull(f"no room for the metadata in {self._path}") from error
            what = _EXPLANATIONS.get(kind, "cannot be used")
            raise MetadataUnavailable(
                f"the metadata file {self._path} {what}: {error}"
            ) from error


_EXPLANATIONS = {
    sqlite3.SQLITE_BUSY: "is locked by another program",
    sqlite3.SQLITE_LOCKED: "is locked by another program",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged or not a metadata store",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_READONLY: "is read-only",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
}


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


def conditions(key: Key[T], expected: Revision | None) -> list[Comparison]:
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
