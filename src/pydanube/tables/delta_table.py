"""
A Delta table, accessed with the package ``deltalake``.

The version of an application is an application transaction of Delta's protocol, in the
commit that adds the files.  Delta itself detects concurrent commits of an application.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow import fs

from pydanube.model.errors import InvalidRequest, NotFound
from pydanube.tables import delta_statistics
from pydanube.tables.data_files import PREFIX, DataFile
from pydanube.tables.partitioning import check_transform, delta_text
from pydanube.tables.schema_evolution import added_columns, plain_schema, rows_schema
from pydanube.tables.table import NO_COMPACTION, CompactionResult, retry_conflicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pydanube.tables.partitioning import PartitionValues
    from pydanube.tables.table import AppTransaction
    from pydanube.tables.table_options import WriteOptions

HOUR_S = 3600

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
class DeltaLakeTable:
    """A Delta table, by its URI."""

    uri: str
    storage: Mapping[str, str]
    wait: Callable[[float], None] = time.sleep

    @property
    def name(self) -> str:
        return self.uri

    def schema(self) -> pa.Schema | None:
        table = self._load()
        return None if table is None else _schema_of(table)

    def properties(self) -> Mapping[str, str]:
        table = self._load()
        return {} if table is None else dict(table.metadata().configuration)

    def app_versions(self, apps: Iterable[str]) -> dict[str, int | None]:
        table = self._load()
        if table is None:
            return dict.fromkeys(apps)
        return {app: table.transaction_version(app) for app in apps}

    def check(self, schema: pa.Schema, options: WriteOptions) -> None:
        _check(self._load(), schema, options)

    def prepare(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaLocation:
        schema = rows_schema(schema)
        table = self._load()
        _check(table, schema, options)
        if table is None:
            table = self._create(schema, options, properties)
        added = added_columns(_schema_of(table), schema, merge=options.merge_schema)
        if len(added):
            table.alter.add_columns(list(_delta_schema(added).fields))
            table = self._require()
        is_required = {field.name: not field.nullable for field in _schema_of(table)}
        return DeltaLocation(
            self.uri,
            self.storage,
            pa.schema(
                [field.with_nullable(not is_required[field.name]) for field in schema]
            ),
            tuple(table.metadata().partition_columns),
        )

    def commit(
        self,
        files: Sequence[DataFile],
        transactions: Sequence[AppTransaction],
        *,
        replace: bool = False,
        note: Mapping[str, str] | None = None,
    ) -> bool:
        properties = CommitProperties(
            custom_metadata=dict(note or {}),
            app_transactions=[
                Transaction(app_id=each.app, version=each.version)
                for each in transactions
            ],
        )

        def attempt() -> bool:
            table = self._require()
            reached = [
                each.is_reached(table.transaction_version(each.app))
                for each in transactions
            ]
            if any(reached):
                return False
            partition_by = table.metadata().partition_columns
            table.create_write_transaction(
                [_add_action(each, partition_by) for each in files],
                "overwrite" if replace else "append",
                table.schema(),
                partition_by=partition_by,
                commit_properties=properties,
            )
            return True

        return retry_conflicts(self.uri, attempt, (CommitFailedError,), self.wait)

    def unreferenced(self, files: Sequence[DataFile]) -> list[DataFile]:
        table = self._load()
        if table is None:
            return list(files)
        actions = pa.table(table.get_add_actions())
        known = set(actions.column("path").to_pylist())
        return [each for each in files if each.path not in known]

    def compact(self, *, file_bytes: int, plan_only: bool = False) -> CompactionResult:
        table = self._require()
        sizes = _sizes(table)
        planned = _plan_compaction(table, file_bytes)
        if plan_only or planned is NO_COMPACTION:
            return planned

        def attempt() -> None:
            self._require().optimize.compact(target_size=file_bytes)

        retry_conflicts(self.uri, attempt, (CommitFailedError,), self.wait)
        now = _sizes(self._require())
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
        table = self._require()
        hours = -int(-older_than_s // HOUR_S)

        def vacuum(*, is_dry: bool, is_full: bool) -> list[str]:
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
            location = DeltaLocation(self.uri, self.storage, pa.schema([]), ())
            for path in left:
                location.delete(path)
        return sorted([*replaced, *left])

    def _load(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.uri, storage_options=dict(self.storage) or None)
        except TableNotFoundError:
            return None

    def _require(self) -> DeltaTable:
        table = self._load()
        if table is None:
            raise NotFound(f"there is no Delta table at {self.uri}")
        return table

    def _create(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        properties: Mapping[str, str] | None,
    ) -> DeltaTable:
        # A concurrent writer may have created it; the caller finds any difference.
        DeltaTable.create(
            self.uri,
            _delta_schema(schema),
            mode="ignore",
            partition_by=[part.column for part in options.partition_by],
            configuration=dict(properties or {}),
            storage_options=dict(self.storage) or None,
            raise_if_key_not_exists=False,
        )
        table = self._require()
        _partition_by(table, schema, options)
        return table


def _schema_of(table: DeltaTable) -> pa.Schema:
    return plain_schema(pa.schema(table.schema().to_arrow()))


def _delta_schema(schema: pa.Schema) -> Schema:
    try:
        return Schema.from_arrow(schema)
    except Exception as error:
        raise InvalidRequest(
            f"a Delta table cannot have this column: {error}"
        ) from error


def _check(table: DeltaTable | None, schema: pa.Schema, options: WriteOptions) -> None:
    _partition_by(table, schema, options)
    if table is None:
        _delta_schema(schema)
        return
    _check_writer_requirements(table)
    added_columns(_schema_of(table), schema, merge=options.merge_schema)


def _partition_by(
    table: DeltaTable | None, schema: pa.Schema, options: WriteOptions
) -> list[str]:
    """Return the columns that the table is partitioned by, or will be."""
    wanted = [part.column for part in options.partition_by]
    if table is not None:
        has: list[str] = table.metadata().partition_columns
        if wanted and wanted != has:
            raise InvalidRequest(
                "partitionBy: the table is partitioned by "
                f"{', '.join(has) or 'nothing'}, not by {', '.join(wanted)}; omit the "
                "option"
            )
        wanted = has
    for name in wanted:
        if name not in schema.names:
            raise InvalidRequest(f"partitionBy: the rows have no column {name!r}")
        check_transform(plain_schema(schema).field(name).type, "identity", name)
    return wanted


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


def _plan_compaction(table: DeltaTable, file_bytes: int) -> CompactionResult:
    """Return what compaction would do: it merges the small files of each partition."""
    by_partition: dict[str, list[int]] = {}
    for row in pa.table(table.get_add_actions()).to_pylist():
        key = json.dumps(row.get("partition"), default=str, sort_keys=True)
        if row["size_bytes"] < file_bytes:
            by_partition.setdefault(key, []).append(row["size_bytes"])
    joined = [sizes for sizes in by_partition.values() if len(sizes) > 1]
    if not joined:
        return NO_COMPACTION
    byte_count = sum(map(sum, joined))
    return CompactionResult(
        files_before=sum(map(len, joined)),
        files_after=sum(-(-sum(sizes) // file_bytes) for sizes in joined),
        bytes_before=byte_count,
        bytes_after=byte_count,
    )
