"""
The cluster id, and checks that the parts of a data directory belong together.

A part of a data directory may be lost, or replaced by an older copy.  A broker that
started with such a part would treat missing data as deleted, and give out offsets
twice.  The parts refer to each other:

- One random cluster id is in the metadata store, in the header of every journal file
  and in an object of its own.
- The journal records the revision of the metadata store after every change.  If the
  metadata store has a lower revision, it has lost changes.
- The metadata store records the position up to which the journal is on disk: at the
  start, at the end, after every sealed segment and every few seconds.  A journal
  that ends before this position has lost entries.

If a power failure drops such a record, the check is only weaker.  The check never
fails without a loss.

docs/decisions/0022-cross-check-the-parts-of-a-data-directory.md has the reasons.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pyarrow as pa

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import BrokerError, InconsistentDirectory
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.objects.store import Objects, wall_clock_us
from pydanube.wire.files.segment_format import PARTS
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import ClusterRecord, JournalRecord
from pydanube_broker.metadata.store import ABSENT, MetadataStore, Revision
from pydanube_broker.servers.directories.directory import DataDirectory
from pydanube_broker.storage.journal.recovery import (
    SUFFIX,
    JournalPosition,
    Recovery,
    end_of,
)
from pydanube_broker.storage.remote.tiered_objects import MARKER_NAME
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)

RECORD_INTERVAL_S = 5.0
"""The interval at which the end of a growing journal is recorded."""


class ClusterMarker(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the object ``.cluster.json``."""

    cluster_id: str


@dataclass(slots=True, kw_only=True)
class ClusterIdentity:
    """
    The cluster id and the facts about the other parts in the metadata store.

    ``identify()`` creates it and checks the object store.  ``check_journal()`` checks
    the journal, and ``record()`` writes the cluster id to an object store without it.
    """

    directory: DataDirectory
    kind: str
    """The kind of the journal in the settings."""
    recorded_kind: str | None
    """The kind of the journal that there is; None if there is none yet."""
    journal: str
    """Where the journal is: its directory, or the URL of the object store."""
    revision: Revision
    cluster_id: str
    journal_end: JournalPosition | None
    has_marker: bool

    def journal_id(self) -> bytes:
        """Return the id for a new journal."""
        return bytes.fromhex(self.cluster_id)

    def check_journal(self, recovery: Recovery) -> None:
        """
        Compare the recovered journal with the metadata store.

        Raises:
            InconsistentDirectory: The journal is missing, foreign, or older than the
                metadata store, or the metadata store is older than the journal.
        """
        if recovery.journal_id is None:
            if self.journal_end is not None:
                raise self._lost_journal("there is no journal file")
            return
        found = recovery.journal_id.hex()
        if self.cluster_id != found:
            raise InconsistentDirectory(
                f"{self.journal} belongs to cluster {found}, the metadata "
                f"store {self.directory.metadata_place} to cluster {self.cluster_id}; "
                "put the parts of one cluster together"
            )
        if recovery.state.metadata_revision > self.revision:
            raise self._old_metadata(
                f"it has revision {self.revision}, and the journal has recorded "
                f"revision {recovery.state.metadata_revision}"
            )
        if self.journal_end is not None and not recovery.reaches(self.journal_end):
            if recovery.sessions:
                raise self._lost_journal(
                    f"its sessions end with the groups {recovery.sessions}, and the "
                    "metadata store has recorded groups up to number "
                    f"{self.journal_end.position} of session {self.journal_end.number}"
                )
            raise self._lost_journal(
                f"it ends with file {end_of(recovery.files[-1])}, and the metadata "
                f"store has recorded data up to file {self.journal_end}"
            )

    async def claim_journal(self, objects: Objects, *, has_sessions: bool) -> None:
        """
        Check that the journal's object store is this cluster's; mark it if it is new.

        *has_sessions* says whether there were groups before.

        Raises:
            InconsistentDirectory: It belongs to another cluster, or it is new although
                there were groups before.
            ObjectsUnavailable: The store does not answer.
        """
        await self._claim(
            objects,
            self.journal,
            has_data=has_sessions,
            what="the journal was in another store",
            setting=f"storage.journal.{self.kind}.url",
        )

    async def claim_remote(self, remote: Objects, url: str, has_uploads: bool) -> None:
        """
        Check that the remote store at *url* is this cluster's; mark it if it is new.

        *has_uploads* says whether segments were uploaded before.

        Raises:
            InconsistentDirectory: It belongs to another cluster, or it is new and
                segments were uploaded to another store.
            ObjectsUnavailable: The store does not answer.
        """
        await self._claim(
            remote,
            url,
            has_data=has_uploads,
            what="segments were uploaded before",
            setting="storage.remote.url",
        )

    async def _claim(
        self, remote: Objects, url: str, *, has_data: bool, what: str, setting: str
    ) -> None:
        found = await remote.read(MARKER_NAME)
        if found is None and has_data:
            raise InconsistentDirectory(
                f"the object store {url} has no {MARKER_NAME}, but {what}: set "
                f"{setting} to the store that has them, or copy all objects of that "
                "store to this one"
            )
        if found is None:
            marker = msgspec.json.encode(ClusterMarker(cluster_id=self.cluster_id))
            if remote.supports_put_if_absent:
                await remote.put_if_absent(MARKER_NAME, marker)
            else:
                await remote.put(MARKER_NAME, marker)
            # Another broker may have been faster.
            found = await remote.read(MARKER_NAME)
        owner = None
        if found is not None:
            owner = parse_marker(bytes(found), f"{url}/{MARKER_NAME}")
        if owner != self.cluster_id:
            raise InconsistentDirectory(
                f"the object store {url} belongs to cluster {owner}, this broker to "
                f"cluster {self.cluster_id}: set {setting} to a store, or to another "
                "prefix in the bucket, that no other cluster uses; if this broker is "
                "to continue where another one stopped, give it that broker's metadata "
                "store (metadata.path)"
            )

    async def record(self, objects: Objects) -> None:
        """Write the cluster id to the object store if it is missing."""
        if not self.has_marker:
            await write_marker(objects, self.cluster_id)

    def _lost_journal(self, reason: str) -> InconsistentDirectory:
        if self.kind != "local":
            return InconsistentDirectory(
                f"objects of the journal are missing in {self.journal}: {reason}. Put "
                f"the missing objects back, or set storage.journal.{self.kind}.url to "
                "the store that has them"
            )
        path = self.directory.path
        return InconsistentDirectory(
            f"journal files are missing in {self.directory.journal}: {reason}. Put "
            "the missing files back, or give up the messages in them with 'danube "
            f"recover --data-dir {path} --accept-loss'"
        )

    def _old_metadata(self, reason: str) -> InconsistentDirectory:
        return lost_metadata(
            self.directory, f"is older than the journal: {reason}; its WAL may be lost"
        )


