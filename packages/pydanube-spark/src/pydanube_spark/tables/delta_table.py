"""
A Delta table, accessed with the package ``deltalake``.

The version of an application is an application transaction of Delta's protocol, in the
commit that adds the files.  Delta itself detects concurrent commits of an application.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    QueryBuilder,
    Schema,
    Transaction,
    WriterProperties,
)
from deltalake.exceptions import (
    CommitFailedError,
    DeltaProtocolError,
    TableNotFoundError,
)
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow import fs

from pydanube.model.errors import InvalidRequest, NotFound
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.data_files import (
    COMPRESSION,
    COMPRESSION_LEVEL,
    PREFIX,
    DataFile,
)
from pydanube_spark.tables.pure import delta_merge, delta_statistics
from pydanube_spark.tables.pure.app_transactions import AppTransaction
from pydanube_spark.tables.pure.partitioning import (
    PartitionValues,
    check_delta_partition,
    check_partition_by,
    check_transform,
    delta_text,
)
from pydanube_spark.tables.pure.schema_evolution import (
    added_columns,
    plain_schema,
    plain_type,
    rows_schema,
    stored_schema,
)
from pydanube_spark.tables.pure.table_options import PartitionField, WriteOptions
from pydanube_spark.tables.pure.unavailable_values import StoredValues
from pydanube_spark.tables.staged_rows import Changes
from pydanube_spark.tables.table import (
    CompactionResult,
    JobRunners,
    LakeTable,
)

HOUR_S = 3600

IN_MEMORY_BYTES_MAX = 256 * 1024 * 1024
"""The size of the changes up to which all of them are in memory in a merge."""

WRITER_FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""Features that, if unused, require nothing of a writer that only adds files."""

_CONSTRAINTS = (
    "delta.invariants",
    "delta.generationExpression",
    "delta.identity.start",
)
"""Constraints in the metadata of a column, which writers must enforce."""

_WIDENING = (
    "rewrite the Delta table with the wider columns, which the package deltalake does "
    "not widen in place: docs/guide/delta.md, section New columns, shows how"
)


@dataclass(frozen=True)
class DeltaLocation:
    """The storage of a Delta table's files: its directory."""

    uri: str
    storage: Mapping[str, str]
    schema: pa.Schema
    partition_by: tuple[str, ...]

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def keys(self, batch: pa.RecordBatch) -> list[Any]:
        return [batch.column(name) for name in self.partition_by]

    def create(self, name: str) -> tuple[str, Any]:
        return name, self._files.open_output_stream(name)

    def open(self, path: str) -> Any:
        return self._files.open_input_file(path)

    def describe(
        self, path: str, partition: PartitionValues, metadata: Any
    ) -> DataFile:
        info = self._files.get_file_info(path)
        return DataFile(
            path=path,
            byte_count=info.size,
            row_count=metadata.num_rows,
            partition=partition,
            details=(
                info.mtime_ns // 1_000_000,
                json.dumps(delta_statistics.collect(metadata)),
            ),
        )

    def delete(self, path: str) -> None:
        if self._files.get_file_info(path).type != fs.FileType.NotFound:
            self._files.delete_file(path)

    @cached_property
    def _files(self) -> Any:
        handler = DeltaStorageHandler(self.uri, dict(self.storage))
        return fs.PyFileSystem(handler)


