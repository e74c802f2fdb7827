"""Verification of whole segments against the manifest and their footers."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from pydanube.model.descriptions import Segment
from pydanube.model.errors import CorruptSegment, ObjectsUnavailable
from pydanube.wire.files.segment_checksums import file_checksum
from pydanube.wire.files.segment_format import read_footer
from pydanube_spark.reader.segment_files import (
    SegmentFile,
    open_existing_segment,
    open_file_of,
    read_row_groups,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyJob:
    """A job that reads a whole segment and compares it with the manifest."""

    topic: str
    topic_id: int
    segment: Segment


def verify(job: VerifyJob) -> str | None:
    """
    Return the first problem of the segment, if any.

    If the manifest has no checksum, only the footer is compared.
    """
    segment = job.segment
    try:
        with open_file_of(segment) as bytes_of_segment:
            checksum, byte_count = file_checksum(bytes_of_segment)
        # Opening the segment names a wrong length.
        is_whole = byte_count == segment.byte_count
        if is_whole and segment.checksum not in (None, checksum):
            return (
                f"its checksum is {checksum:#010x}, the manifest says "
                f"{segment.checksum:#010x}"
            )
        with open_existing_segment(job.topic, segment) as file:
            return _problem_of_rows(job, file)
    except (CorruptSegment, ObjectsUnavailable, OSError) as error:
        return str(error)


def _problem_of_rows(job: VerifyJob, file: SegmentFile) -> str | None:
    segment = job.segment
    footer = read_footer(file.parquet.metadata.metadata)
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
