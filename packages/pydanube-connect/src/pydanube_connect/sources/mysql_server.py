"""
The connections to a MySQL or MariaDB server whose changes are read.

The libraries block, so each connection has a thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any, TypeVar

from pydanube.model.redaction import mask
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.sources.mysql_options import MysqlOptions
from pydanube_connect.sources.mysql_values import (
    PRINTED_TYPES,
    read_log_value,
    row_decoder,
    row_expression,
)
from pydanube_connect.sources.pure.mysql_statements import (
    ends_transaction,
    truncated_table,
)

if TYPE_CHECKING:
    from pymysql.connections import Connection  # An extra.

CONNECT_S = 10
SILENCE_S_MAX = 60
"""How long the server, which sends heartbeats, may be silent."""
HEARTBEAT_S = 10
QUEUED_MAX = 1000
"""How many events of the log may wait to be published."""
ROWS_MAX = 1000
"""How many rows of a snapshot are fetched together."""

_PERMANENT = frozenset((1044, 1045, 1049, 1142, 1146, 1227, 1236, 1698))
"""Errors that a retry does not solve: no access, no such table, no such log."""
_LOG_IS_GONE = 1236

_NOT_FULL = (
    "log_bin_compress",
    "binlog_transaction_compression",
    "binlog_row_value_options",
)
"""Settings that let servers write changes in ways that the library cannot read."""
_COMPRESSED = frozenset((40, *range(165, 172)))
"""The types of events with compressed changes, of MySQL and of MariaDB."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of a transaction in the log."""

    gtid: str
    time_s: int


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of rows of one table, which have one kind."""

    schema: str
    table: str
    key_columns: Sequence[str]
    operation: str
    """``c``, ``u``, ``d``, or ``t`` if the table is emptied."""
    rows: Sequence[tuple[dict[str, Any] | None, dict[str, Any] | None]]
    """Each before and after the change; one without either if it is emptied."""
    time_s: int
    file: str
    position: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction."""


