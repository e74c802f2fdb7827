"""
The sink ``danube-clickhouse``: rows into a ClickHouse table, over HTTP.

Rows are sent as Arrow streams.  ``clickhouse_sql.py`` describes the commit protocol.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pydanube.model.errors import (
    BrokerError,
    Conflict,
    InvalidConfig,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from pydanube.model.retry import RetryPolicy
from pydanube.reader.option_parsing import Option
from pydanube.sinks import clickhouse_sql
from pydanube.sinks.chunks import split_rows
from pydanube.sinks.clickhouse_sql import DONE, MOVE_SETTINGS, MOVING, ROW, Plan
from pydanube.sinks.requests import Requests, is_retryable_status, summarize
from pydanube.sinks.retrying import parse_retry_policy
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

    from pydanube.sinks.clickhouse_sql import CommitRecord
    from pydanube.spark.sink import BatchKey, TaskKey

log = logging.getLogger(__name__)

OPTIONS = (
    Option(
        "url",
        "http://127.0.0.1:8123",
        "The HTTP interface of one server. Behind a load balancer the sink would not "
        "find its staged rows again.",
    ),
    Option("database", "default", "The database of the table."),
    Option("table", "", "The table; its name is case-sensitive.", is_required=True),
    Option("user", "default", "The user who writes."),
    Option("password", "", "The user's password; it is never shown."),
    Option(
        "createTable", "false", "Create the table if it does not exist; see `orderBy`."
    ),
    Option(
        "engine",
        "MergeTree",
        "The engine of a created table, such as `ReplacingMergeTree(version)`.",
    ),
    Option(
        "orderBy",
        "",
        "The sorting key of a created table; its columns are not nullable.",
    ),
    Option("batchRows", "100000", "The maximum number of rows in a request."),
    Option("batchBytes", "33554432", "The maximum size of a request in bytes."),
    Option("timeoutS", "300", "The timeout of a request in seconds."),
    RETRIES,
    RETRY_INTERVAL,
    APP_ID,
    BATCH_ID,
)

# Codes of exceptions after which the same statement may succeed: timeouts, too many
# queries, network, read-only replicas, too many parts, memory, Keeper.
_RETRYABLE_CODES = frozenset(
    {159, 202, 209, 210, 225, 241, 242, 252, 285, 319, 425, 999}
)
_UNKNOWN = frozenset({60, 81})
_REFUSED = frozenset({192, 193, 194, 291, 497, 516})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickHouseOptions:
    """The options of a sink."""

    url: str
    database: str
    table: str
    user: str
    password: str = field(repr=False)
    create: bool
    engine: str
    order: tuple[str, ...]
    rows_max: int
    bytes_max: int
    timeout_s: float
    retries: RetryPolicy
    identity: BatchIdentity

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ClickHouseOptions:
        """
        Parse *options*.

        Raises:
            InvalidConfig: An option is unknown, malformed or contradicts another.
        """
        given = parse_sink_options(options, OPTIONS)
        url = given.text("url", "http://127.0.0.1:8123").rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise InvalidConfig("url: must begin with http:// or https://")
        if "@" in url:
            raise InvalidConfig("url: use the options user and password instead")
        create = given.boolean("createTable")
        for name in ("engine", "orderBy"):
            if name in given and not create:
                raise InvalidConfig(f"{name}: only with createTable=true")
        return cls(
            url=url,
            database=given.text("database", "default"),
            table=given.text("table"),
            user=given.text("user", "default"),
            password=given.text("password"),
            create=create,
            engine=clickhouse_sql.check_engine(given.text("engine", "MergeTree")),
            order=given.names("orderBy"),
            rows_max=given.count("batchRows", 100_000),
            bytes_max=given.count("batchBytes", 32 * 1024 * 1024),
            timeout_s=given.seconds("timeoutS", 300),
            retries=parse_retry_policy(given),
            identity=BatchIdentity.parse(given),
        )

    def plan(self, schema: pa.Schema) -> Plan:
        """
        Return the plan for writing rows of *schema*.

        Raises:
            InvalidConfig: An option names a missing column, or ClickHouse does not
                support a type.
        """
        plan = Plan(
            database=self.database,
            table=self.table,
            schema=schema,
            engine=self.engine,
            order=self.order,
        )
        wrong = [*missing_columns("orderBy", self.order, schema), *plan.problems()]
        if wrong:
            raise InvalidConfig("; ".join(wrong))
        return plan


class ClickHouseDataSource(SinkDataSource):
    """``format("danube-clickhouse")``."""

    @classmethod
    def name(cls) -> str:
        return "danube-clickhouse"

    def sink(self, schema: StructType) -> tuple[ClickHouseSink, BatchIdentity]:
        options = ClickHouseOptions.parse(dict(self.options))
        plan = options.plan(arrow_schema(schema))
        return ClickHouseSink(options, plan), options.identity


def check(options: Mapping[str, str], schema: StructType) -> list[str]:
    """Return what would prevent writing rows of *schema*; empty if nothing."""
    try:
        wanted = ClickHouseOptions.parse(options)
        plan = wanted.plan(arrow_schema(schema))
        with Server(wanted) as server:
            return _problems(server, plan, may_create=wanted.create)
    except BrokerError as error:
        return [str(error)]


def _problems(server: Server, plan: Plan, *, may_create: bool) -> list[str]:
    name = clickhouse_sql.literal(plan.database)
    if not server.query(f"SELECT name FROM system.databases WHERE name = {name}"):  # noqa: S608
        return [f"there is no database {plan.database!r}"]
    columns = server.query(plan.describe())
    if not columns:
        if may_create:
            return []
        return [f"there is no table {plan.target}; createTable=true creates it"]
    found = plan.problems_with({name: kind for name, kind, _ in columns})
    for name, _, to in columns:
        if name in plan.schema.names:
            kind = plan.schema.field(name).type
            try:
                server.query(clickhouse_sql.try_cast(kind, to))
            except InvalidRequest:
                has = clickhouse_sql.column_type(kind)
                found.append(f"the column {name!r} is {has} and cannot be cast to {to}")
    return found


class ClickHouseSink:
    """Writes batches into a table."""

    def __init__(
        self,
        options: ClickHouseOptions,
        plan: Plan,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._plan = plan
        self._wait = wait

    def write(self, key: TaskKey, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """
        Write *batches* into a new staging table.

        Bounds: One request of at most ``batchBytes`` is in memory.

        Raises:
            Unavailable: The server cannot be reached, or is out of resources.
            InvalidRequest: The server refuses the rows.
        """
        plan, count = self._plan, 0
        staging = plan.staging_name(key.batch, uuid.uuid4().hex[:8])
        options = self._options
        with self._server() as server:
            server.execute(plan.create_staging(staging))
            try:
                for chunk in split_rows(
                    batches, rows_max=options.rows_max, bytes_max=options.bytes_max
                ):
                    # The number of its first row identifies a chunk that is resent.
                    body = _arrow_stream(_numbered(chunk, count))
                    settings = {"insert_deduplication_token": str(count)}
                    server.insert(plan.insert(staging), body, settings)
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
        plan, options = self._plan, self._options
        with self._server() as server:
            server.execute(plan.create_commits())
            if options.create:
                server.execute(plan.create_target())
            last = clickhouse_sql.parse_commit_record(
                server.query(plan.select_commit(key))
            )
            _check_same_query(last, key)
            if last is not None and not last.is_done:
                # A driver that has ended began this commit.
                begun = replace(key, number=last.number, query=last.query)
                self._move(server, begun, last.stagings)
            if last is None or last.number < key.number:
                stagings = self._decide(server, key, outputs)
                self._move(server, key, stagings)
            self._drop_stale_tables(server, key)

    def abort(self, key: BatchKey, outputs: Sequence[StagedRows]) -> None:
        plan = self._plan
        with suppress(BrokerError), self._server() as server:
            server.execute(plan.create_commits())
            last = clickhouse_sql.parse_commit_record(
                server.query(plan.select_commit(key))
            )
            # A commit that has begun needs its staging tables.
            needed = () if last is None or last.is_done else last.stagings
            server.drop(
                [plan.qualified(e.staging) for e in outputs if e.staging not in needed]
            )

    def _decide(
        self, server: Server, key: BatchKey, outputs: Sequence[StagedRows]
    ) -> Sequence[str]:
        """Record which staging tables make up the batch, which is final."""
        columns = server.query(self._plan.describe())
        if not columns:
            raise NotFound(
                f"there is no table {self._plan.target}; createTable=true creates it"
            )
        wrong = self._plan.problems_with({name: kind for name, kind, _ in columns})
        if wrong:
            raise InvalidRequest("; ".join(wrong))
        for each in outputs:
            [(count,)] = server.query(self._plan.count(each.staging))
            if int(count) != each.row_count:
                raise InvalidRequest(
                    f"{each.staging} has {count} rows instead of {each.row_count}; "
                    "check that the url leads to a single server"
                )
        stagings = [each.staging for each in outputs]
        server.execute(self._plan.insert_commit(key, stagings, MOVING))
        return stagings

    def _move(self, server: Server, key: BatchKey, stagings: Sequence[str]) -> None:
        for index, staging in enumerate(stagings):
            token = clickhouse_sql.move_token(key, index)
            settings = MOVE_SETTINGS | {"insert_deduplication_token": token}
            server.execute(self._plan.move(staging), settings)
        server.execute(self._plan.insert_commit(key, (), DONE))

    def _drop_stale_tables(self, server: Server, key: BatchKey) -> None:
        left = self._plan.stale_tables(key, server.query(self._plan.staging_names()))
        server.drop([self._plan.qualified(name) for name in left])

    def _server(self) -> Server:
        return Server(self._options, self._wait)


def _check_same_query(last: CommitRecord | None, key: BatchKey) -> None:
    if last is None or last.number < key.number or last.query == key.query:
        return
    raise Conflict(
        f"appId {key.app!r} was used by another query up to batch {last.number}, so "
        f"batch {key.number} counts as already written: use a new appId for a query "
        "with a new checkpoint"
    )


class Server:
    """A connection to a ClickHouse server as one user."""

    def __init__(
        self, options: ClickHouseOptions, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._url = f"{options.url}/"
        self._settings = {
            # The response's status is then that of the whole statement.
            "wait_end_of_query": "1",
            "async_insert": "0",
            "input_format_null_as_default": "1",
            "insert_null_as_default": "1",
        }
        self._headers = {"X-ClickHouse-User": options.user}
        if options.password:
            self._headers["X-ClickHouse-Key"] = options.password
        self._requests = Requests(
            timeout_s=options.timeout_s, retries=options.retries, wait=wait
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self._requests.__exit__(*error)

    def query(self, statement: str) -> list[list[Any]]:
        """Return the rows of the query *statement*."""
        text = self._send({}, f"{statement} FORMAT JSONCompact".encode())
        rows: list[list[Any]] = json.loads(text)["data"]
        return rows

    def execute(
        self, statement: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._send(dict(settings or {}), statement.encode())

    def insert(self, statement: str, rows: bytes, settings: Mapping[str, str]) -> None:
        self._send({"query": statement, **settings}, rows)

    def drop(self, tables: Sequence[str]) -> None:
        for table in tables:
            self.execute(f"DROP TABLE IF EXISTS {table} SYNC")

    def _send(self, params: Mapping[str, str], content: bytes) -> str:
        response = self._requests.send(
            "POST",
            self._url,
            params=self._settings | dict(params),
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
    kind: type[BrokerError] = InvalidRequest
    if code in _UNKNOWN:
        kind = NotFound
    elif code in _REFUSED:
        kind = PermissionDenied
    elif code in _RETRYABLE_CODES:
        kind = Unavailable
    return kind(f"ClickHouse: {message}")


def _is_retryable(response: Any) -> bool:
    # Most exceptions have the status 500, whatever their cause.
    code = _code(response)
    return is_retryable_status(response) if code is None else code in _RETRYABLE_CODES


def _code(response: Any) -> int | None:
    text = response.headers.get("X-ClickHouse-Exception-Code", "")
    return int(text) if text.isdecimal() else None


def _numbered(chunk: pa.Table, base: int) -> pa.Table:
    numbers = pa.array(range(base, base + chunk.num_rows), pa.uint64())
    return chunk.add_column(0, pa.field(ROW, pa.uint64()), numbers)


def _arrow_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found
