"""Verification of whole segments against the manifest and their footers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pydanube.model.errors import CorruptSegment
from pydanube.reader.segment_files import open_existing_segment, read_row_groups
from pydanube.tables.maintenance.object_files import checksum_of
from pydanube.wire.files.segment_format import read_footer

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from pydanube.model.descriptions import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyJob:
    """A job that reads a whole segment and compares it with the manifest."""

    topic: str
    topic_id: int
    segment: Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """The result of a VerifyJob."""

    object_name: str
    byte_count: int
    count: int
    has_checksum: bool
    """True if the manifest has a checksum; otherwise only the footer is compared."""
    problem: str | None
    """The first problem of the segment, if any."""


def verify(job: VerifyJob) -> VerifyResult:
    """Run *job*; problems are returned, not raised."""
    segment = job.segment
    problem: str | None = None
    try:
        checksum, byte_count = checksum_of(segment.url)
        problem = _problem_of_bytes(segment, checksum, byte_count)
        if problem is None:
            with open_existing_segment(job.topic, segment) as file:
                problem = _problem_of_rows(job, file)
    except (CorruptSegment, OSError) as error:
        problem = str(error)
    return VerifyResult(
        object_name=segment.object_name,
        byte_count=segment.byte_count,
        count=segment.count,
        has_checksum=segment.checksum is not None,
        problem=problem,
    )


def _problem_of_bytes(segment: Segment, checksum: int, byte_count: int) -> str | None:
    if byte_count != segment.byte_count:
        return f"it has {byte_count} bytes, the manifest says {segment.byte_count}"
    if segment.checksum is not None and checksum != segment.checksum:
        return (
            f"its checksum is {checksum:#010x}, the manifest says "
            f"{segment.checksum:#010x}"
        )
    return None


def _problem_of_rows(job: VerifyJob, file: pq.ParquetFile) -> str | None:
    segment = job.segment
    footer = read_footer(file.metadata.metadata)
    if footer is None or footer.topic_id != job.topic_id:
        return f"its footer does not name the topic id {job.topic_id}"
    if (footer.base, footer.end, footer.count) != (
        segment.base,
        segment.end,
        segment.count,
    ):
        return (
            f"its footer says {footer.count} messages of {footer.base} … {footer.end}, "
            f"the manifest says {segment.count} of {segment.base} … {segment.end}"
        )
    position = segment.base
    for table in read_row_groups(job.topic, segment, file):
        table.validate(full=True)
        offsets = table.column("offset").combine_chunks()
        steps = pc.subtract(offsets.slice(1), offsets.slice(0, len(offsets) - 1))
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        smallest = pc.min(steps).as_py()
        if first < position or last >= segment.end or (smallest or 1) < 1:
            return f"its offsets {first} … {last + 1} do not rise within the segment"
        position = last + 1
    return None
