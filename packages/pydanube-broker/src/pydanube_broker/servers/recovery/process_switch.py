"""
Changing a data directory from one process to several, and back.

One process has a local journal, and topics without shards.  Several processes have a
journal each, and shards whose records say which journal has their messages.  A change
writes the whole state, with all messages that are not sealed, to one new journal of the
other form, and then changes all records in one transaction.

- One to several: the new journal is that of a session that has ended.  The processes
  take its shards over, as they take over those of a killed process.
- Several to one: no process runs, so the journals do not change any more.  What the
  records of the shards name in them is the state.

Before the transaction, a crash leaves the old form as it was, and the next start begins
again; after it, the old form is not needed any more, and the next start removes it.
Segments stay where they are: the object store of several processes is the directory of
the segments of one, unless there is a remote store.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from pydanube.model.errors import Conflict, CorruptJournal, InconsistentDirectory
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.segments import SegmentEntry
from pydanube.objects.directory import DirectoryObjects, sync_directory
from pydanube.objects.store import Objects
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.group_format import HEADER_BYTES, decode_group_header
from pydanube.wire.files.journal_format import Entry, MetadataRevision
from pydanube_broker.broker.backups import JOURNAL_FILE_BYTES
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.cluster.decided_acks import with_decided_acks
from pydanube_broker.cluster.pure.shard_topics import shard_of
from pydanube_broker.cluster.session_journals import journal_of
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionJournalRecord, ShardRecord
from pydanube_broker.metadata.key import Prefix
from pydanube_broker.metadata.records import (
    DeletedTopicRecord,
    JournalRecord,
    TopicRecord,
)
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.metadata.store import Delete, MetadataStore, Operation, Put
from pydanube_broker.servers.directories.directory import DataDirectory
from pydanube_broker.servers.directories.identity import (
    ClusterIdentity,
    identify,
    refuse_lost_metadata,
)
from pydanube_broker.servers.directories.journals import (
    journal_place,
    open_kind_files,
)
from pydanube_broker.servers.recovery.contents import WHOLE, DirectoryContents
from pydanube_broker.servers.recovery.journal_switch import open_whole, switch_journal
from pydanube_broker.servers.recovery.recover import preserve
from pydanube_broker.servers.settings.config import BrokerConfig
from pydanube_broker.servers.settings.process_config import (
    JOURNALS,
    PROCESSES,
    config_of_process,
)
from pydanube_broker.storage.config import FILES, StorageConfig
from pydanube_broker.storage.files import DirectoryFiles
from pydanube_broker.storage.journal.group_files import GroupFiles
from pydanube_broker.storage.journal.journal import Journal
from pydanube_broker.storage.journal.journal_copying import JournalCopy, encode_files
from pydanube_broker.storage.journal.journal_opening import JournalOpening
from pydanube_broker.storage.journal.journal_sessions import JournalSession
from pydanube_broker.storage.journal.object_journal import ROOT
from pydanube_broker.storage.journal.object_recovery import (
    FIRST_SESSION,
    new_session_id,
    prefix_of,
)
from pydanube_broker.storage.journal.recovery import FIRST_NUMBER
from pydanube_broker.storage.journal.reserve import Reserve
from pydanube_broker.storage.journal.shard_recovery import (
    SourceReading,
    entries_of_adoption,
)
from pydanube_broker.storage.journal.state import JournalState, TopicState
from pydanube_broker.storage.journal.unsealed import uploaded_of
from pydanube_broker.storage.pure.group_commits import FIRST_GROUP
from pydanube_broker.storage.remote.tiered_objects import open_remote

log = logging.getLogger(__name__)

_BEGIN = Offset(0)
_FIRST_PROCESS = 1


async def divide_directory(directory: DataDirectory, config: BrokerConfig) -> None:
    """
    Prepare the directory of one process for several; do nothing if it is.

    The caller must hold the directory's lock.

    Raises:
        Conflict: A commit of staged batches must be completed before.
        InconsistentDirectory, CorruptJournal: The directory is damaged.
        JournalFailed, ObjectsUnavailable, DiskFull: Nothing was changed; try again.
    """
    # Before the change: one process that starts after a crash looks for it.
    (directory.path / PROCESSES).mkdir(mode=0o700, exist_ok=True)
    (directory.path / JOURNALS).mkdir(mode=0o700, exist_ok=True)
    refuse_lost_metadata(directory)
    if not directory.metadata.exists():
        return
    async with open_sqlite(directory.metadata) as store:
        if not await _is_of_processes(store):
            if await store.get(keys.CLUSTER) is None:
                # It is new.
                return
            await _divide(store, directory, config)
    preserve(directory, [directory.journal, directory.staging])


async def unite_directory(directory: DataDirectory, config: StorageConfig) -> None:
    """
    Prepare the directory of several processes, which have ended, for one.

    The caller must hold the directory's lock.

    Raises: As ``divide_directory``.
    """
    refuse_lost_metadata(directory)
    async with open_sqlite(directory.metadata) as store:
        if await _is_of_processes(store):
            # An interrupted change, of this or the other direction, has left these.
            preserve(directory, [directory.journal, directory.staging])
            await _unite(store, directory, config)
    journals = directory.path / JOURNALS
    if journals.is_dir() and any(journals.iterdir()):
        preserve(directory, [journals])
    # It has caches, and copies of messages that are in the journal.
    shutil.rmtree(directory.path / PROCESSES)


async def _is_of_processes(store: MetadataStore) -> bool:
    """Return whether several processes have used a store last."""
    return bool(await store.scan(keys.SHARDS, limit=1))


# One to several.


class _NewJournal:
    """The list of the sessions of a new journal; implements ``JournalSessions``."""

    def __init__(self) -> None:
        self.sessions: tuple[JournalSession, ...] = ()

    async def load(self) -> tuple[JournalSession, ...]:
        return self.sessions

    async def replace(
        self, expected: tuple[JournalSession, ...], new: tuple[JournalSession, ...]
    ) -> None:
        assert expected == self.sessions
        self.sessions = new


@dataclass(slots=True)
class _Topics:
    """The topics of a metadata store, also those that are being deleted."""

    present: dict[TopicName, TopicRecord] = field(default_factory=dict)
    deleted: dict[TopicName, DeletedTopicRecord] = field(default_factory=dict)

    @property
    def names(self) -> dict[TopicId, TopicName]:
        """The names by the numbers of the topics."""
        return {
            TopicId(record.topic_id): name
            for records in (self.deleted, self.present)
            for name, record in records.items()
        }

    def with_shards(self, shards: Mapping[TopicId, int]) -> Iterator[Operation]:
        """Yield the changes that give each topic its shard, or none."""
        change = msgspec.structs.replace
        for name, record in self.present.items():
            shard = shards.get(TopicId(record.topic_id))
            yield Put(keys.topic(name), change(record, shard=shard))
            if shard is not None:
                key = keys.SHARD_TOPICS.key(shard, record.topic_id)
                yield Put(key, str(name))
        for name, deleted in self.deleted.items():
            shard = shards.get(TopicId(deleted.topic_id))
            yield Put(keys.deleted_topic(name), change(deleted, shard=shard))


async def _load_topics(store: MetadataStore) -> _Topics:
    found = _Topics()
    for path, topic in await store.scan(keys.TOPICS):
        found.present[TopicName.parse("/" + keys.TOPICS.name_of(path))] = topic.value
    for path, deleted in await store.scan(keys.DELETED_TOPICS):
        name = TopicName.parse("/" + keys.DELETED_TOPICS.name_of(path))
        found.deleted[name] = deleted.value
    return found


async def _divide(
    store: MetadataStore, directory: DataDirectory, config: BrokerConfig
) -> None:
    begun_at = perf_counter()
    await _check_commits(store)
    local = DirectoryObjects(directory.objects)
    place = journal_place(config.storage, directory)
    identity = await identify(store, directory, local, kind="local", journal=place)
    if identity.recorded_kind not in {None, "local"}:
        await switch_journal(config.storage, identity, store)
        identity = await identify(store, directory, local, kind="local", journal=place)
    await identity.record(local)
    topics = await _load_topics(store)
    shards = {
        topic_id: shard_of(name, config.cluster.shards)
        for topic_id, name in topics.names.items()
    }
    epochs = [stored.value for _, stored in await store.scan(keys.EPOCHS)]
    # The names of segments have epochs, and those of a topic must not fall.
    epoch = Epoch(max([0, *epochs]) + 1)
    segments = await _load_segments(store, topics.names)
    uploads = await _upload(config, identity, local, segments)
    segments |= uploads
    async with open_whole(config.storage, identity, store) as journal:
        states, frames = journal.state.topics, journal.recovered
        session = await _write_session(
            config,
            identity,
            entries_of_topics(
                {
                    topic_id: replace(states[topic_id], shard=shard)
                    for topic_id, shard in shards.items()
                    if topic_id in states
                },
                frames,
                segments,
                epoch,
            ),
        )
    operations: list[Operation] = [
        *topics.with_shards(shards),
        *(
            Put(keys.SHARDS.key(shard), _released(session, epoch))
            for shard in sorted(set(shards.values()))
        ),
        *(
            Put(keys.SHARD_EPOCHS.key(shard), epoch)
            for shard in sorted(set(shards.values()))
        ),
        *_changed_segments(uploads),
        Put(
            keys.SESSION_JOURNALS.key(session.session_id),
            SessionJournalRecord(
                kind=FILES,
                prefix=session.prefix,
                first=session.first,
                broker_id="process-0",
            ),
        ),
        *await _deletions(store, keys.EPOCHS, keys.JOURNAL_SESSIONS),
        Delete(keys.JOURNAL),
    ]
    if not shards:
        # The transaction says that the directory is that of several processes.
        operations.append(Put(keys.SHARDS.key(0), ShardRecord()))
    await store.transaction([], operations)
    log.warning(
        "several processes share %s now: %d topics in %d shards were prepared in %.2f "
        "s; the directory 'replaced' has the journal of the one process",
        directory.path,
        len(shards),
        len(set(shards.values())),
        perf_counter() - begun_at,
    )


def _released(session: JournalSession, epoch: Epoch) -> ShardRecord:
    """Return the record of a shard whose entries are those of an ended session."""
    return ShardRecord(
        epoch=epoch, source=session.session_id, source_epoch=epoch, has_left=False
    )


def entries_of_topics(
    states: Mapping[TopicId, TopicState],
    frames: Mapping[TopicId, Sequence[BatchFrame]],
    segments: Mapping[TopicId, Sequence[SegmentEntry]],
    epoch: Epoch,
) -> Iterator[Entry]:
    """
    Yield the entries of topics for a new journal, as *epoch*.

    Raises:
        CorruptJournal: Messages are neither in a segment nor in *frames*.
    """
    for topic_id, state in states.items():
        yield from entries_of_adoption(
            topic_id,
            state,
            frames.get(topic_id, ()),
            segments.get(topic_id, ()),
            epoch,
        )


async def _load_segments(
    store: MetadataStore, topics: Iterable[TopicId]
) -> dict[TopicId, tuple[SegmentEntry, ...]]:
    ids = list(topics)
    loaded = await MetadataManifest(store).load_each(ids)
    return dict(zip(ids, loaded, strict=True))


async def _upload(
    config: BrokerConfig,
    identity: ClusterIdentity,
    local: Objects,
    segments: Mapping[TopicId, Sequence[SegmentEntry]],
) -> dict[TopicId, tuple[SegmentEntry, ...]]:
    """
    Store all segments where every process reads them; return those of changed topics.

    Without a remote store they are there already.
    """
    remote = None
    if url := config.storage.remote.url:
        remote = open_remote(config.storage.remote)
        has_uploads = any(
            each.is_uploaded for found in segments.values() for each in found
        )
        await identity.claim_remote(remote, url, has_uploads)
    changed = {}
    for topic_id, found in segments.items():
        for each in found:
            if each.is_uploaded:
                continue
            if remote is None:
                is_there = await local.stat(each.object_name) is not None
            else:
                data = await local.read(each.object_name)
                if is_there := data is not None:
                    await remote.put(each.object_name, data)
            if not is_there:
                raise InconsistentDirectory(
                    f"the segment {each.object_name} is missing in "
                    f"{identity.directory.objects}; start the broker with one process "
                    "(processes.count), and see 'danube recover'"
                )
            changed[topic_id] = tuple(replace(s, is_uploaded=True) for s in found)
    return changed


def _changed_segments(
    segments: Mapping[TopicId, Sequence[SegmentEntry]],
) -> Iterator[Operation]:
    for topic_id, found in segments.items():
        for each in found:
            yield Put(keys.segment(topic_id, each.base), each)


async def _write_session(
    config: BrokerConfig, identity: ClusterIdentity, entries: Iterator[Entry]
) -> JournalSession:
    """Write *entries* to the journal of a new session, which ends with it."""
    storage = config_of_process(config, _FIRST_PROCESS).storage
    # The metadata store knows no session, so an interrupted change has left others.
    shutil.rmtree(Path(storage.journal_url) / ROOT, ignore_errors=True)
    session_id = new_session_id()
    opening = JournalOpening(
        config=storage,
        journal_id=identity.journal_id(),
        sessions=_NewJournal(),
        claim=_accept,
        check=lambda _: None,
        new_session_id=lambda: session_id,
        reserve=Reserve(),
        clock=perf_counter,
    )
    async with open_kind_files(opening) as journal:
        await _append_all(journal, entries)
    return JournalSession(
        number=FIRST_SESSION,
        session_id=session_id.hex(),
        prefix=prefix_of(ROOT, FIRST_SESSION, session_id),
        first=FIRST_GROUP,
    )


async def _accept(_: Objects) -> None:
    """Accept the directory of the journals, which is in the data directory."""


async def _append_all(journal: Journal, entries: Iterable[Entry]) -> None:
    for entry in entries:
        if not journal.has_room:
            await journal.wait_for_room()
        journal.append(entry, None)
    # A journal that is a source is never empty.
    journal.append(MetadataRevision(0), None)
    await journal.sync()


# Several to one.


async def gather_directory(directory: DataDirectory, config: StorageConfig) -> bool:
    """
    Give the directory of several processes the form of one; return if it has metadata.

    The caller must hold the directory's lock.

    Raises: As ``unite_directory``.
    """
    contents = DirectoryContents(directory, config)
    async with contents.reading_metadata() as store:
        is_whole = contents.report.metadata == WHOLE
        is_whole = is_whole and await store.get(keys.CLUSTER) is not None
    if is_whole:
        await unite_directory(directory, config)
    else:
        await salvage_journals(directory)
    return is_whole


async def _unite(
    store: MetadataStore, directory: DataDirectory, config: StorageConfig
) -> None:
    begun_at = perf_counter()
    local = DirectoryObjects(directory.objects)
    place = journal_place(config, directory)
    identity = await identify(store, directory, local, kind="local", journal=place)
    await identity.record(local)
    readings = await read_sources(
        store, GroupFiles(directory.path / JOURNALS), identity.journal_id()
    )

    async def is_local(segment: SegmentEntry) -> bool:
        return await local.stat(segment.object_name) is not None

    union = await plan_union(store, readings, is_local)
    new = replace(identity, journal_end=None)
    async with open_whole(config, new, store) as journal:
        await _append_all(journal, union.entries())
        end = journal.durable_end
    record = JournalRecord(file_number=end.number, position=end.position, kind="local")
    await store.transaction([], [*union.operations, Put(keys.JOURNAL, record)])
    log.warning(
        "one process uses %s now: %d topics were prepared in %.2f s; the directory "
        "'replaced' has the journals of the processes",
        directory.path,
        len(union.segments),
        perf_counter() - begun_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """The changes that give the data of several processes the form of one."""

    operations: Sequence[Operation]
    """The changes of the metadata store, besides the record of the journal."""
    states: Mapping[TopicId, TopicState]
    frames: Mapping[TopicId, Sequence[BatchFrame]]
    segments: Mapping[TopicId, Sequence[SegmentEntry]]
    """The segments of each topic that all processes can read."""
    present: Mapping[TopicId, Sequence[SegmentEntry]]
    """Those of topics that are not being deleted, as they are for one process."""
    epoch: Epoch

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of the journal; see ``entries_of_topics``."""
        return entries_of_topics(self.states, self.frames, self.segments, self.epoch)


