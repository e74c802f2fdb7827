"""
The files of an Iceberg table: writing, compaction, and orphans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    UnsupportedPyArrowTypeException,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec, partition_record_value
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
)

from pydanube.model.errors import InvalidRequest
from pydanube_spark.tables import iceberg_deletes
from pydanube_spark.tables.data_files import PREFIX, DataFile, write_files
from pydanube_spark.tables.pure.partitioning import PartitionValues, apply_transform
from pydanube_spark.tables.table import CompactionResult

NANOSECONDS = 1_000_000_000

BATCH_ROWS = 65_536
"""How many rows of a file are in memory at a time."""

COMPACTION = "danube.compaction"
"""The property of snapshots that compaction has made."""

_WIDENED = {(IntegerType, LongType), (FloatType, DoubleType)}


@dataclass(frozen=True)
class IcebergLocation:
    """The storage of an Iceberg table's files, with paths of its location provider."""

    schema: pa.Schema
    io: FileIO
    columns: Schema
    spec: PartitionSpec
    location: str
    properties: Mapping[str, str]

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def keys(self, batch: pa.RecordBatch) -> list[Any]:
        found = []
        for part in self.spec.fields:
            source = self.columns.find_field(part.source_id)
            apply = part.transform.transform(source.field_type)
            column = batch.column(source.name)
            found.append(apply_transform(column, str(part.transform), apply))
        return found

    def create(self, name: str) -> tuple[str, Any]:
        path = self._locations.new_data_location(name)
        return path, self.io.new_output(path).create()

    def open(self, path: str) -> Any:
        return self.io.new_input(path).open()

    def describe(
        self,
        path: str,
        partition: PartitionValues,
        metadata: Any,
        byte_count: int | None = None,
    ) -> DataFile:
        """Describe a data file; *metadata* is its footer."""
        if byte_count is None:
            byte_count = len(self.io.new_input(path))
        statistics = data_file_statistics_from_parquet_metadata(
            metadata,
            compute_statistics_plan(self.columns, dict(self.properties)),
            parquet_path_to_id_mapping(self.columns),
        )
        values = [
            partition_record_value(part, value, self.columns)
            for part, value in zip(self.spec.fields, partition, strict=True)
        ]
        file = IcebergDataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            file_size_in_bytes=byte_count,
            sort_order_id=None,
            spec_id=self.spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        return DataFile(
            path=path,
            byte_count=file.file_size_in_bytes,
            row_count=metadata.num_rows,
            partition=partition,
            details=file,
        )

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.io.delete(path)

    @cached_property
    def _locations(self) -> Any:
        return load_location_provider(self.location, dict(self.properties))


