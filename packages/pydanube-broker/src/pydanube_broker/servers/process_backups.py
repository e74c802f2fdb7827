"""
Backups of a broker with several processes, by the process that is asked.

All processes write their cursors and sync their journals, and then remove no segment.
The one that makes the backup reads the journals of all, and after that copies the
metadata, which knows every segment that has taken messages out of a journal meanwhile.
A copy counts only if no shard, no journal and no commit has changed between the two;
otherwise both are read again.  The backup has the form of one process, so it can be
restored for any number of processes.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from pydanube.model.descriptions import BackupProgress
from pydanube.model.errors import BrokerError, Unavailable
from pydanube.model.segments import SegmentEntry
from pydanube_broker.broker.backups import Moment, backup_running
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import JournalRecord
from pydanube_broker.metadata.shared_sqlite import SharedSqliteStore
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.metadata.store import MetadataStore, Put
from pydanube_broker.servers.recovery.process_switch import plan_union, read_sources
from pydanube_broker.storage.journal.group_files import GroupFiles

ATTEMPTS_MAX = 50
"""How often a moment is looked for in which nothing moves."""
_INTERVAL_S = 0.1
_FIRST_FILE = 1


class ProcessMoments:
    """Takes the state of all processes of a broker; implements ``backups.Moments``."""

    def __init__(
        self,
        store: SharedSqliteStore,
        *,
        directory: Path,
        journals: Path,
        has_remote: bool,
        flush_all: Callable[[], Awaitable[None]],
        wall_clock_us: Callable[[], int],
    ) -> None:
        """
        *directory* is that of all processes, *journals* that of their journals.

        *has_remote* says whether segments are in a store outside of the data directory.
        *flush_all* lets all processes write their cursors, and sync their journals.
        """
        self._store = store
        self._lock = directory / "backup.lock"
        self._progress = directory / "backup.json"
        self._journals = journals
        self._has_remote = has_remote
        self._flush_all = flush_all
        self._wall_clock_us = wall_clock_us

    @property
    def last(self) -> BackupProgress:
        """The progress of the last backup of any process."""
        try:
            found = msgspec.json.decode(
                self._progress.read_bytes(), type=BackupProgress
            )
        except FileNotFoundError:
            return BackupProgress()
        if found.is_running:
            with suppress(BlockingIOError), self._locked():
                return replace(
                    found, is_running=False, error="the process that made it has ended"
                )
        return found

    def note(self, progress: BackupProgress) -> None:
        """See Moments."""
        part = self._progress.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(progress))
        part.rename(self._progress)

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """See Moments."""
        try:
            with self._locked():
                yield
        except BlockingIOError:
            raise backup_running(self.last) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(file)

    async def take(self, path: Path) -> Moment:
        """See Moments."""
        problem = ""
        for _ in range(ATTEMPTS_MAX):
            await self._flush_all()
            try:
                moment = await self._try(path)
            except BrokerError as error:
                # Groups are removed from a journal while it is read.
                problem = str(error)
                moment = None
            if moment is not None:
                return moment
            await asyncio.to_thread(path.unlink, missing_ok=True)
            await asyncio.sleep(_INTERVAL_S)
        raise Unavailable(
            f"no moment was found for the backup in {ATTEMPTS_MAX} attempts: topics "
            f"move between the processes, or commits of transactions follow each other "
            f"without a pause; try again later{problem and ': ' + problem}"
        )

    async def _try(self, path: Path) -> Moment | None:
        """Return the state of this moment; None if something has moved."""
        created_at = self._wall_clock_us()
        cluster = await self._store.get(keys.CLUSTER)
        assert cluster is not None, "a running broker has recorded its cluster"
        cluster_id = cluster.value.cluster_id
        before = await _moving_parts(self._store)
        journals = GroupFiles(self._journals)
        readings = await read_sources(
            self._store, journals, bytes.fromhex(cluster_id), is_live=True
        )
        await self._store.snapshot(path, lambda: None)
        async with open_sqlite(path) as copy:
            if await _moving_parts(copy) != before:
                return None
            union = await plan_union(copy, readings, self._is_local)
            record = JournalRecord(file_number=_FIRST_FILE, position=0, kind="local")
            await copy.transaction([], [*union.operations, Put(keys.JOURNAL, record)])
        return Moment(
            cluster_id=cluster_id,
            created_at=created_at,
            # Segments of a topic that is being deleted may be gone.
            segments=[each for found in union.present.values() for each in found],
            journal_number=_FIRST_FILE,
            entries=union.entries(),
            staged=(),
        )

    async def _is_local(self, _: SegmentEntry) -> bool:
        return not self._has_remote


async def _moving_parts(store: MetadataStore) -> tuple[Any, ...]:
    """Return where the messages of shards are, and what has been committed."""
    shards = [
        (path, each.value.source, each.value.source_epoch)
        for path, each in await store.scan(keys.SHARDS)
    ]
    journals = [
        (path, each.value.first)
        for path, each in await store.scan(keys.SESSION_JOURNALS)
    ]
    commits = [
        (path, each.value.version, each.value.decision)
        for path, each in await store.scan(keys.QUERIES)
    ]
    return shards, journals, commits
