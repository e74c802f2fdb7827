"""
Backups of a running broker.

A backup has the state of one moment.  The metadata store writes a copy of itself; then,
before the event loop learns of any later change, the state of the journal and the
unsealed messages are noted.  Whatever the kind of the journal is, the backup has files
of a local one.  Segments never change, so they are copied while the broker goes on.
Until the backup is finished, no segment is removed.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from crc32c import crc32c

from pydanube.aio.tasks import gather
from pydanube.model.descriptions import BackupProgress
from pydanube.model.errors import (
    AlreadyExists,
    BackupRunning,
    BrokerError,
    InvalidRequest,
    ObjectsUnavailable,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.model.version import __version__
from pydanube.objects.store import Objects
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.journal_format import Entry
from pydanube_broker.broker.named_stores import NamedStores
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import JournalRecord
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.metadata.store import Delete, Put
from pydanube_broker.storage.backup_format import (
    JOURNAL,
    METADATA,
    OWNER_NAME,
    STAGING,
    BackupFile,
    BackupRecord,
    id_of_time,
    object_of_file,
    object_of_record,
    object_of_segment,
)
from pydanube_broker.storage.config import MIB
from pydanube_broker.storage.files import Files
from pydanube_broker.storage.journal.journal_copying import encode_files
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)

COPIES_MAX = 4
"""The number of segments that are copied at the same time."""
JOURNAL_FILE_BYTES = 64 * MIB
"""The size at which the copy of the journal begins a new file."""
DAMAGED_MAX = 100
"""The most damaged segments that a backup leaves out; with more it fails."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state of a broker at one moment, without the content of segments."""

    cluster_id: str
    created_at: int
    segments: Sequence[SegmentEntry]
    journal_number: int
    entries: Iterator[Entry]
    """The entries of the copy of the journal."""
    staged: Sequence[tuple[str, Buffer]]


class Moments(Protocol):
    """Takes the state of a broker for backups."""

    @property
    def last(self) -> BackupProgress:
        """The progress of the last backup."""

    def note(self, progress: BackupProgress) -> None:
        """Take the progress of the backup that this process makes."""

    def beginning(self) -> AbstractContextManager[None]:
        """
        Make the only backup during the body.

        Raises:
            BackupRunning: Another one is being made.
        """

    async def take(self, path: Path) -> Moment:
        """
        Return the state of one moment, and write the metadata to the new file *path*.

        The file refers to the copy of the journal.
        """


class Snapshots(Protocol):
    """A metadata store that can copy itself; see ``SqliteStore.snapshot``."""

    async def snapshot(self, path: Path, then: Callable[[], R]) -> R: ...


class OneProcess:
    """Takes the state of a broker with one process; implements ``Moments``."""

    def __init__(
        self,
        store: Snapshots,
        storage: Storage,
        staging_files: Files,
        *,
        flush_cursors: Callable[[], None],
        wall_clock_us: Callable[[], int],
    ) -> None:
        """*flush_cursors* is ``CursorSaver.flush``."""
        self.last = BackupProgress()
        self._store = store
        self._storage = storage
        self._staging_files = staging_files
        self._flush_cursors = flush_cursors
        self._wall_clock_us = wall_clock_us

    def note(self, progress: BackupProgress) -> None:
        """See Moments."""
        self.last = progress

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """See Moments."""
        if self.last.is_running:
            raise backup_running(self.last)
        yield

    async def take(self, path: Path) -> Moment:
        """See Moments."""
        journal = self._storage.journal
        if journal.failure is not None:
            # Another broker may have taken over.
            raise journal.failure.with_traceback(None)
        # Cursors and failures of messages are written a moment after they change.
        self._flush_cursors()
        await journal.sync()
        created_at = self._wall_clock_us()
        journal_copy, staged = await self._store.snapshot(
            path, lambda: (self._storage.copy_journal(), list(self._staged()))
        )
        number = journal.durable_end.number + 1
        cluster_id, segments = await _prepare(path, number)
        return Moment(
            cluster_id=cluster_id,
            created_at=created_at,
            segments=segments,
            journal_number=number,
            entries=journal_copy.entries(),
            staged=staged,
        )

    def _staged(self) -> Iterator[tuple[str, Buffer]]:
        files = self._staging_files
        return ((STAGING + each, files.map(each)) for each in files.names())