Event = Begin | Change | End


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table that is read as a whole."""

    schema: str
    name: str
    columns: dict[str, str]
    """The types, by the names of the columns."""
    key_columns: list[str]


class Server:
    """A server, with one connection for questions and rows."""

    def __init__(self, options: MysqlOptions) -> None:
        self._options = options
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mysql")
        self._connection: Connection[Any]
        self.is_mariadb = False
        self.has_lower_case = False
        """Whether names of tables are in lower case, however statements write them."""

    async def __aenter__(self) -> Server:
        try:
            await self._call(self._connect)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        # Not in its thread, which may wait for the server.
        _interrupt(self._connection)
        self._thread.submit(_close, self._connection)
        self._thread.shutdown(wait=False)

    async def _call(self, function: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    def _connect(self) -> None:
        from pymysql.converters import encoders  # noqa: PLC0415

        # Values are what the server prints.
        self._connection = _open(self._options, conv=encoders)
        [(version, case)] = self._query("SELECT VERSION(), @@lower_case_table_names")
        self.has_lower_case = case == "1"
        self.is_mariadb = "mariadb" in version.lower()

    async def query(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Return the rows that *statement* yields."""
        return await self._call(self._query, statement, *arguments)

    def _query(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with translated(self._options), self._connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return list(cursor.fetchall())

    async def check(self) -> None:
        """
        Check the settings of the server.

        Raises:
            ConnectorFailed: Its log has not what the source needs.
        """
        wanted: dict[str, tuple[str, ...]] = {
            "log_bin": ("ON",),
            "binlog_format": ("ROW",),
            "binlog_row_image": ("FULL",),
            "binlog_row_metadata": ("FULL",),
        }
        if not self.is_mariadb:
            wanted["gtid_mode"] = ("ON", "ON_PERMISSIVE")
        names = ", ".join(f"'{each}'" for each in (*wanted, *_NOT_FULL))
        found = dict(
            await self.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        )
        for name in _NOT_FULL:
            if found.get(name, "").upper() not in {"", "OFF"}:
                raise ConnectorFailed(_not_full(f"{name} = {found[name]}"))
        for name, values in wanted.items():
            if found.get(name, "").upper() not in values:
                raise ConnectorFailed(
                    f"the server has {name} = {found.get(name, 'nothing')}: set "
                    f"{name} = {values[0]} in its configuration, and start it again"
                )

    async def gtids(self) -> str:
        """Return the transactions that are in the log now."""
        name = "gtid_binlog_pos" if self.is_mariadb else "gtid_executed"
        [(found,)] = await self.query(f"SELECT @@GLOBAL.{name}")
        return str(found)

    async def tables(self) -> list[SnapshotTable]:
        """Return all tables of users."""
        found: dict[tuple[str, str], SnapshotTable] = {}
        for schema, table, column, kind in await self.query(
            "SELECT c.table_schema, c.table_name, c.column_name, c.data_type "
            "FROM information_schema.columns c JOIN information_schema.tables t "
            "ON t.table_schema = c.table_schema AND t.table_name = c.table_name "
            "WHERE t.table_type = 'BASE TABLE' AND c.table_schema NOT IN "
            "('information_schema', 'mysql', 'performance_schema', 'sys') "
            "ORDER BY c.table_schema, c.table_name, c.ordinal_position"
        ):
            each = found.setdefault(
                (schema, table), SnapshotTable(schema, table, {}, [])
            )
            each.columns[column] = kind
        for schema, table, column in await self.query(
            "SELECT table_schema, table_name, column_name "
            "FROM information_schema.key_column_usage "
            "WHERE constraint_name = 'PRIMARY' ORDER BY ordinal_position"
        ):
            if (schema, table) in found:
                found[schema, table].key_columns.append(column)
        return list(found.values())

    async def begin_snapshot(self) -> str:
        """Let queries see the database as it is now; return its transactions."""
        await self.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
        if self.is_mariadb:
            await self.query(begin)
            facts = dict(await self.query("SHOW STATUS LIKE 'binlog_snapshot_%'"))
            file, position = (
                facts["Binlog_snapshot_file"],
                facts["Binlog_snapshot_position"],
            )
            [(gtids,)] = await self.query(
                "SELECT BINLOG_GTID_POS(%s, %s)", file, int(position)
            )
            return str(gtids)
        # Nothing may be committed between the snapshot and the question.
        await self.query("FLUSH TABLES WITH READ LOCK")
        await self.query(begin)
        gtids = await self.gtids()
        await self.query("UNLOCK TABLES")
        return gtids

    async def end_snapshot(self) -> None:
        """Let queries see the database as it is."""
        await self.query("COMMIT")

    async def open_rows(self, table: SnapshotTable) -> RowReader:
        """Return a reader of all rows of *table*, one at a time."""
        return await self._call(RowReader, self._options, self._connection, table)

    async def next_rows(self, reader: RowReader) -> list[dict[str, Any]]:
        """Return the next rows; none at the end."""
        return await self._call(reader.read)


class RowReader:
    """The rows of a table, as JSON values; its methods block."""

    def __init__(
        self, options: MysqlOptions, connection: Connection[Any], table: SnapshotTable
    ) -> None:
        from pymysql.cursors import SSCursor  # noqa: PLC0415

        self._options = options
        self._names = list(table.columns)
        self._decoders = [row_decoder(each) for each in table.columns.values()]
        columns = ", ".join(
            row_expression(_quoted(each), kind) for each, kind in table.columns.items()
        )
        name = f"{_quoted(table.schema)}.{_quoted(table.name)}"
        self._cursor: Any = connection.cursor(SSCursor)
        with translated(options):
            self._cursor.execute(f"SELECT {columns} FROM {name}")  # noqa: S608

    def read(self) -> list[dict[str, Any]]:
        """Return the next rows; none at the end."""
        with translated(self._options):
            rows = self._cursor.fetchmany(ROWS_MAX)
            if not rows:
                self._cursor.close()
        return [
            {
                name: None if value is None else decode(value)
                for name, decode, value in zip(
                    self._names, self._decoders, row, strict=True
                )
            }
            for row in rows
        ]


class LogStream:
    """The log of a server after some transactions, read by a thread."""

    def __init__(
        self, options: MysqlOptions, gtids: str, server: Server, wanted: Any
    ) -> None:
        """*wanted* are the names of tables, as ``(schema, table) in wanted``."""
        self._options = options
        self._gtids = gtids
        self._is_mariadb = server.is_mariadb
        self._has_lower_case = server.has_lower_case
        self._wanted = wanted
        self._events: queue.Queue[Event | Exception] = queue.Queue(QUEUED_MAX)
        self._connections: list[Connection[Any]] = []
        self._is_closed = threading.Event()
        self._has_more = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="mysql-log", daemon=True)
        self._thread.start()

    def receive_nowait(self) -> Event | None:
        """
        Return the next event, or None if none is here yet.

        Raises:
            ConnectorFailed, Transient: The log cannot be read any more.
        """
        try:
            found = self._events.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    async def wait(self) -> None:
        """Wait until there is an event."""
        self._has_more.clear()
        if self._events.empty():
            await self._has_more.wait()

    def close(self) -> None:
        """End the thread, as soon as it notices."""
        self._is_closed.set()
        for each in list(self._connections):
            _interrupt(each)

    def _put(self, event: Event | Exception) -> None:
        while not self._is_closed.is_set():
            with suppress(queue.Full):
                self._events.put(event, timeout=1)
                break
        with suppress(RuntimeError):  # The loop may be closed.
            self._loop.call_soon_threadsafe(self._has_more.set)

    def _open(self, **settings: Any) -> Connection[Any]:
        # The library uses the old name of this setting.
        if "db" in settings:
            settings["database"] = settings.pop("db")
        # It would continue at its first position after an interruption.
        if len(self._connections) > 1 or self._is_closed.is_set():
            raise Transient(f"{self._options.address} has closed the connection")
        connection = _open(self._options, **settings)
        self._connections.append(connection)
        return connection

    def _run(self) -> None:
        try:
            with translated(self._options):
                for event in self._read():
                    self._put(event)
            self._put(Transient(f"{self._options.address} has ended the log"))
        except (Transient, ConnectorFailed) as error:
            self._put(error)
        except Exception as error:  # noqa: BLE001  # The library may raise any.
            self._put(ConnectorFailed(f"the log cannot be read: {error!r}"))
        finally:
            for each in self._connections:
                _close(each)

    def _read(self) -> Iterator[Event]:
        from pymysqlreplication import BinLogStreamReader  # noqa: PLC0415
        from pymysqlreplication import event as events  # noqa: PLC0415
        from pymysqlreplication import row_event as rows  # noqa: PLC0415

        # It warns when it connects again, which it may not.
        logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)
        operations = {
            rows.WriteRowsEvent: "c",
            rows.UpdateRowsEvent: "u",
            rows.DeleteRowsEvent: "d",
        }
        begins = (events.GtidEvent, events.MariadbGtidEvent)
        skipped = [events.NotImplementedEvent, rows.PartialUpdateRowsEvent]
        number = self._options.server_id or random.randint(2**31, 2**32 - 1)  # noqa: S311
        stream = BinLogStreamReader(
            {"read_timeout": SILENCE_S_MAX},
            number,
            blocking=True,
            auto_position=self._gtids,
            is_mariadb=self._is_mariadb,
            slave_heartbeat=HEARTBEAT_S,
            pymysql_wrapper=self._open,
            enable_logging=False,
            only_events=[
                *operations,
                *begins,
                *skipped,
                events.XidEvent,
                events.QueryEvent,
            ],
            filter_non_implemented_events=False,
        )
        printed = _PrintedTypes()
        for event in stream:
            if isinstance(event, begins):
                yield Begin(event.gtid, event.timestamp)
            elif isinstance(event, events.XidEvent):
                yield End()
            elif isinstance(event, events.QueryEvent):
                truncation = self._truncation(event, stream)
                if truncation is not None:
                    yield truncation
                if ends_transaction(event.query):
                    # It may have changed tables.
                    printed.clear()
                    yield End()
            elif isinstance(event, events.NotImplementedEvent):
                if event.event_type in _COMPRESSED:
                    raise ConnectorFailed(_not_full("compressed changes in its log"))
            elif (event.schema, event.table) in self._wanted:
                if isinstance(event, rows.PartialUpdateRowsEvent):
                    raise ConnectorFailed(_not_full("partial updates in its log"))
                types = printed.of(event) if self._is_mariadb else {}
                yield _change(event, operations[type(event)], stream, types)

    def _truncation(self, event: Any, stream: Any) -> Change | None:
        """Return the change of *event*, a statement, if it empties a wanted table."""
        found = truncated_table(event.query, event.schema.decode())
        if found is None:
            return None
        schema, table = map(str.lower, found) if self._has_lower_case else found
        if (schema, table) not in self._wanted:
            return None
        return Change(
            schema=schema,
            table=table,
            key_columns=(),
            operation="t",
            rows=[(None, None)],
            time_s=event.timestamp,
            file=stream.log_file or "",
            position=stream.log_pos or 0,
        )


