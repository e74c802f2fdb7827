"""
The rows of a batch that is merged into a table.

Tasks write them into files that never become part of the table.  The driver reads the
latest row of each key, merges them, and deletes the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pure.upserts import UpsertColumns, check_keys, latest_rows
from pydanube_spark.tables.data_files import DataFile, TableLocation
from pydanube_spark.tables.pure.partitioning import PartitionValues
from pydanube_spark.tables.pure.unavailable_values import with_earlier_values

GIB = 1024**3
CHANGES_BYTES_MAX = 4 * GIB
"""The maximum size of the latest rows of a batch, which the driver has in memory."""


@dataclass(frozen=True)
class StagingLocation:
    """The storage of a table for files that are not part of it."""

    table: TableLocation
    schema: pa.Schema

    def keys(self, batch: pa.RecordBatch) -> list[Any]:
        """See ``TableLocation``: the files are not partitioned."""
        del batch
        return []

    def create(self, name: str) -> tuple[str, Any]:
        return self.table.create(name)

    def open(self, path: str) -> Any:
        return self.table.open(path)

    def describe(
        self, path: str, partition: PartitionValues, metadata: Any
    ) -> DataFile:
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        return DataFile(
            path=path,
            byte_count=sum(group.total_byte_size for group in groups),
            row_count=metadata.num_rows,
            partition=partition,
        )

    def delete(self, path: str) -> None:
        self.table.delete(path)


def checked(
    batches: Iterator[pa.RecordBatch], columns: UpsertColumns
) -> Iterator[pa.RecordBatch]:
    """
    Yield *batches*.

    Raises:
        InvalidPayload: A row has no key.
    """
    for batch in batches:
        check_keys(batch, columns.keys)
        yield batch


def read_latest_rows(
    location: StagingLocation,
    files: Sequence[DataFile],
    columns: UpsertColumns,
    *,
    bytes_max: int = CHANGES_BYTES_MAX,
) -> pa.Table:
    """
    Return the latest row of each key in *files*, which are in the order of their rows.

    Bounds: The keys of all rows are in memory, and *bytes_max* of latest rows.

    Raises:
        InvalidRequest: The latest rows are larger.
    """
    if not files:
        return location.schema.empty_table()
    names = [*columns.keys, *columns.order, *columns.not_written]
    keys = [_read(location, file, list(dict.fromkeys(names))) for file in files]
    found: list[pa.Table] = []
    byte_count = 0
    masks = latest_rows(keys, columns.keys, columns.order)
    for file, mask in zip(files, masks, strict=True):
        rows = _read(location, file).filter(pa.array(mask))
        byte_count += rows.nbytes
        if byte_count > bytes_max:
            raise InvalidRequest(
                f"the rows of the batch have more than {bytes_max} bytes, which are "
                "too many to merge at once: set the option maxBytesPerTrigger of the "
                "source"
            )
        found.append(rows)
    latest = pa.concat_tables(found)
    if columns.unavailable is None:
        return latest

    def read(name: str) -> pa.ChunkedArray:
        pieces = [_read(location, file, [name]).column(name) for file in files]
        return pa.chunked_array([each for piece in pieces for each in piece.chunks])

    is_latest = np.concatenate(masks)
    rows = pa.concat_tables(keys)
    return with_earlier_values(latest, is_latest, rows, columns, read)


def _read(
    location: StagingLocation, file: DataFile, names: list[str] | None = None
) -> pa.Table:
    with location.open(file.path) as source:
        return pq.ParquetFile(source).read(names, use_threads=False)