def small_files(table: Table, file_bytes: int) -> list[list[FileScanTask]]:
    """
    Return the files that are smaller than *file_bytes* and can be merged, by partition.

    Larger files belong to them if many of their rows are deleted.  Files outside of the
    table's location belong to others and stay; so do files from before a column was
    renamed or changed.
    """
    own = (table.location(), table.location_provider().data_path)
    by_partition: dict[Any, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        file = task.file
        if file.spec_id != table.spec().spec_id:
            continue
        is_small = file.file_size_in_bytes < file_bytes or _is_sparse(task)
        if is_small and file.file_path.startswith(own):
            by_partition.setdefault(file.partition, []).append(task)
    groups = [
        [each for each in tasks if is_copyable(table.io, table.schema(), each)]
        for tasks in by_partition.values()
        if len(tasks) > 1 or any(map(_is_sparse, tasks))
    ]
    return [group for group in groups if len(group) > 1 or any(map(_is_sparse, group))]


def _is_sparse(task: FileScanTask) -> bool:
    """Return whether a tenth of the rows of the file, or more, is deleted."""
    deleted = sum(int(each.record_count) for each in iceberg_deletes.own_deletes(task))
    return deleted * 10 >= int(task.file.record_count) and deleted > 0


def is_copyable(io: FileIO, of_table: Schema, task: FileScanTask) -> bool:
    """Return whether the file's columns are, by id and name, those *of_table*."""
    if not iceberg_deletes.are_known(task):
        return False
    with io.new_input(task.file.file_path).open() as source:
        columns = pq.read_schema(source)
    try:
        of_file = pyarrow_to_schema(columns)
    except (TypeError, ValueError, UnsupportedPyArrowTypeException):
        # Columns without ids, or of types that Iceberg lacks.
        return False
    return all(
        of_table.find_column_name(number) == of_file.find_column_name(number)
        and _is_same_type(of_table.find_type(number), field.field_type)
        for number, field in index_by_id(of_file).items()
    )


def _is_same_type(has: IcebergType, of_file: IcebergType) -> bool:
    """Return whether values *of_file* are those of *has*, perhaps widened since."""
    if not has.is_primitive:
        # The fields inside have ids of their own.
        return type(has) is type(of_file)
    if isinstance(has, DecimalType) and isinstance(of_file, DecimalType):
        return bool(has.scale == of_file.scale and has.precision >= of_file.precision)
    return has == of_file or (type(of_file), type(has)) in _WIDENED


def read_rows(io: FileIO, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a copyable file that are not deleted, with its columns."""
    live, start = iceberg_deletes.live_rows(io, task), 0
    for batch in read_batches(io, task):
        part = live[start : start + batch.num_rows]
        start += batch.num_rows
        yield batch if part.all() else batch.filter(pa.array(part))


def read_batches(
    io: FileIO,
    task: FileScanTask,
    columns: Sequence[str] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a copyable file, with *columns*; None: all that it has."""
    # Not with pyiceberg, which reads a null list as an empty one.
    with io.new_input(task.file.file_path).open() as source:
        file = pq.ParquetFile(source)
        names = None if columns is None else [*columns]
        yield from file.iter_batches(batch_rows, columns=names, use_threads=False)


def rewrite(
    table: Table,
    location: IcebergLocation,
    groups: Sequence[Sequence[FileScanTask]],
    file_bytes: int,
) -> CompactionResult:
    """
    Merge the files of each of *groups*, and replace them in one transaction.

    Bounds: One batch is in memory at a time.

    Raises:
        CommitFailedException, ValidationException: The table has changed meanwhile;
            the new files are deleted.
    """
    written: list[DataFile] = []
    try:
        for group in groups:
            batches = (each for task in group for each in read_rows(table.io, task))
            written += write_files(
                location, batches, "compacted", file_bytes_max=file_bytes
            )
    except BaseException:
        delete(location, written)
        raise
    try:
        _exchange(table, groups, written)
    except (CommitFailedException, ValidationException):
        # After any other error the new files may be part of the table.
        delete(location, written)
        raise
    return CompactionResult(
        files_before=sum(map(len, groups)),
        files_after=len(written),
        bytes_before=sum(
            task.file.file_size_in_bytes for group in groups for task in group
        ),
        bytes_after=sum(each.byte_count for each in written),
    )


def _exchange(
    table: Table,
    groups: Sequence[Sequence[FileScanTask]],
    written: Sequence[DataFile],
) -> None:
    with table.transaction() as transaction:
        iceberg_deletes.exchange(
            transaction,
            {COMPACTION: "true"},
            replaced=[task for group in groups for task in group],
            added=written,
        )


def delete(location: IcebergLocation, files: Sequence[DataFile]) -> None:
    """Delete *files*, which are not part of the table."""
    for file in files:
        location.delete(file.path)


def orphans(table: Table, *, older_than_s: float, now: float) -> list[str]:
    """
    Return the paths of this library's files that no snapshot of *table* references.
    """
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise InvalidRequest(
            "the table's storage cannot be listed: set the catalog's property "
            "py-io-impl to pyiceberg.io.pyarrow.PyArrowFileIO"
        )
    root = table.location_provider().data_path
    scheme, netloc, path = PyArrowFileIO.parse_location(root)
    listed = fs.FileSelector(path, recursive=True, allow_not_found=True)
    known = {path.rpartition("/")[2] for path in referenced(table)}
    return sorted(
        root + info.path[len(path) :]
        for info in io.fs_by_scheme(scheme, netloc).get_file_info(listed)
        if info.is_file
        and info.base_name.startswith(PREFIX)
        and info.base_name not in known
        and info.mtime_ns / NANOSECONDS <= now - older_than_s
    )


def referenced(table: Table) -> set[str]:
    """Return the paths of the files that any snapshot of *table* references."""
    return {
        entry.data_file.file_path
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }
