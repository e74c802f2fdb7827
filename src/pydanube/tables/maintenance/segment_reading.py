"""How jobs read segments: whole row groups, with the columns that segments have now."""

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
    The file of *segment*, for reading; what is read is compared with its checksums.

    Raises:
        CorruptSegment: It cannot be open_checked, or is another one.
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
                f"expected {segment.count} messages with the columns of a segment, it "
                f"has {count}",
            )
        yield file


def read_row_groups(
    topic: str,
    segment: Segment,
    file: pq.ParquetFile,
    names: list[str] | None = None,
) -> Iterator[pa.Table]:
    """
    The row groups with the columns *names*, or with all that segments have now.

    Raises:
        CorruptSegment: One of them is damaged, or cannot be read.
    """
    for index in range(file.num_row_groups):
        with reading_segment(topic, segment.url, (segment.base, segment.end)):
            table = file.read_row_group(index, names, use_threads=False)
        if names is None and table.num_columns < len(SCHEMA):
            for field in list(SCHEMA)[table.num_columns :]:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        yield table
