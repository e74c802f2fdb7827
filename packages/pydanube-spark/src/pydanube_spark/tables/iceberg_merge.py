"""
The merge of changed rows into an Iceberg table.

It is done by jobs that run anywhere, in three rounds:

1. For each part of the keys, ``find_keys`` returns the keys of the changed rows.
2. For each group of the table's files, ``compare`` finds the rows with these keys, and
   writes the positions of those that go.
3. ``write_rows`` writes the rows of files that are rewritten, and the changed rows.

A job that runs twice writes further files, which nothing refers to.  The process that
called ``merge_rows`` alone commits what the jobs have returned.  pyiceberg's own upsert
compares no order, deletes nothing, and makes two snapshots.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
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

from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube_spark.jobs import raise_first
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.data_files import PREFIX, DataFile, conform, write_files
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
from pydanube_spark.tables.pure.merging import Merge, rows_to_insert
from pydanube_spark.tables.pure.unavailable_values import StoredValues
from pydanube_spark.tables.staged_rows import MEMORY_BYTES_MAX, Changes
from pydanube_spark.tables.table import JobRunners

VALUES_MAX = 200
"""How many values of a key column are compared with a file's statistics."""

MODE = "write.merge.mode"
"""The property of a table that says how rows are replaced, as in Iceberg."""
MERGE_ON_READ = "merge-on-read"
"""The value of it for positions of deleted rows; here it is the default."""


REWRITE_BYTES_MAX = 4 * 1024 * 1024
"""Files up to this size are rewritten: reading deleted positions costs as much."""
KEYS_MAX = 1024 * 1024
"""How many keys of a file are compared at a time."""
DELETED_PART_MAX = 4
"""A file is rewritten if more than one of so many of its rows are deleted."""
JOB_BYTES_MAX = 256 * 1024 * 1024
"""The size of the files that a job compares or writes, unless one is larger."""


class FileChanges(NamedTuple):
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


@dataclass(frozen=True)
class MergeContext:
    """All that the jobs of a merge have in common; can be pickled."""

    location: IcebergLocation
    changes: Changes
    columns: UpsertColumns
    may_mark: bool
    rewrite_bytes_max: int
    file_bytes_max: int
    batch_rows: int

    @property
    def key_names(self) -> list[str]:
        """The columns that are compared, and those that change what is done."""
        columns = self.columns
        names = [*columns.keys, *columns.order, *sorted(columns.not_written)]
        return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The values of a key column: all of them if there are few, or the ends."""

    values: list[Any] | None
    least: Any
    greatest: Any


@dataclass(frozen=True)
class PartKeys:
    """The keys of a part's changes."""

    rows: pa.Table | None
    path: str | None
    """The file with the rows, if they are not here."""
    row_count: int
    bounds: dict[str, KeyBounds]

    def read(self, location: IcebergLocation) -> pa.Table:
        """Return the rows."""
        if self.rows is not None:
            return self.rows
        assert self.path is not None
        return _read(location, self.path)


@dataclass(frozen=True)
class Compared:
    """The result of comparing some files, which are numbered within the job."""

    marked: list[tuple[int, DataFile]] = field(default_factory=list)
    rewritten: list[tuple[int, bytes]] = field(default_factory=list)
    """With the mask of the rows that stay."""
    outdated: dict[int, bytes] = field(default_factory=dict)
    """By part, the mask of the changes that are earlier than a row of the table."""
    stored: dict[int, str] = field(default_factory=dict)
    """By part, the file with the table's values that changes lack."""


@dataclass(frozen=True)
class WriteJob:
    """The rows that one job writes."""

    rewritten: list[tuple[FileScanTask, bytes]] = field(default_factory=list)
    parts: list[tuple[int, bytes | None, list[str]]] = field(default_factory=list)
    """The number of a part, its outdated changes, and the files of stored values."""


