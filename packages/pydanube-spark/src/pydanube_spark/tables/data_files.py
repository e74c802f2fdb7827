"""
Parquet files in a table's storage, written by tasks.

File names are unique, and no reader sees a file until the driver commits it.  A failed
task therefore changes nothing in the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.errors import InvalidRequest
from pydanube.schemas.pure.value_limits import check_values, years_limits
from pydanube_spark.reader.pure.spark_types import converter
from pydanube_spark.tables.pure.partitioning import PartitionValues, split

T = TypeVar("T")
R = TypeVar("R")

PREFIX = "danube-"
"""The prefix of the names of all files that are written here."""

COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1
ROW_GROUP_BYTES = 16 * 1024 * 1024
"""The approximate size of a row group before compression."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""The size of the buffered row groups of all open files of a task."""
LIMITS = years_limits("a table")
"""The times whose statistics and partitions the libraries of tables can represent."""
OPEN_FILES_MAX = 64
"""The number of partitions that a task writes to at the same time."""
AT_ONCE_MAX = 16
"""The number of files that are read or deleted at a time, if there are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A complete Parquet file; a task sends it to the driver."""

    path: str
    """The path in the table's log."""
    byte_count: int
    row_count: int
    partition: PartitionValues = ()
    details: Any = None
    """Further data for the table's commit."""


class TableLocation(Protocol):
    """The storage of one table's files, as tasks use it; can be pickled."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of a file."""
        ...

    def keys(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the rows' partition values: one array for each partition field."""
        ...

    def create(self, name: str) -> tuple[str, Any]:
        """Return the path of a new file *name*, and a stream to write it to."""
        ...

    def open(self, path: str) -> Any:
        """Return the complete file at *path* as a file-like object to read."""
        ...

    def describe(
        self, path: str, partition: PartitionValues, metadata: Any
    ) -> DataFile:
        """Return the complete file at *path* with its statistics."""
        ...

    def delete(self, path: str) -> None:
        """Delete the file if it exists."""
        ...


def for_each_file(files: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """
    Return what *work* returns for each of *files*, in order.

    Threads call it if there are many files: an object store takes long to answer.
    """
    if len(files) <= AT_ONCE_MAX:
        return list(map(work, files))
    with ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="files") as threads:
        return list(threads.map(work, files))


def write_files(
    location: TableLocation,
    batches: Iterable[pa.RecordBatch],
    name: str,
    *,
    file_bytes_max: int,
) -> list[DataFile]:
    """
    Write *batches* into files whose names contain *name*, and return the files.

    Durability: That of the storage: an object store has the files on return, a local
        file system may still have them in its cache.
    Bounds: WAITING_BYTES_MAX are buffered; a file ends near *file_bytes_max*.
    Cancellation: If anything is raised, all files are deleted.
    """
    writer = FileWriter(location, name, file_bytes_max)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


@dataclass(eq=False)
class FileWriter:
    """Writes rows to a sequence of files for each partition of a table."""

    location: TableLocation
    name: str
    """The file names contain it."""
    file_bytes_max: int
    row_group_bytes: int = ROW_GROUP_BYTES
    waiting_bytes_max: int = WAITING_BYTES_MAX
    open_files_max: int = OPEN_FILES_MAX

    def __post_init__(self) -> None:
        self._open: dict[PartitionValues, OpenFile] = {}
        self._done: list[DataFile] = []
        self._created: list[str] = []
        self._row_count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """
        Write *batch*, whose columns may come in any order.

        Raises:
            InvalidRequest: A required column has nulls, or a column cannot be cast.
            InvalidPayload: A time is outside of the years that tables have.
        """
        batch = conform(batch, self.location.schema)
        check_values(batch, LIMITS, self._row_count)
        self._row_count += batch.num_rows
        for values, piece in split(batch, self.location.keys(batch)):
            file = self._open.get(values)
            if file is None:
                file = self._create(values)
            file.add(piece)
            if file.waiting_bytes >= self.row_group_bytes:
                file.flush()
            if file.byte_count >= self.file_bytes_max:
                self._close(values)
        while self._waiting_bytes > self.waiting_bytes_max:
            max(self._open.values(), key=lambda each: each.waiting_bytes).flush()

    @property
    def _waiting_bytes(self) -> int:
        return sum(each.waiting_bytes for each in self._open.values())

    def finish(self) -> list[DataFile]:
        """Complete and return all files."""
        for values in list(self._open):
            self._close(values)
        return self._done

    def abort(self) -> None:
        """Delete all files."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        for path in self._created:
            self.location.delete(path)

    def _create(self, values: PartitionValues) -> OpenFile:
        if len(self._open) >= self.open_files_max:
            self._close(max(self._open, key=lambda each: self._open[each].byte_count))
        path, sink = self.location.create(
            f"{PREFIX}{self.name}-{uuid.uuid4().hex}.parquet"
        )
        self._created.append(path)
        file = self._open[values] = OpenFile(path, sink, self.location.schema)
        return file

    def _close(self, values: PartitionValues) -> None:
        file = self._open.pop(values)
        metadata = file.close()
        self._done.append(self.location.describe(file.path, values, metadata))


@dataclass(slots=True)
class OpenFile:
    """A Parquet file that is being written, one row group at a time."""

    path: str
    sink: Any
    schema: pa.Schema
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    writer: Any = field(init=False)

    def __post_init__(self) -> None:
        self.writer = pq.ParquetWriter(
            self.sink,
            self.schema,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            store_decimal_as_integer=True,
        )

    @property
    def byte_count(self) -> int:
        """Return the size of the file so far, without buffered rows."""
        return int(self.sink.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        self.waiting.append(batch)
        self.waiting_bytes += batch.get_total_buffer_size()

    def flush(self) -> None:
        if not self.waiting:
            return
        table = pa.Table.from_batches(self.waiting, self.schema)
        self.writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.waiting, self.waiting_bytes = [], 0

    def close(self) -> Any:
        self.flush()
        self.writer.close()
        self.sink.close()
        return self.writer.writer.metadata

    def abandon(self) -> None:
        self.waiting = []
        self.writer.close()
        self.sink.close()


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """
    Return *batch* with exactly the columns of *schema*; missing ones are null.

    Raises:
        InvalidRequest: A required column has nulls, or a column cannot be cast.
    """
    columns = []
    for wanted in schema:
        at = batch.schema.get_field_index(wanted.name)
        if at < 0:
            column = pa.nulls(batch.num_rows, wanted.type)
        else:
            column = batch.column(at)
            if not column.type.equals(wanted.type):
                column = _cast(column, wanted)
        if not wanted.nullable and column.null_count:
            raise InvalidRequest(
                f"the column {wanted.name} has {column.null_count} nulls, but the "
                "table requires a value"
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: Any, wanted: Any) -> Any:
    """Return *column* cast to the type of *wanted*, which may have more fields."""
    try:
        if not types.is_nested(wanted.type):
            return column.cast(wanted.type)
        fit = converter(column.type, wanted.type, allows_missing=True, path=wanted.name)
        return fit(column)
    except pa.ArrowException as error:
        raise InvalidRequest(f"the column {wanted.name}: {error}") from error
