"""Opening segments in tasks; all reads are verified with checksums."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyarrow import fs

from pydanube.model.errors import CorruptSegment
from pydanube.wire.files.segment_checksums import UNREADABLE, SegmentFacts, SegmentIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

    from pydanube.model.descriptions import Segment


def facts_of(segment: Segment) -> SegmentFacts:
    """Return the size and checksums that the file of *segment* must have."""
    return SegmentFacts(
        byte_count=segment.byte_count,
        checksum=segment.checksum,
        part_checksums=segment.part_checksums,
    )


@contextmanager
def open_segment(url: str, facts: SegmentFacts) -> Iterator[pq.ParquetFile]:
    """
    Open the segment at *url* and verify all reads with the checksums of *facts*.

    Raises:
        FileNotFoundError: The file does not exist.
        OSError, pyarrow.ArrowException, ValueError: The file is damaged or unreadable.
    """
    filesystem, path = fs.FileSystem.from_uri(url)
    with filesystem.open_input_file(path) as file:
        yield SegmentIndex(file, facts).open(file)


@contextmanager
def reading_segment(topic: str, url: str, offsets: tuple[int, int]) -> Iterator[None]:
    """
    Name the segment in errors of the body, which reads its *offsets*.

    Raises:
        CorruptSegment: The file is damaged or unreadable.
        FileNotFoundError: The file does not exist.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
        raise corrupt_segment(topic, url, offsets, error) from error


def corrupt_segment(
    topic: str, url: str, offsets: tuple[int, int], problem: object
) -> CorruptSegment:
    """Return the error for a segment that cannot be read because of *problem*."""
    return CorruptSegment(
        f"{topic}: the segment {url}, offsets {offsets[0]} to {offsets[1]}, cannot be "
        f"read: {problem}",
        offsets=offsets,
    )