def lost_metadata(directory: DataDirectory, what: str) -> InconsistentDirectory:
    """Return the error for a metadata store with the problem *what*."""
    if (remote := directory.remote_metadata) is not None:
        return InconsistentDirectory(
            f"the metadata store in {remote.location} {what}. Correct "
            f"{remote.setting('endpoints')} and {remote.setting('cluster_name')}, or "
            f"restore {remote.SERVICE} from a snapshot"
        )
    return InconsistentDirectory(
        f"the metadata store {directory.metadata} {what}. Put the right file back, "
        "with the files -wal and -shm beside it if there are any, or rebuild its "
        f"records with 'danube recover --data-dir {directory.path} --from-segments'"
    )


def refuse_lost_metadata(directory: DataDirectory) -> None:
    """
    Check that a directory with a journal or objects has a metadata store.

    Call this before the metadata store is opened, which would create it.

    Raises:
        InconsistentDirectory: The metadata store is missing or empty.
    """
    if directory.remote_metadata is not None:
        # identify() finds out.
        return
    with suppress(FileNotFoundError):
        if directory.metadata.stat().st_size:
            return
    if others := _other_parts(directory):
        raise lost_metadata(
            directory, f"is missing or empty, but there are {' and '.join(others)}"
        )


async def identify(
    store: MetadataStore,
    directory: DataDirectory,
    objects: Objects,
    *,
    kind: str,
    journal: str,
) -> ClusterIdentity:
    """
    Return the identity of the cluster in *directory*, or create a new one.

    *kind* is the kind of the journal, and *journal* the place where it is.

    Raises:
        InvalidConfig: The journal cannot be of this kind.
        InconsistentDirectory: The metadata store is empty but other parts are not, or
            the object store belongs to another cluster, is missing, or was emptied.
    """
    revision = await store.revision()
    cluster = await store.get(keys.CLUSTER)
    end = await store.get(keys.JOURNAL)
    marker = await asyncio.to_thread(read_marker, directory, objects.open)
    if cluster is not None:
        cluster_id = cluster.value.cluster_id
    else:
        others = await asyncio.to_thread(_other_parts, directory)
        if others:
            raise lost_metadata(
                directory, f"has no cluster id, but there are {' and '.join(others)}"
            )
        cluster_id = uuid.uuid4().hex
        await _record_cluster(store, cluster_id)
    recorded_kind = None if end is None else end.value.kind
    if marker is None and recorded_kind not in {None, "local"}:
        log.warning(
            "the data directory %s is new: segments are read from the remote object "
            "store, and messages that were not uploaded from the journal in %s",
            directory.path,
            journal,
        )
    elif marker is None and end is not None:
        raise InconsistentDirectory(
            f"the object store {directory.objects} is missing or was emptied: it has "
            f"no object {MARKER_NAME}. Mount it or put it back, or accept that its "
            "segments are lost with 'danube recover --data-dir "
            f"{directory.path} --accept-loss'"
        )
    if marker is not None and marker != cluster_id:
        raise InconsistentDirectory(
            f"the object store {directory.objects} belongs to cluster {marker}, the "
            f"metadata store {directory.metadata_place} to cluster {cluster_id}; put "
            "the parts of one cluster together"
        )
    return ClusterIdentity(
        directory=directory,
        kind=kind,
        recorded_kind=recorded_kind,
        journal=journal,
        revision=revision,
        cluster_id=cluster_id,
        journal_end=None if end is None else journal_end_of(end.value),
        has_marker=marker is not None,
    )


