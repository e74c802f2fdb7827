"""The entry point of ``danube recover``, and the changes that it makes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydanube.model.errors import InconsistentDirectory, InvalidConfig
from pydanube.model.ids import Epoch, Offset
from pydanube.model.names import TopicName
from pydanube.model.policy import SubscriptionType, TopicPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.objects.directory import DirectoryObjects, sync_directory
from pydanube.objects.store import wall_clock_us
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.segment_format import SegmentIdentity
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import Key
from pydanube_broker.metadata.records import (
    ClusterRecord,
    JournalRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    SubscriptionRecord,
    TopicRecord,
)
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.metadata.store import Delete, MetadataStore, Operation, Put
from pydanube_broker.servers.directories.directory import DataDirectory
from pydanube_broker.servers.directories.identity import write_marker
from pydanube_broker.servers.recovery.contents import (
    DirectoryContents,
    RecoveredTopic,
    RecoveryReport,
    TopicReport,
    metadata_files,
)
from pydanube_broker.servers.settings.process_config import has_processes
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.files import DirectoryFiles
from pydanube_broker.storage.journal.journal_writer import write_journal
from pydanube_broker.storage.journal.recovery import JournalPosition
from pydanube_broker.storage.journal.state import JournalState, TopicState
from pydanube_broker.storage.segments.sealing import write_segment_object

_NEW = ".recovered"
_REPLACED = "replaced"


async def recover_directory(
    directory: DataDirectory,
    config: StorageConfig,
    *,
    from_segments: bool,
    accept_loss: bool,
    write: bool,
) -> RecoveryReport:
    """
    Examine *directory*, and repair it if *write* is true.

    The caller must hold the directory's lock.

    Raises:
        InvalidConfig: The journal is not in the directory, or is that of several
            processes.
        InconsistentDirectory: The repair needs *from_segments* or *accept_loss*, or
            the parts belong to different clusters.
    """
    if config.journal.kind != "local":
        raise InvalidConfig(
            f"the journal is in {config.journal_url} (storage.journal.kind is "
            f"{config.journal.kind!r}), and danube recover repairs only data "
            "directories with a local journal. A broker with this journal needs no "
            "files in its data directory: start it with a new one and the same "
            "metadata store. If the metadata store is lost or damaged, put its newest "
            "copy back: one that is older than the journal is refused. If there is "
            "none, restore the newest backup with 'danube backup restore'"
        )
    if has_processes(directory.path):
        raise InvalidConfig(
            f"several processes have used {directory.path} (processes.count), and it "
            "must have the form of one process before it is examined: run "
            f"'danube recover --data-dir {directory.path}' without --dry-run"
        )
    if write:
        _finish_renames(directory)
    contents = DirectoryContents(directory, config)
    async with contents.reading_metadata() as store:
        await contents.read(store)
        operations = await _plan(contents, store)
    report = contents.report
    if not write:
        return report
    for is_needed, is_allowed, flag in (
        (report.needs_from_segments, from_segments, "--from-segments"),
        (report.needs_accept_loss, accept_loss, "--accept-loss"),
    ):
        if is_needed and not is_allowed:
            raise InconsistentDirectory(
                f"{directory.path} cannot be recovered without {flag}: the metadata "
                f"store is {report.metadata}; the journal is {report.journal}; the "
                f"object store is {report.objects}; the remote object store: "
                f"{report.remote}"
            )
    if report.needs_from_segments or report.needs_accept_loss:
        await _write_changes(contents, operations)
        report.written = True
    return report


# The plan.


async def _plan(contents: DirectoryContents, store: MetadataStore) -> list[Operation]:
    """Return the changes of the metadata store, and complete the report."""
    cluster_id = contents.report.cluster_id
    assert cluster_id is not None
    cluster = ClusterRecord(cluster_id=cluster_id, created_at=contents.now)
    schema_ids = [
        *(each.schema_id for topic in contents.topics.values() for each in topic.found),
        *(
            frame.header.schema_id
            for frames in contents.journal.frames.values()
            for frame in frames
        ),
    ]
    operations: list[Operation] = [
        Put(keys.CLUSTER, cluster),
        await _raised(store, keys.LAST_TOPIC_ID, contents.topics),
        await _raised(store, keys.LAST_SCHEMA_ID, schema_ids),
    ]
    for topic in contents.topics.values():
        operations += await _plan_topic(contents, store, topic)
    operations += await _plan_names(contents, store)
    return operations


async def _raised(
    store: MetadataStore, counter: Key[int], known: Iterable[int]
) -> Operation:
    """Return the change that makes *counter* at least as high as all of *known*."""
    stored = await store.get(counter)
    return Put(counter, max([0 if stored is None else stored.value, *known]))


async def _plan_topic(
    contents: DirectoryContents, store: MetadataStore, topic: RecoveredTopic
) -> list[Operation]:
    operations: list[Operation] = []
    if topic.record is None:
        record = TopicRecord(
            topic_id=topic.topic_id, policy=TopicPolicy(), created_at=contents.now
        )
        operations.append(Put(keys.topic(TopicName.parse(topic.name)), record))
    operations.append(Put(keys.EPOCHS.key(topic.topic_id), topic.epoch + 1))
    kept = {entry.base: entry for entry in topic.kept}
    operations += [
        Delete(keys.segment(topic.topic_id, entry.base))
        for entry in topic.manifest
        if entry.base not in kept
    ]
    before = {entry.object_name for entry in topic.manifest}
    added = [each for each in topic.kept if each.object_name not in before]
    operations += [Put(keys.segment(topic.topic_id, each.base), each) for each in added]
    for name, cursor in (topic.state.cursors if topic.state else {}).items():
        key = keys.SUBSCRIPTIONS.key(topic.topic_id, name)
        if await store.get(key) is None and topic.record is None:
            topic.subscriptions[name] = cursor.offset
            subscription = SubscriptionRecord(
                type=SubscriptionType.EXCLUSIVE, created_at=contents.now
            )
            operations.append(Put(key, subscription))
    runs = topic.runs if contents.replaces_journal else []
    salvaged = sum(frame.header.count for run in runs for frame in run)
    bases = [each.base for each in topic.kept]
    bases += [run[0].base for run in topic.runs]
    contents.report.topics.append(
        TopicReport(
            topic=topic.name,
            topic_id=topic.topic_id,
            is_rebuilt=topic.record is None,
            segments=len(topic.kept),
            rebuilt_segments=len(added),
            base=min(bases, default=None),
            end=topic.end,
            salvaged=salvaged,
            next_offset=contents.next_offset(topic),
            subscriptions=topic.subscriptions,
        )
    )
    return operations


async def _plan_names(
    contents: DirectoryContents, store: MetadataStore
) -> list[Operation]:
    """Return the changes for namespaces and partitioned topics of rebuilt topics."""
    operations: list[Operation] = []
    names = [
        TopicName.parse(topic.name)
        for topic in contents.topics.values()
        if topic.record is None
    ]
    for namespace in sorted({name.namespace for name in names}):
        if await store.get(keys.NAMESPACES.key(namespace)) is None:
            record = NamespaceRecord(created_at=contents.now)
            operations.append(Put(keys.NAMESPACES.key(namespace), record))
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
            created_at=contents.now,
            missing=tuple((n, n + 1) for n in missing),
        )
        operations.append(Put(key, partitioned))
    return operations


# The changes.


async def _write_changes(
    contents: DirectoryContents, operations: list[Operation]
) -> None:
    """Carry out the plan: objects, then metadata, then the journal."""
    objects = DirectoryObjects(contents.directory.objects)
    if contents.replaces_journal:
        for topic in contents.topics.values():
            entries = await _seal(contents, topic, objects)
            operations += [
                Put(keys.segment(topic.topic_id, each.base), each) for each in entries
            ]
    if not contents.has_marker:
        assert contents.report.cluster_id is not None
        await write_marker(objects, contents.report.cluster_id)
    end = contents.journal_end
    if contents.replaces_journal or not contents.journal.files:
        noted = contents.noted_end.number if contents.noted_end else 0
        end = JournalPosition(max(end.number, noted) + 1, 0)
    record = JournalRecord(file_number=end.number, position=end.position, kind="local")
    operations.append(Put(keys.JOURNAL, record))
    revision = await _write_metadata(contents, operations)
    if contents.replaces_journal:
        _write_journal(contents, end.number, revision)


async def _seal(
    contents: DirectoryContents, topic: RecoveredTopic, objects: DirectoryObjects
) -> list[SegmentEntry]:
    """Store the messages of a topic that only the journal has as segments."""
    identity = SegmentIdentity(
        topic=topic.name, topic_id=topic.topic_id, epoch=Epoch(topic.epoch + 1)
    )
    entries = []
    for run in topic.runs:
        for frames in _pieces(run, contents.config.seal_bytes):
            new = objects.new_object()
            entry = write_segment_object(
                contents.config, frames, identity, new, sealed_at=contents.now
            )
            try:
                await objects.put_new(entry.object_name, new)
            finally:
                new.discard()
            entries.append(entry)
    return entries


async def _write_metadata(
    contents: DirectoryContents, operations: list[Operation]
) -> int:
    """Write the records, and return the revision of the metadata store."""
    path = contents.directory.metadata
    revision = max(contents.revision, contents.journal.state.metadata_revision) + 1
    is_new = contents.report.metadata.startswith("missing or damaged")
    target = path.with_name(path.name + _NEW) if is_new else path
    if is_new:
        for each in metadata_files(target):
            each.unlink(missing_ok=True)
    else:
        preserve(contents.directory, metadata_files(path), is_copy=True)
    async with open_sqlite(target) as store:
        await store.transaction([], operations)
        await store.raise_revision(revision)
        revision = await store.revision()
    if is_new:
        preserve(contents.directory, metadata_files(path))
        target.rename(path)
        sync_directory(path.parent)
    return revision


def _write_journal(contents: DirectoryContents, number: int, revision: int) -> None:
    """Write a new journal with the known state, and preserve the old one."""
    new = contents.directory.journal.with_name(f"journal{_NEW}")
    if new.exists():
        shutil.rmtree(new)
    state = JournalState(metadata_revision=revision)
    for topic in contents.topics.values():
        end = Offset(contents.next_offset(topic))
        known = topic.state
        state.topics[topic.topic_id] = TopicState(
            topic.name,
            Epoch(topic.epoch + 1),
            end,
            end,
            {} if known is None else known.cursors,
            {} if known is None else known.producers,
        )
    assert contents.report.cluster_id is not None
    write_journal(
        DirectoryFiles(new), number, bytes.fromhex(contents.report.cluster_id), state
    )
    preserve(contents.directory, [contents.directory.journal])
    new.rename(contents.directory.journal)
    sync_directory(contents.directory.path)


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


def preserve(
    directory: DataDirectory, paths: Iterable[Path], *, is_copy: bool = False
) -> None:
    """Move *paths* into a new directory below ``replaced/``, or copy them there."""
    there = [path for path in paths if path.exists()]
    if not there:
        return
    kept = directory.path / _REPLACED
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
    """Finish a run that was interrupted while it replaced a part."""
    for path in (directory.journal, directory.metadata):
        new = path.with_name(path.name + _NEW)
        if new.exists() and not path.exists():
            new.rename(path)
    sync_directory(directory.path)
