"""
The identity of a cluster: which metadata, journal and object store belong together.

Theory.  The parts of a data directory may be lost, or replaced by older copies, one by
one.  A broker that starts with such parts would take what it does not find for what was
deleted, and give out offsets for a second time.  So the parts know of each other:

- One random cluster id is in the metadata store, in the header of every journal file
  and in an object of its own.
- The journal notes the revision of the metadata store after every change.  The note
  follows the change, so a revision below the noted one means that the metadata store
  has lost changes.
- The metadata store notes up to which position the journal is on disk: at the start, at
  the end, after every sealed segment and every few seconds.  So a journal that ends
  before this position has lost entries.

A note that a power failure takes away only makes the check weaker.  It can never fail
without a loss.

docs/decisions/0022-cross-check-the-parts-of-a-data-directory.md has the reasons.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pydanube.metadata import keys
from pydanube.metadata.key import prefix_of
from pydanube.metadata.records import ClusterRecord, JournalRecord
from pydanube.metadata.store import ABSENT, Revision
from pydanube.model.errors import (
    BrokerError,
    InconsistentDirectory,
    RevisionConflict,
)
from pydanube.storage.objects import wall_clock_us
from pydanube.storage.recovery import SUFFIX, JournalPosition, end_of
from pydanube.wire.files.segment_format import PARTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydanube.metadata.store import MetadataStore
    from pydanube.servers.directory import DataDirectory
    from pydanube.storage.objects import Objects
    from pydanube.storage.recovery import Recovery
    from pydanube.storage.storage import Storage

log = logging.getLogger(__name__)

MARKER_NAME = ".cluster.json"
"""The object with the cluster id; readers of tables ignore names that begin so."""

NOTE_INTERVAL_S = 5.0
"""How often the end of the journal is noted while it grows."""


# Only for watching; the values are not decoded.
_EVERYTHING = prefix_of("/", msgspec.Raw)


class ClusterMarker(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the object ``.cluster.json``."""

    cluster_id: str


class Identity:
    """
    What the metadata store says about the parts of its data directory.

    Made by ``identify()``, which compares the object store.  ``check_journal()``
    compares the journal, and ``record()`` completes what is new or of version 0.1.
    """

    def __init__(
        self,
        directory: DataDirectory,
        *,
        revision: Revision,
        cluster_id: str | None,
        journal_end: JournalPosition | None,
        has_marker: bool,
        epochs: dict[int, int] | None,
    ) -> None:
        self.cluster_id = cluster_id
        """None until the journal was read, if version 0.1 wrote the directory."""
        self._directory = directory
        self._revision = revision
        self._journal_end = journal_end
        self._has_marker = has_marker
        self._epochs = epochs

    def journal_id(self) -> bytes:
        """The id of a new journal."""
        assert self.cluster_id is not None
        return bytes.fromhex(self.cluster_id)

    def check_journal(self, recovery: Recovery) -> None:
        """
        Compare what was recovered of the journal with the metadata store.

        Raises:
            InconsistentDirectory: The journal is missing, foreign, or older than the
                metadata store, or the metadata store is older than the journal.
        """
        if recovery.journal_id is None:
            if self._journal_end is not None or self.cluster_id is None:
                raise self._lost_journal("there is no journal file")
            return
        found = recovery.journal_id.hex()
        if self.cluster_id is None:
            self._check_epochs(recovery)
            self.cluster_id = found
        elif self.cluster_id != found:
            raise InconsistentDirectory(
                f"{self._directory.journal} belongs to cluster {found}, the metadata "
                f"store {self._directory.metadata} to cluster {self.cluster_id}; put "
                "the parts of one cluster together"
            )
        if recovery.state.metadata_revision > self._revision:
            raise self._old_metadata(
                f"it has revision {self._revision}, and the journal knows revision "
                f"{recovery.state.metadata_revision}"
            )
        end = end_of(recovery.files[-1])
        if self._journal_end is not None and end < self._journal_end:
            raise self._lost_journal(
                f"it ends with file {end}, and the metadata store knows that it was "
                f"written up to file {self._journal_end}"
            )

    async def record(self, store: MetadataStore, objects: Objects) -> None:
        """Write the cluster id wherever it is not yet; the journal has it."""
        assert self.cluster_id is not None
        if not self._has_marker:
            marker = ClusterMarker(cluster_id=self.cluster_id)
            await objects.put(MARKER_NAME, msgspec.json.encode(marker))
        if self._epochs is not None:
            await _record_cluster(store, self.cluster_id)
            log.info(
                "adopted %s, written by version 0.1, as cluster %s",
                self._directory.path,
                self.cluster_id,
            )

    def _check_epochs(self, recovery: Recovery) -> None:
        """Compare the topics of a journal of version 0.1, which notes no revision."""
        assert self._epochs is not None
        for topic_id, topic in recovery.state.topics.items():
            if topic.epoch > self._epochs.get(topic_id, 0):
                raise self._old_metadata(
                    f"the journal knows topic {topic_id} ({topic.name}) with epoch "
                    f"{topic.epoch}, the metadata store with epoch "
                    f"{self._epochs.get(topic_id, 0)}"
                )

    def _lost_journal(self, reason: str) -> InconsistentDirectory:
        path = self._directory.path
        return InconsistentDirectory(
            f"journal files are missing in {self._directory.journal}: {reason}. Put "
            "the missing files back, or give up the messages in them with 'danube "
            f"recover --data-dir {path} --accept-loss'"
        )

    def _old_metadata(self, reason: str) -> InconsistentDirectory:
        return lost_metadata(
            self._directory, f"is older than the journal: {reason}; its WAL may be lost"
        )


