"""Writing a segment from tables that have its columns, as merging does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.wire.files.segment_format import (
    SCHEMA,
    SegmentIdentity,
    oldest_tombstone_of,
    writer_arguments,
)

ROW_GROUP_BYTES = 8 * 1024 * 1024
"""The size of a row group before it is encoded, as in sealing."""


def write_segment(
    file: Any,
    identity: SegmentIdentity,
    base: int,
    end: int,
    tables: Iterable[pa.Table],
) -> int:
    """
    Write *tables*, in order, to *file* as the segment of ``base … end``.

    Small tables are joined to row groups.  Returns the number of messages.

    Bounds: The tables of one row group are in memory.
    """
    count = 0
    tombstones: list[int] = []
    with _RowGroups(file) as row_groups:
        for table in tables:
            count += table.num_rows
            oldest = oldest_tombstone_of(table)
            tombstones += [] if oldest is None else [oldest]
            row_groups.add(table)
        oldest = min(tombstones, default=None)
        row_groups.finish(identity.metadata(base, end, count, oldest))
    return count


class _RowGroups:
    """Writes the row groups of a new segment; joins small tables."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._writer: pq.ParquetWriter | None = None
        self._tables: list[pa.Table] = []
        self._byte_count = 0

    def add(self, table: pa.Table) -> None:
        """Add *table*; write the waiting tables first if it does not fit."""
        if not table.num_rows:
            return
        size = table.nbytes
        if self._byte_count and self._byte_count + size > ROW_GROUP_BYTES * 5 // 4:
            self.flush()
        self._tables.append(table)
        self._byte_count += size

    def flush(self) -> None:
        """Write the waiting tables as a row group."""
        if self._tables:
            table = pa.concat_tables(self._tables)
            self._open(table).write_table(table, row_group_size=table.num_rows)
            self._tables.clear()
            self._byte_count = 0

    def finish(self, metadata: dict[str, str]) -> None:
        """Write the waiting tables and the footer's *metadata*."""
        self.flush()
        self._open(None).add_key_value_metadata(metadata)

    def _open(self, first: pa.Table | None) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._file, SCHEMA, **writer_arguments(first)
            )
        return self._writer

    def __enter__(self) -> _RowGroups:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
