"""
The sink ``danube-postgres``: rows into a PostgreSQL table, inserted or upserted.

Rows are sent as Arrow batches with PostgreSQL's binary COPY.  ``postgres_sql.py``
describes the commit protocol.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from pydanube.model.errors import (
    BrokerError,
    InvalidConfig,
    InvalidPayload,
    InvalidRequest,
    Unavailable,
)
from pydanube.model.retry import RetryPolicy
from pydanube.schemas.pure import json_text
from pydanube.schemas.pure.value_limits import check_values, counted
from pydanube_spark.dataframe_columns import arrow_schema
from pydanube_spark.pure.sink import BatchIdentity, BatchKey, StagedRows, TaskKey
from pydanube_spark.pure.sink_options import parse_sink_options
from pydanube_spark.pure.upserts import UpsertColumns, check_keys, split_truncations
from pydanube_spark.sink_data_source import SinkDataSource
from pydanube_spark.sinks.option_tables import POSTGRES_OPTIONS
from pydanube_spark.sinks.postgres_database import Database, connect
from pydanube_spark.sinks.pure import postgres_sql
from pydanube_spark.sinks.pure.postgres_conversions import conversions, problem
from pydanube_spark.sinks.pure.postgres_sql import Plan, TableName, Target
from pydanube_spark.sinks.pure.staging import COMMITS, check_same_query, is_stale
from pydanube_spark.sinks.retrying import parse_retry_policy, persist

log = logging.getLogger(__name__)


class PostgresDataSource(SinkDataSource):
    """``format("danube-postgres")``."""

    @classmethod
    def name(cls) -> str:
        return "danube-postgres"

    def sink(self, schema: StructType) -> tuple[PostgresSink, BatchIdentity]:
        sink = PostgresSink.parse(dict(self.options), arrow_schema(schema))
        return sink, sink.identity

    def overwriting(self, sink: Any) -> PostgresSink:
        assert isinstance(sink, PostgresSink)
        return replace(sink, plan=replace(sink.plan, is_overwrite=True))


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """Return what would prevent writing rows of *schema*; empty if nothing."""
    return PostgresSink.parse(options, arrow_schema(schema)).problems()


class _StagedRowsLost(Exception):
    """The staged rows are lost, so that retrying the commit cannot succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSink:
    """Writes batches into a table."""

    uri: str = field(repr=False)
    plan: Plan
    may_create: bool
    is_merging_schema: bool = False
    """Whether the table gets the columns that it lacks."""
    is_null_allowed: bool = False
    """Whether a value that a new row lacks is null; otherwise it is an error."""
    retries: RetryPolicy
    identity: BatchIdentity
    connect: Callable[[str], Database] = connect

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: pa.Schema) -> PostgresSink:
        """
        Return the sink with *options* for rows of *schema*.

        Raises:
            InvalidConfig: An option is unknown or malformed, contradicts another or
                names a missing column, or PostgreSQL does not support a type.
        """
        given = parse_sink_options(options, POSTGRES_OPTIONS)
        upsert = UpsertColumns.parse(given)
        plan = Plan(
            table=TableName.parse(given.text("table")),
            schema=schema,
            keys=upsert.keys,
            order=upsert.order,
            delete=upsert.delete,
            truncate=upsert.truncate,
            unavailable=upsert.unavailable,
        )
        wrong = [*upsert.problems(schema), *plan.problems()]
        if wrong:
            raise InvalidConfig("; ".join(wrong))
        return cls(
            uri=given.text("uri"),
            plan=plan,
            may_create=given.boolean("createTable"),
            is_merging_schema=given.boolean("mergeSchema"),
            is_null_allowed=upsert.is_null_allowed,
            retries=parse_retry_policy(given),
            identity=BatchIdentity.parse(given),
        )

    def problems(self) -> list[str]:
        """Return what prevents writing to the table; empty if nothing."""
        plan = self.plan
        with closing(self.connect(self.uri)) as database:
            target = database.describe(plan.table)
            if self.may_create and not target.columns:
                return []
            types = {column.name: column.type for column in target.columns}
            if self.is_merging_schema and types:
                target = plan.with_new_columns(target)
            found = plan.problems_with(target)
            privileges = postgres_sql.describe_privileges(plan.table)
            if not found and database.query(privileges) != [(True,)]:
                found.append(f"the user of the uri may not write to {plan.table}")
            for name in plan.written:
                if name in types:
                    found += database.cast_problems(plan, name, types[name])
            return found

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """
        Write *batches* into a new staging table.

        Durability: None yet; staged rows are lost if the server crashes.

        Raises:
            Unavailable: The server cannot be reached, or the connection broke.
            InvalidPayload: A key is null, or PostgreSQL does not have a value.
            InvalidRequest: The server refuses the rows.
        """
        plan, count = self.plan, 0
        connection = persist(partial(self.connect, self.uri), self.retries)
        # One transaction: if it fails, the staging table does not exist either.
        with closing(connection) as database, database.transaction():
            [(hour,)] = database.query(postgres_sql.HOUR)
            staging = plan.staging_name(key.batch, hour, uuid.uuid4().hex[:8])
            database.execute(plan.create_staging(staging))
            for batch in self._checked(batches):
                database.copy(plan.table.sibling(staging), self._staged(batch))
                count += batch.num_rows
        return StagedRows(staging, count)

    def commit(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        """
        Move the staged rows into the table, unless the batch is committed.

        Durability: On return the rows and the commit record are committed in one
            transaction.

        Raises:
            Unavailable: The server cannot be reached, or has lost the staged rows.
            Conflict: Another query has written batches of this ``appId``.
            InvalidRequest: The server refuses the rows.
        """
        try:
            persist(partial(self._move, key, outputs), self.retries)
        except _StagedRowsLost as lost:
            raise Unavailable(
                f"{lost}: the server has lost the staged rows, probably in a crash; "
                "nothing is written, and the batch can be repeated"
            ) from None
        with suppress(BrokerError), closing(self.connect(self.uri)) as database:
            self._drop_stale_tables(database, key)

    def abort(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        with suppress(BrokerError), closing(self.connect(self.uri)) as database:
            database.drop([self.plan.table.sibling(each.staging) for each in outputs])
            self._drop_stale_tables(database, key)

    def _move(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        plan = self.plan
        with closing(self.connect(self.uri)) as database, database.transaction():
            database.create_table(plan.create_commits(), plan.table.sibling(COMMITS))
            if database.query(plan.insert_commit(key)):
                target = self._target(database)
                wanted = {each.staging: each.row_count for each in outputs}
                if wanted:
                    self._require_all(database, wanted)
                is_truncated = plan.truncate is not None and bool(
                    wanted and database.query(plan.find_truncation(list(wanted)))
                )
                if plan.is_overwrite or is_truncated:
                    database.execute(plan.delete_all())
                if is_truncated:
                    for statement in plan.drop_earlier(list(wanted)):
                        database.execute(statement)
                if wanted:
                    self._require_equal(database, list(wanted), target)
                    lacking = self._lacking(database, list(wanted), target)
                    database.execute(plan.move(list(wanted), target, lacking))
            else:
                [(number, query)] = database.query(plan.select_commit(key))
                check_same_query(key, number, query)
                log.info("batch %s is in %s already", key, plan.table)
            for each in outputs:
                staging = plan.table.sibling(each.staging)
                database.execute(f"DROP TABLE IF EXISTS {staging}")

    def _require_equal(
        self, database: Database, stagings: Sequence[str], target: Target
    ) -> None:
        """Raise if a value would become another one in its column."""
        plan = self.plan
        converted = conversions(plan, target)
        if not converted:
            return
        values = [conversion.value for conversion in converted]
        [found] = database.query(plan.aggregate(stagings, values))
        wrong = [
            problem(plan, conversion, value)
            for conversion, value in zip(converted, found, strict=True)
            if value is not None
        ]
        if wrong:
            raise InvalidRequest("; ".join(wrong))

    def _lacking(
        self, database: Database, stagings: Sequence[str], target: Target
    ) -> list[str]:
        """Return the columns that keep their values in some of the staged rows."""
        plan = self.plan
        if plan.unavailable is None:
            return []
        named = {name for (name,) in database.query(plan.lacking(stagings))}
        lacking = [name for name in plan.written if name in named]
        if lacking and not self.is_null_allowed:
            for (key,) in database.query(plan.missing(stagings, target, lacking)):
                raise InvalidPayload(
                    f"the row {key} has no value for one of {', '.join(lacking)}, "
                    "because it did not change, and the table has no row with this "
                    "key: read the changes from their beginning, or set "
                    "unavailableAsNull=true (in a pipeline, unavailable_as_null of the "
                    "source)"
                )
        return lacking

    def _target(self, database: Database) -> Target:
        if self.may_create:
            database.create_table(self.plan.create_target(), self.plan.table)
        target = database.describe(self.plan.table)
        if self.is_merging_schema and target.columns:
            for statement in self.plan.add_columns(target):
                database.execute(statement)
                target = database.describe(self.plan.table)
        wrong = self.plan.problems_with(target)
        if wrong:
            raise InvalidRequest("; ".join(wrong))
        return target

    def _require_all(self, database: Database, wanted: Mapping[str, int]) -> None:
        [there] = database.query(self.plan.find_staged(list(wanted)))
        lost = [name for name, oid in zip(wanted, there, strict=True) if oid is None]
        if not lost:
            [found] = database.query(self.plan.count_staged(list(wanted)))
            counts = zip(wanted.items(), found, strict=True)
            lost = [name for (name, count), there in counts if count != there]
        if lost:
            raise _StagedRowsLost(", ".join(lost))

    def _drop_stale_tables(self, database: Database, key: BatchKey) -> None:
        """Drop the staging tables of attempts that were killed."""
        table = self.plan.table
        names = [name for (name,) in database.query(self.plan.staging_names())]
        [(hour,)] = database.query(postgres_sql.HOUR)
        stale = [name for name in names if is_stale(name, key, table.name)]
        expired = [name for name in names if postgres_sql.is_expired(name, hour)]
        # Separately: the user may lack the right to drop tables of other queries.
        for left in filter(None, (stale, expired)):
            database.drop([table.sibling(name) for name in left])

    def _checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for first, batch in counted(batches):
            for limits, names in self.plan.columns_by_limits():
                check_values(batch.select(names), limits, first)
            yield batch

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows, _ = split_truncations(batch, self.plan.truncate)
        check_keys(rows, self.plan.keys)
        columns = [
            json_text.texts(column) if postgres_sql.is_json(column.type) else column
            for column in batch.columns
        ]
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)
