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
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pydanube.model.errors import (
    BrokerError,
    InvalidConfig,
    InvalidPayload,
    InvalidRequest,
    NotFound,
)
from pydanube.sinks.lance_database import Database
from pydanube.sinks.lance_options import RESERVED, LanceOptions
from pydanube.sinks.latest import latest_rows
from pydanube.sinks.vectors import to_vectors, vector_type
from pydanube.spark.dataframe_columns import arrow_schema
from pydanube.spark.sink import StagedRows, digest
from pydanube.spark.sink_data_source import SinkDataSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from pydanube.spark.sink import BatchIdentity, BatchKey, TaskKey

log = logging.getLogger(__name__)

_ROW = RESERVED + "row"


class LanceDataSource(SinkDataSource):
    """``format("danube-lancedb")``."""

    @classmethod
    def name(cls) -> str:
        return "danube-lancedb"

    def sink(self, schema: StructType) -> tuple[LanceSink, BatchIdentity]:
        options = LanceOptions.parse(dict(self.options))
        rows = arrow_schema(schema)
        wrong = options.column_problems(rows)
        if wrong:
            raise InvalidConfig("; ".join(wrong))
        return LanceSink(options, rows), options.identity


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """Return what would prevent writing rows of *schema*; empty if nothing."""
    try:
        wanted = LanceOptions.parse(options)
        rows = arrow_schema(schema)
        found = wanted.column_problems(rows)
        table = Database(wanted).find(wanted.table)
        if table is not None:
            return found + wanted.problems_with(rows, table.schema)
        if not wanted.create:
            found.append(
                f"there is no table {wanted.table!r}; createTable=true creates it"
            )
    except BrokerError as error:
        return [str(error)]
    return found


