"""Reading of whole row groups of segments, with the current columns of segments."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from pydanube.reader.segment_files import (
    corrupt_segment,
    facts_of,
    open_segment,
    reading_segment,
)
from pydanube.wire.files.segment_format import FIRST_SCHEMA, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

    from pydanube.model.descriptions import Segment


@contextmanager
def open_checked(topic: str, segment: Segment) -> Iterator[pq.ParquetFile]:
    """
    Open the file of *segment* and verify all reads with its checksums.

    Raises:
        CorruptSegment: The file is missing, unreadable or another one.
    """
    url, offsets = segment.url, (segment.base, segment.end)
    with ExitStack() as stack:
        try:
            with reading_segment(topic, url, offsets):
                file = stack.enter_context(open_segment(url, facts_of(segment)))
        except FileNotFoundError as error:
            raise corrupt_segment(topic, url, offsets, "it is missing") from error
        schema, count = file.schema_arrow, file.metadata.num_rows
        if count != segment.count or not (
            schema.equals(SCHEMA) or schema.equals(FIRST_SCHEMA)
        ):
            raise corrupt_segment(
                topic,
                url,
                offsets,
                f"it has {count} messages or unknown columns; the manifest says "
                f"{segment.count} messages",
            )
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
        with reading_segment(topic, segment.url, (segment.base, segment.end)):
            table = file.read_row_group(index, names, use_threads=False)
        if names is None and table.num_columns < len(SCHEMA):
            for field in list(SCHEMA)[table.num_columns :]:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        yield table
