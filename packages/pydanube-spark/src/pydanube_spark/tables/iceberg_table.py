"""
An Iceberg table, found through its catalog and accessed with ``pyiceberg``.

The version of an application is a property of the table, set in the commit that adds
the files.  It therefore outlives the snapshots, which expire.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyarrow.parquet import FileMetaData
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import (
    UnsupportedPyArrowTypeException,
    _pyarrow_to_schema_without_ids,
    schema_to_pyarrow,
)
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction

from pydanube.model.errors import InvalidConfig, InvalidRequest, NotFound
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables import iceberg_deletes, iceberg_files, iceberg_merge
from pydanube_spark.tables.data_files import DataFile
from pydanube_spark.tables.iceberg_files import IcebergLocation
from pydanube_spark.tables.merge_runners import MergeRunners
from pydanube_spark.tables.pure.app_transactions import AppTransaction
from pydanube_spark.tables.pure.partitioning import PartitionValues, check_partition_by
from pydanube_spark.tables.pure.schema_evolution import (
    added_columns,
    plain_schema,
    rows_schema,
    widened_columns,
    with_nullability,
)
from pydanube_spark.tables.pure.table_options import PartitionField, WriteOptions
from pydanube_spark.tables.staged_rows import Changes
from pydanube_spark.tables.table import (
    CompactionResult,
    JobRunners,
    LakeTable,
)

APP_VERSION_PROPERTY = "danube.mark."
"""The prefix of the properties that store the versions of applications."""

_NO_RETRIES = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalFile:
    """A Parquet file that becomes a data file of a table where it is."""

    url: str
    partition: PartitionValues
    footer: FileMetaData
    byte_count: int


@dataclass(frozen=True)
class IcebergLakeTable(LakeTable):
    """
    An Iceberg table, by its name in a catalog.

    The property ``name`` is the catalog's name in pyiceberg's configuration.
    """

    wait: Callable[[float], None] = time.sleep
    rewrite_bytes_max: int = iceberg_merge.REWRITE_BYTES_MAX
    """The size up to which files are rewritten if a row is replaced or deleted."""
    conflicts: ClassVar = (
        CommitFailedException,
        TableAlreadyExistsError,
        ValidationException,
    )

    def prepare(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str] | None = None,
    ) -> IcebergLocation:
        schema = rows_schema(schema)
        with self._catalog() as catalog:

            def attempt() -> IcebergLocation:
                table = _load(catalog, self.name)
                self._check(table, schema, options)
                if table is None:
                    self._create(catalog, schema, options, properties)
                elif len(self._added_columns(table, schema, options)) or (
                    widened_columns(self._schema_of(table), schema)
                ):
                    has = schema_to_pyarrow(table.schema(), include_field_ids=False)
                    with table.update_schema() as update:
                        # A union makes columns optional that are so in its schema.
                        update.union_by_name(with_nullability(has, schema))
                else:
                    return _location_of(table, schema.names)
                return _location_of(catalog.load_table(self.name), schema.names)

            return self._retry_conflicts(attempt)

    def _commit(
        self,
        table: Table,
        files: Sequence[DataFile],
        transactions: Sequence[AppTransaction],
        *,
        replace: bool,
        note: dict[str, str],
    ) -> None:
        with self._transaction(table, files, transactions) as transaction:
            if replace and table.current_snapshot() is not None:
                iceberg_deletes.replace_all(transaction, note, files)
                return
            # Also without files: only a snapshot makes concurrent commits of the
            # same application fail.
            if files or transactions:
                with transaction.update_snapshot(note).fast_append() as append:
                    for file in files:
                        append.append_data_file(file.details)

    def _merge(
        self,
        table: Table,
        changes: Changes,
        columns: UpsertColumns,
        transactions: Sequence[AppTransaction],
        *,
        note: dict[str, str],
        file_bytes_max: int,
        runners: JobRunners | None,
    ) -> None:
        location = _location_of(table)
        found = iceberg_merge.merge_rows(
            table,
            location,
            changes,
            columns,
            runners or MergeRunners(),
            file_bytes_max=file_bytes_max,
            rewrite_bytes_max=self.rewrite_bytes_max,
        )
        try:
            with self._transaction(table, found.written, transactions) as transaction:
                # The application's version needs a snapshot, even an empty one.
                if found.rewritten or found.marked:
                    iceberg_deletes.exchange(
                        transaction,
                        note,
                        replaced=found.rewritten,
                        added=found.added,
                        changed=found.marked,
                    )
                    return
                with transaction.update_snapshot(note).fast_append() as append:
                    for file in found.added:
                        append.append_data_file(file.details)
        except (CommitFailedException, ValidationException):
            # After any other error the new files may be part of the table.
            iceberg_files.delete(location, found.written)
            raise

    @contextmanager
    def _transaction(
        self,
        table: Table,
        files: Sequence[DataFile],
        transactions: Sequence[AppTransaction],
    ) -> Iterator[Transaction]:
        """Commit the changes of the body, with the versions of *transactions*."""
        versions = {
            APP_VERSION_PROPERTY + each.app: str(each.version) for each in transactions
        }
        try:
            with _without_retries(table).transaction() as transaction:
                if versions:
                    transaction.set_properties(versions)
                yield transaction
        except CommitStateUnknownException:
            # The commit may have succeeded; the table tells.
            if not self._is_committed(files, transactions):
                raise

    def describe_external_files(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str],
        files: Sequence[ExternalFile],
    ) -> list[DataFile]:
        """
        Return *files*, which are outside of the table's location, ready for a commit.

        They are not opened, because the catalog may have no access to them.  Their
        columns have no field ids, so the table gets a name mapping.
        """
        self.prepare(schema, options, properties)
        with self._required() as table:
            if TableProperties.DEFAULT_NAME_MAPPING not in table.properties:
                mapping = table.schema().name_mapping.model_dump_json()
                with table.transaction() as transaction:
                    transaction.set_properties(
                        {TableProperties.DEFAULT_NAME_MAPPING: mapping}
                    )
            location = _location_of(table)
        return [
            location.describe(each.url, each.partition, each.footer, each.byte_count)
            for each in files
        ]

    def compact(self, *, file_bytes: int, plan_only: bool = False) -> CompactionResult:
        def attempt() -> CompactionResult:
            with self._required() as table:
                groups = iceberg_files.small_files(table, file_bytes)
                if plan_only or not groups:
                    sizes = [
                        [task.file.file_size_in_bytes for task in group]
                        for group in groups
                    ]
                    return CompactionResult.planned(sizes, file_bytes)
                return iceberg_files.rewrite(
                    _without_retries(table), _location_of(table), groups, file_bytes
                )

        return self._retry_conflicts(attempt)

    def clean(
        self, *, older_than_s: float, now: float, plan_only: bool = False
    ) -> list[str]:
        with self._required() as table:
            paths = iceberg_files.orphans(table, older_than_s=older_than_s, now=now)
            if not plan_only:
                for path in paths:
                    table.io.delete(path)
            return paths

    def _is_committed(
        self, files: Sequence[DataFile], transactions: Sequence[AppTransaction]
    ) -> bool:
        if transactions:
            now = self.app_versions([each.app for each in transactions])
            return all(now[each.app] == each.version for each in transactions)
        # A merge that only deletes leaves nothing by which it could be recognised.
        return bool(files) and not self.unreferenced(files)

    def _check(
        self, table: Table | None, schema: pa.Schema, options: WriteOptions
    ) -> None:
        try:
            # The public function needs ids, which only the table gives.
            _pyarrow_to_schema_without_ids(schema)
        except UnsupportedPyArrowTypeException as error:
            raise InvalidRequest(
                f"an Iceberg table cannot have these columns: {error}"
            ) from error
        has = None if table is None else _partition_by(table)
        check_partition_by(schema, options.partition_by, has)
        if table is not None:
            self._added_columns(table, schema, options)

    def _added_columns(
        self, table: Table, schema: pa.Schema, options: WriteOptions
    ) -> pa.Schema:
        return added_columns(
            self._schema_of(table),
            schema,
            merge=options.merge_schema,
            whole=bool(options.upsert.keys),
        )

    def _create(
        self,
        catalog: Catalog,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str] | None,
    ) -> None:
        catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        with catalog.create_table_transaction(
            self.name, schema, properties=dict(properties or {})
        ) as transaction:
            if options.partition_by:
                with transaction.update_spec() as spec:
                    for part in options.partition_by:
                        spec.add_field(part.column, part.transform)

    def data_version(self) -> int | None:
        """See the base class; it is the id of the current snapshot."""
        with self._opened() as table:
            if table is None:
                raise NotFound(f"there is no Iceberg table {self.name}")
            snapshot = table.current_snapshot()
            return None if snapshot is None else int(snapshot.snapshot_id)

    def file_count(self, version: int) -> int:
        with self._opened() as table:
            assert table is not None
            return len(_files_of(table, version))

    def read_file(self, version: int, index: int) -> Iterator[pa.RecordBatch]:
        """See the base class."""
        with self._opened() as table:
            assert table is not None
            task = _files_of(table, version)[index]
            if not iceberg_files.is_copyable(table.io, table.schema(), task):
                raise InvalidRequest(
                    f"{self.name} cannot be read: {task.file.file_path} has rows "
                    "that were deleted in another way, or columns that were renamed or "
                    "changed since"
                )
            yield from iceberg_files.read_rows(table.io, task)

    @contextmanager
    def _catalog(self) -> Iterator[Catalog]:
        properties = dict(self.connection)
        try:
            found = load_catalog(properties.pop("name", None), **properties)
        except ValueError as error:
            raise InvalidConfig(f"catalog: {error}") from error
        with closing(found):
            yield found

    @contextmanager
    def _opened(self) -> Iterator[Table | None]:
        with self._catalog() as catalog:
            yield _load(catalog, self.name)

    def _schema_of(self, table: Table) -> pa.Schema:
        return plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))

    def _properties_of(self, table: Table) -> Mapping[str, str]:
        return dict(table.properties)

    def _app_version(self, table: Table, app: str) -> int | None:
        text = table.properties.get(APP_VERSION_PROPERTY + app)
        return None if text is None else int(text)

    def _referenced(self, table: Table) -> Collection[str]:
        return iceberg_files.referenced(table)


def _load(catalog: Catalog, identifier: str) -> Table | None:
    try:
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def _files_of(table: Table, snapshot: int) -> list[FileScanTask]:
    """Return the data files of a snapshot in an order that is always the same."""
    found = table.scan(snapshot_id=snapshot).plan_files()
    return sorted(found, key=lambda each: str(each.file.file_path))


def _without_retries(table: Table) -> Table:
    """
    Return *table* without pyiceberg's own retries.

    They would not check again whether an application's version has changed.
    """
    metadata = table.metadata.model_copy(
        update={"properties": table.metadata.properties | _NO_RETRIES}
    )
    return Table(
        table.name(), metadata, table.metadata_location, table.io, table.catalog
    )


def _partition_by(table: Table) -> list[PartitionField]:
    columns = table.schema()
    return [
        PartitionField(
            columns.find_column_name(part.source_id) or "", str(part.transform)
        )
        for part in table.spec().fields
        if str(part.transform) != "void"
    ]


def _location_of(table: Table, names: Sequence[str] | None = None) -> IcebergLocation:
    """Return the location for files with the columns *names*; None: all columns."""
    columns = schema_to_pyarrow(table.schema())
    return IcebergLocation(
        plain_schema(
            pa.schema([columns.field(name) for name in names or columns.names]),
            keep=True,
        ),
        table.io,
        table.schema(),
        table.spec(),
        table.location(),
        dict(table.properties),
    )