@dataclass(frozen=True)
class DeltaLakeTable(LakeTable):
    """A Delta table, whose name is its URI."""

    wait: Callable[[float], None] = time.sleep
    conflicts: ClassVar = (CommitFailedError,)

    def prepare(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaLocation:
        schema = rows_schema(schema)
        table = self._load()
        self._check(table, schema, options)
        if table is None:
            DeltaTable.create(
                self.name,
                _delta_schema(schema),
                mode="ignore",
                partition_by=[part.column for part in options.partition_by],
                configuration=dict(properties or {}),
                storage_options=dict(self.connection) or None,
                raise_if_key_not_exists=False,
            )
            table = self._load()
            assert table is not None
            # A concurrent writer may have created it, and differently.
            self._check(table, schema, options)
        added = _added_columns(self._schema_of(table), schema, options)
        if len(added):
            features = table.protocol().writer_features or ()
            table.alter.add_columns(list(_delta_schema(added, features).fields))
            table.update_incremental()
        has = self._schema_of(table)
        return DeltaLocation(
            self.name,
            self.connection,
            pa.schema(
                [
                    each.with_nullable(has.field(each.name).nullable)
                    for each in stored_schema(has, schema)
                ]
            ),
            tuple(table.metadata().partition_columns),
        )

    def _commit(
        self,
        table: DeltaTable,
        files: Sequence[DataFile],
        transactions: Sequence[AppTransaction],
        *,
        replace: bool,
        note: dict[str, str],
    ) -> None:
        partition_by = table.metadata().partition_columns
        table.create_write_transaction(
            [_add_action(each, partition_by) for each in files],
            "overwrite" if replace else "append",
            table.schema(),
            partition_by=partition_by,
            commit_properties=_commit_properties(transactions, note),
        )

    def _merge(
        self,
        table: DeltaTable,
        changes: Changes,
        columns: UpsertColumns,
        transactions: Sequence[AppTransaction],
        *,
        note: dict[str, str],
        file_bytes_max: int,
        runners: JobRunners | None,
    ) -> None:
        # The property delta.targetFileSize of the table applies.  Jobs elsewhere cannot
        # do the merge: a commit of files that the library has not merged itself would
        # not conflict with a concurrent append of the same keys.
        del file_bytes_max, runners
        before = table.version()
        parts = _Parts(table, changes, columns)
        try:
            properties = _commit_properties(transactions, note)
            self._execute(table, parts, columns, properties)
        except Exception:
            # The library turns what is raised while it reads into an error of its own.
            if parts.error is not None:
                raise parts.error from None
            raise
        if table.version() == before:
            # A merge that changes no row makes no commit.
            self._commit(table, [], transactions, replace=False, note=note)

    def _execute(
        self,
        table: DeltaTable,
        parts: _Parts,
        columns: UpsertColumns,
        properties: CommitProperties,
    ) -> None:
        names = [name for name in parts.schema.names if name != columns.delete]
        is_current = delta_merge.is_current(columns.order)
        is_deletion = delta_merge.is_deletion(columns)
        (
            table.merge(
                parts.reader(),
                delta_merge.matches(columns),
                source_alias=delta_merge.SOURCE,
                target_alias=delta_merge.TARGET,
                # With statistics of the changes, files without their keys are skipped,
                # but then all changes are in memory.
                streamed_exec=parts.byte_count > IN_MEMORY_BYTES_MAX,
                writer_properties=WriterProperties(
                    compression=COMPRESSION.upper(), compression_level=COMPRESSION_LEVEL
                ),
                commit_properties=properties,
            )
            .when_matched_delete(f"{is_deletion} AND {is_current}")
            .when_matched_update(delta_merge.assignments(names), is_current)
            .when_not_matched_insert(
                delta_merge.assignments(names), f"NOT ({is_deletion})"
            )
            .execute()
        )

    def compact(self, *, file_bytes: int, plan_only: bool = False) -> CompactionResult:
        with self._required() as table:
            sizes = _sizes(table)
            planned = CompactionResult.planned(
                _small_files(table, file_bytes), file_bytes
            )
        if plan_only or not planned.files_before:
            return planned

        def attempt() -> None:
            with self._required() as table:
                table.optimize.compact(target_size=file_bytes)

        self._retry_conflicts(attempt)
        with self._required() as table:
            now = _sizes(table)
        gone, come = set(sizes) - set(now), set(now) - set(sizes)
        return CompactionResult(
            files_before=len(gone),
            files_after=len(come),
            bytes_before=sum(sizes[each] for each in gone),
            bytes_after=sum(now[each] for each in come),
        )

    def clean(
        self, *, older_than_s: float, now: float, plan_only: bool = False
    ) -> list[str]:
        del now  # Delta reads the clock itself.
        hours = -int(-older_than_s // HOUR_S)

        def vacuum(*, is_dry: bool, is_full: bool) -> list[str]:
            with self._required() as table:
                found: list[str] = table.vacuum(
                    retention_hours=hours,
                    dry_run=is_dry,
                    enforce_retention_duration=False,
                    full=is_full,
                )
                return found

        # Files of others in the directory stay.
        replaced = set(vacuum(is_dry=True, is_full=False))
        left = [
            path
            for path in vacuum(is_dry=True, is_full=True)
            if path.rpartition("/")[2].startswith(PREFIX) and path not in replaced
        ]
        if not plan_only:
            vacuum(is_dry=False, is_full=False)
            location = DeltaLocation(self.name, self.connection, pa.schema([]), ())
            for path in left:
                location.delete(path)
        return sorted([*replaced, *left])

    def data_version(self) -> int | None:
        """See the base class; it is the version of the table."""
        table = self._load()
        if table is None:
            raise NotFound(f"there is no Delta table at {self.name}")
        version: int = table.version()
        return version

    def file_count(self, version: int) -> int:
        return len(self._fragments(version)[1])

    def read_file(self, version: int, index: int) -> Iterator[pa.RecordBatch]:
        """See the base class; partition columns are not in the file."""
        schema, fragments = self._fragments(version)
        yield from fragments[index].to_batches(schema=schema)

    def _fragments(self, version: int) -> tuple[pa.Schema, list[Any]]:
        connection = dict(self.connection) or None
        table = DeltaTable(self.name, version=version, storage_options=connection)
        try:
            dataset = table.to_pyarrow_dataset()
        except DeltaProtocolError as error:
            raise InvalidRequest(f"{self.name} cannot be read: {error}") from error
        return dataset.schema, sorted(
            dataset.get_fragments(), key=lambda each: str(each.path)
        )

    @contextmanager
    def _opened(self) -> Iterator[DeltaTable | None]:
        yield self._load()

    def _load(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.name, storage_options=dict(self.connection) or None)
        except TableNotFoundError:
            return None

    def _schema_of(self, table: DeltaTable) -> pa.Schema:
        return plain_schema(pa.schema(table.schema().to_arrow()))

    def _properties_of(self, table: DeltaTable) -> Mapping[str, str]:
        return dict(table.metadata().configuration)

    def _app_version(self, table: DeltaTable, app: str) -> int | None:
        version: int | None = table.transaction_version(app)
        return version

    def _referenced(self, table: DeltaTable) -> Collection[str]:
        return _sizes(table).keys()

    def _check(
        self, table: DeltaTable | None, schema: pa.Schema, options: WriteOptions
    ) -> None:
        if table is None:
            has = None
            _delta_schema(schema)
        else:
            has = [PartitionField(name) for name in table.metadata().partition_columns]
        check_partition_by(schema, options.partition_by, has)
        for part in options.partition_by if has is None else has:
            column = plain_type(schema.field(part.column).type)
            check_transform(column, part.transform, part.column)
            check_delta_partition(column, part.column)
        if table is not None:
            _check_writer_requirements(table)
            _added_columns(self._schema_of(table), schema, options)
            if options.upsert.keys:
                _check_updates_allowed(table)


class _Parts:
    """The changes of a batch with all their values, read part by part."""

    def __init__(
        self, table: DeltaTable, changes: Changes, columns: UpsertColumns
    ) -> None:
        self._table = table
        self._changes = changes
        self._columns = columns
        self._first = self._read(0)
        self.error: Exception | None = None
        """The error of reading a later part."""

    @property
    def schema(self) -> pa.Schema:
        return self._first.schema

    @property
    def byte_count(self) -> int:
        return self._changes.byte_count

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._first.to_batches()
        try:
            for number in range(1, self._changes.part_count):
                yield from self._read(number).to_batches()
        except Exception as error:
            self.error = error
            raise

    def _read(self, number: int) -> pa.Table:
        changes = self._changes.latest(number)
        return _with_stored_values(self._table, changes, self._columns)


def _with_stored_values(
    table: DeltaTable, changes: pa.Table, columns: UpsertColumns
) -> pa.Table:
    """Return *changes* with the values of the table's rows that they lack."""
    if columns.unavailable is None:
        return changes
    values = StoredValues(changes, columns)
    if values.names:
        names = dict.fromkeys([*columns.keys, *values.names])
        query = f"SELECT {', '.join(map(delta_merge.quote, names))} FROM t"  # noqa: S608
        for each in QueryBuilder().register("t", table).execute(query):
            rows = pa.record_batch(each)
            plain = plain_schema(rows.schema)
            for batch in pa.Table.from_batches([rows]).cast(plain).to_batches():
                values.add(batch)
    return values.filled()


def _delta_schema(schema: pa.Schema, features: Collection[str] = ()) -> Schema:
    """Return *schema* for a table that is created, or has *features*."""
    for field in schema:
        if "timestampNtz" not in features and _has_map_of_local_times(field.type):
            # The package deltalake enables the feature for other columns only.
            raise InvalidRequest(
                f"a Delta table cannot have the column {field.name}: a map has times "
                "without a time zone; cast them to timestamp"
            )
        try:
            Schema.from_arrow(pa.schema([field]))
        except Exception as error:
            # The other lines are a trace of the library.
            reason = str(error).partition("\n")[0]
            raise InvalidRequest(
                f"a Delta table cannot have the column {field.name}: {reason}"
            ) from error
    return Schema.from_arrow(schema)


def _has_map_of_local_times(kind: pa.DataType, *, is_in_map: bool = False) -> bool:
    if pa.types.is_timestamp(kind):
        return is_in_map and kind.tz is None
    is_in_map = is_in_map or pa.types.is_map(kind)
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return any(_has_map_of_local_times(each, is_in_map=is_in_map) for each in parts)


def _check_writer_requirements(table: DeltaTable) -> None:
    """Raise InvalidRequest if the table requires more of writers than adding files."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    required = sorted(set(protocol.writer_features or ()) - WRITER_FEATURES)
    required += [
        name for name in configuration if name.startswith("delta.constraints.")
    ]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        required.append("columnMapping")
    for column in json.loads(table.schema().to_json())["fields"]:
        required += [
            f"{name} of {column['name']}"
            for name in _CONSTRAINTS
            if name in column["metadata"]
        ]
    if required:
        raise InvalidRequest(
            f"the table requires {', '.join(required)} of its writers, which "
            "danube-delta does not support; write it with Delta's own connector"
        )


def _added_columns(
    table: pa.Schema, rows: pa.Schema, options: WriteOptions
) -> pa.Schema:
    return added_columns(
        table,
        rows,
        merge=options.merge_schema,
        whole=bool(options.upsert.keys),
        widening=_WIDENING,
    )


def _check_updates_allowed(table: DeltaTable) -> None:
    if table.metadata().configuration.get("delta.appendOnly") == "true":
        raise InvalidRequest(
            "keyColumns: the table has the property delta.appendOnly, so its rows "
            "cannot be replaced; omit keyColumns"
        )


def _commit_properties(
    transactions: Sequence[AppTransaction], note: dict[str, str]
) -> CommitProperties:
    return CommitProperties(
        custom_metadata=note,
        app_transactions=[
            Transaction(app_id=each.app, version=each.version) for each in transactions
        ],
    )


def _add_action(file: DataFile, partition_by: Sequence[str]) -> AddAction:
    modified_ms, statistics = file.details
    values = [delta_text(each) for each in file.partition]
    return AddAction(
        path=file.path,
        size=file.byte_count,
        partition_values=dict(zip(partition_by, values, strict=True)),
        modification_time=modified_ms,
        data_change=True,
        stats=statistics,
    )


def _sizes(table: DeltaTable) -> dict[str, int]:
    actions = pa.table(table.get_add_actions())
    paths = actions.column("path").to_pylist()
    return dict(zip(paths, actions.column("size_bytes").to_pylist(), strict=True))


def _small_files(table: DeltaTable, file_bytes: int) -> list[list[int]]:
    """Return the sizes of the files that compaction merges, for each partition."""
    by_partition: dict[str, list[int]] = {}
    for row in pa.table(table.get_add_actions()).to_pylist():
        key = json.dumps(row.get("partition"), default=str, sort_keys=True)
        if row["size_bytes"] < file_bytes:
            by_partition.setdefault(key, []).append(row["size_bytes"])
    return [sizes for sizes in by_partition.values() if len(sizes) > 1]
