"""
The files of an Iceberg table: writing, compaction, and orphans.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.
from pyarrow import fs
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, MapType, StructType

from pydanube.model.errors import InvalidRequest
from pydanube.tables.data_files import PREFIX, DataFile, write_files
from pydanube.tables.partitioning import apply_transform
from pydanube.tables.schema_evolution import same_type
from pydanube.tables.table import NO_COMPACTION, CompactionResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.io import FileIO
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

    from pydanube.tables.partitioning import PartitionValues

FIELD_ID = b"PARQUET:field_id"
NANOSECONDS = 1_000_000_000

COMPACTION = "danube.compaction"
"""The property of snapshots that compaction has made."""


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

    def describe(
        self, path: str, partition: PartitionValues, metadata: Any
    ) -> DataFile:
        file = iceberg_data_file(self, path, partition, metadata)
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


def iceberg_data_file(
    location: IcebergLocation, path: str, partition: PartitionValues, metadata: Any
) -> IcebergDataFile:
    """Return the manifest entry of the Parquet file at *path*."""
    statistics = data_file_statistics_from_parquet_metadata(
        metadata,
        compute_statistics_plan(location.columns, dict(location.properties)),
        parquet_path_to_id_mapping(location.columns),
    )
    values = [
        partition_record_value(part, value, location.columns)
        for part, value in zip(location.spec.fields, partition, strict=True)
    ]
    return IcebergDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=len(location.io.new_input(path)),
        sort_order_id=None,
        spec_id=location.spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def with_field_ids(schema: pa.Schema, columns: Schema) -> pa.Schema:
    """Return *schema* with the field ids of *columns*, matched by name."""
    return pa.schema([_with_id(field, columns.as_struct()) for field in schema])


def _with_id(field: Any, columns: StructType) -> Any:
    [found] = [each for each in columns.fields if each.name == field.name]
    return pa.field(
        field.name,
        _inside(field.type, found.field_type),
        nullable=not found.required,
        metadata={FIELD_ID: str(found.field_id)},
    )


def _inside(has: Any, column: Any) -> Any:
    """Return the type *has* with field ids on its nested fields."""
    if isinstance(column, StructType):
        return pa.struct([_with_id(each, column) for each in has])
    if isinstance(column, ListType):
        element = pa.field(
            "element",
            _inside(has.value_type, column.element_type),
            nullable=not column.element_required,
            metadata={FIELD_ID: str(column.element_id)},
        )
        return pa.list_(element)
    if isinstance(column, MapType):
        key = pa.field(
            "key",
            _inside(has.key_type, column.key_type),
            nullable=False,
            metadata={FIELD_ID: str(column.key_id)},
        )
        value = pa.field(
            "value",
            _inside(has.item_type, column.value_type),
            nullable=not column.value_required,
            metadata={FIELD_ID: str(column.value_id)},
        )
        return pa.map_(key, value)
    assert not types.is_nested(has)
    return has


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """Small files of one partition, to be merged."""

    tasks: tuple[FileScanTask, ...]

    @property
    def byte_count(self) -> int:
        """Return the size of all files together."""
        return sum(each.file.file_size_in_bytes for each in self.tasks)


def small_files(table: Table, file_bytes: int) -> list[SmallFiles]:
    """
    Return the files in *table* that are smaller than *file_bytes* and can be merged.

    Files outside of the table's location belong to others and stay; so do files with
    deleted rows, and files from before a column was renamed or changed.
    """
    own = (table.location(), table.location_provider().data_path)
    by_partition: dict[Any, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        file = task.file
        if file.spec_id != table.spec().spec_id:
            continue
        if file.file_size_in_bytes < file_bytes and file.file_path.startswith(own):
            by_partition.setdefault(file.partition, []).append(task)
    by_partition = {
        partition: [each for each in tasks if _is_copyable(table, each)]
        for partition, tasks in by_partition.items()
        if len(tasks) > 1
    }
    return [SmallFiles(tuple(each)) for each in by_partition.values() if len(each) > 1]


def _is_copyable(table: Table, task: FileScanTask) -> bool:
    """Return whether the file's columns are, by id and name, columns of the table."""
    if task.delete_files:
        return False
    with table.io.new_input(task.file.file_path).open() as source:
        columns = pq.read_schema(source)
    return all(_is_same(each, table.schema().as_struct()) for each in columns)


