"""
`danube recover`: make a data directory whole again that has lost a part.

Theory.  The parts know much about each other.  Segments say of which topic they are,
under which number and with which offsets; the journal has the names, numbers, cursors
and producers of all stored topics.  So the records of topics and segments can be
rebuilt without the metadata store (``--from-segments``).  What the journal alone has,
the messages that were not sealed, is lost with it.  Then every topic goes on at an
offset that was certainly never given out (``--accept-loss``), and who reads the
offsets in between is told that they are gone.

Nothing is deleted: a file that is replaced is moved to ``replaced/`` first.  New files
are complete and on disk before they take their place, and a run that was cut short is
finished by the next one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

from pydanube.broker.manifest import MetadataManifest, record_segment
from pydanube.metadata import keys
from pydanube.metadata.records import (
    ClusterRecord,
    JournalRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    SubscriptionRecord,
    TopicRecord,
)
from pydanube.metadata.sqlite import open_sqlite
from pydanube.metadata.store import Delete, Put
from pydanube.model.errors import (
    Corrupt,
    CorruptJournal,
    InconsistentDirectory,
    InvalidName,
    MetadataUnavailable,
    NewerJournal,
)
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.model.names import TopicName
from pydanube.model.policy import SubscriptionType, TopicPolicy
from pydanube.servers.identity import MARKER_NAME, ClusterMarker
from pydanube.storage.files import DirectoryFiles, sync_directory
from pydanube.storage.journal import write_journal
from pydanube.storage.manifest import SegmentEntry
from pydanube.storage.objects import DirectoryObjects, wall_clock_us
from pydanube.storage.recovery import (
    FIRST_NUMBER,
    JournalPosition,
    end_of,
    recover,
    salvage,
)
from pydanube.storage.sealing import make_segment
from pydanube.storage.segments import publish_times_of_metadata
from pydanube.storage.state import JournalState, TopicState
from pydanube.wire.files.segment_checksums import UNREADABLE
from pydanube.wire.files.segment_format import (
    PARTS,
    ObjectName,
    SegmentIdentity,
    parse_object_name,
    read_footer,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from pydanube.metadata.key import Prefix
    from pydanube.metadata.sqlite import SqliteStore
    from pydanube.metadata.store import Operation
    from pydanube.servers.directory import DataDirectory
    from pydanube.storage.config import StorageConfig
    from pydanube.storage.recovery import Recovery
    from pydanube.wire.batches import BatchFrame

SKIPPED_OFFSETS = 10**10
"""
How many offsets are left out where the end of a topic was lost.

More than a journal can hold; and the lower digits stay as they were.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFinding:
    """What was found of one topic, and how it goes on."""

    topic: str
    topic_id: int
    is_rebuilt: bool
    """Its record is not in the metadata store."""
    segments: int
    rebuilt_segments: int
    """Segments whose records are not in the metadata store."""
    base: int | None
    """The first offset that is there; None if there is no message."""
    end: int
    """The first offset that is not there any more."""
    salvaged: int
    """Messages from the old journal that become segments."""
    next_offset: int
    """The offset of the next message; above *end* if messages may be lost."""
    subscriptions: dict[str, int]
    """Rebuilt subscriptions and their cursors."""