async def plan_union(
    store: MetadataStore,
    readings: Mapping[str, SourceReading],
    is_local: Callable[[SegmentEntry], Awaitable[bool]],
) -> Union:
    """
    Return what gives the data in *store*, and in the journals, the form of one process.

    *readings* has the journals of all sources that the shards name.  *is_local* says
    whether a segment needs no remote store.

    Raises:
        Conflict: A commit of staged batches must be completed before.
        CorruptJournal: Messages are missing.
    """
    await _check_commits(store)
    topics = await _load_topics(store)
    segments = await _load_segments(store, topics.names)
    found, frames = await _read_shards(store, readings)
    states = {each: found[each] for each in topics.names if each in found}
    stored = [epoch.value for _, epoch in await store.scan(keys.SHARD_EPOCHS)]
    epoch = Epoch(max([0, *stored]) + 1)
    for name, deleted in topics.deleted.items():
        # Removing its contents compares the epoch of the topic.
        topic_id = TopicId(deleted.topic_id)
        states.setdefault(topic_id, TopicState(str(name), epoch, _BEGIN, _BEGIN))
    kept = {topic_id: uploaded_of(found) for topic_id, found in segments.items()}
    local = {
        topic_id: [
            replace(each, is_uploaded=False) for each in found if await is_local(each)
        ]
        for topic_id, found in kept.items()
    }
    operations: list[Operation] = [
        *topics.with_shards({}),
        *(Put(keys.EPOCHS.key(topic_id), epoch) for topic_id in topics.names),
        *_changed_segments(local),
        *(
            Delete(keys.segment(topic_id, each.base))
            for topic_id, found in segments.items()
            # Their messages are in the journal.
            for each in found[len(kept[topic_id]) :]
        ),
        *await _deletions(
            store,
            keys.SHARDS,
            keys.SHARD_EPOCHS,
            keys.SHARD_TOPICS,
            keys.SESSION_JOURNALS,
            keys.SESSIONS,
            keys.BROKER_SESSIONS,
            keys.BROKER_MODES,
            keys.CONTROLLERS,
            keys.LEAVING,
            keys.LOADS,
        ),
    ]
    return Union(
        operations=operations,
        states=states,
        frames=frames,
        segments=kept,
        present={
            TopicId(each.topic_id): kept[TopicId(each.topic_id)]
            for each in topics.present.values()
        },
        epoch=epoch,
    )


