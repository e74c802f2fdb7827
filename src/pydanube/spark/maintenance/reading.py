"""How jobs read segments: whole row groups, with the columns that segments have now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.model.errors import CorruptSegment
from pydanube.spark.maintenance.files import open_file
from pydanube.wire.segment_format import FIRST_SCHEMA, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydanube.model.descriptions import Segment


def opened(
    topic: str, segment: Segment, *, is_verifying: bool = False
) -> pq.ParquetFile:
    """
    The file of *segment*, for reading; *is_verifying* has pages checked as well.

    Raises:
        CorruptSegment: It cannot be opened, or is another one.
    """
    try:
        file = pq.ParquetFile(
            open_file(segment.url), page_checksum_verification=is_verifying
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt(topic, segment, error) from error
    schema = file.schema_arrow
    if not (schema.equals(SCHEMA) or schema.equals(FIRST_SCHEMA)) or (
        file.metadata.num_rows != segment.count
    ):
        file.close()
        raise corrupt(
            topic,
            segment,
            f"expected {segment.count} messages, it has {file.metadata.num_rows}",
        )
    return file


def row_groups_of(
    topic: str,
    segment: Segment,
    file: pq.ParquetFile,
    names: list[str] | None = None,
) -> Iterator[pa.Table]:
    """The row groups with the columns *names*, or with all that segments have now."""
    for index in range(file.num_row_groups):
        try:
            table = file.read_row_group(index, names, use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise corrupt(topic, segment, error) from error
        if names is None and table.num_columns < len(SCHEMA):
            for field in list(SCHEMA)[table.num_columns :]:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        yield table


def corrupt(topic: str, segment: Segment, why: object) -> CorruptSegment:
    return CorruptSegment(f"{topic}: the segment {segment.url} cannot be read: {why}")