@dataclass(slots=True, kw_only=True)
class Findings:
    """What was found in a data directory, and what has to be done."""

    directory: str
    cluster_id: str | None
    metadata: str
    """``whole``, or what is wrong with it."""
    journal: str
    objects: str
    needs_from_segments: bool
    needs_accept_loss: bool
    topics: list[TopicFinding] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Objects that are no segments of a topic; they stay where they are."""
    written: bool = False
    """Whether the directory was changed."""


WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class _FoundSegment:
    """A segment in the object store, as its name and footer describe it."""

    topic: str
    topic_id: int
    name: ObjectName
    entry: SegmentEntry
    schema_id: int


@dataclass(slots=True)
class _Topic:
    """Everything that is known of one topic."""

    topic_id: TopicId
    name: str
    record: TopicRecord | None
    manifest: tuple[SegmentEntry, ...]
    state: TopicState | None
    found: list[_FoundSegment]
    epoch: int
    kept: list[SegmentEntry] = field(default_factory=list)
    """The segments of which it will consist, salvaged ones apart."""
    runs: list[list[BatchFrame]] = field(default_factory=list)
    """Messages of the journal that are not sealed; each run has no gaps."""
    subscriptions: dict[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        ends = [each.end for each in self.kept]
        ends += [each.end for each in self.manifest]
        ends += [each.entry.end for each in self.found]
        ends += [run[-1].end for run in self.runs]
        if self.state is not None:
            ends += [self.state.end_offset, self.state.sealed_offset]
            ends += [cursor.offset for cursor in self.state.cursors.values()]
        return max(ends, default=0)


async def recover_directory(
    directory: DataDirectory,
    config: StorageConfig,
    *,
    from_segments: bool,
    accept_loss: bool,
    write: bool,
) -> Findings:
    """
    Find out what is in *directory*, and with *write* make it whole.

    The caller holds the directory's lock.  Without *write* nothing is changed.

    Raises:
        InconsistentDirectory: Something is needed that is not allowed by
            *from_segments* and *accept_loss*; or parts are of different clusters.
    """
    if write:
        _finish_renames(directory)
    repair = _Repair(directory, config)
    async with repair.reading_metadata() as store:
        await repair.look(store)
        operations = await repair.plan(store)
    findings = repair.findings
    if not write:
        return findings
    for is_needed, is_allowed, flag in (
        (findings.needs_from_segments, from_segments, "--from-segments"),
        (findings.needs_accept_loss, accept_loss, "--accept-loss"),
    ):
        if is_needed and not is_allowed:
            raise InconsistentDirectory(
                f"{directory.path} cannot be recovered without {flag}: the metadata "
                f"store is {findings.metadata}; the journal is {findings.journal}; the "
                f"object store is {findings.objects}"
            )
    if findings.needs_from_segments or findings.needs_accept_loss:
        await repair.write(operations)
        findings.written = True
    return findings


class _Repair:
    """One run of the recovery; the parts are read by look()."""

    def __init__(self, directory: DataDirectory, config: StorageConfig) -> None:
        self.findings = Findings(
            directory=str(directory.path),
            cluster_id=None,
            metadata=WHOLE,
            journal=WHOLE,
            objects=WHOLE,
            needs_from_segments=False,
            needs_accept_loss=False,
        )
        self._directory = directory
        self._config = config
        self._topics: dict[int, _Topic] = {}
        self._state = JournalState()
        self._frames: dict[TopicId, list[BatchFrame]] = {}
        self._journal_end: JournalPosition | None = None
        self._noted_end: JournalPosition | None = None
        self._last_number = FIRST_NUMBER - 1
        self._revision = 0
        self._now = wall_clock_us()
        self._has_marker = False

    # The parts.

    @asynccontextmanager
    async def reading_metadata(self) -> AsyncIterator[SqliteStore]:
        """A copy of the metadata store, or an empty store if it cannot be read."""
        with tempfile.TemporaryDirectory(prefix="danube-recover-") as scratch:
            copy = Path(scratch) / "metadata.sqlite"
            try:
                _copy_metadata(self._directory, copy)
                async with open_sqlite(copy) as store:
                    await _read_all(store)
            except (MetadataUnavailable, Corrupt, OSError) as error:
                self._metadata_is(f"missing or damaged ({error})")
                copy = Path(scratch) / "empty.sqlite"
            async with open_sqlite(copy) as store:
                yield store

    async def look(self, store: SqliteStore) -> None:
        """Read all parts, and find out what is wrong with them."""
        self._revision = await store.revision()
        cluster = await store.get(keys.CLUSTER)
        noted = await store.get(keys.JOURNAL)
        if noted is not None:
            record = noted.value
            self._noted_end = JournalPosition(record.file_number, record.position)
        journal_id = self._read_journal()
        marker = self._read_marker()
        found = list(self._find_segments())
        if self.findings.metadata == WHOLE:
            if self._state.metadata_revision > self._revision:
                self._metadata_is("older than the journal")
            elif (cluster, await store.get(keys.BROKER)) == (None, None) and (
                journal_id or found
            ):
                self._metadata_is("empty")
            elif cluster is not None and marker is None and noted is not None:
                self.findings.objects = f"missing or emptied (no {MARKER_NAME})"
                self.findings.needs_accept_loss = True
        known = None if cluster is None else cluster.value.cluster_id
        ids = {each for each in (known, journal_id, marker) if each is not None}
        if len(ids) > 1:
            raise InconsistentDirectory(
                f"{self._directory.path}: the metadata store is of cluster {known}, "
                f"the journal of {journal_id}, the object store of {marker}; put the "
                "parts of one cluster together, or move the wrong one away"
            )
        self.findings.cluster_id = next(iter(ids), os.urandom(16).hex())
        if journal_id is None and (known or marker or found):
            if noted is not None or marker is not None or found:
                self._journal_is("missing")
        elif self._noted_end is not None and (
            self._journal_end or JournalPosition(0, 0)
        ) < (self._noted_end):
            self._journal_is(
                f"older than the metadata store (it ends before file {self._noted_end})"
            )
        await self._merge(store, found)

    def _read_journal(self) -> str | None:
        """Read the journal as far as possible; return its id."""
        if not self._directory.journal.is_dir():
            return None
        contents = _journal_contents(self._directory.journal)
        recovery: Recovery
        try:
            recovery = recover(contents)
        except NewerJournal:
            raise
        except CorruptJournal as error:
            self._journal_is(f"damaged ({error})")
            recovery = salvage(contents)
        self._state, self._frames = recovery.state, recovery.frames
        if recovery.files:
            self._journal_end = end_of(recovery.files[-1])
            self._last_number = recovery.files[-1].number
        return None if recovery.journal_id is None else recovery.journal_id.hex()

    def _read_marker(self) -> str | None:
        if not self._directory.objects.is_dir():
            return None
        path = self._directory.objects / MARKER_NAME
        if not path.exists():
            return None
        try:
            marker = msgspec.json.decode(path.read_bytes(), type=ClusterMarker)
        except (OSError, msgspec.DecodeError) as error:
            raise InconsistentDirectory(
                f"{path} is damaged: {error}. Move it away and recover again"
            ) from error
        self._has_marker = True
        return marker.cluster_id

    def _find_segments(self) -> Iterator[_FoundSegment]:
        objects = self._directory.objects
        for path in sorted(objects.rglob("*")) if objects.is_dir() else ():
            name = path.relative_to(objects).as_posix()
            parsed = parse_object_name(name)
            if parsed is None or name.startswith(f"{PARTS}/") or not path.is_file():
                continue
            found = _read_segment(path, name, parsed)
            if found is None:
                self.findings.unreadable.append(name)
            else:
                yield found

    def _metadata_is(self, what: str) -> None:
        self.findings.metadata = what
        self.findings.needs_from_segments = True

    def _journal_is(self, what: str) -> None:
        self.findings.journal = what
        self.findings.needs_accept_loss = True

    # What they make together.

    async def _merge(self, store: SqliteStore, found: list[_FoundSegment]) -> None:
        """Put together what all parts know of each topic."""
        records = {
            stored.value.topic_id: (keys.TOPICS.name_of(path), stored.value)
            for path, stored in await store.scan(keys.TOPICS)
        }
        deleted = {
            int(keys.DELETED_TOPICS.name_of(path))
            for path, _ in await store.scan(keys.DELETED_TOPICS)
        }
        epochs = {
            int(keys.EPOCHS.name_of(path)): stored.value
            for path, stored in await store.scan(keys.EPOCHS)
        }
        manifest = MetadataManifest(store)
        by_id: dict[int, list[_FoundSegment]] = {}
        for each in found:
            by_id.setdefault(each.topic_id, []).append(each)
        numbers = {
            *(
                number
                for number, (_, each) in records.items()
                if each.policy.is_reliable
            ),
            *self._state.topics,
            *by_id,
        }
        for number in sorted(numbers - deleted):
            topic_id, segments = TopicId(number), by_id.get(number, [])
            state = self._state.topics.get(topic_id)
            path, record = records.get(number, ("", None))
            name = f"/{path}" if record is not None else ""
            name = name or (state.name if state is not None else segments[-1].topic)
            topic = _Topic(
                topic_id,
                name,
                record,
                await manifest.load(topic_id),
                state,
                segments,
                epoch=max(
                    epochs.get(number, 0),
                    state.epoch if state is not None else 0,
                    *(each.entry.epoch for each in segments),
                    0,
                ),
            )
            self._choose_segments(topic)
            self._topics[number] = topic
        self._refuse_second_names()
        journal_ends = {
            number: 0 if topic.state is None else topic.state.end_offset
            for number, topic in self._topics.items()
        }
        for number, topic in self._topics.items():
            behind = [
                each for each in topic.found if each.entry.end > journal_ends[number]
            ]
            if behind and not self.findings.needs_accept_loss:
                self._journal_is(
                    f"older than the object store (it ends before "
                    f"{behind[-1].entry.object_name})"
                )
            extra = {entry.object_name for entry in topic.kept}
            extra -= {entry.object_name for entry in topic.manifest}
            if behind and extra and self.findings.metadata == WHOLE:
                self._metadata_is("older than the object store")

    def _choose_segments(self, topic: _Topic) -> None:
        """Decide of which segments the topic consists, and what is not sealed."""
        there = {each.entry.object_name for each in topic.found}
        recorded = {entry.object_name for entry in topic.manifest}
        kept = [entry for entry in topic.manifest if entry.object_name in there]
        others = [
            each for each in topic.found if each.entry.object_name not in recorded
        ]
        # Of two that overlap, the broker with the later claim has written history.
        sealed = [each for each in others if each.name.run is None]
        for each in sorted(sealed, key=lambda one: (-one.entry.epoch, one.entry.base)):
            if not any(_overlap(each.entry, entry) for entry in kept):
                kept.append(each.entry)
        # What a run has made counts only if what it was made of is not there any more.
        made = [each for each in others if each.name.run is not None]
        made.sort(key=lambda one: (str(one.name.run), one.entry.base))
        runs = [list(group) for _, group in groupby(made, key=lambda one: one.name.run)]
        runs.sort(key=lambda run: run[0].name.run.started_at if run[0].name.run else 0)
        for run in runs:
            base, end = run[0].entry.base, run[-1].entry.end
            if not _covers(kept, base, end):
                kept = [each for each in kept if each.end <= base or each.base >= end]
                kept += [each.entry for each in run]
        # A recorded segment that is missing stays; its readers get an error.
        kept += [
            entry
            for entry in topic.manifest
            if entry.object_name not in there
            and not any(_overlap(entry, each) for each in kept)
        ]
        topic.kept = sorted(kept, key=lambda entry: entry.base)
        sealed_end = topic.kept[-1].end if topic.kept else 0
        topic.runs = _runs_of(self._frames.get(topic.topic_id, []), sealed_end)

    def _refuse_second_names(self) -> None:
        """Of several topics of one name, the last one has it; leave out the others."""
        by_name: dict[str, int] = {}
        for number in sorted(self._topics):
            topic = self._topics[number]
            before = by_name.get(topic.name)
            if before is not None:
                self.findings.unreadable += [
                    each.entry.object_name for each in self._topics[before].found
                ]
                del self._topics[before]
            by_name[topic.name] = number

    # What is to be written.

    async def plan(self, store: SqliteStore) -> list[Operation]:
        """The changes of the metadata store; fills in the findings."""
        cluster_id = self.findings.cluster_id
        assert cluster_id is not None
        cluster = ClusterRecord(cluster_id=cluster_id, created_at=self._now)
        operations: list[Operation] = [Put(keys.CLUSTER, cluster)]
        last = await store.get(keys.LAST_TOPIC_ID)
        highest = max(self._topics, default=0)
        highest = max(highest, 0 if last is None else last.value)
        operations.append(Put(keys.LAST_TOPIC_ID, highest))
        last = await store.get(keys.LAST_SCHEMA_ID)
        ids = [
            each.schema_id for topic in self._topics.values() for each in topic.found
        ]
        ids += [
            frame.header.schema_id
            for frames in self._frames.values()
            for frame in frames
        ]
        schema_id = max([0 if last is None else last.value, *ids], default=0)
        operations.append(Put(keys.LAST_SCHEMA_ID, schema_id))
        for topic in self._topics.values():
            operations += await self._plan_topic(store, topic)
        operations += await self._plan_names(store)
        return operations

    async def _plan_topic(self, store: SqliteStore, topic: _Topic) -> list[Operation]:
        operations: list[Operation] = []
        if topic.record is None:
            record = TopicRecord(
                topic_id=topic.topic_id, policy=TopicPolicy(), created_at=self._now
            )
            operations.append(Put(keys.topic(TopicName.parse(topic.name)), record))
        operations.append(Put(keys.topic_epoch(topic.topic_id), topic.epoch + 1))
        kept = {entry.base: entry for entry in topic.kept}
        operations += [
            Delete(keys.segment(topic.topic_id, Offset(entry.base)))
            for entry in topic.manifest
            if entry.base not in kept
        ]
        before = {entry.object_name for entry in topic.manifest}
        added = [each for each in topic.kept if each.object_name not in before]
        operations += [record_segment(topic.topic_id, each) for each in added]
        for name, cursor in (topic.state.cursors if topic.state else {}).items():
            key = keys.subscriptions_of(topic.topic_id).key(name)
            if await store.get(key) is None and topic.record is None:
                topic.subscriptions[name] = cursor.offset
                subscription = SubscriptionRecord(
                    type=SubscriptionType.EXCLUSIVE, created_at=self._now
                )
                operations.append(Put(key, subscription))
        runs = topic.runs if self._salvages else []
        salvaged = sum(frame.header.count for run in runs for frame in run)
        bases = [each.base for each in topic.kept]
        bases += [run[0].base for run in topic.runs]
        self.findings.topics.append(
            TopicFinding(
                topic=topic.name,
                topic_id=topic.topic_id,
                is_rebuilt=topic.record is None,
                segments=len(topic.kept),
                rebuilt_segments=len(added),
                base=min(bases, default=None),
                end=topic.end,
                salvaged=salvaged,
                next_offset=self._next_offset(topic),
                subscriptions=topic.subscriptions,
            )
        )
        return operations

    async def _plan_names(self, store: SqliteStore) -> list[Operation]:
        """The namespaces and partitioned topics of rebuilt topics."""
        operations: list[Operation] = []
        names = [
            TopicName.parse(topic.name)
            for topic in self._topics.values()
            if topic.record is None
        ]
        for namespace in sorted({name.namespace for name in names}):
            if await store.get(keys.namespace(namespace)) is None:
                record = NamespaceRecord(created_at=self._now)
                operations.append(Put(keys.namespace(namespace), record))
        partitions: dict[TopicName, set[int]] = {}
        for name in names:
            split = name.split_partition()
            if split is not None:
                partitions.setdefault(split[0], set()).add(split[1])
        for base, numbers in partitions.items():
            key = keys.partitioned_topic(base)
            stored = await store.get(key)
            if stored is not None:
                before = stored.value
                numbers |= set(range(before.partitions))
                numbers -= {n for low, high in before.missing for n in range(low, high)}
            count = max(numbers) + 1
            missing = sorted(set(range(count)) - numbers)
            partitioned = PartitionedTopicRecord(
                partitions=count,
                policy=TopicPolicy() if stored is None else stored.value.policy,
                created_at=self._now,
                missing=tuple((n, n + 1) for n in missing),
            )
            operations.append(Put(key, partitioned))
        return operations

    @property
    def _salvages(self) -> bool:
        """Whether the journal is replaced."""
        return self.findings.journal != WHOLE

    def _next_offset(self, topic: _Topic) -> int:
        return topic.end + (SKIPPED_OFFSETS if self._salvages else 0)

    # Writing.

    async def write(self, operations: list[Operation]) -> None:
        """Carry out the plan: objects, then metadata, then the journal."""
        objects = DirectoryObjects(self._directory.objects)
        if self._salvages:
            for topic in self._topics.values():
                entries = await self._seal(topic, objects)
                operations += [record_segment(topic.topic_id, each) for each in entries]
        if not self._has_marker:
            assert self.findings.cluster_id is not None
            marker = ClusterMarker(cluster_id=self.findings.cluster_id)
            await objects.put(MARKER_NAME, msgspec.json.encode(marker))
        number = max(
            self._last_number, self._noted_end.number if self._noted_end else 0
        )
        end = self._journal_end
        if self._salvages or end is None:
            end = JournalPosition(number + 1, 0)
        record = JournalRecord(file_number=end.number, position=end.position)
        operations.append(Put(keys.JOURNAL, record))
        revision = await self._write_metadata(operations)
        if self._salvages:
            self._write_journal(end.number, revision)

    async def _seal(
        self, topic: _Topic, objects: DirectoryObjects
    ) -> list[SegmentEntry]:
        """Store what the journal alone has of a topic as segments."""
        identity = SegmentIdentity(
            topic=topic.name, topic_id=topic.topic_id, epoch=Epoch(topic.epoch + 1)
        )
        entries = []
        for run in topic.runs:
            for frames in _pieces(run, self._config.seal_bytes):
                data, entry = make_segment(
                    self._config, frames, identity, sealed_at=self._now
                )
                await objects.put(entry.object_name, data)
                entries.append(entry)
        return entries

    async def _write_metadata(self, operations: list[Operation]) -> int:
        """Write the records; return the revision of the metadata store."""
        path = self._directory.metadata
        revision = max(self._revision, self._state.metadata_revision) + 1
        is_new = self.findings.metadata.startswith("missing or damaged")
        target = path.with_name(path.name + _NEW) if is_new else path
        if is_new:
            for each in _metadata_files(target):
                each.unlink(missing_ok=True)
        else:
            _keep(self._directory, _metadata_files(path), is_copy=True)
        async with open_sqlite(target) as store:
            await store.transaction([], operations)
            await store.raise_revision(revision)
            revision = await store.revision()
        if is_new:
            _keep(self._directory, _metadata_files(path))
            target.rename(path)
            sync_directory(path.parent)
        return revision

    def _write_journal(self, number: int, revision: int) -> None:
        """Begin a new journal with what is known; the old one is kept."""
        new = self._directory.journal.with_name(f"journal{_NEW}")
        if new.exists():
            shutil.rmtree(new)
        state = JournalState(metadata_revision=revision)
        for topic in self._topics.values():
            end = Offset(self._next_offset(topic))
            known = topic.state
            state.topics[topic.topic_id] = TopicState(
                topic.name,
                Epoch(topic.epoch + 1),
                end,
                end,
                {} if known is None else known.cursors,
                {} if known is None else known.producers,
            )
        assert self.findings.cluster_id is not None
        write_journal(
            DirectoryFiles(new), number, bytes.fromhex(self.findings.cluster_id), state
        )
        _keep(self._directory, [self._directory.journal])
        new.rename(self._directory.journal)
        sync_directory(self._directory.path)


_NEW = ".recovered"
_KEPT = "replaced"


def _journal_contents(path: Path) -> dict[str, memoryview]:
    """What each journal file in the directory *path* has."""
    files = DirectoryFiles(path)
    names = (each for each in sorted(path.glob("*.journal")) if each.is_file())
    return {each.name: files.map(each.name) for each in names}


async def _read_all(store: SqliteStore) -> None:
    """Read every record that the recovery needs; one that is damaged raises."""
    prefixes: tuple[Prefix[Any], ...] = (
        keys.TOPICS,
        keys.DELETED_TOPICS,
        keys.EPOCHS,
        keys.SEGMENTS,
        keys.SUBSCRIPTIONS,
        keys.NAMESPACES,
        keys.PARTITIONED_TOPICS,
    )
    for prefix in prefixes:
        await store.scan(prefix)


def _read_segment(path: Path, name: str, parsed: ObjectName) -> _FoundSegment | None:
    """What the footer of a segment says; None if it is not that of a topic."""
    try:
        metadata = pq.read_metadata(path)
        footer = read_footer(metadata.metadata)
        if footer is None or (footer.base, footer.end) != (parsed.base, parsed.end):
            return None
        topic = metadata.metadata[b"danube.topic"].decode()
        TopicName.parse(topic)
        times = publish_times_of_metadata(metadata) or (0, 0)
        schema_id = _highest_schema_id(metadata)
    except (*UNREADABLE, InvalidName):
        return None
    entry = SegmentEntry(
        base=footer.base,
        end=footer.end,
        epoch=parsed.epoch,
        count=footer.count,
        byte_count=path.stat().st_size,
        object_name=name,
        first_publish_time=times[0],
        last_publish_time=times[1],
        sealed_at=path.stat().st_mtime_ns // 1000,
        # No checksums: they would confirm whatever the object holds now.  Without
        # them readers verify the checksums of the object's pages.
    )
    return _FoundSegment(topic, footer.topic_id, parsed, entry, schema_id)


def _highest_schema_id(metadata: pq.FileMetaData) -> int:
    highest = 0
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        for index in range(group.num_columns):
            column = group.column(index)
            statistics = column.statistics
            if column.path_in_schema == "schema_id" and statistics is not None:
                highest = max(highest, statistics.max if statistics.has_min_max else 0)
    return highest


def _overlap(one: SegmentEntry, other: SegmentEntry) -> bool:
    return one.base < other.end and other.base < one.end


def _covers(entries: Iterable[SegmentEntry], base: int, end: int) -> bool:
    """Whether *entries* together have all offsets of ``base … end``."""
    for entry in sorted(entries, key=lambda each: each.base):
        if entry.base <= base:
            base = max(base, entry.end)
    return base >= end


def _runs_of(frames: list[BatchFrame], sealed_end: int) -> list[list[BatchFrame]]:
    """*frames* from *sealed_end* on, as runs without gaps, in order."""
    runs: list[list[BatchFrame]] = []
    end = sealed_end
    for frame in frames:
        if frame.end <= end:
            continue
        rest = frame if frame.base >= end else frame.slice(end, frame.end)
        if runs and rest.base == end:
            runs[-1].append(rest)
        else:
            runs.append([rest])
        end = frame.end
    return runs


def _pieces(frames: list[BatchFrame], bytes_max: int) -> Iterator[list[BatchFrame]]:
    piece: list[BatchFrame] = []
    byte_count = 0
    for frame in frames:
        if piece and byte_count + frame.memory_bytes > bytes_max:
            yield piece
            piece, byte_count = [], 0
        piece.append(frame)
        byte_count += frame.memory_bytes
    yield piece


def _metadata_files(path: Path) -> list[Path]:
    return [
        path,
        path.with_name(path.name + "-wal"),
        path.with_name(path.name + "-shm"),
    ]


def _copy_metadata(directory: DataDirectory, copy: Path) -> None:
    """Copy the metadata store with its WAL; raise if there is none."""
    if not directory.metadata.stat().st_size:
        raise MetadataUnavailable(f"{directory.metadata} is empty")
    for source, target in zip(
        _metadata_files(directory.metadata)[:2], _metadata_files(copy)[:2], strict=True
    ):
        if source.exists():
            shutil.copyfile(source, target)


def _keep(
    directory: DataDirectory, paths: Iterable[Path], *, is_copy: bool = False
) -> None:
    """Move *paths* into a new directory below ``replaced/``, or copy them there."""
    there = [path for path in paths if path.exists()]
    if not there:
        return
    kept = directory.path / _KEPT
    kept.mkdir(mode=0o700, exist_ok=True)
    target = Path(tempfile.mkdtemp(prefix=f"{wall_clock_us()}-", dir=kept))
    for path in there:
        if is_copy:
            shutil.copy2(path, target / path.name)
        else:
            path.rename(target / path.name)
    sync_directory(target)
    sync_directory(directory.path)


def _finish_renames(directory: DataDirectory) -> None:
    """Finish a run that was cut short between moving a part away and replacing it."""
    for path in (directory.journal, directory.metadata):
        new = path.with_name(path.name + _NEW)
        if new.exists() and not path.exists():
            new.rename(path)
    sync_directory(directory.path)
