"""
The sink ``danube-clickhouse``: rows into a ClickHouse table, over HTTP.

Rows are sent as Arrow streams.  ``clickhouse_sql.py`` describes the commit protocol.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from pydanube.model.errors import (
    BrokerError,
    InvalidConfig,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from pydanube.model.retry import RetryPolicy
from pydanube.schemas.pure.value_limits import checked_batches
from pydanube_spark.dataframe_columns import arrow_schema
from pydanube_spark.pure.sink import BatchIdentity, BatchKey, StagedRows, TaskKey
from pydanube_spark.pure.sink_options import missing_columns, parse_sink_options
from pydanube_spark.sink_data_source import SinkDataSource
from pydanube_spark.sinks.option_tables import CLICKHOUSE_OPTIONS
from pydanube_spark.sinks.pure import clickhouse_sql
from pydanube_spark.sinks.pure.chunks import arrow_stream, split_rows
from pydanube_spark.sinks.pure.clickhouse_conversions import conversions, problem
from pydanube_spark.sinks.pure.clickhouse_sql import (
    DONE,
    MOVE_SETTINGS,
    MOVING,
    ROW,
    CommitRecord,
    Plan,
)
from pydanube_spark.sinks.pure.staging import (
    cast_problem,
    check_same_query,
    is_stale,
    staging_prefix,
)
from pydanube_spark.sinks.requests import Requests, is_retryable_status, summarize
from pydanube_spark.sinks.retrying import parse_retry_policy

_KINDS: Mapping[int | None, type[BrokerError]] = {
    # The same statement may succeed after timeouts, too many queries, network errors,
    # too many parts, lack of memory, and with read-only replicas or a busy Keeper.
    **dict.fromkeys(
        (159, 202, 209, 210, 225, 241, 242, 252, 285, 319, 425, 999), Unavailable
    ),
    **dict.fromkeys((60, 81), NotFound),
    **dict.fromkeys((192, 193, 194, 291, 497, 516), PermissionDenied),
}
"""The errors for codes of exceptions."""


class ClickHouseDataSource(SinkDataSource):
    """``format("danube-clickhouse")``."""

    @classmethod
    def name(cls) -> str:
        return "danube-clickhouse"

    def sink(self, schema: StructType) -> tuple[ClickHouseSink, BatchIdentity]:
        sink = ClickHouseSink.parse(dict(self.options), arrow_schema(schema))
        return sink, sink.identity


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """Return what would prevent writing rows of *schema*; empty if nothing."""
    return ClickHouseSink.parse(options, arrow_schema(schema)).problems()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickHouseSink:
    """Writes batches into a table."""

    url: str
    user: str
    password: str = field(repr=False)
    plan: Plan
    may_create: bool
    rows_max: int
    bytes_max: int
    timeout_s: float
    retries: RetryPolicy
    identity: BatchIdentity

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: pa.Schema) -> ClickHouseSink:
        """
        Return the sink with *options* for rows of *schema*.

        Raises:
            InvalidConfig: An option is unknown or malformed, contradicts another or
                names a missing column, or ClickHouse does not support a type.
        """
        given = parse_sink_options(options, CLICKHOUSE_OPTIONS)
        url = given.text("url", "http://127.0.0.1:8123").rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise InvalidConfig("url: must begin with http:// or https://")
        if "@" in url:
            raise InvalidConfig("url: use the options user and password instead")
        may_create = given.boolean("createTable")
        for name in ("engine", "orderBy"):
            if name in given and not may_create:
                raise InvalidConfig(f"{name}: only with createTable=true")
        engine = given.text("engine", "MergeTree")
        if not engine.partition("(")[0].endswith("MergeTree") or ";" in engine:
            raise InvalidConfig(
                f"engine: must be one of the MergeTree family, not {engine!r}"
            )
        plan = Plan(
            database=given.text("database", "default"),
            table=given.text("table"),
            schema=schema,
            engine=engine,
            order=given.names("orderBy"),
        )
        wrong = [*missing_columns("orderBy", plan.order, schema), *plan.problems()]
        if wrong:
            raise InvalidConfig("; ".join(wrong))
        return cls(
            url=url,
            user=given.text("user", "default"),
            password=given.text("password"),
            plan=plan,
            may_create=may_create,
            rows_max=given.count("batchRows", 100_000),
            bytes_max=given.count("batchBytes", 32 * 1024 * 1024),
            timeout_s=given.seconds("timeoutS", 300),
            retries=parse_retry_policy(given),
            identity=BatchIdentity.parse(given),
        )

    def problems(self) -> list[str]:
        """Return what prevents writing to the table; empty if nothing."""
        plan = self.plan
        with closing(Server(self)) as server:
            if not server.query(plan.find_database()):
                return [f"there is no database {plan.database!r}"]
            columns = server.query(plan.describe())
            if self.may_create and not columns:
                return []
            found = plan.problems_with({name: kind for name, kind, _ in columns})
            for name, _, to in columns:
                if name in plan.schema.names:
                    kind = plan.schema.field(name).type
                    try:
                        server.query(clickhouse_sql.try_cast(kind, to))
                    except InvalidRequest:
                        has = clickhouse_sql.column_type(kind)
                        found.append(cast_problem(name, has, to))
            return found

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """
        Write *batches* into a new staging table.

        Bounds: One request of at most ``batchBytes`` is in memory.

        Raises:
            Unavailable: The server cannot be reached, or is out of resources.
            InvalidRequest: The server refuses the rows.
            InvalidPayload: A time is outside of the years that ClickHouse has.
        """
        plan, count = self.plan, 0
        prefix = staging_prefix(key.batch, plan.table)
        staging = f"{prefix}{key.batch.number}_{uuid.uuid4().hex[:8]}"
        with closing(Server(self)) as server:
            server.execute(plan.create_staging(staging))
            try:
                for chunk in split_rows(
                    checked_batches(batches, clickhouse_sql.LIMITS),
                    rows_max=self.rows_max,
                    bytes_max=self.bytes_max,
                ):
                    # The number of its first row identifies a chunk that is resent.
                    body = arrow_stream(_numbered(chunk, count))
                    settings = {"insert_deduplication_token": str(count)}
                    server.insert(plan.insert(staging), body, **settings)
                    count += chunk.num_rows
            except BaseException:
                with suppress(BrokerError):
                    server.drop([plan.qualified(staging)])
                raise
        return StagedRows(staging, count)

    def commit(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        """
        Move the staged rows into the table, unless the batch is committed.

        Durability: On return ClickHouse has accepted the rows and the commit record;
            its settings determine when they are on disk.

        Raises:
            Unavailable: The server cannot be reached; a retry resumes the commit.
            Conflict: Another query has written batches of this ``appId``.
            InvalidRequest: The server refuses the rows, or staged ones are missing.
        """
        plan = self.plan
        with closing(Server(self)) as server:
            last = self._last_commit(server, key)
            if self.may_create:
                server.execute(plan.create_target())
            if last is not None and last.number >= key.number:
                check_same_query(key, last.number, last.query)
            if last is not None and not last.is_done:
                # A driver that has ended began this commit.
                begun = replace(key, number=last.number, query=last.query)
                self._move(server, begun, last.stagings)
            if last is None or last.number < key.number:
                stagings = self._decide(server, key, outputs)
                self._move(server, key, stagings)
            server.drop(
                plan.qualified(name)
                for name, is_expired in server.query(plan.staging_names())
                if is_expired == "1" or is_stale(name, key, plan.table)
            )

    def abort(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        with suppress(BrokerError), closing(Server(self)) as server:
            last = self._last_commit(server, key)
            # A commit that has begun needs its staging tables.
            needed = () if last is None or last.is_done else last.stagings
            server.drop(
                self.plan.qualified(each.staging)
                for each in outputs
                if each.staging not in needed
            )

    def _last_commit(self, server: Server, key: BatchKey) -> CommitRecord | None:
        server.execute(self.plan.create_commits())
        return clickhouse_sql.parse_commit_record(
            server.query(self.plan.select_commit(key))
        )

    def _decide(
        self, server: Server, key: BatchKey, outputs: Sequence[StagedRows]
    ) -> Sequence[str]:
        """Record which staging tables make up the batch, which is final."""
        columns = server.query(self.plan.describe())
        wrong = self.plan.problems_with({name: kind for name, kind, _ in columns})
        if wrong:
            raise InvalidRequest("; ".join(wrong))
        converted = conversions(self.plan.schema, {name: to for name, _, to in columns})
        for each in outputs:
            [(count,)] = server.query(self.plan.count(each.staging))
            if int(count) != each.row_count:
                raise InvalidRequest(
                    f"{each.staging} has {count} rows instead of {each.row_count}; "
                    "check that the url leads to a single server"
                )
            if converted:
                queries = [conversion.query for conversion in converted]
                [found] = server.query(self.plan.first_values(each.staging, queries))
                wrong += [
                    problem(self.plan.target, conversion, value)
                    for conversion, value in zip(converted, found, strict=True)
                    if value is not None
                ]
        if wrong:
            # Before the decision, after which only a change of the table would help.
            raise InvalidRequest("; ".join(wrong))
        stagings = [each.staging for each in outputs]
        server.execute(self.plan.insert_commit(key, stagings, MOVING))
        return stagings

    def _move(self, server: Server, key: BatchKey, stagings: Sequence[str]) -> None:
        for index, staging in enumerate(stagings):
            # The token identifies the staging table in every repetition.
            settings = MOVE_SETTINGS | {"insert_deduplication_token": f"{key}:{index}"}
            server.execute(self.plan.move(staging), **settings)
        server.execute(self.plan.insert_commit(key, (), DONE))


class Server:
    """A connection to a ClickHouse server as one user."""

    def __init__(self, sink: ClickHouseSink) -> None:
        self._url = f"{sink.url}/"
        self._settings = {
            # The response's status is then that of the whole statement.
            "wait_end_of_query": "1",
            "async_insert": "0",
            "input_format_null_as_default": "1",
            "insert_null_as_default": "1",
        }
        self._headers = {"X-ClickHouse-User": sink.user}
        if sink.password:
            self._headers["X-ClickHouse-Key"] = sink.password
        self._requests = Requests(timeout_s=sink.timeout_s, retries=sink.retries)

    def close(self) -> None:
        self._requests.close()

    def query(self, statement: str) -> list[list[Any]]:
        """Return the rows of the query *statement*."""
        text = self._send({}, f"{statement} FORMAT JSONCompact".encode())
        rows: list[list[Any]] = json.loads(text)["data"]
        return rows

    def execute(self, statement: str, **settings: str) -> None:
        self._send(settings, statement.encode())

    def insert(self, statement: str, rows: bytes, **settings: str) -> None:
        self._send({"query": statement, **settings}, rows)

    def drop(self, tables: Iterable[str]) -> None:
        for table in tables:
            self.execute(f"DROP TABLE IF EXISTS {table} SYNC")

    def _send(self, params: dict[str, str], content: bytes) -> str:
        response = self._requests.send(
            "POST",
            self._url,
            params=self._settings | params,
            headers=self._headers,
            content=content,
            is_retryable=_is_retryable,
        )
        if response.status_code != 200:
            raise translate(_code(response), summarize(response))
        text: str = response.text
        return text


def translate(code: int | None, message: str) -> BrokerError:
    """Return the error for a failed response."""
    return _KINDS.get(code, InvalidRequest)(f"ClickHouse: {message}")


def _is_retryable(response: Any) -> bool:
    # Most exceptions have the status 500, whatever their cause.
    code = _code(response)
    if code is None:
        return is_retryable_status(response)
    return _KINDS.get(code) is Unavailable


def _code(response: Any) -> int | None:
    text = response.headers.get("X-ClickHouse-Exception-Code", "")
    return int(text) if text.isdecimal() else None


def _numbered(chunk: pa.Table, base: int) -> pa.Table:
    numbers = pa.array(range(base, base + chunk.num_rows), pa.uint64())
    return chunk.add_column(0, pa.field(ROW, pa.uint64()), numbers)
