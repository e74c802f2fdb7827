"""The parts of a data directory as a recovery reads and reports them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from pydanube.model.errors import (
    Corrupt,
    CorruptJournal,
    InconsistentDirectory,
    InvalidConfig,
    MetadataUnavailable,
    NewerJournal,
    ObjectsUnavailable,
)
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import wall_clock_us
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.segment_format import object_prefix, parse_object_name
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import Prefix
from pydanube_broker.metadata.records import TopicRecord
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.servers.directories.directory import DataDirectory
from pydanube_broker.servers.directories.identity import (
    journal_end_of,
    parse_marker,
    read_marker,
)
from pydanube_broker.servers.recovery.segments import (
    FoundSegment,
    choose_segments,
    find_remote_segments,
    find_segments,
)
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.files import DirectoryFiles
from pydanube_broker.storage.journal.recovery import (
    JournalPosition,
    Recovery,
    end_of,
    recover,
    salvage,
)
from pydanube_broker.storage.journal.state import SKIPPED_OFFSETS, TopicState
from pydanube_broker.storage.remote.tiered_objects import MARKER_NAME, open_remote

WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """The parts found of one topic, and how the topic continues."""

    topic: str
    topic_id: int
    is_rebuilt: bool
    """True if its record is missing in the metadata store."""
    segments: int
    rebuilt_segments: int
    """The number of segments whose records are missing in the metadata store."""
    base: int | None
    """The offset of the first message; None if there is no message."""
    end: int
    """The offset after the last message."""
    salvaged: int
    """The number of messages of the old journal that become segments."""
    next_offset: int
    """The offset of the next message; greater than *end* if messages may be lost."""
    subscriptions: dict[str, int]
    """The rebuilt subscriptions and their cursors."""

    @property
    def begin(self) -> int:
        """The offset of the first message, or of the next one if there is none."""
        return self.next_offset if self.base is None else self.base


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """The state of a data directory's parts, and the work that is needed."""

    directory: str
    cluster_id: str | None = None
    metadata: str = WHOLE
    """``whole``, or the problem."""
    journal: str = WHOLE
    objects: str = WHOLE
    remote: str = "none"
    """The remote object store, and what was found there."""
    needs_from_segments: bool = False
    needs_accept_loss: bool = False
    topics: list[TopicReport] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Objects that are not segments of a topic; they stay in place."""
    written: bool = False
    """True if the directory was changed."""


@dataclass(slots=True)
class RecoveredTopic:
    """One topic as described by all parts of the data directory."""

    topic_id: TopicId
    name: str
    record: TopicRecord | None
    manifest: tuple[SegmentEntry, ...]
    state: TopicState | None
    found: list[FoundSegment]
    epoch: int
    kept: list[SegmentEntry] = field(default_factory=list)
    """The segments that it will have, besides those of salvaged messages."""
    runs: list[list[BatchFrame]] = field(default_factory=list)
    """Messages of the journal that are not sealed, as ranges without gaps."""
    subscriptions: dict[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The offset after the last message that any part knows."""
        ends = [each.end for each in self.kept]
        ends += [each.end for each in self.manifest]
        ends += [each.entry.end for each in self.found]
        ends += [run[-1].end for run in self.runs]
        if self.state is not None:
            ends += [self.state.end_offset, self.state.sealed_offset]
            ends += [cursor.offset for cursor in self.state.cursors.values()]
        return max(ends, default=0)