class LanceSink:
    """Writes batches into a table."""

    def __init__(
        self,
        options: LanceOptions,
        schema: pa.Schema,
        connect: Callable[[LanceOptions], Database] = Database,
    ) -> None:
        self._options = options
        self._schema = schema
        self._connect = connect

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """
        Write *batches* into a new staging table.

        Raises:
            InvalidPayload: A vector has another length, or a key is null.
            Unavailable: The store cannot be reached.
        """
        database = self._connect(self._options)
        staging = f"{self._prefix(key.batch)}{key.batch.number}_{uuid.uuid4().hex[:8]}"
        staged = self._staged_schema(database)
        rows = _TrackedBatches(self._numbered(batches, staged))
        with database.dropped_on_error(staging), rows.reraising():
            database.create(staging, staged, rows.reader(staged))
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
        options, database = self._options, self._connect(self._options)
        table = self._target(database)
        if options.keys:
            self._merge(database, table, outputs)
        elif options.batch_column is None:
            self._add(database, table, outputs, None)
        else:
            mark = f"{options.batch_column} = {_literal(str(key))}"
            if database.count(table, mark):
                log.info("batch %s is in %s already", key, options.table)
            else:
                self._add(database, table, outputs, str(key))
        self._drop_stale_tables(database, key)
        try:
            self._maintain(database, table, key)
        except BrokerError as error:
            # The rows are committed; the next batch indexes again.
            log.warning("indexing or optimizing %s failed: %s", options.table, error)

    def abort(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        with suppress(BrokerError):
            database = self._connect(self._options)
            for each in outputs:
                database.drop(each.staging)

    def _staged_schema(self, database: Database) -> pa.Schema:
        fields = {field.name: field.type for field in self._schema}
        vector = self._options.vector
        if vector is not None:
            fields[vector] = vector_type(self._dimension(database, vector))
        return pa.schema({**fields, _ROW: pa.int64()})

    def _dimension(self, database: Database, vector: str) -> int:
        if self._options.dimension is not None:
            return self._options.dimension
        table = database.find(self._options.table)
        if table is None:
            raise NotFound(
                f"there is no table {self._options.table!r}; createTable=true with a "
                "dimension creates it"
            )
        size: int = table.schema.field(vector).type.list_size
        return size

    def _numbered(
        self, batches: Iterable[pa.RecordBatch], staged: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield *batches* as they are staged, with the number of each row."""
        base = 0
        for batch in batches:
            end = base + batch.num_rows
            yield self._prepared(batch, pa.array(np.arange(base, end)), staged)
            base = end

    def _prepared(
        self, batch: pa.RecordBatch, numbers: Any, staged: pa.Schema
    ) -> pa.RecordBatch:
        for name in self._options.keys:
            if batch.column(name).null_count:
                raise InvalidPayload(
                    f"the key column {name!r} is null in a row; filter such rows out, "
                    "or replace the null"
                )
        columns = list(batch.columns)
        if self._options.vector is not None:
            at = batch.schema.get_field_index(self._options.vector)
            size = staged.field(at).type.list_size
            columns[at] = to_vectors(columns[at], size, self._options.vector)
        return pa.RecordBatch.from_arrays([*columns, numbers], schema=staged)

    def _target(self, database: Database) -> Any:
        options = self._options
        table = database.find(options.table)
        if table is None and not options.create:
            raise NotFound(
                f"there is no table {options.table!r}; createTable=true creates it"
            )
        if table is None:
            schema = self._staged_schema(database)
            schema = schema.remove(schema.get_field_index(_ROW))
            if options.batch_column is not None:
                schema = schema.append(pa.field(options.batch_column, pa.string()))
            database.create(options.table, schema)
            table = database.open(options.table)
        wrong = options.problems_with(self._schema, table.schema)
        if wrong:
            raise InvalidRequest("; ".join(wrong))
        return table

    def _merge(
        self, database: Database, table: Any, outputs: Sequence[StagedRows]
    ) -> None:
        keys, order = self._options.keys, self._options.order
        found = [
            database.read(each, [*dict.fromkeys([*keys, *order]), _ROW])
            for each in outputs
        ]
        # The store returns rows in any order.
        sorted_keys = [pa.Table.from_batches(rows).sort_by(_ROW) for rows in found]
        masks = latest_rows(sorted_keys, keys, order)
        schema = self._row_schema(table, None)
        rows = _TrackedBatches(self._rows(database, outputs, masks, None, schema))
        with rows.reraising(), database.translated_errors():
            merge = table.merge_insert(list(keys))
            merge.when_matched_update_all().when_not_matched_insert_all().execute(
                rows.reader(schema)
            )

    def _add(
        self,
        database: Database,
        table: Any,
        outputs: Sequence[StagedRows],
        mark: str | None,
    ) -> None:
        schema = self._row_schema(table, mark)
        rows = _TrackedBatches(self._rows(database, outputs, None, mark, schema))
        with rows.reraising(), database.translated_errors():
            table.add(rows.reader(schema))

    def _row_schema(self, table: Any, mark: str | None) -> pa.Schema:
        names = list(self._schema.names)
        if mark is not None:
            assert self._options.batch_column is not None
            names.append(self._options.batch_column)
        return pa.schema([table.schema.field(name) for name in names])

    def _rows(
        self,
        database: Database,
        outputs: Sequence[StagedRows],
        masks: Sequence[Any] | None,
        mark: str | None,
        schema: pa.Schema,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the staged rows as rows of the table: those of *masks*, or all."""
        names = list(self._schema.names)
        for index, output in enumerate(outputs):
            for staged in database.read(output, [*names, _ROW]):
                batch = staged
                if masks is not None:
                    numbers = batch.column(_ROW).to_numpy()
                    batch = batch.filter(pa.array(masks[index][numbers]))
                columns = [batch.column(name) for name in names]
                if mark is not None:
                    columns.append(pa.repeat(mark, batch.num_rows))
                try:
                    yield pa.RecordBatch.from_arrays(columns, schema.names).cast(schema)
                except pa.ArrowInvalid as error:
                    raise InvalidPayload(
                        f"a row does not fit the table: {error}"
                    ) from (error)

    def _drop_stale_tables(self, database: Database, key: BatchKey) -> None:
        """Drop the staging tables, also those of attempts that were killed."""
        start = self._prefix(key)
        for name in database.names(RESERVED):
            number = name.removeprefix(start).partition("_")[0]
            is_ours = name.startswith(start) and number.isdecimal()
            if (is_ours and int(number) <= key.number) or database.is_expired(name):
                database.drop(name)

    def _maintain(self, database: Database, table: Any, key: BatchKey) -> None:
        options = self._options
        if options.index != "none" and database.count(table) >= options.index_rows_min:
            assert options.vector is not None
            database.index(table, options.vector, options.index, options.metric)
        every = options.optimize_every
        if every and key.number % every == every - 1:
            with database.translated_errors():
                table.optimize()

    def _prefix(self, key: BatchKey) -> str:
        return f"{RESERVED}{digest(key.app, self._options.table)}_"


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


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
