"""
The sink ``danube-postgres``: rows into a PostgreSQL table, inserted or upserted.

Rows are sent as Arrow batches with PostgreSQL's binary COPY.  ``postgres_sql.py``
describes the commit protocol.
"""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pydanube.model.errors import (
    BrokerError,
    Conflict,
    InvalidConfig,
    InvalidPayload,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from pydanube.model.retry import RetryPolicy
from pydanube.reader.option_parsing import Option
from pydanube.sinks import json_text, postgres_sql
from pydanube.sinks.postgres_database import Database, connect, open_connection
from pydanube.sinks.postgres_sql import Plan, TableName, Target
from pydanube.sinks.retrying import Failed, parse_retry_policy, persist
from pydanube.spark.dataframe_columns import arrow_schema, missing_columns
from pydanube.spark.sink import BatchIdentity, StagedRows
from pydanube.spark.sink_data_source import SinkDataSource
from pydanube.spark.sink_options import (
    APP_ID,
    BATCH_ID,
    RETRIES,
    RETRY_INTERVAL,
    parse_sink_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from pydanube.spark.sink import BatchKey, TaskKey

log = logging.getLogger(__name__)

OPTIONS = (
    Option(
        "uri",
        "",
        "The database: `postgresql://user:password@host:5432/database`.",
        is_required=True,
    ),
    Option(
        "table",
        "",
        "The table, as `table` or `schema.table`. Names are case-sensitive; those with "
        "dots or blanks are in double quotes.",
        is_required=True,
    ),
    Option(
        "keyColumns",
        "",
        "Update the row that has the same values in these columns, or insert it; they "
        "need a unique index. Without this option all rows are inserted.",
    ),
    Option(
        "orderColumns",
        "",
        "The latest row of a key in a batch is the one with the greatest values in "
        "these columns, then the last one in the highest partition.",
    ),
    Option(
        "deleteColumn",
        "",
        "A boolean column that is not written: if it is true, the row with that key is "
        "deleted. Only with `keyColumns`.",
    ),
    Option(
        "createTable",
        "false",
        "Create the table if it does not exist, with `keyColumns` as its primary key.",
    ),
    RETRIES,
    RETRY_INTERVAL,
    APP_ID,
    BATCH_ID,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """The options of a sink."""

    uri: str = field(repr=False)
    table: TableName
    keys: tuple[str, ...]
    order: tuple[str, ...]
    delete: str | None
    create: bool
    retries: RetryPolicy
    identity: BatchIdentity

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> PostgresOptions:
        """
        Parse *options*.

        Raises:
            InvalidConfig: An option is unknown, malformed or contradicts another.
        """
        given = parse_sink_options(options, OPTIONS)
        keys = given.names("keyColumns")
        for name in ("orderColumns", "deleteColumn"):
            if given.text(name) and not keys:
                raise InvalidConfig(f"{name}: only with keyColumns")
        delete = given.text("deleteColumn") or None
        if delete in keys:
            raise InvalidConfig("deleteColumn: cannot be a key column")
        return cls(
            uri=given.text("uri"),
            table=TableName.parse(given.text("table")),
            keys=keys,
            order=given.names("orderColumns"),
            delete=delete,
            create=given.boolean("createTable"),
            retries=parse_retry_policy(given),
            identity=BatchIdentity.parse(given),
        )

    def plan(self, schema: pa.Schema) -> Plan:
        """
        Return the plan for writing rows of *schema*.

        Raises:
            InvalidConfig: An option names a missing column, or PostgreSQL does not
                support a type.
        """
        wrong = [
            *missing_columns("keyColumns", self.keys, schema),
            *missing_columns("orderColumns", self.order, schema),
            *missing_columns("deleteColumn", filter(None, [self.delete]), schema),
        ]
        plan = Plan(
            table=self.table,
            schema=schema,
            keys=self.keys,
            order=self.order,
            delete=self.delete,
        )
        wrong += plan.problems()
        if wrong:
            raise InvalidConfig("; ".join(wrong))
        return plan


class PostgresDataSource(SinkDataSource):
    """``format("danube-postgres")``."""

    def overwriting(self, sink: Any) -> PostgresSink:
        assert isinstance(sink, PostgresSink)
        return sink.overwriting()

    @classmethod
    def name(cls) -> str:
        return "danube-postgres"

    def sink(self, schema: StructType) -> tuple[PostgresSink, BatchIdentity]:
        options = PostgresOptions.parse(dict(self.options))
        return PostgresSink(options, options.plan(arrow_schema(schema))), (
            options.identity
        )


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """Return what would prevent writing rows of *schema*; empty if nothing."""
    try:
        wanted = PostgresOptions.parse(options)
        plan = wanted.plan(arrow_schema(schema))
        with open_connection(wanted.uri) as database:
            return _problems(database, plan, may_create=wanted.create)
    except BrokerError as error:
        return [str(error)]


def _problems(database: Database, plan: Plan, *, may_create: bool) -> list[str]:
    target = database.describe(plan.table)
    if target is None:
        if may_create:
            return []
        return [f"there is no table {plan.table}; createTable=true creates it"]
    found = plan.problems_with(target)
    if not found and database.query(postgres_sql.describe_privileges(plan.table)) != [
        (True,)
    ]:
        found.append(f"the user of the uri may not write to {plan.table}")
    types = {column.name: column.type for column in target.columns}
    for name in plan.written:
        if name in types:
            found += database.cast_problems(plan, name, types[name])
    return found


class _StagedRowsLost(Exception):
    """The staged rows are lost, so that retrying the commit cannot succeed."""


class PostgresSink:
    """Writes batches into a table."""

    def __init__(
        self,
        options: PostgresOptions,
        plan: Plan,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._plan = plan
        self._wait = wait

    def overwriting(self) -> PostgresSink:
        """Return the same sink for batches that each replace all rows."""
        plan = replace(self._plan, is_overwrite=True)
        return PostgresSink(self._options, plan, self._wait)

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """
        Write *batches* into a new staging table.

        Durability: None yet; staged rows are lost if the server crashes.

        Raises:
            Unavailable: The server cannot be reached, or the connection broke.
            InvalidPayload: A key is null.
            InvalidRequest: The server refuses the rows.
        """
        count = 0
        # One transaction: if it fails, the staging table does not exist either.
        with self._connected() as database, database.transaction():
            [(hour,)] = database.query(postgres_sql.HOUR)
            staging = self._plan.staging_name(key.batch, hour, uuid.uuid4().hex[:8])
            database.execute(self._plan.create_staging(staging))
            for batch in batches:
                database.copy(self._plan.table.sibling(staging), self._staged(batch))
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
            persist(
                lambda: self._try_commit(key, outputs),
                self._options.retries,
                self._wait,
            )
        except _StagedRowsLost as lost:
            raise Unavailable(
                f"{lost}: the server has lost the staged rows, probably in a crash; "
                "nothing is written, and the batch can be repeated"
            ) from None
        with suppress(BrokerError), open_connection(self._options.uri) as database:
            self._drop_stale_tables(database, key)

    def abort(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        with suppress(BrokerError), open_connection(self._options.uri) as database:
            database.drop([self._plan.table.sibling(each.staging) for each in outputs])
            self._drop_stale_tables(database, key)

    def _try_commit(
        self, key: BatchKey, outputs: Sequence[StagedRows]
    ) -> Failed | None:
        try:
            with open_connection(self._options.uri) as database, database.transaction():
                self._move(database, key, outputs)
        except Unavailable as error:
            return Failed(error)
        return None

    def _move(
        self, database: Database, key: BatchKey, outputs: Sequence[StagedRows]
    ) -> None:
        plan = self._plan
        database.create_table(
            plan.create_commits(), plan.table.sibling(postgres_sql.COMMITS)
        )
        if database.query(plan.insert_commit(key)):
            target = self._target(database)
            wanted = {each.staging: each.row_count for each in outputs}
            self._require_all(database, wanted)
            if plan.is_overwrite:
                database.execute(plan.delete_all())
            if wanted:
                database.execute(plan.move(list(wanted), target))
        else:
            self._require_same_query(database, key)
        for each in outputs:
            database.execute(f"DROP TABLE IF EXISTS {plan.table.sibling(each.staging)}")

    def _target(self, database: Database) -> Target:
        if self._options.create:
            database.create_table(self._plan.create_target(), self._plan.table)
        target = database.describe(self._plan.table)
        if target is None:
            raise NotFound(
                f"there is no table {self._plan.table}; createTable=true creates it"
            )
        wrong = self._plan.problems_with(target)
        if wrong:
            raise InvalidRequest("; ".join(wrong))
        return target

    def _require_all(self, database: Database, wanted: Mapping[str, int]) -> None:
        if not wanted:
            return
        [there] = database.query(self._plan.find_staged(list(wanted)))
        lost = [name for name, oid in zip(wanted, there, strict=True) if oid is None]
        if not lost:
            [found] = database.query(self._plan.count_staged(list(wanted)))
            lost = postgres_sql.lost_rows(wanted, found)
        if lost:
            raise _StagedRowsLost(", ".join(lost))

    def _require_same_query(self, database: Database, key: BatchKey) -> None:
        [(number, query)] = database.query(self._plan.select_commit(key))
        if query != key.query:
            raise Conflict(
                f"appId {key.app!r} was used by another query up to batch {number}, so "
                f"batch {key.number} counts as already written: use a new appId for a "
                "query with a new checkpoint"
            )
        log.info("batch %s is in %s already", key, self._plan.table)

    def _drop_stale_tables(self, database: Database, key: BatchKey) -> None:
        """Drop the staging tables of attempts that were killed."""
        plan = self._plan
        names = [name for (name,) in database.query(plan.staging_names())]
        [(hour,)] = database.query(postgres_sql.HOUR)
        # Separately: the user may lack the right to drop tables of other queries.
        for left in (plan.stale_tables(key, names), plan.expired(names, hour)):
            if left:
                database.drop([plan.table.sibling(name) for name in left])

    def _staged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in self._plan.keys:
            if batch.column(name).null_count:
                raise InvalidPayload(
                    f"the key column {name!r} is null in a row; filter such rows out, "
                    "or replace the null"
                )
        columns = [
            json_text.texts(column) if postgres_sql.is_json(column.type) else column
            for column in batch.columns
        ]
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    @contextmanager
    def _connected(self) -> Iterator[Database]:
        def attempt() -> Database | Failed:
            try:
                return connect(self._options.uri)
            except Unavailable as error:
                return Failed(error)

        database = persist(attempt, self._options.retries, self._wait)
        try:
            yield database
        finally:
            database.close()
