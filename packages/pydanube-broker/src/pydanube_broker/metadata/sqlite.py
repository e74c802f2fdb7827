"""
A metadata store in an SQLite file.

One thread owns the connection, so the event loop never waits for the disk and
statements never interleave.  The file is in write-ahead mode with ``synchronous=FULL``:
commits are synced to disk.  Changes that wait for the thread are made in one
transaction, each with its own revision and outcome.  The revision has its own row,
because it must not decrease when the newest value is deleted.

Changes of the file by other programs are visible to reads and comparisons, but not
reported to ``reporting`` and watches; the lock of the data directory prevents a second
broker.  ``shared_sqlite`` is for several processes.

A session is the process: it cannot be lost.  A table has the paths that belong to
sessions, and opening the store deletes those of earlier processes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydanube.aio.lock_sharing import LockSharing
from pydanube.model.errors import BrokerError, Closed, DiskFull, MetadataUnavailable
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.store import (
    Changes,
    Comparison,
    MetadataStore,
    Operation,
    RawChanges,
    Revision,
    Stored,
    check,
    encode_changes,
    sessions_of,
)
from pydanube_broker.metadata.watches import LocalWatches

R = TypeVar("R")

log = logging.getLogger(__name__)

FORMAT_VERSION = 1

APPLICATION_ID = int.from_bytes(b"DANU")
"""In the file's header; it identifies the database, also to ``file``."""

LOCK_TIMEOUT_S = 2.0
"""The time that a job waits for another process that has locked the file."""

LOCK_RETRY_S = 0.0005
"""SQLite itself would wait for up to 100 ms between two attempts."""

DELIVERED_MAX = 64
"""After so many jobs, the thread wakes the event loop."""

TOGETHER_MAX = 64
"""How many changes that wait are synced together."""

_PAGE_BYTES_MIN = 512

_SCHEMA = (
    """
    CREATE TABLE entries (
        path TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE TABLE store (revision INTEGER NOT NULL)",
    "INSERT INTO store VALUES (0)",
    """
    CREATE TABLE session_paths (
        path TEXT PRIMARY KEY, session_id TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE changes (
        revision INTEGER NOT NULL, path TEXT NOT NULL, PRIMARY KEY (revision, path)
    ) WITHOUT ROWID
    """,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT_VERSION}",
)


Applied = tuple[Revision, dict[str, Stored[bytes] | None]]
"""The revision after a change, and the changed paths with their values."""


@asynccontextmanager
async def open_sqlite(
    path: Path | None, *, make_room: Callable[[], bool] = lambda: False
) -> AsyncIterator[SqliteStore]:
    """
    Open the store in the file *path*, which is created if it is missing.

    Without *path*, the store is in memory.

    When the disk is full, the store calls *make_room* in its thread; if that returns
    True, the store tries the change once more.

    Raises:
        MetadataUnavailable: The file cannot be opened, is locked by another
            program, is damaged, or is not a metadata store of this version.
    """
    file = StoreFile(path, make_room)
    async with opened(file) as thread:
        store = SqliteStore(file, thread)
        try:
            yield store
        finally:
            store.close()


@asynccontextmanager
async def opened(file: StoreFile) -> AsyncIterator[ThreadPoolExecutor]:
    """Open *file* in a thread, and close it there at the end of the body."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, thread_name_prefix="metadata") as thread:
        try:
            await loop.run_in_executor(thread, file.run, file.open)
            yield thread
        finally:
            # The task is not awaited: the thread closes the file even if this task is
            # cancelled, and leaving the pool waits for it.
            thread.submit(file.close)


class SqliteStore(MetadataStore):
    """A ``MetadataStore`` in one SQLite file; made by ``open_sqlite``."""

    def __init__(self, file: StoreFile, thread: ThreadPoolExecutor) -> None:
        self.is_closed = False
        self._file = file
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._sharing = LockSharing()
        self._waiting: deque[Change] = deque()
        self._jobs = Jobs()
        self._watches = LocalWatches()

    def close(self) -> None:
        """Refuse further calls, and end the watches; ``open_sqlite`` does the rest."""
        self.is_closed = True
        self._watches.close()

    async def revision(self) -> Revision:
        """See MetadataStore."""
        return await self._run(self._file.revision)

    async def raise_revision(self, revision: int) -> None:
        """Raise the store's revision to *revision*, if it is lower."""
        await self._run(lambda: self._file.raise_revision(revision))

    async def snapshot(self, path: Path, then: Callable[[], R]) -> R:
        """
        Write the present content to the new file *path*; return what *then* returns.

        *then* is called in the event loop before the loop learns of any change that is
        made after this snapshot.
        """
        after: asyncio.Future[R] = self._loop.create_future()

        def call() -> None:
            try:
                after.set_result(then())
            except Exception as error:  # noqa: BLE001  # The caller gets it.
                after.set_exception(error)

        def work() -> None:
            self._file.copy_to(path)
            self._loop.call_soon_threadsafe(call)

        await self._run(work)
        return await after

    async def _get(self, path: str) -> Stored[bytes] | None:
        return await self._run(lambda: self._file.get(path))

    async def _scan(
        self, prefix: str, after: str, limit: int | None
    ) -> Sequence[tuple[str, Stored[bytes]]]:
        return await self._run(lambda: self._file.scan(prefix, after, limit))

    async def _get_each(self, paths: Sequence[str]) -> Sequence[Stored[bytes] | None]:
        return await self._run(lambda: list(map(self._file.get, paths)))

    async def _scan_each(
        self, prefixes: Sequence[str]
    ) -> Sequence[Sequence[tuple[str, Stored[bytes]]]]:
        return await self._run(
            lambda: [self._file.scan(each, "", None) for each in prefixes]
        )

    async def _change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        change = Change(comparisons, operations)
        self._waiting.append(change)
        try:
            await self._run(partial(self._make, change), is_slow=True)
        finally:
            # If the caller was cancelled before its turn, nobody waits for it.
            change.is_over = True
        revision, changes = change.outcome()
        return revision, list(changes)

    def _make(self, change: Change) -> None:
        """Make *change* together with others that wait for their turn."""
        if change.has_outcome:
            return
        together: list[Change] = []
        while self._waiting and len(together) < TOGETHER_MAX:
            each = self._waiting.popleft()
            if not each.is_over:
                together.append(each)
        self._file.change_all(together)
        for each in together:
            if each.applied is not None and each.applied[1]:
                # Not after the await: the caller may be cancelled meanwhile.
                self._loop.call_soon_threadsafe(self._report, *each.applied)

    @asynccontextmanager
    async def open_session(self, ttl_s: float) -> AsyncIterator[Session]:
        """See MetadataStore; the session lives as long as the process."""
        session = Session(uuid.uuid4().hex)
        try:
            yield session
        finally:
            session.end()
            try:
                await self._apply(lambda: self._file.end_sessions(session.session_id))
            except BrokerError as error:
                log.warning(
                    "the keys of a session stay until the next start: %s", error
                )

    @asynccontextmanager
    async def _watch(self, prefix: str) -> AsyncIterator[AsyncIterator[RawChanges]]:
        async def load() -> RawChanges:
            return await self._run(lambda: self._file.read_all(prefix))

        # First, so that no change is made between reading and watching.
        with self._watches.watching(prefix) as watch:
            yield watch.read(load)

    async def _apply(self, change: Callable[[], Applied]) -> tuple[Revision, list[str]]:
        """Run *change* in the thread, and report what it has changed."""

        def work() -> Applied:
            revision, changes = change()
            if changes:
                # Not after the await: the caller may be cancelled meanwhile.
                self._loop.call_soon_threadsafe(self._report, revision, changes)
            return revision, changes

        revision, changes = await self._run(work, is_slow=True)
        return revision, list(changes)

    def _report(
        self, revision: Revision, changes: Mapping[str, Stored[bytes] | None]
    ) -> None:
        if self._on_change is not None:
            self._on_change(revision, list(changes))
        self._watches.on_change(revision, changes)

    async def _run(self, work: Callable[[], R], *, is_slow: bool = False) -> R:
        """Run *work* in the thread; it *is_slow* if it writes to the disk."""
        if self.is_closed:
            raise Closed("the metadata store is closed")
        job = Job(work, self._loop.create_future(), is_slow)
        self._sharing.on_job_started()
        try:
            if self._jobs.add(job):
                self._thread.submit(self._jobs.do_all, self._file.run, self._deliver)
            result: R = await job.future
            return result
        finally:
            self._sharing.on_job_ended()

    def _deliver(self, jobs: Sequence[Job]) -> None:
        """Tell the callers of *jobs* the outcomes; the thread calls this."""
        with suppress(RuntimeError):
            # The loop may have ended, and the callers with it.
            self._loop.call_soon_threadsafe(_complete, jobs)


@dataclass(slots=True, eq=False)
class Job:
    """Work for the thread of a store, and its outcome."""

    work: Callable[[], Any]
    future: asyncio.Future[Any]
    is_slow: bool
    """Whether those before it do not wait for its end."""
    result: Any = None
    error: BaseException | None = None


class Jobs:
    """
    The jobs that wait for the thread of a store, in order.

    The thread does all that wait, and wakes the event loop once for those that it has
    done together.  A busy loop and the thread exchange the interpreter lock each time,
    which takes longer than most jobs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._is_running = False

    def add(self, job: Job) -> bool:
        """Add *job*; return whether the thread must be told to do all."""
        with self._lock:
            self._waiting.append(job)
            was_running, self._is_running = self._is_running, True
        return not was_running

    def do_all(
        self,
        run: Callable[[Callable[[], Any]], Any],
        deliver: Callable[[Sequence[Job]], None],
    ) -> None:
        """Do all jobs with *run*, and give those that are done to *deliver*."""
        done: list[Job] = []
        while (job := self._next()) is not None:
            if done and (job.is_slow or len(done) >= DELIVERED_MAX):
                deliver(done)
                done = []
            if job.future.cancelled():
                continue
            try:
                job.result = run(job.work)
            except BaseException as error:  # noqa: BLE001  # The caller gets it.
                job.error = error
            done.append(job)
        if done:
            deliver(done)

    def _next(self) -> Job | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._is_running = False
            return None


def _complete(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)


@dataclass(slots=True)
class Change:
    """A change that waits for its turn, and its outcome."""

    comparisons: Sequence[Comparison]
    operations: Sequence[Operation]
    applied: Applied | None = None
    error: Exception | None = None
    is_over: bool = False

    @property
    def has_outcome(self) -> bool:
        return self.applied is not None or self.error is not None

    def outcome(self) -> Applied:
        """Return what has changed, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.applied is not None, "the change was not made"
        return self.applied


class StoreFile:
    """The SQLite file, used by one thread only: paths and bytes."""

    def __init__(self, path: Path | None, make_room: Callable[[], bool]) -> None:
        self._path = path or ":memory:"
        self._make_room = make_room
        self._opened: sqlite3.Connection | None = None

    def open(self) -> None:
        # Another attempt, if the file was locked.
        self.close()
        if isinstance(self._path, Path):
            self._create_private(self._path)
            _check_size(self._path)
        self._opened = sqlite3.connect(
            # ``run`` waits for locks.
            self._path,
            timeout=0.0,
            isolation_level=None,
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
        if self._opened is not None:
            self._opened.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._opened is not None, "used before it was opened"
        return self._opened

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

    def copy_to(self, path: Path) -> None:
        self._connection.execute("VACUUM INTO ?", (str(path),))

    def raise_revision(self, revision: int) -> None:
        with self._transaction():
            if revision > self.revision():
                self._connection.execute("UPDATE store SET revision = ?", (revision,))

    def change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> Applied:
        """Compare and write; return the revision and what has changed."""
        try:
            return self.run(partial(self._change, comparisons, operations))
        except DiskFull:
            if not self._make_room():
                raise
            return self._change(comparisons, operations)

    def change_all(self, changes: Sequence[Change]) -> None:
        """Make *changes* in their order, with one sync; each has its own outcome."""
        if len(changes) > 1:
            # After an error, nothing is changed, and it is not known whose fault it is.
            with suppress(Exception):
                self.run(partial(self._change_together, changes))
                return
        for each in changes:
            each.applied = each.error = None
            try:
                each.applied = self.change(each.comparisons, each.operations)
            except Exception as error:  # noqa: BLE001  # The caller gets it.
                each.error = error

    def _change_together(self, changes: Sequence[Change]) -> None:
        with self._transaction():
            for each in changes:
                each.applied = each.error = None
                try:
                    self._compare(each.comparisons, each.operations)
                except BrokerError as error:
                    # Nothing was written.
                    each.error = error
                else:
                    each.applied = self._write_all(
                        encode_changes(each.operations), sessions_of(each.operations)
                    )

    def _change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> Applied:
        with self._transaction():
            self._compare(comparisons, operations)
            return self._write_all(encode_changes(operations), sessions_of(operations))

    def _compare(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> None:
        """Raise if a change must not be made."""
        self._check(sessions_of(operations))
        for comparison in comparisons:
            check(comparison, self.get(comparison.key.path))

    def _check(self, sessions: Mapping[str, Session]) -> None:
        """Raise SessionLost if this process must not make the change."""

    def end_sessions(self, session_id: str | None = None) -> Applied:
        """Delete the paths that belong to this session; without an id, to any."""
        with self._transaction():
            rows = self._connection.execute(
                "SELECT path FROM session_paths WHERE session_id = ?1 OR ?1 IS NULL",
                (session_id,),
            ).fetchall()
            return self._write_all({path: None for (path,) in rows}, {})

    def read_all(self, prefix: str) -> RawChanges:
        """Return all values below *prefix*."""
        # The revision first: a change between would only be reported twice.
        revision = self.revision()
        return Changes(revision, dict(self.scan(prefix, "", None)))

    def _write_all(
        self, changes: Mapping[str, bytes | None], sessions: Mapping[str, Session]
    ) -> Applied:
        """Write the new value of each path at the next revision; None: delete it."""
        before = self.revision()
        revision = Revision(before + 1)
        written: dict[str, Stored[bytes] | None] = {}
        for path, value in changes.items():
            if self._write(path, value, revision):
                written[path] = None if value is None else Stored(value, revision)
            self._attach(path, sessions.get(path))
        if not written:
            return before, {}
        self._connection.execute("UPDATE store SET revision = ?", (revision,))
        self._note(revision, written)
        return revision, written

    def _note(self, revision: Revision, paths: Collection[str]) -> None:
        """Tell other processes, in the transaction, what has changed."""

    def _attach(self, path: str, session: Session | None) -> None:
        execute = self._connection.execute
        if session is None:
            execute("DELETE FROM session_paths WHERE path = ?", (path,))
        else:
            execute(
                "INSERT OR REPLACE INTO session_paths VALUES (?, ?)",
                (path, session.session_id),
            )

    def _prepare(self) -> None:
        execute = self._connection.execute
        # First: another process may create them all meanwhile.
        tables = self._count_tables()
        (application_id,) = execute("PRAGMA application_id").fetchone()
        (version,) = execute("PRAGMA user_version").fetchone()
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
                for statement in () if self._count_tables() else _SCHEMA:
                    execute(statement)
        self._end_old_sessions()

    def _count_tables(self) -> int:
        rows = self._connection.execute("SELECT count(*) FROM sqlite_schema")
        (count,) = rows.fetchone()
        return int(count)

    def _end_old_sessions(self) -> None:
        """End the sessions of processes that have ended."""
        self.end_sessions()

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        # IMMEDIATE: compared values cannot change before the write.
        self._connection.execute(f"BEGIN {kind}")
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
        """
        Return the result of *work*; translate the errors of SQLite.

        Work that finds the file locked has changed nothing, and is begun again.
        """
        give_up_at = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                return work()
            except sqlite3.Error as error:
                # The low byte is the primary code; higher bits refine it.
                kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if kind != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up_at:
                    raise self._translated(error, kind) from error
            time.sleep(LOCK_RETRY_S)

    def _translated(self, error: sqlite3.Error, kind: int) -> BrokerError:
        if kind == sqlite3.SQLITE_FULL:
            return DiskFull(f"no room for the metadata in {self._path}")
        what = _EXPLANATIONS.get(kind, "cannot be used")
        return MetadataUnavailable(f"the metadata file {self._path} {what}: {error}")


def _check_size(path: Path) -> None:
    """
    Raise if the file is truncated within a page, where SQLite would read zeros.

    Source: https://www.sqlite.org/fileformat2.html, "The Database Header".
    """
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists() and wal.stat().st_size:
        # It has all pages that a checkpoint has written only in part.
        return
    with path.open("rb") as file:
        header = file.read(18)
    page_bytes = int.from_bytes(header[16:])
    if not header.startswith(b"SQLite format 3\0") or page_bytes < _PAGE_BYTES_MIN:
        return
    if path.stat().st_size % page_bytes:
        raise MetadataUnavailable(
            f"the metadata file {path} is damaged: its last page is incomplete"
        )


_EXPLANATIONS = {
    sqlite3.SQLITE_BUSY: "is locked by another program",
    sqlite3.SQLITE_LOCKED: "is locked by another program",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged or not a metadata store",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_READONLY: "is read-only",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
}