async def read_sources(
    store: MetadataStore, objects: Objects, journal_id: bytes, *, is_live: bool = False
) -> dict[str, SourceReading]:
    """
    Read the journals that the shards name, by their sessions.

    With *is_live*, processes append to them, and what is there now is read.

    Raises:
        CorruptJournal: A journal is missing or damaged.
    """
    readings: dict[str, SourceReading] = {}
    for _, stored in await store.scan(keys.SHARDS):
        source = stored.value.source
        if source is not None and source not in readings:
            readings[source] = await _read_source(
                store, objects, journal_id, source, is_live=is_live
            )
    return readings


async def _read_shards(
    store: MetadataStore, readings: Mapping[str, SourceReading]
) -> tuple[dict[TopicId, TopicState], dict[TopicId, list[BatchFrame]]]:
    """Return the states and unsealed batches that the records of the shards name."""
    states: dict[TopicId, TopicState] = {}
    frames: dict[TopicId, list[BatchFrame]] = {}
    for path, stored in await store.scan(keys.SHARDS):
        shard, record = int(keys.SHARDS.name_of(path)), stored.value
        if record.source is None:
            continue
        recovery = readings[record.source].fold.recovery_of(
            shard, Epoch(record.source_epoch)
        )
        for topic_id, state in recovery.state.topics.items():
            states[topic_id] = replace(state, shard=None)
        frames |= recovery.frames
    return await with_decided_acks(store, states), frames


