"""
Replacing segments of a topic by others with the same messages, or with fewer.

The program that wrote the new objects (see docs/guide/maintenance.md) is not trusted:
storage reads every object and compares it with its description before the manifest
names it.  ``verify_replacement`` reads one object and waits for the disk;
``plan_replacement``, which is pure, compares the result with the old segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.model.arrow import pc
from pydanube.model.errors import CorruptSegment, InvalidRequest, SegmentsChanged
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.wire.files.segment_checksums import (
    UNREADABLE,
    file_checksum,
    part_checksums_of,
)
from pydanube.wire.files.segment_format import (
    SCHEMA,
    SegmentFooter,
    object_prefix,
    parse_object_name,
    read_footer,
)
from pydanube_broker.storage.segments.segments import (
    SegmentReader,
    publish_times_of_metadata,
)

REPLACED_MAX = 100
"""The most segments replaced at once, because of the size of a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """An object that is to replace segments, as its writer describes it."""

    object_name: str
    byte_count: int
    checksum: int
    """CRC-32C of the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedReplacement:
    """The verified content of a replacement."""

    entry: SegmentEntry
    """Its entry for the manifest, with 0 for ``sealed_at``."""
    topic_id: int
    last_offset: int | None
    """The offset of the last message; None if there is no message."""
    has_times: bool
    """Whether the publish times of the entry are known; otherwise they are 0."""


def verify_replacement(
    replacement: Replacement, source: Callable[[], Any]
) -> VerifiedReplacement:
    """
    Read and verify the whole object that *source* opens.

    Raises:
        SegmentsChanged: The object does not exist.
        InvalidRequest: The object is not a segment, or differs from the description.
    """
    name = replacement.object_name
    try:
        with source() as file:
            checksum, byte_count = file_checksum(file)
            if (checksum, byte_count) != (replacement.checksum, replacement.byte_count):
                raise InvalidRequest(
                    f"the object {name} has {byte_count} bytes and the checksum "
                    f"{checksum:#010x}, expected {replacement.byte_count} bytes and "
                    f"{replacement.checksum:#010x}"
                )
            part_checksums = part_checksums_of(file)
        with pq.ParquetFile(source()) as parquet:
            footer = read_footer(parquet.metadata.metadata)
            if footer is None or not parquet.schema_arrow.equals(SCHEMA):
                raise InvalidRequest(
                    f"the object {name} is not a segment of this version"
                )
            times = publish_times_of_metadata(parquet.metadata)
            entry = _entry(replacement, footer, times or (0, 0), part_checksums)
            # The reader compares the footer's offsets with those of the row groups.
            reader = SegmentReader(entry, source, frame_bytes=1)
            for index in range(parquet.num_row_groups):
                _check_offsets(parquet.read_row_group(index, ["offset"]), name)
    except FileNotFoundError as error:
        raise SegmentsChanged(
            f"the object {name} does not exist any more; run the maintenance again"
        ) from error
    except (*UNREADABLE, CorruptSegment) as error:
        raise InvalidRequest(f"the object {name} cannot be read: {error}") from error
    return VerifiedReplacement(
        entry=entry,
        topic_id=footer.topic_id,
        last_offset=reader.last_offset,
        has_times=times is not None,
    )


def _check_offsets(group: pa.Table, name: str) -> None:
    offsets = group.column("offset").combine_chunks()
    steps = pc.subtract(offsets.slice(1), offsets.slice(0, len(offsets) - 1))
    if len(steps) and pc.min(steps).as_py() < 1:
        raise InvalidRequest(f"the offsets in {name} do not rise")


def plan_replacement(
    segments: Sequence[SegmentEntry],
    old_names: Sequence[str],
    new: Sequence[VerifiedReplacement],
    *,
    topic: str,
    topic_id: int,
    epoch: int,
    root: str,
    now: int,
) -> tuple[tuple[SegmentEntry, ...], tuple[SegmentEntry, ...]]:
    """
    Return those of a topic's *segments* that are replaced, and their replacements.

    Raises:
        SegmentsChanged: The topic does not have all the old segments any more.
        InvalidRequest: The new objects cannot replace them.
    """
    if not old_names or not new:
        raise InvalidRequest("name at least one old and one new segment")
    if len(old_names) > REPLACED_MAX or len(new) > REPLACED_MAX:
        raise InvalidRequest(f"at most {REPLACED_MAX} segments are replaced at once")
    names = [segment.object_name for segment in segments]
    at = names.index(old_names[0]) if old_names[0] in names else 0
    old = tuple(segments[at : at + len(old_names)])
    if [each.object_name for each in old] != list(old_names):
        raise SegmentsChanged(
            f"{topic} does not have all the segments that are to be replaced any more; "
            "run the maintenance again"
        )
    borders = [(each.entry.base, each.entry.end) for each in new]
    chain = [old[0].base, *(end for _, end in borders)]
    if chain != [*(base for base, _ in borders), old[-1].end] or any(
        base >= end for base, end in borders
    ):
        raise InvalidRequest(
            f"the new segments of {topic} have the offsets {borders}; they must follow "
            f"each other from {old[0].base} to {old[-1].end}"
        )
    for each in new:
        _check_name(each.entry, names, object_prefix(root, topic), epoch)
        if each.topic_id != topic_id:
            raise InvalidRequest(
                f"the object {each.entry.object_name} is of topic {each.topic_id}, not "
                f"of {topic_id}"
            )
    before, after = sum(e.count for e in old), sum(e.entry.count for e in new)
    if after > before:
        raise InvalidRequest(f"{after} messages cannot take the place of {before}")
    if at + len(old) == len(segments) and new[-1].last_offset != old[-1].end - 1:
        raise InvalidRequest(
            f"the newest message of {topic} that is in a segment, {old[-1].end - 1}, "
            "has to stay"
        )
    first = min(each.first_publish_time for each in old)
    last = max(each.last_publish_time for each in old)
    entries = [replace(each.entry, sealed_at=now) for each in new]
    return old, tuple(
        entry
        if each.has_times
        else replace(entry, first_publish_time=first, last_publish_time=last)
        for each, entry in zip(new, entries, strict=True)
    )


def _check_name(
    entry: SegmentEntry, present: Sequence[str], prefix: str, epoch: int
) -> None:
    name = entry.object_name
    parsed = parse_object_name(name)
    named = None if parsed is None else (parsed.base, parsed.end)
    if (
        parsed is None
        or parsed.run is None
        or parsed.epoch > epoch
        or named != (entry.base, entry.end)
        or name.rpartition("/")[0] + "/" != prefix
        or name in present
    ):
        raise InvalidRequest(
            f"{name} cannot be the name of a new segment with "
            f"{entry.base} … {entry.end} below {prefix}"
        )


def _entry(
    replacement: Replacement,
    footer: SegmentFooter,
    times: tuple[int, int],
    part_checksums: bytes,
) -> SegmentEntry:
    parsed = parse_object_name(replacement.object_name)
    return SegmentEntry(
        base=footer.base,
        end=footer.end,
        epoch=0 if parsed is None else parsed.epoch,
        count=footer.count,
        byte_count=replacement.byte_count,
        object_name=replacement.object_name,
        first_publish_time=times[0],
        last_publish_time=times[1],
        sealed_at=0,
        checksum=replacement.checksum,
        part_checksums=part_checksums,
    )
