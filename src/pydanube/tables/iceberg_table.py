"""
An Iceberg table, found through its catalog and accessed with ``pyiceberg``.

The version of an application is a property of the table, set in the commit that adds
the files.  It therefore outlives the snapshots, which expire.
"""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, TableProperties

from pydanube.model.errors import InvalidConfig, InvalidRequest, NotFound
from pydanube.tables import iceberg_files
from pydanube.tables.iceberg_files import IcebergLocation
from pydanube.tables.partitioning import check_transform
from pydanube.tables.schema_evolution import added_columns, plain_schema, rows_schema
from pydanube.tables.table import CompactionResult, retry_conflicts
from pydanube.tables.table_options import PartitionField

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyiceberg.catalog import Catalog

    from pydanube.tables.data_files import DataFile
    from pydanube.tables.partitioning import PartitionValues
    from pydanube.tables.table import AppTransaction
    from pydanube.tables.table_options import WriteOptions

APP_VERSION_PROPERTY = "danube.mark."
"""The prefix of the properties that store the versions of applications."""

_CONFLICTS = (CommitFailedException, ValidationException)
_NO_RETRIES = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True)
class IcebergLakeTable:
    """An Iceberg table, by its name in a catalog."""

    identifier: str
    catalog: Mapping[str, str]
    """Its properties; ``name`` is the catalog's name in pyiceberg's configuration."""
    wait: Callable[[float], None] = time.sleep

    @property
    def name(self) -> str:
        return self.identifier

    def schema(self) -> pa.Schema | None:
        with self._opened() as table:
            return None if table is None else _schema_of(table)

    def properties(self) -> Mapping[str, str]:
        with self._opened() as table:
            return {} if table is None else dict(table.properties)

    def app_versions(self, apps: Iterable[str]) -> dict[str, int | None]:
        with self._opened() as table:
            if table is None:
                return dict.fromkeys(apps)
            return {app: app_version_in(table, app) for app in apps}

    def check(self, schema: pa.Schema, options: WriteOptions) -> None:
        with self._opened() as table:
            self._check(table, schema, options)

    def prepare(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str] | None = None,
    ) -> IcebergLocation:
        schema = rows_schema(schema)
        with self._catalog() as catalog:

            def attempt() -> IcebergLocation:
                table = _load(catalog, self.identifier)
                self._check(table, schema, options)
                if table is None:
                    self._create(catalog, schema, options, properties)
                elif len(
                    added_columns(_schema_of(table), schema, merge=options.merge_schema)
                ):
                    with table.update_schema() as update:
                        update.union_by_name(schema)
                else:
                    return _location_of(table, schema)
                return _location_of(catalog.load_table(self.identifier), schema)

            return retry_conflicts(
                self.identifier,
                attempt,
                (CommitFailedException, TableAlreadyExistsError),
                self.wait,
            )

    def commit(
        self,
        files: Sequence[DataFile],
        transactions: Sequence[AppTransaction],
        *,
        replace: bool = False,
        note: Mapping[str, str] | None = None,
    ) -> bool:
        def attempt() -> bool:
            with self._required() as table:
                # Check all of them: each may raise.
                reached = [
                    each.is_reached(app_version_in(table, each.app))
                    for each in transactions
                ]
                if any(reached):
                    return False
                try:
                    with _without_retries(table).transaction() as transaction:
                        if transactions:
                            transaction.set_properties(
                                {
                                    APP_VERSION_PROPERTY + each.app: str(each.version)
                                    for each in transactions
                                }
                            )
                        if replace and table.current_snapshot() is not None:
                            transaction.delete(AlwaysTrue())
                        # Also without files: only a snapshot makes concurrent
                        # commits of the same application fail.
                        if files or transactions:
                            with transaction.update_snapshot(
                                dict(note or {})
                            ).fast_append() as append:
                                for file in files:
                                    append.append_data_file(file.details)
                except CommitStateUnknownException:
                    # The commit may have succeeded; the table tells.
                    if not self._is_committed(files, transactions):
                        raise
                return True

        return retry_conflicts(self.identifier, attempt, _CONFLICTS, self.wait)

    def describe_external_files(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str],
        files: Sequence[tuple[str, PartitionValues]],
    ) -> list[DataFile]:
        """
        Return *files*, which are outside of the table's location, ready for a commit.

        Their columns have no field ids, so the table gets a name mapping.
        """
        self.prepare(schema, options, properties)
        with self._required() as table:
            if TableProperties.DEFAULT_NAME_MAPPING not in table.properties:
                mapping = table.schema().name_mapping.model_dump_json()
                with table.transaction() as transaction:
                    transaction.set_properties(
                        {TableProperties.DEFAULT_NAME_MAPPING: mapping}
                    )
            location = _location_of(table, _schema_of(table))
        return [
            location.describe(path, partition, iceberg_files.footer(location.io, path))
            for path, partition in files
        ]

    def unreferenced(self, files: Sequence[DataFile]) -> list[DataFile]:
        with self._opened() as table:
            known = set() if table is None else iceberg_files.referenced(table)
            return [each for each in files if each.path not in known]

    def compact(self, *, file_bytes: int, plan_only: bool = False) -> CompactionResult:
        def attempt() -> CompactionResult:
            with self._required() as table:
                groups = iceberg_files.small_files(table, file_bytes)
                if plan_only:
                    return iceberg_files.planned(groups, file_bytes)
                location = _location_of(table, _schema_of(table))
                return iceberg_files.rewrite(
                    _without_retries(table), location, groups, file_bytes
                )

        return retry_conflicts(self.identifier, attempt, _CONFLICTS, self.wait)

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
        return not self.unreferenced(files)

    def _check(
        self, table: Table | None, schema: pa.Schema, options: WriteOptions
    ) -> None:
        schema = plain_schema(schema)
        for part in options.partition_by:
            if part.column not in schema.names:
                raise InvalidRequest(
                    f"partitionBy: the rows have no column {part.column!r}"
                )
            check_transform(schema.field(part.column).type, part.transform, part.column)
        if table is None:
            return
        has = _partition_by(table)
        if options.partition_by and list(options.partition_by) != has:
            raise InvalidRequest(
                "partitionBy: the table is partitioned by "
                f"{', '.join(map(str, has)) or 'nothing'}, not by "
                f"{', '.join(map(str, options.partition_by))}; omit the option"
            )
        lacking = [part.column for part in has if part.column not in schema.names]
        if lacking:
            raise InvalidRequest(
                f"the rows lack the table's partition columns {', '.join(lacking)}"
            )
        added_columns(_schema_of(table), schema, merge=options.merge_schema)

    def _create(
        self,
        catalog: Catalog,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str] | None,
    ) -> None:
        catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
        with catalog.create_table_transaction(
            self.identifier, schema, properties=dict(properties or {})
        ) as transaction:
            if options.partition_by:
                with transaction.update_spec() as spec:
                    for part in options.partition_by:
                        spec.add_field(part.column, part.transform)

    @contextmanager
    def _catalog(self) -> Iterator[Catalog]:
        properties = dict(self.catalog)
        try:
            found = load_catalog(properties.pop("name", None), **properties)
        except ValueError as error:
            raise InvalidConfig(f"catalog: {error}") from error
        with closing(found):
            yield found

    @contextmanager
    def _opened(self) -> Iterator[Table | None]:
        with self._catalog() as catalog:
            yield _load(catalog, self.identifier)

    @contextmanager
    def _required(self) -> Iterator[Table]:
        with self._opened() as table:
            if table is None:
                raise NotFound(f"the catalog has no table {self.identifier}")
            yield table


def app_version_in(table: Table, app: str) -> int | None:
    """Return the version of *app* in *table*."""
    text = table.properties.get(APP_VERSION_PROPERTY + app)
    return None if text is None else int(text)


def _load(catalog: Catalog, identifier: str) -> Table | None:
    try:
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


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


def _schema_of(table: Table) -> pa.Schema:
    return plain_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))


def _partition_by(table: Table) -> list[PartitionField]:
    columns = table.schema()
    return [
        PartitionField(
            columns.find_column_name(part.source_id) or "", str(part.transform)
        )
        for part in table.spec().fields
        if str(part.transform) != "void"
    ]


def _location_of(table: Table, schema: pa.Schema) -> IcebergLocation:
    return IcebergLocation(
        iceberg_files.with_field_ids(schema, table.schema()),
        table.io,
        table.schema(),
        table.spec(),
        table.location(),
        dict(table.properties),
    )
