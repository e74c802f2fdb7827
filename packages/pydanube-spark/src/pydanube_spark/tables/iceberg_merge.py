"""
The merge of changed rows into an Iceberg table.

pyiceberg's own upsert compares no order, deletes nothing, and makes two snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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
from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.data_files import DataFile, conform, write_files
from pydanube_spark.tables.iceberg_deletes import (
    MIN_FORMAT_VERSION,
    live_rows,
    write_deletes,
)
from pydanube_spark.tables.iceberg_files import (
    BATCH_ROWS,
    IcebergLocation,
    is_copyable,
    read_batches,
)
from pydanube_spark.tables.pure.merging import Merge
from pydanube_spark.tables.pure.unavailable_values import StoredValues

VALUES_MAX = 200
"""How many values of a key column are compared with a file's statistics."""

MODE = "write.merge.mode"
"""The property of a table that says how rows are replaced, as in Iceberg."""
MERGE_ON_READ = "merge-on-read"
"""The value of it for positions of deleted rows; here it is the default."""


REWRITE_BYTES_MAX = 4 * 1024 * 1024
"""Files up to this size are rewritten: reading deleted positions costs as much."""
KEYS_MAX = 1024 * 1024
"""How many keys of a file are compared at a time, for each thread."""
THREADS_MAX = 8
"""How many files are compared at the same time."""
DELETED_PART_MAX = 4
"""A file is rewritten if more than one of so many of its rows are deleted."""


class Changes(NamedTuple):
    """The files that a merge replaces, adds and changes."""

    rewritten: list[FileScanTask]
    """The files that go."""
    added: list[DataFile]
    """The new files, which are written."""
    marked: list[tuple[FileScanTask, DataFile]]
    """The files that stay, with the positions of their deleted rows."""

    @property
    def written(self) -> list[DataFile]:
        return [*self.added, *(file for _, file in self.marked)]


def merge_rows(
    table: Table,
    location: IcebergLocation,
    changes: pa.Table,
    columns: UpsertColumns,
    *,
    file_bytes_max: int,
    rewrite_bytes_max: int = REWRITE_BYTES_MAX,
    batch_rows: int = BATCH_ROWS,
) -> Changes:
    """
    Write what the merge of *changes* needs, and return it for the commit.

    Rows that are replaced or deleted are marked as deleted in large files, of which
    only the key and order columns are read; small files, those with many deleted rows,
    and those of an earlier partitioning are rewritten.

    Bounds: One batch of each of some files is in memory at a time, and a byte for each
        row of the files that have a changed key.

    Raises:
        InvalidRequest: A file has rows that were deleted in another way, or columns
            that were changed since.
    """
    values = None if columns.unavailable is None else StoredValues(changes, columns)
    lacking = [] if values is None else values.names
    merge = Merge(changes, columns)
    names = list(dict.fromkeys([*columns.keys, *columns.order, *lacking]))

    def find(task: FileScanTask) -> tuple[FileScanTask, Any] | None:
        if not is_copyable(table, task):
            raise InvalidRequest(
                f"keyColumns: the file {task.file.file_path} has rows that were "
                "deleted in another way, or changed columns, so its rows cannot be "
                "replaced here; rewrite it, for example with the procedure "
                "rewrite_data_files of Spark"
            )
        live, start, is_changed = live_rows(table, task), 0, False
        for batch in _batches(table, task, location, names, batch_rows=batch_rows):
            part = live[start : start + batch.num_rows]
            start += batch.num_rows
            rows = batch if part.all() else batch.filter(pa.array(part))
            keep = merge.rows_to_keep(rows)
            if values is not None:
                values.add(rows)
            if not keep.all():
                part[part] = keep
                is_changed = True
        return (task, live) if is_changed else None

    # For each batch of keys, a hash table of all changes is built.  Values that changes
    # lack are the large ones, of which no more are read at a time than of whole rows.
    if not lacking:
        batch_rows = max(batch_rows, min(changes.num_rows, KEYS_MAX))
    tasks = table.scan(row_filter=may_have(changes, columns)).plan_files()
    # Stored values are collected in order.
    width = 1 if values is not None else min(THREADS_MAX, os.cpu_count() or 1)
    found = [each for each in ThreadRunner(width).run([*tasks], find) if each]
    may_mark = _may_mark(table)
    marked = [
        (task, live)
        for task, live in found
        if may_mark
        # pyiceberg describes added files by the partitioning that the table has now.
        and task.file.spec_id == table.spec().spec_id
        and task.file.file_size_in_bytes > rewrite_bytes_max
        and np.count_nonzero(~live) * DELETED_PART_MAX <= len(live)
    ]
    stays = {task.file.file_path for task, _ in marked}
    rewritten = [each for each in found if each[0].file.file_path not in stays]

    def rows() -> Iterator[pa.RecordBatch]:
        for task, live in rewritten:
            start = 0
            for batch in _batches(table, task, location):
                yield batch.filter(pa.array(live[start : start + batch.num_rows]))
                start += batch.num_rows
        complete = None if values is None else values.filled()
        yield from merge.rows_to_insert(complete).to_batches()

    added = write_files(location, rows(), "merged", file_bytes_max=file_bytes_max)
    written: list[tuple[FileScanTask, DataFile]] = []
    try:
        for task, live in marked:
            written.append((task, write_deletes(location, task.file, live)))
    except BaseException:
        for file in (*added, *(file for _, file in written)):
            location.delete(file.path)
        raise
    return Changes([task for task, _ in rewritten], added, written)


def _may_mark(table: Table) -> bool:
    mode = table.properties.get(MODE, MERGE_ON_READ)
    return bool(table.format_version == MIN_FORMAT_VERSION and mode == MERGE_ON_READ)


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


def _batches(
    table: Table,
    task: FileScanTask,
    location: IcebergLocation,
    names: Sequence[str] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a file with the table's columns, or those called *names*."""
    schema = location.schema
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    for batch in read_batches(table, task, names, batch_rows=batch_rows):
        yield conform(batch, schema)