async def _read_source(
    store: MetadataStore,
    objects: Objects,
    journal_id: bytes,
    source: str,
    *,
    is_live: bool,
) -> SourceReading:
    """Read the journal of a session."""
    stored = await store.get(keys.SESSION_JOURNALS.key(source))
    if stored is None:
        raise CorruptJournal(
            f"the metadata store has no record of the journal of session {source}"
        )
    session = journal_of(source, stored.value)
    if await objects.read(session.object_name(session.first)) is None:
        raise CorruptJournal(
            f"{session.object_name(session.first)}: expected the first group of the "
            f"journal of session {source}, there is none"
        )
    reading = SourceReading(objects, journal_id=journal_id, reader_id=new_session_id())
    if is_live:
        await reading.read_ahead(session)
    else:
        await reading.read_to_end(session)
    return reading


# Without metadata.


async def salvage_journals(directory: DataDirectory) -> None:
    """
    Make one local journal of the journals of several processes, without metadata.

    Of each topic, the journal counts that has most of its messages.  A damaged journal
    is read up to the damage.  Nothing is deleted: the directories of the processes are
    moved to the directory ``replaced``.
    """
    best: dict[TopicId, tuple[TopicState, Sequence[BatchFrame]]] = {}
    objects = GroupFiles(directory.path / JOURNALS)
    journal_id = b""
    for path in sorted((directory.path / JOURNALS / ROOT).glob("*/")):
        prefix = f"{ROOT}{path.name}/"
        names = await objects.names(prefix)
        head = await objects.read(names[0], 0, HEADER_BYTES) if names else None
        if head is None:
            continue
        header = decode_group_header(head)
        journal_id = header.journal_id
        session = JournalSession(
            number=FIRST_SESSION,
            session_id=header.writer.hex(),
            prefix=prefix,
            first=header.number,
        )
        reading = SourceReading(
            objects, journal_id=journal_id, reader_id=new_session_id()
        )
        try:
            await reading.read_ahead(session)
        except CorruptJournal as error:
            log.warning("a journal is read up to the damage: %s", error)
        for recovery in reading.fold.all_recoveries():
            for topic_id, state in recovery.state.topics.items():
                known = best.get(topic_id)
                if known is None or _rank(known[0]) < _rank(state):
                    best[topic_id] = state, recovery.frames.get(topic_id, ())
    if journal_id:
        states = {
            topic_id: replace(state, shard=None, has_left=False)
            for topic_id, (state, _) in best.items()
        }
        copy = JournalCopy(
            snapshot=list(JournalState(states).snapshot()),
            frames={topic_id: frames for topic_id, (_, frames) in best.items()},
        )
        await asyncio.to_thread(_write_journal, directory, journal_id, copy)
    preserve(directory, [directory.path / JOURNALS, directory.path / PROCESSES])