def backup_running(progress: BackupProgress) -> BackupRunning:
    """Return the error of a second backup while the first one is made."""
    return BackupRunning(
        f"the backup {progress.id} is being made; only one runs at a time"
    )


class Backups:
    """Makes backups, one at a time."""

    def __init__(
        self,
        moments: Moments,
        storage: Storage,
        stores: NamedStores,
        tasks: asyncio.TaskGroup,
        *,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self._moments = moments
        self._storage = storage
        self._stores = stores
        self._tasks = tasks
        self._wall_clock_us = wall_clock_us
        self._running: asyncio.Task[None] | None = None

    @property
    def progress(self) -> BackupProgress:
        """The progress of the last backup."""
        return self._moments.last

    @progress.setter
    def progress(self, progress: BackupProgress) -> None:
        self._moments.note(progress)

    async def begin(self, store: str) -> BackupProgress:
        """
        Begin a backup to the named *store*; ``progress`` tells its outcome.

        Durability: A backup is complete, or later backups and restoring ignore it.

        Raises:
            BackupRunning: A backup is being made.
            InvalidRequest: The settings have no such store.
            InvalidConfig: The broker cannot open the store.
        """
        objects = await self._stores.open(store)
        with ExitStack() as opened:
            opened.enter_context(self._moments.beginning())
            backup_id = id_of_time(self._wall_clock_us())
            self.progress = BackupProgress(
                id=backup_id, url=self._stores.url_of(store), is_running=True
            )
            work = self._run(objects, backup_id, opened.pop_all())
        self._running = self._tasks.create_task(work, name=f"backup {backup_id}")
        return self.progress

    def cancel(self) -> None:
        """Give up the backup that is being made, if any."""
        if self._running is not None:
            self._running.cancel()

    async def _run(self, objects: Objects, backup_id: str, held: ExitStack) -> None:
        error = "the broker stopped"
        try:
            async with self._storage.keeping_segments():
                await self._make(objects, backup_id)
        except BrokerError as failure:
            error = str(failure)
            log.warning("the backup %s failed: %s", backup_id, failure)
        except Exception as failure:
            # It must not stop the broker.
            error = f"the broker failed; its log says why: {type(failure).__name__}"
            log.exception("the backup %s failed", backup_id)
        else:
            error = ""
            log.info("the backup %s to %s is complete", backup_id, self.progress.url)
        finally:
            self.progress = replace(self.progress, is_running=False, error=error)
            self._running = None
            held.close()

    async def _make(self, objects: Objects, backup_id: str) -> None:
        with tempfile.TemporaryDirectory(prefix="danube-backup-") as name:
            path = Path(name) / METADATA
            moment = await self._moments.take(path)
            metadata = await asyncio.to_thread(path.read_bytes)
        cluster_id, segments, staged = moment.cluster_id, moment.segments, moment.staged
        await _claim(objects, cluster_id)
        self.progress = replace(
            self.progress,
            segment_count=len(segments),
            byte_count=len(metadata)
            + sum(len(data) for _, data in staged)
            + sum(each.byte_count for each in segments),
        )
        # The journal first, because its copy holds messages in memory.
        left = encode_files(
            moment.entries,
            number=moment.journal_number,
            journal_id=bytes.fromhex(cluster_id),
            bytes_max=JOURNAL_FILE_BYTES,
        )
        files: list[BackupFile] = []
        while (file := await asyncio.to_thread(next, left, None)) is not None:
            byte_count = self.progress.byte_count + len(file[1])
            self.progress = replace(self.progress, byte_count=byte_count)
            files.append(
                await self._copy_file(objects, backup_id, JOURNAL + file[0], file[1])
            )
        del left
        files += [
            await self._copy_file(objects, backup_id, *each)
            for each in (*staged, (METADATA, metadata))
        ]
        record = BackupRecord(
            id=backup_id,
            cluster_id=cluster_id,
            version=__version__,
            created_at=moment.created_at,
            files=files,
            segments=await self._copy_segments(objects, segments),
            damaged=list(self.progress.damaged),
            finished_at=self._wall_clock_us(),
        )
        data = msgspec.json.encode(record)
        if not await objects.put_if_absent(object_of_record(backup_id), data):
            raise AlreadyExists(f"there is a backup {backup_id} already")

    async def _copy_file(
        self, objects: Objects, backup_id: str, name: str, data: Buffer
    ) -> BackupFile:
        await objects.put(object_of_file(backup_id, name), data)
        self._on_copied(len(data))
        checksum = await asyncio.to_thread(crc32c, data)
        return BackupFile(name=name, byte_count=len(data), checksum=checksum)

    async def _copy_segments(
        self, objects: Objects, segments: Sequence[SegmentEntry]
    ) -> list[BackupFile]:
        left = iter(segments)
        copied: list[BackupFile] = []

        async def copy_next() -> None:
            for segment in left:
                found = await self._copy_segment(objects, segment)
                if found is not None:
                    copied.append(found)

        await gather(copy_next() for _ in range(COPIES_MAX))
        return sorted(copied, key=lambda each: each.name)

    async def _copy_segment(
        self, objects: Objects, segment: SegmentEntry
    ) -> BackupFile | None:
        target = object_of_segment(segment.object_name)
        stored = await objects.stat(target)
        is_shared = stored is not None and stored.byte_count == segment.byte_count
        checksum = segment.checksum
        if not is_shared or checksum is None:
            data = await self._storage.read_segment(segment)
            found = None if data is None else await asyncio.to_thread(crc32c, data)
            if data is None or checksum not in (None, found):
                self._on_damaged(segment)
                return None
            checksum = found
            await objects.put(target, data)
        self._on_copied(segment.byte_count)
        self.progress = replace(
            self.progress,
            segments_done=self.progress.segments_done + 1,
            segments_shared=self.progress.segments_shared + is_shared,
        )
        assert checksum is not None
        return BackupFile(
            name=segment.object_name, byte_count=segment.byte_count, checksum=checksum
        )

    def _on_copied(self, byte_count: int) -> None:
        done = self.progress.bytes_done + byte_count
        self.progress = replace(self.progress, bytes_done=done)

    def _on_damaged(self, segment: SegmentEntry) -> None:
        damaged = (*self.progress.damaged, segment.object_name)
        if len(damaged) > DAMAGED_MAX:
            raise InvalidRequest(
                f"more than {DAMAGED_MAX} segments are damaged or missing; run "
                "'danube maintenance run --all --verify', and 'danube recover' if the "
                "object store was lost"
            )
        log.warning("a backup lacks the damaged segment %s", segment.object_name)
        self.progress = replace(self.progress, damaged=damaged)


async def _prepare(path: Path, journal_number: int) -> tuple[str, list[SegmentEntry]]:
    """
    Make a copy of the metadata store refer to the journal's copy.

    Returns the cluster id and the segments.
    """
    async with open_sqlite(path) as store:
        cluster = await store.get(keys.CLUSTER)
        assert cluster is not None, "a running broker has recorded its cluster"
        topics = {stored.value.topic_id for _, stored in await store.scan(keys.TOPICS)}
        segments = [
            stored.value
            for path_, stored in await store.scan(keys.SEGMENTS)
            # Segments of a topic that is being deleted may be gone.
            if int(keys.SEGMENTS.name_of(path_).partition("/")[0]) in topics
        ]
        sessions = [
            Delete(keys.journal_session(int(keys.JOURNAL_SESSIONS.name_of(path_))))
            for path_, _ in await store.scan(keys.JOURNAL_SESSIONS)
        ]
        record = JournalRecord(file_number=journal_number, position=0, kind="local")
        await store.transaction([], [Put(keys.JOURNAL, record), *sessions])
    return cluster.value.cluster_id, segments


async def _claim(objects: Objects, cluster_id: str) -> None:
    """Record that the backups in *objects* are of this cluster."""
    marker = cluster_id.encode()
    if await objects.put_if_absent(OWNER_NAME, marker):
        return
    owner = await objects.read(OWNER_NAME)
    if owner is None:
        raise ObjectsUnavailable(f"{OWNER_NAME} disappeared from the object store")
    if bytes(owner) != marker:
        raise InvalidRequest(
            "the object store has backups of another cluster, "
            f"{bytes(owner[:64]).decode(errors='replace')}; choose another store"
        )