def _is_same(field: Any, columns: StructType) -> bool:
    """Return whether *field* of a file is the field of its name in *columns*."""
    found = [each for each in columns.fields if each.name == field.name]
    return (
        bool(found)
        and _id(field) == found[0].field_id
        and _is_same_inside(field.type, found[0].field_type)
    )


def _is_same_inside(has: Any, column: Any) -> bool:
    if isinstance(column, StructType):
        return types.is_struct(has) and all(_is_same(each, column) for each in has)
    if isinstance(column, ListType):
        return (
            types.is_list(has)
            and _id(has.value_field) == column.element_id
            and _is_same_inside(has.value_type, column.element_type)
        )
    if isinstance(column, MapType):
        return (
            types.is_map(has)
            and (_id(has.key_field), _id(has.item_field))
            == (column.key_id, column.value_id)
            and _is_same_inside(has.key_type, column.key_type)
            and _is_same_inside(has.item_type, column.value_type)
        )
    return same_type(has, schema_to_pyarrow(column))


def _id(field: Any) -> int | None:
    text = (field.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


def _rows(table: Table, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    # Not with pyiceberg, which reads a null list as an empty one.
    with table.io.new_input(task.file.file_path).open() as source:
        yield from pq.ParquetFile(source).iter_batches(use_threads=False)


def footer(io: FileIO, path: str) -> Any:
    """Return the footer of the Parquet file at *path*."""
    with io.new_input(path).open() as source:
        return pq.read_metadata(source)


def planned(groups: Sequence[SmallFiles], file_bytes: int) -> CompactionResult:
    """Return the result that ``rewrite`` would have."""
    byte_count = sum(each.byte_count for each in groups)
    return CompactionResult(
        files_before=sum(len(each.tasks) for each in groups),
        files_after=sum(-(-each.byte_count // file_bytes) for each in groups),
        bytes_before=byte_count,
        bytes_after=byte_count,
    )


def rewrite(
    table: Table,
    location: IcebergLocation,
    groups: Sequence[SmallFiles],
    file_bytes: int,
) -> CompactionResult:
    """
    Merge the files of each of *groups*, and replace them in one transaction.

    Bounds: One batch is in memory at a time.

    Raises:
        CommitFailedException, ValidationException: The table has changed meanwhile;
            the new files are deleted.
    """
    if not groups:
        return NO_COMPACTION
    written: list[DataFile] = []
    try:
        for group in groups:
            batches = (each for task in group.tasks for each in _rows(table, task))
            written += write_files(
                location, batches, "compacted", file_bytes_max=file_bytes
            )
    except BaseException:
        _delete(location, written)
        raise
    try:
        _exchange(table, groups, written)
    except (CommitFailedException, ValidationException):
        # After any other error the new files may be part of the table.
        _delete(location, written)
        raise
    return CompactionResult(
        files_before=sum(len(each.tasks) for each in groups),
        files_after=len(written),
        bytes_before=sum(each.byte_count for each in groups),
        bytes_after=sum(each.byte_count for each in written),
    )


def _exchange(
    table: Table, groups: Sequence[SmallFiles], written: Sequence[DataFile]
) -> None:
    with (
        table.transaction() as transaction,
        transaction.update_snapshot({COMPACTION: "true"}).overwrite() as change,
    ):
        for group in groups:
            for task in group.tasks:
                change.delete_data_file(task.file)
        for file in written:
            change.append_data_file(file.details)


def _delete(location: IcebergLocation, files: Sequence[DataFile]) -> None:
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
