"""
A metadata store in an SQLite file that several processes of one machine use.

It is the file of ``sqlite``.  SQLite lets one process write at a time, and others read
meanwhile.  A transaction also notes in the table ``changes`` which paths it changes.

Each process remembers the revision that its watches have seen.  When another process
rings (``process_sessions``), it reads what was changed since.  A process that was
killed after a commit did not ring: then the end of its session rings.  Each process
also looks for changes every ``LOOK_INTERVAL_S``.  The table has the last changes only;
a process that has missed older ones reads everything.

Sessions.  See ``process_sessions``.  Every process deletes the keys of a session whose
process has ended: one of them does it, and the others find nothing to delete.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import BrokerError, Closed
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.metadata.key import Key
from pydanube_broker.metadata.process_sessions import ProcessSessions, is_over
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.sqlite import (
    Applied,
    Change,
    SqliteStore,
    StoreFile,
    opened,
)
from pydanube_broker.metadata.store import (
    Comparison,
    Operation,
    RawChanges,
    Revision,
    SharedStore,
    Stored,
)
from pydanube_broker.metadata.watches import LocalWatches

T = TypeVar("T")

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.5
"""How long a process looks for changes and ends at the latest, if nobody rings."""

CHANGES_KEPT = 10_000
"""The number of revisions whose changes are kept for processes that are late."""

TRIM_INTERVAL = 1_000
"""The number of revisions between two deletions of older changes."""


def sessions_directory(path: Path) -> Path:
    """Return the directory of the sessions of the store in the file *path*."""
    return path.with_name(f"{path.name}-sessions")


@asynccontextmanager
async def open_shared_sqlite(
    path: Path, name: str, *, make_room: Callable[[], bool] = lambda: False
) -> AsyncIterator[SharedSqliteStore]:
    """
    Open the store in the file *path* for one of several processes.

    *name* is that of the process, such as its number.  Operators see it in the names of
    sessions; processes may have the same name.

    *make_room* is called as in ``open_sqlite``.

    Raises: As ``open_sqlite``, and
        DiskFull: There is no room for the files of this process.
    """
    sessions = ProcessSessions(sessions_directory(path), f"{name}.{uuid.uuid4().hex}")
    file = _SharedFile(path, make_room, sessions)
    try:
        async with opened(file) as thread:
            store = SharedSqliteStore(file, sessions, thread)
            try:
                async with store.following():
                    yield store
            finally:
                store.close()
    finally:
        sessions.close()


@dataclass(slots=True)
class _Guard:
    session: Session
    path: str
    revision: Revision


class SharedSqliteStore(SqliteStore, SharedStore):
    """A ``MetadataStore`` in an SQLite file; made by ``open_shared_sqlite``."""

    _file: _SharedFile

    def __init__(
        self, file: _SharedFile, sessions: ProcessSessions, thread: ThreadPoolExecutor
    ) -> None:
        super().__init__(file, thread)
        self._watches = LocalWatches(may_miss=True)
        self._sessions = sessions
        self._rung = asyncio.Event()
        self._watched: dict[int, None] = {}

    def guard(self, session: Session, key: Key[T], revision: Revision) -> None:
        """See SharedStore."""
        self._file.guard = _Guard(session, key.path, revision)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Report what other processes change during the body, and end sessions."""
        async with task_scope() as tasks:
            self._loop.add_reader(self._sessions.inbox, self._on_rung)
            tasks.run(self._follow(), "follow the metadata")
            try:
                yield
            finally:
                for pipe in (self._sessions.inbox, *self._watched):
                    self._loop.remove_reader(pipe)
                self._watched.clear()
                tasks.cancel()

    @asynccontextmanager
    async def open_session(self, ttl_s: float) -> AsyncIterator[Session]:
        """
        See MetadataStore; the session lives as long as the process.

        *ttl_s* means nothing: others notice at once when the process has ended.
        """
        session = Session(f"{self._sessions.identity}.{uuid.uuid4().hex[:8]}")
        session.hold_in(self._loop)
        try:
            await self._run(partial(self._begin, session.session_id))
            yield session
        finally:
            session.end()
            try:
                await self._apply(partial(self._file.close_session, session.session_id))
            except BrokerError as error:
                log.warning("other processes delete the keys of a session: %s", error)
            finally:
                # If its keys are not deleted, others see that it is over.
                self._thread.submit(
                    self._sessions.end, session.session_id, is_deleted=False
                )

    def _begin(self, session_id: str) -> None:
        self._sessions.begin(session_id)
        # The others watch for its end.
        self._sessions.ring()

    def _report(
        self, revision: Revision, changes: Mapping[str, Stored[bytes] | None]
    ) -> None:
        # The watches learn of it in the order of all processes' changes.
        if self._on_change is not None:
            self._on_change(revision, list(changes))
        self._rung.set()

    def _on_rung(self) -> None:
        self._sessions.drain()
        self._rung.set()

    async def _follow(self) -> None:
        while True:
            try:
                await self._end_others(*await self._run(self._observe))
            except Closed:
                return
            except BrokerError as error:
                log.warning("changes of the metadata are late: %s", error)
                await asyncio.sleep(LOOK_INTERVAL_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_INTERVAL_S):
                    await self._rung.wait()
            self._rung.clear()

    def _observe(self) -> tuple[list[str], list[int]]:
        """Report what was changed since the last call; look at the other sessions."""
        missed = self._file.read_changes()
        if missed is None:
            revision, present = self._file.read_store()
            self._loop.call_soon_threadsafe(self._watches.on_present, revision, present)
        elif missed[1]:
            self._loop.call_soon_threadsafe(self._watches.on_change, *missed)
        return self._sessions.look()

    async def _end_others(self, over: list[str], pipes: list[int]) -> None:
        """Delete the keys of the sessions that are *over*, and watch the others."""
        for pipe in self._watched.keys() - set(pipes):
            self._loop.remove_reader(pipe)
            del self._watched[pipe]
        self._sessions.close_gone()
        for pipe in set(pipes) - self._watched.keys():
            self._watched[pipe] = None
            self._loop.add_reader(pipe, self._on_end, pipe)
        for session_id in over:
            await self._apply(partial(self._file.end_sessions, session_id))
            await self._run(partial(self._sessions.forget, session_id))
            log.info("session %s of another process has ended", session_id)

    def _on_end(self, pipe: int) -> None:
        # It stays at its end.
        self._loop.remove_reader(pipe)
        self._rung.set()


class _SharedFile(StoreFile):
    """The SQLite file, used by several processes."""

    def __init__(
        self, path: Path, make_room: Callable[[], bool], sessions: ProcessSessions
    ) -> None:
        super().__init__(path, make_room)
        self.guard: _Guard | None = None
        self._sessions = sessions
        self._seen = Revision(0)

    def open(self) -> None:
        self._sessions.open()
        super().open()
        self._seen = self.revision()

    def change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> Applied:
        return self._ring(super().change(comparisons, operations))

    def _change_together(self, changes: Sequence[Change]) -> None:
        super()._change_together(changes)
        if any(each.applied is not None and each.applied[1] for each in changes):
            self._sessions.ring()

    def end_sessions(self, session_id: str | None = None) -> Applied:
        """Delete the paths that belong to a session, if another process has not."""
        if session_id not in self._sessions_with_paths():
            return self.revision(), {}
        return self._ring(super().end_sessions(session_id))

    def close_session(self, session_id: str) -> Applied:
        """Delete the paths of a session of this process, and give it up."""
        applied = self.end_sessions(session_id)
        self._sessions.end(session_id, is_deleted=True)
        return applied

    def read_changes(self) -> Applied | None:
        """
        Return the paths that were changed since the last call, with their values.

        None: There were too many changes.
        """
        with self._transaction("DEFERRED"):
            revision = self.revision()
            if revision == self._seen:
                return revision, {}
            rows = self._connection.execute(
                "SELECT c.revision, c.path, e.value, e.revision FROM changes AS c"
                " LEFT JOIN entries AS e ON e.path = c.path WHERE c.revision > ?"
                " ORDER BY c.revision",
                (self._seen,),
            ).fetchall()
        if not rows or rows[0][0] != self._seen + 1:
            return None
        self._seen = revision
        return revision, {
            path: None if value is None else Stored(value, Revision(written))
            for _, path, value, written in rows
        }

    def read_store(self) -> tuple[Revision, dict[str, Stored[bytes]]]:
        """Return everything."""
        with self._transaction("DEFERRED"):
            revision = self.revision()
            present = dict(self.scan("/", "", None))
        self._seen = revision
        return revision, present

    def read_all(self, prefix: str) -> RawChanges:
        with self._transaction("DEFERRED"):
            return super().read_all(prefix)

    def _check(self, sessions: Mapping[str, Session]) -> None:
        guard = self.guard
        if guard is not None:
            stored = self.get(guard.path)
            if stored is None or stored.revision != guard.revision:
                guard.session.end()
            guard.session.check()
        for session in sessions.values():
            if not self._sessions.holds(session.session_id):
                # Its file was deleted, so others take it for ended.
                session.end()
            session.check()

    def _note(self, revision: Revision, paths: Collection[str]) -> None:
        self._connection.executemany(
            "INSERT INTO changes VALUES (?, ?)", [(revision, path) for path in paths]
        )
        if revision % TRIM_INTERVAL == 0:
            self._connection.execute(
                "DELETE FROM changes WHERE revision <= ?", (revision - CHANGES_KEPT,)
            )

    def _end_old_sessions(self) -> None:
        for session_id in self._sessions_with_paths():
            if is_over(self._sessions.directory, session_id):
                self.end_sessions(session_id)

    def _sessions_with_paths(self) -> set[str]:
        rows = self._connection.execute("SELECT DISTINCT session_id FROM session_paths")
        return {session_id for (session_id,) in rows}

    def _ring(self, applied: Applied) -> Applied:
        if applied[1]:
            self._sessions.ring()
        return applied