def read_marker(
    directory: DataDirectory, open_object: Callable[[str], Any]
) -> str | None:
    """
    Return the cluster id in the object store, if any.

    Raises:
        InconsistentDirectory: The object with the cluster id is damaged.
    """
    try:
        with open_object(MARKER_NAME) as file:
            return msgspec.json.decode(file.read(), type=ClusterMarker).cluster_id
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, ValueError) as error:
        raise InconsistentDirectory(
            f"{directory.objects / MARKER_NAME} is damaged: {error}. Remove it and run "
            f"'danube recover --data-dir {directory.path} --accept-loss', which writes "
            "it again"
        ) from error


def parse_marker(data: bytes, url: str) -> str:
    """
    Return the cluster id in the object at *url*.

    Raises:
        InconsistentDirectory: The object is damaged.
    """
    try:
        return msgspec.json.decode(data, type=ClusterMarker).cluster_id
    except ValueError as error:
        raise InconsistentDirectory(
            f"{url} is damaged: {error}. If the store belongs to this cluster, remove "
            "it, and the broker writes it again"
        ) from error


async def write_marker(objects: Objects, cluster_id: str) -> None:
    """Write the cluster id to the object store."""
    marker = ClusterMarker(cluster_id=cluster_id)
    await objects.put(MARKER_NAME, msgspec.json.encode(marker))


@asynccontextmanager
async def recording_progress(
    store: MetadataStore, storage: Storage, kind: str
) -> AsyncIterator[None]:
    """
    Record the progress of journal and metadata store in each other.

    *kind* is the kind of the journal.
    """
    recorder = _ProgressRecorder(store, storage, kind)
    with store.reporting(recorder.on_metadata_changed):
        await recorder.write_all()
        async with task_scope() as tasks:
            tasks.run(recorder.follow_journal(), "record the journal's end")
            try:
                yield
            finally:
                tasks.cancel()
                # A failure here only weakens the check at the next start.
                with suppress(BrokerError):
                    await recorder.write_all()


class _ProgressRecorder:
    """Records the progress of journal and metadata store in each other."""

    def __init__(self, store: MetadataStore, storage: Storage, kind: str) -> None:
        self._store = store
        self._storage = storage
        self._kind = kind
        self._revision = 0
        self._is_segment_recorded = asyncio.Event()
        self._end: JournalPosition | None = None

    async def write_all(self) -> None:
        """Record the current progress of both."""
        self._record_revision(await self._store.revision())
        await self._storage.journal.sync()
        await self._record_end()

    def on_metadata_changed(self, revision: int, paths: list[str]) -> None:
        """Record the revision, and soon the end of the journal if a segment is new."""
        # Recording changes of the journal's end would cause the next one, without end.
        if keys.JOURNAL.path in paths:
            return
        self._record_revision(revision)
        if any(path.startswith(keys.SEGMENTS.path) for path in paths):
            self._is_segment_recorded.set()

    async def follow_journal(self) -> None:
        """Record the end of the journal regularly, and when segments are recorded."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECORD_INTERVAL_S):
                    await self._is_segment_recorded.wait()
            self._is_segment_recorded.clear()
            await self._record_end()

    def _record_revision(self, revision: int) -> None:
        if revision > self._revision:
            self._revision = revision
            self._storage.note_metadata_revision(revision)

    async def _record_end(self) -> None:
        end = self._storage.journal.durable_end
        if end == self._end:
            return
        record = JournalRecord(
            file_number=end.number, position=end.position, kind=self._kind
        )
        try:
            await self._store.put(keys.JOURNAL, record)
        except BrokerError as error:
            log.warning("the end of the journal cannot be recorded: %s", error)
        else:
            self._end = end


async def _record_cluster(store: MetadataStore, cluster_id: str) -> None:
    record = ClusterRecord(cluster_id=cluster_id, created_at=wall_clock_us())
    await store.put(keys.CLUSTER, record, expected=ABSENT)


def journal_end_of(record: JournalRecord) -> JournalPosition:
    """Return the recorded end of the journal."""
    return JournalPosition(record.file_number, record.position)


def _other_parts(directory: DataDirectory) -> list[str]:
    """Describe the files of the journal and the object store that exist."""
    others = []
    if directory.journal.is_dir() and any(directory.journal.glob(f"*{SUFFIX}")):
        others.append(f"journal files in {directory.journal}")
    if directory.objects.is_dir() and any(
        each.name != PARTS for each in directory.objects.iterdir()
    ):
        others.append(f"objects in {directory.objects}")
    return others
