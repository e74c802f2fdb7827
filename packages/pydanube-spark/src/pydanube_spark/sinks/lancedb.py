"""
The sink ``danube-lancedb``: rows with vectors into a LanceDB table.

Each task writes its rows into its own staging table.  The commit moves all of them into
the target as one version: merged by their keys, which is idempotent; or added, with a
column that names the batch of a row, so that no batch is added twice.  Either way
readers see a batch as a whole or not at all.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from pydanube.model.errors import (
    BrokerError,
    InvalidConfig,
    InvalidRequest,
)
from pydanube.schemas.pure.value_limits import ValueLimits, check_values
from pydanube_spark.dataframe_columns import arrow_schema
from pydanube_spark.pure.sink import BatchIdentity, BatchKey, StagedRows, TaskKey
from pydanube_spark.pure.sink_options import missing_columns, parse_sink_options
from pydanube_spark.pure.upserts import UpsertColumns, check_keys, latest_rows
from pydanube_spark.sink_data_source import SinkDataSource
from pydanube_spark.sinks.lance_database import Database
from pydanube_spark.sinks.option_tables import LANCEDB_OPTIONS
from pydanube_spark.sinks.pure.lance_rows import (
    cast_rows,
    is_numbers,
    to_vectors,
    vector_type,
)
from pydanube_spark.sinks.pure.staging import (
    RESERVED,
    cast_problem,
    column_problems,
    is_stale,
    literal,
    reserved_columns,
    staging_prefix,
)

log = logging.getLogger(__name__)

INDICES = ("none", "IvfFlat", "IvfPq", "IvfSq", "HnswSq", "HnswPq")
METRICS = ("l2", "cosine", "dot")
LIMITS = ValueLimits(name="LanceDB")

_ROW = RESERVED + "row"


class LanceDataSource(SinkDataSource):
    """``format("danube-lancedb")``."""

    @classmethod
    def name(cls) -> str:
        return "danube-lancedb"

    def sink(self, schema: StructType) -> tuple[LanceSink, BatchIdentity]:
        sink = LanceSink.parse(dict(self.options), arrow_schema(schema))
        return sink, sink.identity


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """Return what would prevent writing rows of *schema*; empty if nothing."""
    return LanceSink.parse(options, arrow_schema(schema)).problems()


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceSink:
    """Writes batches into a table."""

    uri: str
    table: str
    schema: pa.Schema
    """The schema of the DataFrame."""
    keys: tuple[str, ...]
    order: tuple[str, ...]
    batch_column: str | None
    vector: str | None
    dimension: int | None
    may_create: bool
    index: str
    index_rows_min: int
    metric: str
    optimize_every: int
    storage: Mapping[str, str] = field(repr=False)
    identity: BatchIdentity
    connect: Callable[[str, Mapping[str, str]], Database] = Database

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: pa.Schema) -> LanceSink:
        """
        Return the sink with *options* for rows of *schema*.

        Raises:
            InvalidConfig: An option is unknown or malformed, contradicts another or
                does not fit the columns, or the name of a column is reserved.
        """
        given = parse_sink_options(options, LANCEDB_OPTIONS)
        upsert = UpsertColumns.parse(given)
        keys = upsert.keys
        if "batchColumn" in given and keys:
            raise InvalidConfig("batchColumn: only without keyColumns")
        vector = given.text("vectorColumn") or None
        for name in ("dimension", "index"):
            if name in given and vector is None:
                raise InvalidConfig(f"{name}: only with vectorColumn")
        batch_column = given.text("batchColumn", "_batch")
        sink = cls(
            uri=given.text("uri"),
            table=given.text("table"),
            schema=schema,
            keys=keys,
            order=upsert.order,
            batch_column=None if keys or batch_column == "none" else batch_column,
            vector=vector,
            dimension=given.count("dimension", 1) if "dimension" in given else None,
            may_create=given.boolean("createTable"),
            index=given.choice("index", INDICES, "none"),
            index_rows_min=given.count("indexMinRows", 10_000, smallest=1),
            metric=given.choice("metric", METRICS, "l2"),
            optimize_every=given.count("optimizeEvery", 100, smallest=0),
            storage=given.family("storage."),
            identity=BatchIdentity.parse(given),
        )
        wrong = sink.dataframe_problems()
        if wrong:
            raise InvalidConfig("; ".join(wrong))
        return sink

    def dataframe_problems(self) -> list[str]:
        """Return what is wrong with the DataFrame, whatever the table."""
        schema = self.schema
        found = [
            *UpsertColumns(keys=self.keys, order=self.order).problems(schema),
            *missing_columns("vectorColumn", filter(None, [self.vector]), schema),
            *reserved_columns(schema),
        ]
        if self.vector in schema.names:
            kind = schema.field(self.vector).type
            if not is_numbers(kind):
                found.append(
                    f"vectorColumn: {self.vector!r} is {kind}, not an array of numbers"
                )
            elif self.may_create and self.dimension is None:
                found.append("dimension: is required with createTable=true")
        if self.batch_column in schema.names:
            found.append(f"the name of the column {self.batch_column!r} is reserved")
        return found

    def problems(self) -> list[str]:
        """Return what prevents writing to the table; empty if nothing."""
        table = self._connect().find(self.table)
        if table is None and self.may_create:
            return []
        return self.problems_with(pa.schema([]) if table is None else table.schema)

    def problems_with(self, there: pa.Schema) -> list[str]:
        """Return what prevents writing to a table with the columns *there*."""
        names = self.schema.names
        found = column_problems(
            repr(self.table),
            [*names, *filter(None, [self.batch_column])],
            dict.fromkeys(there.names, True),
        )
        for name in (name for name in names if name in there.names):
            has, to = self.schema.field(name).type, there.field(name).type
            if name == self.vector:
                if not pa.types.is_fixed_size_list(to):
                    found.append(f"vectorColumn: {name!r} is {to} in the table")
                elif self.dimension not in (None, to.list_size):
                    found.append(
                        f"dimension: {name!r} has {to.list_size} numbers in the table"
                    )
            elif not _can_become(has, to):
                found.append(cast_problem(name, has, to))
        return found

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """
        Write *batches* into a new staging table.

        Raises:
            InvalidPayload: A vector has another length, a key is null, or text is not
                UTF-8.
            Unavailable: The store cannot be reached.
        """
        database = self._connect()
        prefix = staging_prefix(key.batch, self.table)
        staging = f"{prefix}{key.batch.number}_{uuid.uuid4().hex[:8]}"
        staged = self._staged_schema(database)
        rows = _TrackedBatches(self._numbered(batches, staged))
        try:
            with rows.reraising():
                database.create(staging, staged, rows.reader(staged))
        except BaseException:
            with suppress(BrokerError):
                database.drop(staging)
            raise
        return StagedRows(staging, rows.count)

    def commit(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        """
        Move the staged rows into the table, as one version of it.

        Durability: On return the version is in the store.

        Bounds: With ``keyColumns`` the keys of the batch are in memory.

        Raises:
            Unavailable: The store cannot be reached.
            InvalidRequest: The rows do not fit the table, or staged ones are missing.
        """
        database = self._connect()
        table = self._target(database)
        mark = None if self.batch_column is None else str(key)
        if mark and database.count(table, f"{self.batch_column} = {literal(mark)}"):
            log.info("batch %s is in %s already", key, self.table)
        else:
            self._move(database, table, outputs, mark)
        # The staging tables, also those of attempts that were killed.
        for name in database.names(RESERVED):
            if is_stale(name, key, self.table) or database.is_expired(name):
                database.drop(name)
        try:
            self._maintain(database, table, key)
        except BrokerError as error:
            # The rows are committed; the next batch indexes again.
            log.warning("indexing or optimizing %s failed: %s", self.table, error)

    def abort(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        with suppress(BrokerError):
            database = self._connect()
            for each in outputs:
                database.drop(each.staging)

    def _connect(self) -> Database:
        return self.connect(self.uri, self.storage)

    def _staged_schema(self, database: Database) -> pa.Schema:
        fields = {field.name: field.type for field in self.schema}
        if self.vector is not None:
            size = self.dimension
            if size is None:
                size = self._target(database).schema.field(self.vector).type.list_size
            fields[self.vector] = vector_type(size)
        return pa.schema({**fields, _ROW: pa.int64()})

    def _numbered(
        self, batches: Iterable[pa.RecordBatch], staged: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield *batches* as they are staged, with the number of each row."""
        base = 0
        for batch in batches:
            check_keys(batch, self.keys)
            check_values(batch, LIMITS, base)
            columns = list(batch.columns)
            if self.vector is not None:
                at = batch.schema.get_field_index(self.vector)
                size = staged.field(at).type.list_size
                columns[at] = to_vectors(columns[at], size, self.vector)
            columns.append(pa.array(np.arange(base, base + batch.num_rows)))
            yield pa.RecordBatch.from_arrays(columns, schema=staged)
            base += batch.num_rows

    def _target(self, database: Database) -> Any:
        table = database.find(self.table)
        if table is None and self.may_create:
            schema = self._staged_schema(database)
            schema = schema.remove(schema.get_field_index(_ROW))
            if self.batch_column is not None:
                schema = schema.append(pa.field(self.batch_column, pa.string()))
            table = database.create(self.table, schema)
        wrong = self.problems_with(pa.schema([]) if table is None else table.schema)
        if wrong:
            raise InvalidRequest("; ".join(wrong))
        return table

    def _move(
        self,
        database: Database,
        table: Any,
        outputs: Sequence[StagedRows],
        mark: str | None,
    ) -> None:
        """Merge the staged rows by their keys, or add them with *mark*, if any."""
        masks = self._latest(database, outputs) if self.keys else None
        names = [*self.schema.names, *filter(None, [mark and self.batch_column])]
        schema = pa.schema([table.schema.field(name) for name in names])
        rows = _TrackedBatches(self._rows(database, outputs, schema, masks, mark))
        with rows.reraising(), database.translated_errors():
            if not self.keys:
                table.add(rows.reader(schema))
                return
            merge = table.merge_insert(list(self.keys))
            merge.when_matched_update_all().when_not_matched_insert_all().execute(
                rows.reader(schema)
            )

    def _latest(self, database: Database, outputs: Sequence[StagedRows]) -> list[Any]:
        columns = [*dict.fromkeys([*self.keys, *self.order]), _ROW]
        # The store returns rows in any order.
        sorted_keys = [
            pa.Table.from_batches(database.read(each, columns)).sort_by(_ROW)
            for each in outputs
        ]
        return latest_rows(sorted_keys, self.keys, self.order)

    def _rows(
        self,
        database: Database,
        outputs: Sequence[StagedRows],
        schema: pa.Schema,
        masks: Sequence[Any] | None,
        mark: str | None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the staged rows as rows of the table: those of *masks*, or all."""
        names = list(self.schema.names)
        for index, output in enumerate(outputs):
            for staged in database.read(output, [*names, _ROW]):
                batch = staged
                if masks is not None:
                    numbers = batch.column(_ROW).to_numpy()
                    batch = batch.filter(pa.array(masks[index][numbers]))
                columns = [batch.column(name) for name in names]
                if mark is not None:
                    columns.append(pa.repeat(mark, batch.num_rows))
                rows = pa.RecordBatch.from_arrays(columns, schema.names)
                yield cast_rows(rows, schema)

    def _maintain(self, database: Database, table: Any, key: BatchKey) -> None:
        if self.index != "none" and database.count(table) >= self.index_rows_min:
            assert self.vector is not None
            database.index(table, self.vector, self.index, self.metric)
        every = self.optimize_every
        if every and key.number % every == every - 1:
            with database.translated_errors():
                table.optimize()


class _TrackedBatches:
    """Batches for LanceDB, which loses the errors that iterating them raises."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.count = 0
        self._batches = batches
        self._error: BaseException | None = None

    def reader(self, schema: pa.Schema) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(schema, self._each())

    @contextmanager
    def reraising(self) -> Iterator[None]:
        """Raise the original error instead of LanceDB's."""
        try:
            yield
        except BrokerError:
            if self._error is not None:
                raise self._error from None
            raise

    def _each(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                self.count += batch.num_rows
                yield batch
        except BaseException as error:
            self._error = error
            raise


def _can_become(has: pa.DataType, to: pa.DataType) -> bool:
    try:
        pa.array([], has).cast(to)
    except pa.ArrowNotImplementedError:
        return False
    return True
