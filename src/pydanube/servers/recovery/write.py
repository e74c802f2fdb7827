"""The changes that a recovery makes in a data directory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pydanube.metadata import keys
from pydanube.metadata.records import (
    JournalRecord,
)
from pydanube.metadata.sqlite import open_sqlite
from pydanube.metadata.store import Put
from pydanube.model.ids import Epoch, Offset
from pydanube.model.segments import SegmentEntry
from pydanube.servers.identity import MARKER_NAME, ClusterMarker
from pydanube.servers.recovery.contents import metadata_files
from pydanube.storage.files import DirectoryFiles, sync_directory
from pydanube.storage.journal_writer import write_journal
from pydanube.storage.objects import DirectoryObjects, wall_clock_us
from pydanube.storage.recovery import (
    JournalPosition,
)
from pydanube.storage.sealing import make_segment
from pydanube.storage.state import JournalState, TopicState
from pydanube.wire.files.segment_format import (
    SegmentIdentity,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydanube.metadata.store import Operation
    from pydanube.servers.directory import DataDirectory
    from pydanube.servers.recovery.contents import DirectoryContents, RecoveredTopic
    from pydanube.wire.batches import BatchFrame

_NEW = ".recovered"
_REPLACED = "replaced"


async def write_changes(
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
        marker = ClusterMarker(cluster_id=contents.report.cluster_id)
        await objects.put(MARKER_NAME, msgspec.json.encode(marker))
    number = max(
        contents.last_number, contents.noted_end.number if contents.noted_end else 0
    )
    end = contents.journal_end
    if contents.replaces_journal or end is None:
        end = JournalPosition(number + 1, 0)
    record = JournalRecord(file_number=end.number, position=end.position)
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
            data, entry = make_segment(
                contents.config, frames, identity, sealed_at=contents.now
            )
            await objects.put(entry.object_name, data)
            entries.append(entry)
    return entries


async def _write_metadata(
    contents: DirectoryContents, operations: list[Operation]
) -> int:
    """Write the records, and return the revision of the metadata store."""
    path = contents.directory.metadata
    revision = max(contents.revision, contents.state.metadata_revision) + 1
    is_new = contents.report.metadata.startswith("missing or damaged")
    target = path.with_name(path.name + _NEW) if is_new else path
    if is_new:
        for each in metadata_files(target):
            each.unlink(missing_ok=True)
    else:
        _preserve(contents.directory, metadata_files(path), is_copy=True)
    async with open_sqlite(target) as store:
        await store.transaction([], operations)
        await store.raise_revision(revision)
        revision = await store.revision()
    if is_new:
        _preserve(contents.directory, metadata_files(path))
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
    _preserve(contents.directory, [contents.directory.journal])
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


def _preserve(
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


def finish_renames(directory: DataDirectory) -> None:
    """Finish a run that was interrupted while it replaced a part."""
    for path in (directory.journal, directory.metadata):
        new = path.with_name(path.name + _NEW)
        if new.exists() and not path.exists():
            new.rename(path)
    sync_directory(directory.path)
