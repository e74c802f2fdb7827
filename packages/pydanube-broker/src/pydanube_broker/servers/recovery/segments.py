"""The segments that a recovery finds in the object store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq

from pydanube.aio.tasks import gather
from pydanube.model.errors import InvalidName
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.wire.files.segment_checksums import UNREADABLE
from pydanube.wire.files.segment_format import (
    PARTS,
    ObjectName,
    parse_object_name,
    read_footer,
)
from pydanube.wire.files.segment_ranges import BytesMissing, RangeFile
from pydanube_broker.servers.directories.directory import DataDirectory
from pydanube_broker.storage.segments.segments import publish_times_of_metadata

_FOOTER_BYTES = 64 * 1024
"""How much Arrow reads of the end of a file."""

_REQUESTS_MAX = 16
"""How many remote segments are read at the same time."""


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment in the object store, as described by its name and footer."""

    topic: str
    topic_id: int
    name: ObjectName
    entry: SegmentEntry
    schema_id: int


def find_segments(
    directory: DataDirectory, unreadable: list[str]
) -> Iterator[FoundSegment]:
    """Yield all segments, and add the names of unreadable objects to *unreadable*."""
    objects = directory.objects
    for path in sorted(objects.rglob("*")) if objects.is_dir() else ():
        name = path.relative_to(objects).as_posix()
        parsed = parse_object_name(name)
        if parsed is None or name.startswith(f"{PARTS}/") or _is_topic(path):
            continue
        # Opening a pipe, for example, could wait for ever.
        found = _read_segment(path, name, parsed) if path.is_file() else None
        if found is None:
            unreadable.append(name)
        else:
            yield found


def _is_topic(path: Path) -> bool:
    """Return whether *path* is the directory of a topic named like a segment."""
    return path.is_dir() and any(path.iterdir())


def choose_segments(
    manifest: Sequence[SegmentEntry], found: Sequence[FoundSegment]
) -> list[SegmentEntry]:
    """Return the segments of a topic, from its manifest and the object store."""
    there = {each.entry.object_name for each in found}
    recorded = {entry.object_name for entry in manifest}
    kept = [entry for entry in manifest if entry.object_name in there]
    others = [each for each in found if each.entry.object_name not in recorded]
    # If two segments overlap, the one with the higher epoch is valid.
    sealed = [each for each in others if each.name.run is None]
    for each in sorted(sealed, key=lambda one: (-one.entry.epoch, one.entry.base)):
        if not any(_overlap(each.entry, entry) for entry in kept):
            kept.append(each.entry)
    # Segments of a maintenance run count only if the segments that they replace are
    # gone.
    made = [each for each in others if each.name.run is not None]
    made.sort(key=lambda one: (str(one.name.run), one.entry.base))
    runs = [list(group) for _, group in groupby(made, key=lambda one: one.name.run)]
    runs.sort(key=lambda run: run[0].name.run.started_at if run[0].name.run else 0)
    for run in runs:
        base, end = run[0].entry.base, run[-1].entry.end
        if not _covers(kept, base, end):
            kept = [each for each in kept if each.end <= base or each.base >= end]
            kept += [each.entry for each in run]
    # A recorded segment that is missing stays in the manifest; reading it fails.
    kept += [
        entry
        for entry in manifest
        if entry.object_name not in there
        and not any(_overlap(entry, each) for each in kept)
    ]
    return sorted(kept, key=lambda entry: entry.base)


async def find_remote_segments(
    objects: Objects, known: Collection[str], unreadable: list[str]
) -> list[FoundSegment]:
    """
    Return the segments in the remote store *objects* that are not *known* locally.

    Adds the URLs of unreadable ones to *unreadable*.

    Raises:
        ObjectsUnavailable: The store does not answer.
    """
    names = [name for name in await objects.names("") if name not in known]
    found: list[FoundSegment] = []
    for at in range(0, len(names), _REQUESTS_MAX):
        some = names[at : at + _REQUESTS_MAX]
        read = await gather(_read_remote_segment(objects, name) for name in some)
        found += [each for each in read if each is not None]
        unreadable += [
            objects.url(name)
            for name, each in zip(some, read, strict=True)
            if each is None and parse_object_name(name) is not None
        ]
    return found


async def _read_remote_segment(objects: Objects, name: str) -> FoundSegment | None:
    """Read the footer of a remote segment; return None if it is not that of a topic."""
    parsed = parse_object_name(name)
    info = None if parsed is None else await objects.stat(name)
    if parsed is None or info is None:
        return None
    begin, size = max(0, info.byte_count - _FOOTER_BYTES), info.byte_count
    while True:
        data = await objects.read(name, begin, size)
        if data is None:
            return None
        try:
            found = _describe(
                RangeFile(begin, data, size), name, parsed, size, info.modified_at
            )
        except BytesMissing as missing:
            # The footer is longer.
            begin = missing.span[0]
        else:
            if found is None:
                return None
            return replace(found, entry=replace(found.entry, is_uploaded=True))


def _read_segment(path: Path, name: str, parsed: ObjectName) -> FoundSegment | None:
    """Read the footer of a segment; return None if it is not that of a topic."""
    status = path.stat()
    modified_at = status.st_mtime_ns // 1000
    return _describe(path, name, parsed, status.st_size, modified_at)


def _describe(
    source: Path | RangeFile,
    name: str,
    parsed: ObjectName,
    byte_count: int,
    modified_at: int | None,
) -> FoundSegment | None:
    try:
        metadata = pq.read_metadata(source)
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
        byte_count=byte_count,
        object_name=name,
        first_publish_time=times[0],
        last_publish_time=times[1],
        sealed_at=times[1] if modified_at is None else modified_at,
        # Checksums of the current bytes would prove nothing.  Without them readers
        # verify the checksums of the object's pages.
    )
    return FoundSegment(topic, footer.topic_id, parsed, entry, schema_id)


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
    """Return whether *entries* together have all offsets of ``base … end``."""
    for entry in sorted(entries, key=lambda each: each.base):
        if entry.base <= base:
            base = max(base, entry.end)
    return base >= end