def lost_metadata(directory: DataDirectory, what: str) -> InconsistentDirectory:
    """The error that says *what* is wrong with the metadata store."""
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
        InconsistentDirectory: It has none, or an empty file.
    """
    with suppress(FileNotFoundError):
        if directory.metadata.stat().st_size:
            return
    if others := _other_parts(directory):
        raise lost_metadata(
            directory, f"is missing or empty, but there are {' and '.join(others)}"
        )


async def identify(
    store: MetadataStore, directory: DataDirectory, objects: Objects
) -> Identity:
    """
    Find out which cluster the parts of *directory* belong to; begin a new one.

    Raises:
        InconsistentDirectory: The metadata store is empty but other parts are not, or
            the object store belongs to another cluster, is missing, or was emptied.
    """
    revision = await store.revision()
    cluster = await store.get(keys.CLUSTER)
    end = await store.get(keys.JOURNAL)
    marker = await asyncio.to_thread(read_marker, objects, directory)
    epochs: dict[int, int] | None = None
    if cluster is not None:
        cluster_id: str | None = cluster.value.cluster_id
    elif await store.get(keys.BROKER) is None:
        others = await asyncio.to_thread(_other_parts, directory)
        if others:
            raise lost_metadata(
                directory, f"has no records, but there are {' and '.join(others)}"
            )
        cluster_id = uuid.uuid4().hex
        await _record_cluster(store, cluster_id)
    else:
        if marker is not None:
            raise lost_metadata(
                directory, f"knows no cluster id, the object store knows {marker}"
            )
        cluster_id = None
        epochs = {
            int(keys.EPOCHS.name_of(path)): stored.value
            for path, stored in await store.scan(keys.EPOCHS)
        }
    if marker is None and end is not None:
        raise InconsistentDirectory(
            f"the object store {directory.objects} is missing or was emptied: it has "
            f"no object {MARKER_NAME}. Mount it or put it back, or accept that its "
            "segments are lost with 'danube recover --data-dir "
            f"{directory.path} --accept-loss'"
        )
    if None not in (marker, cluster_id) and marker != cluster_id:
        raise InconsistentDirectory(
            f"the object store {directory.objects} belongs to cluster {marker}, the "
            f"metadata store {directory.metadata} to cluster {cluster_id}; put the "
            "parts of one cluster together"
        )
    return Identity(
        directory,
        revision=revision,
        cluster_id=cluster_id,
        journal_end=None if end is None else _journal_end_of(end.value),
        has_marker=marker is not None,
        epochs=epochs,
    )


def read_marker(objects: Objects, directory: DataDirectory) -> str | None:
    """
    The cluster id in the object store; None if there is none.

    Raises:
        InconsistentDirectory: The object with it is damaged.
    """
    try:
        with objects.open(MARKER_NAME) as file:
            return msgspec.json.decode(file.read(), type=ClusterMarker).cluster_id
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, ValueError) as error:
        raise InconsistentDirectory(
            f"{directory.objects / MARKER_NAME} is damaged: {error}. Remove it and run "
            f"'danube recover --data-dir {directory.path} --accept-loss', which writes "
            "it again"
        ) from error


@asynccontextmanager
async def noting_progress(
    store: MetadataStore, storage: Storage
) -> AsyncIterator[None]:
    """Let journal and metadata store note how far the other one is."""
    notes = _Notes(store, storage)
    await notes.write_all()
    async with asyncio.TaskGroup() as tasks:
        following = [
            tasks.create_task(notes.follow_metadata(), name="note metadata revisions"),
            tasks.create_task(notes.follow_journal(), name="note the journal's end"),
        ]
        try:
            yield
        finally:
            for task in following:
                task.cancel()
            # Whatever fails here only makes the next start less certain.
            with suppress(BrokerError):
                await notes.write_all()


class _Notes:
    """What journal and metadata store have noted about each other."""

    def __init__(self, store: MetadataStore, storage: Storage) -> None:
        self._store = store
        self._storage = storage
        self._revision = 0
        self._end: JournalPosition | None = None

    async def write_all(self) -> None:
        """Note how far both are now."""
        self._note_revision(await self._store.revision())
        await self._storage.sync()
        await self._note_end()

    async def follow_metadata(self) -> None:
        """Note every revision of the metadata store, until it is closed."""
        while True:
            try:
                async for change in self._store.watch(
                    _EVERYTHING, Revision(self._revision)
                ):
                    # A note that is noted would never come to an end.
                    if change.path == keys.JOURNAL.path:
                        continue
                    self._note_revision(change.revision)
                    if change.path.startswith(keys.SEGMENTS.path):
                        await self._note_end()
            except RevisionConflict:
                # There were more changes than the store remembers.
                self._note_revision(await self._store.revision())
            else:
                return

    async def follow_journal(self) -> None:
        """Note the end of the journal from time to time."""
        while True:
            await asyncio.sleep(NOTE_INTERVAL_S)
            await self._note_end()

    def _note_revision(self, revision: int) -> None:
        if revision > self._revision:
            self._revision = revision
            self._storage.note_metadata_revision(revision)

    async def _note_end(self) -> None:
        end = self._storage.journal_end
        if end == self._end:
            return
        record = JournalRecord(file_number=end.number, position=end.position)
        try:
            await self._store.put(keys.JOURNAL, record)
        except BrokerError as error:
            log.warning("the end of the journal is not noted: %s", error)
        else:
            self._end = end


async def _record_cluster(store: MetadataStore, cluster_id: str) -> None:
    record = ClusterRecord(cluster_id=cluster_id, created_at=wall_clock_us())
    await store.put(keys.CLUSTER, record, expected=ABSENT)


def _journal_end_of(record: JournalRecord) -> JournalPosition:
    return JournalPosition(record.file_number, record.position)


def _other_parts(directory: DataDirectory) -> list[str]:
    """What there is of the journal and the object store, as words."""
    others = []
    if directory.journal.is_dir() and any(directory.journal.glob(f"*{SUFFIX}")):
        others.append(f"journal files in {directory.journal}")
    if directory.objects.is_dir() and any(
        each.name != PARTS for each in directory.objects.iterdir()
    ):
        others.append(f"objects in {directory.objects}")
    return others