def _not_full(what: str) -> str:
    """Return the error for a server that has *what*."""
    return (
        f"the server has {what}, which cannot be read: set log_bin_compress = OFF with "
        "MariaDB, or binlog_transaction_compression = OFF and binlog_row_value_options "
        "= '' with MySQL. If its log has such changes already, give the connector "
        "another name, to begin with a snapshot again"
    )


class _PrintedTypes:
    """The columns whose type the log does not tell, by table."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, str]] = {}

    def clear(self) -> None:
        """Ask again."""
        self._found.clear()

    def of(self, event: Any) -> dict[str, str]:
        """Return those of the table of *event*."""
        table = (event.schema, event.table)
        if table not in self._found:
            with event._ctl_connection.cursor() as cursor:  # noqa: SLF001
                cursor.execute(
                    "SELECT column_name AS name, data_type AS kind "
                    "FROM information_schema.columns "
                    "WHERE table_schema = %s AND table_name = %s",
                    table,
                )
                self._found[table] = {
                    each["name"]: each["kind"]
                    for each in cursor.fetchall()
                    if each["kind"] in PRINTED_TYPES
                }
        return self._found[table]


def _change(event: Any, operation: str, stream: Any, types: dict[str, str]) -> Change:
    def read(  # The arguments of the method that it replaces.
        column: Any,
        nulls: bytes,
        null_at: int,
        _: bool,
        present: bytes,
        __: bool,
        number: int,
    ) -> Any:
        if not present[number // 8] >> number % 8 & 1:
            return None
        if nulls[null_at // 8] >> null_at % 8 & 1:
            return None
        return read_log_value(event, column, types.get(column.name))

    # The library loses what Python's dates and sets do not have.
    event._RowsEvent__read_values_name = read  # noqa: SLF001
    key = event.primary_key or ()
    found = []
    for row in event.rows:
        values = row.get("values")
        before = row.get("before_values", values if operation == "d" else None)
        after = row.get("after_values", values if operation == "c" else None)
        found.append((before, after))
    return Change(
        schema=event.schema,
        table=event.table,
        key_columns=(key,) if isinstance(key, str) else tuple(key),
        operation=operation,
        rows=found,
        time_s=event.timestamp,
        file=stream.log_file or "",
        position=stream.log_pos or 0,
    )


def _open(options: MysqlOptions, **settings: Any) -> Connection[Any]:
    import pymysql  # noqa: PLC0415

    given: dict[str, Any] = {}
    if options.tls:
        given["ssl_ca"] = options.ca_file
        given["ssl_cert"] = options.certificate_file
        given["ssl_key"] = options.key_file
        given["ssl_verify_cert"] = True
        given["ssl_verify_identity"] = True
    with translated(options):
        return pymysql.connect(
            **{
                "host": options.host,
                "port": options.port,
                "user": options.username,
                "password": options.password or "",
                "connect_timeout": CONNECT_S,
                "autocommit": True,
                "init_command": "SET time_zone = '+00:00'",
                **settings,
                "charset": "utf8mb4",
                **given,
            }
        )


def _interrupt(connection: Connection[Any]) -> None:
    """Let the thread that uses *connection* notice that it is closed."""
    socket: Any = getattr(connection, "_sock", None)
    with suppress(OSError, AttributeError):
        socket.shutdown(SHUT_RDWR)


def _close(connection: Connection[Any]) -> None:
    """Close *connection*, which no other thread uses any more."""
    if connection.open:
        connection.close()


@contextmanager
def translated(options: MysqlOptions) -> Iterator[None]:
    """Raise errors of the database in the body as those of connectors."""
    from pymysql.err import InterfaceError, MySQLError, OperationalError  # noqa: PLC0415

    try:
        yield
    except MySQLError as error:
        secrets = [options.password] if options.password else []
        text = mask(
            f"{options.address}: {error.args[-1] if error.args else error}", secrets
        )
        code = error.args[0] if error.args else None
        if code == _LOG_IS_GONE:
            raise ConnectorFailed(
                f"{text}. Changes may be missing: to begin with a snapshot again, give "
                "the connector another name"
            ) from error
        is_lost = isinstance(error, OperationalError | InterfaceError)
        if is_lost and code not in _PERMANENT:
            raise Transient(text) from error
        raise ConnectorFailed(text) from error


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
