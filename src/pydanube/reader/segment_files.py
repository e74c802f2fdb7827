"""Segments as Spark tasks open them: what is read is compared with its checksums."""

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
    """What the file of *segment* is compared with."""
    return SegmentFacts(
        byte_count=segment.byte_count,
        checksum=segment.checksum,
        part_checksums=segment.part_checksums,
    )


@contextmanager
def open_segment(url: str, facts: SegmentFacts) -> Iterator[pq.ParquetFile]:
    """
    Open the segment at *url*; what is read is compared with the checksums of *facts*.

    Raises:
        FileNotFoundError: There is no such file.
        OSError, pyarrow.ArrowException, ValueError: It is damaged or cannot be read.
    """
    filesystem, path = fs.FileSystem.from_uri(url)
    with filesystem.open_input_file(path) as file:
        yield SegmentIndex(file, facts).open(file)


@contextmanager
def reading_segment(topic: str, url: str, offsets: tuple[int, int]) -> Iterator[None]:
    """
    Name the segment in errors of the body, which reads *offsets* of it.

    Raises:
        CorruptSegment: It is damaged or cannot be read.
        FileNotFoundError: There is no such file.
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
    """The error of a segment that cannot be read because of *problem*."""
    return CorruptSegment(
        f"{topic}: the segment {url}, offsets {offsets[0]} to {offsets[1]}, cannot be "
        f"read: {problem}",
        offsets=offsets,
    )
