"""
The rewriting of an Iceberg table's files for a merge.

pyiceberg's own upsert compares no order, deletes nothing, and makes two snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
)
from pyiceberg.table import FileScanTask, Table

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.data_files import DataFile, conform, write_files
from pydanube_spark.tables.iceberg_files import IcebergLocation, is_copyable, read_rows
from pydanube_spark.tables.pure.merging import Merge
from pydanube_spark.tables.pure.unavailable_values import StoredValues

VALUES_MAX = 200
"""How many values of a key column are compared with a file's statistics."""

_NONE = np.ones(0, np.bool_)


def rewrite(
    table: Table,
    location: IcebergLocation,
    changes: pa.Table,
    columns: UpsertColumns,
    *,
    file_bytes_max: int,
) -> tuple[list[FileScanTask], list[DataFile]]:
    """
    Return the files that *changes* replace, and the new files, which are written.

    Bounds: One batch of a file is in memory at a time, and a bit for each row of the
        files that may have a changed key.

    Raises:
        InvalidRequest: A file has deleted rows, or columns that were changed since.
    """
    values = None if columns.unavailable is None else StoredValues(changes, columns)
    lacking = [] if values is None else values.names
    merge = Merge(changes, columns)
    names = list(dict.fromkeys([*columns.keys, *columns.order, *lacking]))
    kept: list[tuple[FileScanTask, pa.Array]] = []
    for task in table.scan(row_filter=may_have(changes, columns)).plan_files():
        if not is_copyable(table, task):
            raise InvalidRequest(
                f"keyColumns: the file {task.file.file_path} has deleted rows or "
                "changed columns, so its rows cannot be replaced here; rewrite it, for "
                "example with the procedure rewrite_data_files of Spark"
            )
        masks = [_NONE]
        for batch in _rows(table, task, location, names):
            masks.append(merge.rows_to_keep(batch))
            if values is not None:
                values.add(batch)
        mask = np.concatenate(masks)
        if not mask.all():
            kept.append((task, pa.array(mask)))

    def rows() -> Iterator[pa.RecordBatch]:
        for task, mask in kept:
            start = 0
            for batch in _rows(table, task, location):
                yield batch.filter(mask.slice(start, batch.num_rows))
                start += batch.num_rows
        complete = None if values is None else values.filled()
        yield from merge.rows_to_insert(complete).to_batches()

    files = write_files(location, rows(), "merged", file_bytes_max=file_bytes_max)
    return [task for task, _ in kept], files


def may_have(changes: pa.Table, columns: UpsertColumns) -> BooleanExpression:
    """Return a condition that all rows of the table with a key of *changes* meet."""
    found: BooleanExpression = AlwaysTrue()
    for name in columns.keys:
        kind = changes.schema.field(name).type
        if not changes.num_rows or not (
            types.is_integer(kind) or types.is_string(kind) or types.is_date32(kind)
        ):
            continue
        values = pc.unique(changes.column(name))
        if len(values) <= VALUES_MAX:
            found = And(found, In(name, values.to_pylist()))
        else:
            ends = pc.min_max(values).as_py()
            found = And(
                found,
                GreaterThanOrEqual(name, ends["min"]),
                LessThanOrEqual(name, ends["max"]),
            )
    return found


def _rows(
    table: Table,
    task: FileScanTask,
    location: IcebergLocation,
    names: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with the table's columns, or those called *names*."""
    schema = location.schema
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    for batch in read_rows(table, task, names):
        yield conform(batch, schema)