def merge_rows(
    table: Table,
    location: IcebergLocation,
    changes: Changes,
    columns: UpsertColumns,
    runners: JobRunners,
    *,
    file_bytes_max: int,
    rewrite_bytes_max: int = REWRITE_BYTES_MAX,
    batch_rows: int = BATCH_ROWS,
    job_bytes_max: int = JOB_BYTES_MAX,
) -> FileChanges:
    """
    Write what the merge of *changes* needs, and return it for the commit.

    Rows that are replaced or deleted are marked as deleted in large files, of which
    only the key and order columns are read; small files, those with many deleted rows,
    and those of an earlier partitioning are rewritten.

    Bounds: A job has one part of the changes in memory, with the values of the table
        that they lack, one batch of a file, a byte for each row of one file, and a bit
        for each row of the files of its group.  This
        process has at most a bit for each row of the files that are rewritten and for
        each change that is earlier than a row of the table.

    Raises:
        InvalidRequest: A file has rows that were deleted in another way, or columns
            that were changed since.
    """
    context = MergeContext(
        location=location,
        changes=changes,
        columns=columns,
        may_mark=_may_mark(table),
        rewrite_bytes_max=rewrite_bytes_max,
        file_bytes_max=file_bytes_max,
        batch_rows=batch_rows,
    )
    with _deleted_at_the_end(location) as temporary:
        numbers = range(changes.part_count)
        size = changes.byte_count
        keys = runners.of(size).run(numbers, partial(find_keys, context))
        temporary += [each.path for each in keys if each.path is not None]

        bounds = [each.bounds for each in keys if each.row_count]
        tasks: list[FileScanTask] = []
        if bounds:
            tasks += table.scan(row_filter=may_have(bounds)).plan_files()
        size = sum(each.file.file_size_in_bytes for each in tasks)
        runner = runners.of(size)
        groups = _groups(tasks, min(job_bytes_max, size // runner.width + 1))
        outcomes = runner.outcomes(groups, partial(compare, context, keys))
        done = [each for each in outcomes if not isinstance(each, BrokerError)]
        temporary += [path for each in done for path in each.stored.values()]
        marked = [file for each in done for _, file in each.marked]
        try:
            compared = raise_first(outcomes)
            jobs = _write_jobs(changes, groups, compared, job_bytes_max)
            size = changes.byte_count + sum(
                task.file.file_size_in_bytes
                for job in jobs
                for task, _ in job.rewritten
            )
            outputs = runners.of(size).outcomes(jobs, partial(write_rows, context))
            written = [each for each in outputs if not isinstance(each, BrokerError)]
            marked += [file for each in written for file in each]
            raise_first(outputs)
        except BaseException:
            for file in marked:
                location.delete(file.path)
            raise
    return FileChanges(
        rewritten=[task for job in jobs for task, _ in job.rewritten],
        added=[file for each in written for file in each],
        marked=[
            (group[number], file)
            for group, found in zip(groups, compared, strict=True)
            for number, file in found.marked
        ],
    )


def find_keys(context: MergeContext, number: int) -> PartKeys:
    """Return the keys of the changes in part *number*."""
    rows = context.changes.latest(number).select(context.key_names)
    bounds = {
        name: _bounds(rows.column(name))
        for name in context.columns.keys
        if rows.num_rows and _has_bounds(rows.schema.field(name).type)
    }
    if context.changes.part_count == 1 and rows.nbytes <= MEMORY_BYTES_MAX:
        return PartKeys(rows, None, rows.num_rows, bounds)
    path = _write(context.location, rows)
    return PartKeys(None, path, rows.num_rows, bounds)


def compare(
    context: MergeContext, keys: Sequence[PartKeys], tasks: Sequence[FileScanTask]
) -> Compared:
    """Find the rows of *tasks* that *keys* replace or delete, and mark them."""
    location = context.location
    found = Compared()
    live: dict[int, bytes] = {}
    changed: set[int] = set()
    for task in tasks:
        _check_copyable(location, task)
    try:
        for part, of_part in enumerate(keys):
            if not of_part.row_count:
                continue
            comparison = _Comparison(context, of_part)
            for number, task in enumerate(tasks):
                rows = task.file.record_count
                mask = (
                    _unpacked(live[number], rows)
                    if number in live
                    else live_rows(location.io, task)
                )
                if comparison.compare(task, mask):
                    changed.add(number)
                if number in changed or len(keys) > 1:
                    live[number] = _packed(mask)
            comparison.report(found, part)
        for number in sorted(changed):
            task = tasks[number]
            mask = _unpacked(live[number], task.file.record_count)
            if _is_marked(context, task, mask):
                found.marked.append((number, write_deletes(location, task.file, mask)))
            else:
                found.rewritten.append((number, live[number]))
    except BaseException:
        for _, file in found.marked:
            location.delete(file.path)
        for path in found.stored.values():
            location.delete(path)
        raise
    return found


class _Comparison:
    """The comparison of files with one part of the keys."""

    def __init__(self, context: MergeContext, keys: PartKeys) -> None:
        rows = keys.read(context.location)
        columns = context.columns
        self._context = context
        self._merge = Merge(rows, columns)
        self._values = None
        lacking: list[str] = []
        if columns.unavailable is not None:
            self._values = StoredValues(rows, columns, context.location.schema.names)
            lacking = self._values.names
        self._names = list(dict.fromkeys([*columns.keys, *columns.order, *lacking]))
        # For each batch of keys, a hash table of all changes is built.  Values that
        # changes lack are the large ones, of which no more are read at a time than of
        # whole rows.
        self._batch_rows = context.batch_rows
        if not lacking:
            self._batch_rows = max(self._batch_rows, min(keys.row_count, KEYS_MAX))

    def compare(self, task: FileScanTask, live: Any) -> bool:
        """Clear the rows in *live* that go; return whether there are any."""
        location, start, is_changed = self._context.location, 0, False
        batches = _batches(location, task, self._names, batch_rows=self._batch_rows)
        for batch in batches:
            part = live[start : start + batch.num_rows]
            start += batch.num_rows
            rows = batch if part.all() else batch.filter(pa.array(part))
            keep = self._merge.rows_to_keep(rows)
            if self._values is not None:
                self._values.add(rows)
            if not keep.all():
                part[part] = keep
                is_changed = True
        return is_changed

    def report(self, found: Compared, part: int) -> None:
        """Add to *found* what was found out about the changes of *part*."""
        if self._merge.is_outdated.any():
            found.outdated[part] = _packed(self._merge.is_outdated)
        values = None if self._values is None else self._values.found
        if values is not None:
            found.stored[part] = _write(self._context.location, values)


def write_rows(context: MergeContext, job: WriteJob) -> list[DataFile]:
    """Write the rows of a job, and return the files."""
    return write_files(
        context.location,
        _rows(context, job),
        "merged",
        file_bytes_max=context.file_bytes_max,
    )


def _rows(context: MergeContext, job: WriteJob) -> Iterator[pa.RecordBatch]:
    location, columns = context.location, context.columns
    for task, packed in job.rewritten:
        start, live = 0, _unpacked(packed, task.file.record_count)
        for batch in _batches(location, task):
            yield batch.filter(pa.array(live[start : start + batch.num_rows]))
            start += batch.num_rows
    for number, packed_outdated, paths in job.parts:
        changes = context.changes.latest(number)
        if columns.unavailable is not None:
            values = StoredValues(changes, columns)
            for path in paths:
                values.add_found(_read(location, path))
            changes = values.filled()
        outdated = (
            np.zeros(changes.num_rows, np.bool_)
            if packed_outdated is None
            else _unpacked(packed_outdated, changes.num_rows)
        )
        yield from rows_to_insert(changes, outdated, columns).to_batches()


def _write_jobs(
    changes: Changes,
    groups: Sequence[Sequence[FileScanTask]],
    compared: Sequence[Compared],
    bytes_max: int,
) -> list[WriteJob]:
    rewritten = [
        (group[number], mask)
        for group, found in zip(groups, compared, strict=True)
        for number, mask in found.rewritten
    ]
    # Small files of a partition become one.
    rewritten.sort(key=lambda each: str(each[0].file.partition))
    jobs, size = [WriteJob()], 0
    for task, mask in rewritten:
        if size and size + task.file.file_size_in_bytes > bytes_max:
            jobs.append(WriteJob())
            size = 0
        jobs[-1].rewritten.append((task, mask))
        size += task.file.file_size_in_bytes
    of_part = changes.byte_count // changes.part_count
    for number in range(changes.part_count):
        if size and size + of_part > bytes_max:
            jobs.append(WriteJob())
            size = 0
        masks = [each.outdated[number] for each in compared if number in each.outdated]
        paths = [each.stored[number] for each in compared if number in each.stored]
        jobs[-1].parts.append((number, _either(masks), paths))
        size += of_part
    return jobs


def _is_marked(context: MergeContext, task: FileScanTask, live: Any) -> bool:
    """Return whether the rows that go are marked, instead of rewriting the file."""
    return bool(
        context.may_mark
        # pyiceberg describes added files by the partitioning that the table has now.
        and task.file.spec_id == context.location.spec.spec_id
        and task.file.file_size_in_bytes > context.rewrite_bytes_max
        and np.count_nonzero(~live) * DELETED_PART_MAX <= len(live)
    )


def _may_mark(table: Table) -> bool:
    mode = table.properties.get(MODE, MERGE_ON_READ)
    return bool(table.format_version == MIN_FORMAT_VERSION and mode == MERGE_ON_READ)


def _check_copyable(location: IcebergLocation, task: FileScanTask) -> None:
    if not is_copyable(location.io, location.columns, task):
        raise InvalidRequest(
            f"keyColumns: the file {task.file.file_path} has rows that were "
            "deleted in another way, or changed columns, so its rows cannot be "
            "replaced here; rewrite it, for example with the procedure "
            "rewrite_data_files of Spark"
        )


def may_have(parts: Sequence[dict[str, KeyBounds]]) -> BooleanExpression:
    """Return a condition that all rows of the table with a key of *parts* meet."""
    found: BooleanExpression = AlwaysTrue()
    for name in parts[0]:
        of_parts = [each[name] for each in parts]
        known: set[Any] = set()
        for each in of_parts:
            known.update(each.values or ())
        is_known = all(each.values is not None for each in of_parts)
        if is_known and len(known) <= VALUES_MAX:
            found = And(found, In(name, sorted(known)))
        else:
            found = And(
                found,
                GreaterThanOrEqual(name, min(each.least for each in of_parts)),
                LessThanOrEqual(name, max(each.greatest for each in of_parts)),
            )
    return found


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(
        types.is_integer(kind) or types.is_string(kind) or types.is_date32(kind)
    )


def _bounds(column: Any) -> KeyBounds:
    values = pc.unique(column)
    ends = pc.min_max(values).as_py()
    few = values.to_pylist() if len(values) <= VALUES_MAX else None
    return KeyBounds(few, ends["min"], ends["max"])


def _groups(tasks: Iterable[FileScanTask], bytes_max: int) -> list[list[FileScanTask]]:
    """Return *tasks* in groups of about *bytes_max*."""
    found: list[list[FileScanTask]] = []
    size = 0
    for task in tasks:
        if not found or size >= bytes_max:
            found.append([])
            size = 0
        found[-1].append(task)
        size += task.file.file_size_in_bytes
    return found


def _batches(
    location: IcebergLocation,
    task: FileScanTask,
    names: Sequence[str] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a file with the table's columns, or those called *names*."""
    schema = location.schema
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    for batch in read_batches(location.io, task, names, batch_rows=batch_rows):
        yield conform(batch, schema)


def _packed(mask: Any) -> bytes:
    return zlib.compress(np.packbits(mask).tobytes(), 1)


def _unpacked(packed: bytes, count: int) -> Any:
    bits = np.frombuffer(zlib.decompress(packed), np.uint8)
    return np.unpackbits(bits, count=count).astype(np.bool_)


def _either(masks: Sequence[bytes]) -> bytes | None:
    """Return a mask with what any of *masks* has."""
    if len(masks) <= 1:
        return masks[0] if masks else None
    bits = np.frombuffer(zlib.decompress(masks[0]), np.uint8).copy()
    for each in masks[1:]:
        bits |= np.frombuffer(zlib.decompress(each), np.uint8)
    return zlib.compress(bits.tobytes(), 1)


def _write(location: IcebergLocation, rows: pa.Table) -> str:
    """Write *rows*, which are no part of the table, and return the path."""
    path, sink = location.create(f"{PREFIX}keys-{uuid.uuid4().hex}.parquet")
    with sink:
        pq.write_table(rows, sink, compression="zstd")
    return path


def _read(location: IcebergLocation, path: str) -> pa.Table:
    with location.open(path) as source:
        return pq.ParquetFile(source).read(use_threads=False)


@contextmanager
def _deleted_at_the_end(location: IcebergLocation) -> Iterator[list[str]]:
    paths: list[str] = []
    try:
        yield paths
    finally:
        for path in paths:
            location.delete(path)
