"""
The rows of a batch that is merged into a table.

Tasks write them into files that never become part of the table.  The merge reads the
latest row of each key, one part of the keys at a time, and the files are deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.schemas.pure.value_limits import check_values
from pydanube_spark.pure.upserts import (
    UpsertColumns,
    check_keys,
    is_later,
    last_of,
    latest_rows,
    split_truncations,
)
from pydanube_spark.tables.data_files import (
    LIMITS,
    PREFIX,
    DataFile,
    OpenFile,
    TableLocation,
    conform,
    for_each_file,
)
from pydanube_spark.tables.pure.key_parts import (
    WHOLE,
    KeyPart,
    key_hashes,
    part_count,
)
from pydanube_spark.tables.pure.merging import rows_to_insert
from pydanube_spark.tables.pure.unavailable_values import (
    StoredValues,
    with_earlier_values,
)

MIB = 1024 * 1024
BUFFER_BYTES = 64 * MIB
"""The size of the rows that a task buffers."""
GROUP_BYTES = MIB
"""The approximate size of a row group with one part of the keys, in memory."""
PART_BYTES = 64 * MIB
"""The approximate size of the rows that are merged at a time."""
MEMORY_BYTES_MAX = 8 * MIB
"""The size up to which rows are passed from one process to another without a file."""


@dataclass(frozen=True)
class StagingLocation:
    """The storage of a table for files that are not part of it."""

    table: TableLocation
    schema: pa.Schema

    def create(self, name: str) -> tuple[str, Any]:
        """See ``TableLocation``."""
        return self.table.create(name)

    def open(self, path: str) -> Any:
        """See ``TableLocation``."""
        return self.table.open(path)

    def delete(self, path: str) -> None:
        """See ``TableLocation``."""
        self.table.delete(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile(DataFile):
    """A staged file; ``details`` are the parts of the keys of its row groups."""

    truncation: pa.Table | None = None
    """The order values of the last truncation among the rows of the file, if any."""


class Changes(Protocol):
    """The changed rows of a batch; can be pickled."""

    @property
    def part_count(self) -> int:
        """Return the number of parts of the keys."""
        ...

    @property
    def byte_count(self) -> int:
        """Return the approximate size of all rows in memory."""
        ...

    def latest(self, number: int) -> pa.Table:
        """Return the latest row of each key in a part, without those it replaces."""
        ...


@dataclass(frozen=True)
class MemoryChanges:
    """Changed rows in memory, one for each key."""

    rows: pa.Table

    @property
    def part_count(self) -> int:
        """Return 1."""
        return 1

    @property
    def byte_count(self) -> int:
        """See the protocol."""
        return int(self.rows.nbytes)

    def latest(self, number: int) -> pa.Table:
        """Return the rows."""
        del number
        return self.rows


@dataclass(frozen=True)
class StagedChanges:
    """
    Changed rows in staged files, which are in the order of their rows.

    Bounds: ``latest`` has the key, order and delete columns of all rows of the part in
        memory, and its latest rows; or all rows, if they take *part_bytes* at most.
    """

    location: StagingLocation
    files: tuple[StagedFile, ...]
    columns: UpsertColumns
    part_bytes: int = PART_BYTES

    @cached_property
    def truncation(self) -> pa.Table | None:
        """
        The order values of the last truncation, before which no rows are read.

        None if there is none.
        """
        found = [each.truncation for each in self.files if each.truncation is not None]
        if not found:
            return None
        return last_of(pa.concat_tables(found), self.columns.order)

    @property
    def byte_count(self) -> int:
        """See the protocol."""
        return sum(each.byte_count for each in self.files)

    @property
    def part_count(self) -> int:
        """See the protocol."""
        return part_count(self.byte_count, self.part_bytes)

    def latest(self, number: int) -> pa.Table:
        """Read the latest row of each key in a part."""
        if not self.files:
            return self.location.schema.empty_table()
        part = KeyPart(number, self.part_count)
        columns = self.columns
        names = [*columns.keys, *columns.order, *columns.not_written]
        names = list(dict.fromkeys(names))
        rows: list[pa.Table] | None = None
        if self.byte_count <= self.part_bytes:
            # Each file is opened once.
            rows = self._read_all(part)

        def read(names: Sequence[str]) -> list[pa.Table]:
            if rows is None:
                return self._read_all(part, names)
            return [each.select(names) for each in rows]

        keys = read(names)
        masks = list(map(pa.array, latest_rows(keys, columns.keys, columns.order)))
        if rows is None:
            found = for_each_file(
                list(zip(self.files, masks, strict=True)),
                lambda each: self._read(each[0], part).filter(each[1]),
            )
        else:
            found = [each.filter(mask) for each, mask in zip(rows, masks, strict=True)]
        latest = pa.concat_tables(found)
        if columns.unavailable is None:
            return latest

        def column(name: str) -> pa.ChunkedArray:
            pieces = [each[name] for each in read([name])]
            return pa.chunked_array([each for piece in pieces for each in piece.chunks])

        is_latest = np.concatenate([mask.to_numpy(False) for mask in masks])
        return with_earlier_values(
            latest, is_latest, pa.concat_tables(keys), columns, column
        )

    def inserted(self) -> Iterator[pa.RecordBatch]:
        """
        Yield the rows that these changes leave in an empty table.

        Bounds: The latest rows of one part are in memory.

        Raises:
            InvalidPayload: A row lacks a value.
        """
        for number in range(self.part_count):
            changes = self.latest(number)
            if self.columns.unavailable is not None:
                changes = StoredValues(changes, self.columns).filled()
            is_outdated = np.zeros(changes.num_rows, np.bool_)
            yield from rows_to_insert(changes, is_outdated, self.columns).to_batches()

    def _read_all(
        self, part: KeyPart, names: Sequence[str] | None = None
    ) -> list[pa.Table]:
        """Return the same as ``_read`` for each of the files."""
        return for_each_file(self.files, lambda file: self._read(file, part, names))

    def _read(
        self, file: DataFile, part: KeyPart, names: Sequence[str] | None = None
    ) -> pa.Table:
        """
        Return the rows of *part* in *file*, with the columns *names* or all.

        Rows that are not later than the last truncation are left out.
        """
        schema, truncation = self.location.schema, self.truncation
        keys, order = self.columns.keys, self.columns.order
        wanted = schema.names if names is None else list(names)
        given = [*wanted, *(() if truncation is None else order)]
        given = list(dict.fromkeys(given))
        read = list(dict.fromkeys([*given, *keys]))
        found = []
        with self.location.open(file.path) as source:
            opened = pq.ParquetFile(source)
            for index, group in enumerate(file.details):
                if part.contains(group):
                    rows = opened.read_row_group(index, given, use_threads=False)
                elif part.may_share(group):
                    rows = opened.read_row_group(index, read, use_threads=False)
                    hashes = key_hashes(
                        [rows.column(name).combine_chunks() for name in keys]
                    )
                    rows = rows.filter(pa.array(part.mask(hashes)))
                else:
                    continue
                if truncation is not None:
                    rows = _after(rows, truncation, order)
                found.append(rows.select(wanted))
        empty = pa.schema([schema.field(name) for name in wanted]).empty_table()
        return pa.concat_tables(found) if found else empty


def _after(rows: pa.Table, truncation: pa.Table, order: Sequence[str]) -> pa.Table:
    """Return those of *rows* that are later than *truncation*."""
    count = rows.num_rows
    has = [rows.column(name).combine_chunks() for name in order]
    new = [pa.repeat(truncation.column(name)[0], count) for name in order]
    return rows.filter(pa.array(is_later(has, new, count)))


def stage_rows(
    location: StagingLocation,
    batches: Iterable[pa.RecordBatch],
    name: str,
    columns: UpsertColumns,
    *,
    file_bytes_max: int,
    buffer_bytes: int = BUFFER_BYTES,
    group_bytes: int = GROUP_BYTES,
) -> list[StagedFile]:
    """
    Write changed rows into files whose names contain *name*, and return the files.

    A row group has rows of one part of the keys, so that parts can be read alone.
    Truncations are no rows: the file has the order values of the last one.

    Bounds: *buffer_bytes* of rows are in memory; a file ends near *file_bytes_max*.
    Cancellation: If anything is raised, all files are deleted.

    Raises:
        InvalidPayload: A row has no key, or a time that tables do not have.
        InvalidRequest: See ``data_files.conform``.
    """
    writer = _StagingWriter(location, name, columns, file_bytes_max, group_bytes)
    row_count = 0
    try:
        for given in batches:
            rows, truncations = split_truncations(given, columns.truncate)
            if truncations is not None:
                writer.truncate(truncations)
            check_keys(rows, columns.keys)
            batch = conform(rows, location.schema)
            check_values(batch, LIMITS, row_count)
            row_count += given.num_rows
            writer.waiting.append(batch)
            writer.waiting_bytes += batch.get_total_buffer_size()
            if writer.waiting_bytes >= buffer_bytes:
                writer.flush()
        writer.flush()
        writer.close()
    except BaseException:
        writer.abort()
        raise
    return writer.done


class _StagingWriter:
    def __init__(
        self,
        location: StagingLocation,
        name: str,
        columns: UpsertColumns,
        file_bytes_max: int,
        group_bytes: int,
    ) -> None:
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self.done: list[StagedFile] = []
        self._location = location
        self._name = name
        self._columns = columns
        self._truncation: pa.Table | None = None
        self._file_bytes_max = file_bytes_max
        self._group_bytes = group_bytes
        self._file: OpenFile | None = None
        self._groups: list[KeyPart] = []
        self._file_bytes = 0
        self._created: list[str] = []

    def truncate(self, rows: pa.RecordBatch) -> None:
        """Note *rows*, which are truncations; a file has the last one."""
        order = self._columns.order
        found = [last_of(pa.Table.from_batches([rows]), order)]
        if self._truncation is not None:
            found.append(self._truncation)
        self._truncation = last_of(pa.concat_tables(found), order)

    def flush(self) -> None:
        """Write the buffered rows by parts of their keys."""
        if not self.waiting:
            return
        rows = pa.Table.from_batches(self.waiting).combine_chunks()
        # Each row group has at least *group_bytes*.
        count = max(1, part_count(rows.nbytes, self._group_bytes) // 2)
        self.waiting, self.waiting_bytes = [], 0
        self._file_bytes += rows.nbytes
        file = self._file or self._create()
        if count == 1:
            self._add(file, rows, WHOLE)
        else:
            keys = [rows.column(n).combine_chunks() for n in self._columns.keys]
            hashes = key_hashes(keys)
            for number in range(count):
                part = KeyPart(number, count)
                self._add(file, rows.filter(pa.array(part.mask(hashes))), part)
        if file.byte_count >= self._file_bytes_max:
            self.close()

    def close(self) -> None:
        """Complete the open file, if any, or a file that only has a truncation."""
        if self._file is None and self._truncation is not None:
            self._create()
        file, self._file = self._file, None
        if file is None:
            return
        metadata = file.close()
        self.done.append(
            StagedFile(
                path=file.path,
                # In memory, which may be many times the size of the file.
                byte_count=self._file_bytes,
                row_count=metadata.num_rows,
                details=tuple(self._groups),
                truncation=self._truncation,
            )
        )
        self._groups, self._file_bytes, self._truncation = [], 0, None

    def abort(self) -> None:
        """Delete all files."""
        if self._file is not None:
            self._file.abandon()
        for path in self._created:
            self._location.delete(path)

    def _create(self) -> OpenFile:
        name = f"{PREFIX}{self._name}-{uuid.uuid4().hex}.parquet"
        path, sink = self._location.create(name)
        self._created.append(path)
        self._file = OpenFile(path, sink, self._location.schema)
        return self._file

    def _add(self, file: OpenFile, rows: pa.Table, part: KeyPart) -> None:
        if rows.num_rows:
            for batch in rows.to_batches():
                file.add(batch)
            file.flush()
            self._groups.append(part)


def small_changes(changes: StagedChanges) -> Changes:
    """Return *changes*, in memory if they are small."""
    if changes.byte_count > MEMORY_BYTES_MAX:
        return changes
    return MemoryChanges(changes.latest(0))