class DirectoryContents:
    """The parts of a data directory; ``read`` reads them."""

    def __init__(self, directory: DataDirectory, config: StorageConfig) -> None:
        self.report = RecoveryReport(directory=str(directory.path))
        self.directory = directory
        self.config = config
        self.topics: dict[int, RecoveredTopic] = {}
        self.journal = Recovery()
        self.noted_end: JournalPosition | None = None
        self.revision = 0
        self.now = wall_clock_us()
        self.has_marker = False
        self._is_remote_unknown = False

    @asynccontextmanager
    async def reading_metadata(self) -> AsyncIterator[MetadataStore]:
        """Open a copy of the metadata store, or an empty store if it is unreadable."""
        with tempfile.TemporaryDirectory(prefix="danube-recover-") as scratch:
            copy = Path(scratch) / "metadata.sqlite"
            try:
                _copy_metadata(self.directory, copy)
                async with open_sqlite(copy) as store:
                    await _read_all(store)
            except (MetadataUnavailable, Corrupt, OSError) as error:
                self.report.metadata = f"missing or damaged ({error})"
                copy = Path(scratch) / "empty.sqlite"
            async with open_sqlite(copy) as store:
                yield store

    async def read(self, store: MetadataStore) -> None:
        """Read all parts, and add their problems to the report."""
        self.revision = await store.revision()
        cluster = await store.get(keys.CLUSTER)
        noted = await store.get(keys.JOURNAL)
        if noted is not None and noted.value.kind != "local":
            raise InvalidConfig(
                f"{self.directory.metadata} belongs to a broker whose journal is of "
                f"the kind {noted.value.kind!r}; name that broker's settings with "
                "--config"
            )
        if noted is not None:
            self.noted_end = journal_end_of(noted.value)
        journal_id = self._read_journal()
        marker = read_marker(self.directory, self._open_object)
        self.has_marker = marker is not None
        found = list(find_segments(self.directory, self.report.unreadable))
        if self.report.metadata == WHOLE:
            if self.journal.state.metadata_revision > self.revision:
                self.report.metadata = "older than the journal"
            elif (cluster, await store.get(keys.BROKER)) == (None, None) and (
                journal_id or found
            ):
                self.report.metadata = "empty"
            elif cluster is not None and marker is None and noted is not None:
                self.report.objects = f"missing or emptied (no {MARKER_NAME})"
        known = None if cluster is None else cluster.value.cluster_id
        remote_id = await self._read_remote(found)
        ids = {
            each for each in (known, journal_id, marker, remote_id) if each is not None
        }
        if len(ids) > 1:
            raise InconsistentDirectory(
                f"{self.directory.path}: the metadata store is of cluster {known}, "
                f"the journal of {journal_id}, the object store of {marker}, the "
                f"remote object store of {remote_id}; put the parts of one cluster "
                "together, or move the wrong one away"
            )
        self.report.cluster_id = next(iter(ids), os.urandom(16).hex())
        if journal_id is None and (known or marker or found):
            if noted is not None or marker is not None or found:
                self.report.journal = "missing"
        elif self.noted_end is not None and self.journal_end < self.noted_end:
            self.report.journal = (
                f"older than the metadata store (it ends before file {self.noted_end})"
            )
        await self._merge(store, found)
        report = self.report
        report.needs_from_segments = report.metadata != WHOLE
        report.needs_accept_loss = {report.journal, report.objects} != {
            WHOLE
        } or self._is_remote_unknown

    async def _read_remote(self, found: list[FoundSegment]) -> str | None:
        """
        Add the segments to *found* that only the remote store has.

        Returns the cluster id in the store, if it has any.
        """
        config, report = self.config.remote, self.report
        if not config.url:
            return None
        if report.metadata == WHOLE:
            report.remote = f"{config.url} (the metadata store knows its segments)"
            return None
        remote = open_remote(config)
        try:
            marker = await remote.read(MARKER_NAME)
            local = {each.entry.object_name for each in found}
            more = await find_remote_segments(remote, local, report.unreadable)
        except ObjectsUnavailable as error:
            self._is_remote_unknown = True
            report.remote = (
                "does not answer; the rebuilt metadata would lack all segments without "
                f"a local copy ({error})"
            )
            return None
        found += more
        report.remote = f"{config.url} ({len(more)} segments without a local copy)"
        if marker is None:
            return None
        return parse_marker(bytes(marker), f"{config.url}/{MARKER_NAME}")

    def _read_journal(self) -> str | None:
        """Read the journal as far as possible, and return its id."""
        if not self.directory.journal.is_dir():
            return None
        contents = _journal_contents(self.directory.journal)
        try:
            self.journal = recover(contents)
        except NewerJournal:
            raise
        except CorruptJournal as error:
            self.report.journal = f"damaged ({error})"
            self.journal = salvage(contents)
        journal_id = self.journal.journal_id
        return None if journal_id is None else journal_id.hex()

    def _open_object(self, name: str) -> BinaryIO:
        # DirectoryObjects would change the directory.
        return (self.directory.objects / name).open("rb")

    async def _merge(self, store: MetadataStore, found: list[FoundSegment]) -> None:
        """Merge the descriptions of each topic."""
        records = {
            stored.value.topic_id: (keys.TOPICS.name_of(path), stored.value)
            for path, stored in await store.scan(keys.TOPICS)
        }
        deleted = {
            stored.value.topic_id for _, stored in await store.scan(keys.DELETED_TOPICS)
        }
        manifest = MetadataManifest(store)
        by_id: dict[int, list[FoundSegment]] = {}
        for each in found:
            by_id.setdefault(each.topic_id, []).append(each)
        numbers = {
            *(
                number
                for number, (_, each) in records.items()
                if each.policy.is_reliable
            ),
            *self.journal.state.topics,
            *by_id,
        }
        for number in sorted(numbers - deleted):
            topic_id, segments = TopicId(number), by_id.get(number, [])
            state = self.journal.state.topics.get(topic_id)
            path, record = records.get(number, ("", None))
            name = f"/{path}" if record is not None else ""
            name = name or (state.name if state is not None else segments[-1].topic)
            epoch = await store.get(keys.EPOCHS.key(topic_id))
            topic = RecoveredTopic(
                topic_id,
                name,
                record,
                await manifest.load(topic_id),
                state,
                segments,
                epoch=max(
                    0 if epoch is None else epoch.value,
                    state.epoch if state is not None else 0,
                    *(each.entry.epoch for each in segments),
                ),
            )
            topic.kept = choose_segments(topic.manifest, topic.found)
            sealed_end = topic.kept[-1].end if topic.kept else 0
            topic.runs = _runs_of(self.journal.frames.get(topic_id, []), sealed_end)
            self.topics[number] = topic
        self._drop_replaced_topics()
        for topic in self.topics.values():
            self._keep_unreadable_segments(topic)
        for topic in self.topics.values():
            journal_end = 0 if topic.state is None else topic.state.end_offset
            behind = [each for each in topic.found if each.entry.end > journal_end]
            if behind and self.report.journal == self.report.objects == WHOLE:
                self.report.journal = (
                    f"older than the object store (it ends before "
                    f"{behind[-1].entry.object_name})"
                )
            extra = {entry.object_name for entry in topic.kept}
            extra -= {entry.object_name for entry in topic.manifest}
            if behind and extra and self.report.metadata == WHOLE:
                self.report.metadata = "older than the object store"

    def _keep_unreadable_segments(self, topic: RecoveredTopic) -> None:
        """Keep segments without which messages would be missing; reading them fails."""
        prefix = object_prefix(self.config.root, topic.name)
        frames = self.journal.frames.get(topic.topic_id, [])
        for name in self.report.unreadable:
            parsed = parse_object_name(name)
            if parsed is None or not name.startswith(prefix) or parsed.end > topic.end:
                continue
            entry = SegmentEntry(
                base=parsed.base,
                end=parsed.end,
                epoch=parsed.epoch,
                count=parsed.end - parsed.base,
                byte_count=(self.directory.objects / name).stat().st_size,
                object_name=name,
                first_publish_time=0,
                last_publish_time=0,
                sealed_at=self.now,
            )
            known = [(each.base, each.end) for each in topic.kept]
            known += [(each.base, each.end) for each in frames]
            if all(end <= entry.base or entry.end <= base for base, end in known):
                topic.kept.append(entry)
        topic.kept.sort(key=lambda entry: entry.base)

    def _drop_replaced_topics(self) -> None:
        """Drop all but the newest topic of each name."""
        by_name: dict[str, int] = {}
        for number, topic in list(self.topics.items()):
            before = by_name.get(topic.name)
            if before is not None:
                self.report.unreadable += [
                    each.entry.object_name for each in self.topics[before].found
                ]
                del self.topics[before]
            by_name[topic.name] = number

    @property
    def journal_end(self) -> JournalPosition:
        """The position after the last entry of the journal; 0 of file 0 without one."""
        files = self.journal.files
        return end_of(files[-1]) if files else JournalPosition(0, 0)

    @property
    def replaces_journal(self) -> bool:
        """True if a new journal replaces the old one."""
        return self.report.journal != WHOLE

    def next_offset(self, topic: RecoveredTopic) -> int:
        """Return the offset of the next message of *topic*."""
        return topic.end + (SKIPPED_OFFSETS if self.replaces_journal else 0)


def _runs_of(frames: list[BatchFrame], sealed_end: int) -> list[list[BatchFrame]]:
    """Return *frames* from *sealed_end* on, in order, as ranges without gaps."""
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


def _journal_contents(path: Path) -> dict[str, memoryview]:
    """Return the contents of the journal files in the directory *path* by name."""
    files = DirectoryFiles(path)
    names = (each for each in sorted(path.glob("*.journal")) if each.is_file())
    return {each.name: files.map(each.name) for each in names}


async def _read_all(store: MetadataStore) -> None:
    """Read every record that the recovery needs; a damaged record raises."""
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


def metadata_files(path: Path) -> list[Path]:
    """Return the paths of an SQLite database and its auxiliary files."""
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
        metadata_files(directory.metadata)[:2], metadata_files(copy)[:2], strict=True
    ):
        if source.exists():
            shutil.copyfile(source, target)
