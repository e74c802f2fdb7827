"""Reading of segments in tasks; all reads are verified with checksums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pydanube.model.descriptions import Segment
from pydanube.model.errors import CorruptSegment
from pydanube.wire.files.segment_checksums import (
    UNREADABLE,
    SegmentDamaged,
    SegmentIndex,
)
from pydanube.wire.files.segment_format import FIRST_SCHEMA, SCHEMA


@contextmanager
def open_segment(segment: Segment) -> Iterator[pq.ParquetFile]:
    """
    Open the file of *segment* and verify all reads with its checksums.

    Raises:
        FileNotFoundError: The file does not exist.
        OSError, pyarrow.ArrowException, ValueError: The file is damaged or unreadable.
    """
    filesystem, path = fs.FileSystem.from_uri(segment.url)
    with filesystem.open_input_file(path) as file:
        reader = SegmentIndex(file, segment).open(file)
        if reader.metadata.num_rows != segment.count:
            raise SegmentDamaged(
                f"it has {reader.metadata.num_rows} messages, the manifest says "
                f"{segment.count}"
            )
        yield reader


@contextmanager
def open_existing_segment(topic: str, segment: Segment) -> Iterator[pq.ParquetFile]:
    """
    Open the file of *segment*, which must exist, and check its columns, too.

    Raises:
        CorruptSegment: The file is missing, unreadable or another one.
    """
    with ExitStack() as stack:
        try:
            with reading_segment(topic, segment):
                file = stack.enter_context(open_segment(segment))
                schema = file.schema_arrow
                if not (schema.equals(SCHEMA) or schema.equals(FIRST_SCHEMA)):
                    raise SegmentDamaged("it has unknown columns")
        except FileNotFoundError as error:
            raise _corrupt(topic, segment, "it is missing") from error
        yield file


def read_row_groups(
    topic: str,
    segment: Segment,
    file: pq.ParquetFile,
    names: list[str] | None = None,
) -> Iterator[pa.Table]:
    """
    Yield the row groups with the columns *names*, or with all current columns.

    Raises:
        CorruptSegment: A row group is damaged or unreadable.
    """
    for index in range(file.num_row_groups):
        with reading_segment(topic, segment):
            table = file.read_row_group(index, names, use_threads=False)
        if names is None and table.num_columns < len(SCHEMA):
            for field in list(SCHEMA)[table.num_columns :]:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        yield table


@contextmanager
def reading_segment(
    topic: str, segment: Segment, offsets: tuple[int, int] | None = None
) -> Iterator[None]:
    """
    Name *segment* in errors of the body, which reads its *offsets*; None: all.

    Raises:
        CorruptSegment: The file is damaged or unreadable.
        FileNotFoundError: The file does not exist.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
        raise _corrupt(topic, segment, error, offsets) from error


def _corrupt(
    topic: str,
    segment: Segment,
    problem: object,
    offsets: tuple[int, int] | None = None,
) -> CorruptSegment:
    base, end = offsets or (segment.base, segment.end)
    return CorruptSegment(
        f"{topic}: the segment {segment.url}, offsets {base} to {end}, cannot be read: "
        f"{problem}",
        offsets=(base, end),
    )