def _write_journal(
    directory: DataDirectory, journal_id: bytes, copy: JournalCopy
) -> None:
    """Write a local journal, in the place of one that may be there."""
    part = directory.journal.with_name("journal.part")
    shutil.rmtree(part, ignore_errors=True)
    files = DirectoryFiles(part)
    for name, data in encode_files(
        copy.entries(),
        number=FIRST_NUMBER,
        journal_id=journal_id,
        bytes_max=JOURNAL_FILE_BYTES,
    ):
        file = files.create(name)
        file.write([data])
        file.sync()
        file.close()
    files.sync_directory()
    preserve(directory, [directory.journal])
    part.rename(directory.journal)
    sync_directory(directory.path)


def _rank(state: TopicState) -> tuple[int, int]:
    # An adoption that was not finished has a later epoch, and fewer messages.
    return state.end_offset, state.epoch


# Both.


async def _check_commits(store: MetadataStore) -> None:
    """
    Check that no commit of staged batches is decided that is not completed.

    Raises:
        Conflict: There is one.
    """
    for path, stored in await store.scan(keys.QUERIES):
        if stored.value.decision is not None:
            raise Conflict(
                f"processes.count cannot be changed between one and several now: the "
                f"last commit of the query {keys.QUERIES.name_of(path)!r} is decided "
                "and not complete. Start the broker with as many processes as before, "
                "which completes it, and change the number then"
            )


async def _deletions(store: MetadataStore, *prefixes: Prefix[Any]) -> list[Operation]:
    """Return the changes that delete everything below *prefixes*."""
    return [
        Delete(prefix.key(prefix.name_of(path)))
        for prefix in prefixes
        for path in await store.paths(prefix)
    ]
