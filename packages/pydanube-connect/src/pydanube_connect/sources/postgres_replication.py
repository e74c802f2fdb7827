"""
The connections to a PostgreSQL server whose changes are read.

One connection streams the log, a second one asks for facts and reads the snapshot.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import TYPE_CHECKING, Any

from pydanube_connect.postgres_access import (
    Translation,
    connection_arguments,
    quoted,
    quoted_text,
)
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.sources.pure.pgoutput import EPOCH_S

if TYPE_CHECKING:
    from psycopg import AsyncConnection  # An extra.

FEEDBACK_S = 10.0
"""How often the server hears what is stored; by default it waits for 60 seconds."""
SILENCE_S_MAX = 60.0
"""How long the server, which is asked for an answer regularly, may be silent."""

_SETTINGS = (
    "-c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex -c timezone=UTC "
    "-c extra_float_digits=1 -c statement_timeout=0 -c lock_timeout=0 "
    "-c idle_in_transaction_session_timeout=0"
)
_LOG_HEADER_BYTES = 25
_ENDED = -1
_NOTHING_YET = 0


class Server:
    """A PostgreSQL server; made by ``open_server``."""

    def __init__(
        self,
        log: AsyncConnection[Any],
        facts: AsyncConnection[Any],
        translation: Translation,
    ) -> None:
        self._log = log
        self._facts = facts
        self.translation = translation
        """Raises errors of the server as those of connectors."""

    async def query(
        self, statement: str, parameters: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the rows that *statement* yields."""
        with self.translation:
            found = await self._facts.execute(statement, parameters or None)
            return await found.fetchall()

    async def execute(self, statement: str) -> None:
        """Run *statement*."""
        with self.translation:
            await self._facts.execute(statement)

    async def command(self, statement: str) -> tuple[str, ...]:
        """Return the row that a command of the replication protocol yields."""
        with self.translation:
            found = await self._log.execute(statement)
            row: tuple[str, ...] = await found.fetchone() or ()
            return row

    @asynccontextmanager
    async def snapshot(self, name: str) -> AsyncIterator[None]:
        """
        Let queries in the body see the database as at the snapshot *name*.

        After an error the server cannot be used any more.
        """
        await self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await self.execute(f"SET TRANSACTION SNAPSHOT {quoted_text(name)}")
        yield
        await self.execute("ROLLBACK")

    async def rows(self, select: str) -> AsyncIterator[tuple[str | None, ...]]:
        """Yield the rows of a query, as texts."""
        with self.translation:
            async with (
                self._facts.cursor() as cursor,
                cursor.copy(f"COPY ({select}) TO STDOUT") as copy,
            ):
                async for row in copy.rows():
                    yield row

    async def start_log(self, slot: str, publication: str) -> LogStream:
        """Begin to read the log where the slot says."""
        options = (
            f"proto_version '1', publication_names {quoted_text(quoted(publication))}"
        )
        statement = f"START_REPLICATION SLOT {quoted(slot)} LOGICAL 0/0 ({options})"
        stream = LogStream(self._log, self)
        await stream.start(statement)
        return stream


@asynccontextmanager
async def open_server(url: str, password: str | None) -> AsyncIterator[Server]:
    """Connect to the server twice."""
    from psycopg import AsyncConnection  # noqa: PLC0415

    given = connection_arguments(url, password)
    given["options"] = f"{given.get('options', '')} {_SETTINGS}".strip()
    translation = Translation([given.get("password", "")])
    async with AsyncExitStack() as stack:
        with translation:
            facts = await AsyncConnection.connect(**given, autocommit=True)
            stack.push_async_callback(facts.close)
            log = await AsyncConnection.connect(
                **given, autocommit=True, replication="database"
            )
            stack.push_async_callback(log.close)
        yield Server(log, facts, translation)


class LogStream:
    """The log from a slot on, message by message."""

    def __init__(self, connection: AsyncConnection[Any], server: Server) -> None:
        self._pg = connection.pgconn
        self._server = server
        self.read_lsn = 0
        """The server has read its log to here, and sent what it had to send."""

    async def start(self, statement: str) -> None:
        """Send *statement*, which starts the stream."""
        from psycopg import errors  # noqa: PLC0415
        from psycopg.pq import ExecStatus  # noqa: PLC0415

        with self._server.translation:
            self._pg.nonblocking = 1
            self._pg.send_query(statement.encode())
            self._flush()
            while self._pg.is_busy():
                await self._wait()
            result = self._pg.get_result()
            if result is None:
                raise errors.OperationalError("the stream has ended")
            if result.status != ExecStatus.COPY_BOTH:
                raise errors.error_from_result(result)

    def receive_nowait(self) -> bytes | None:
        """Return the next message of the output plugin, or None if none is here yet."""
        with self._server.translation:
            while True:
                size, data = self._pg.get_copy_data(1)
                if size == _ENDED:
                    raise self._end()
                if size == _NOTHING_YET:
                    return None
                message = bytes(data)
                if message[:1] == b"w":
                    return message[_LOG_HEADER_BYTES:]
                if message[:1] == b"k":
                    self.read_lsn = int.from_bytes(message[1:9])

    async def wait(self) -> None:
        """
        Wait until something has come from the server.

        Raises:
            TimeoutError: It has not answered for a minute.
        """
        with self._server.translation:
            await self._wait()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._pg.socket, readable.set)
        try:
            async with asyncio.timeout(SILENCE_S_MAX):
                await readable.wait()
        finally:
            loop.remove_reader(self._pg.socket)
        self._pg.consume_input()

    @contextmanager
    def confirming(self, position: Callable[[], int]) -> Iterator[None]:
        """Confirm *position* regularly during the body, and at its end."""
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def confirm() -> None:
            # The reader notices if the connection is broken.
            with suppress(Transient, ConnectorFailed):
                self.confirm(position())
            timers[:] = [loop.call_later(FEEDBACK_S, confirm)]

        confirm()
        try:
            yield
        finally:
            confirm()
            timers[0].cancel()

    def confirm(self, lsn: int) -> None:
        """
        Tell the server that everything before *lsn* is stored.

        The server may then delete it.  It is asked for an answer.
        """
        now_us = time.time_ns() // 1000 - EPOCH_S * 1_000_000
        message = struct.pack(">cQQQqB", b"r", lsn, lsn, lsn, now_us, 1)
        with self._server.translation:
            self._pg.put_copy_data(message)
            self._flush()

    def _flush(self) -> None:
        # A rest goes out with the next message: the server reads whenever it can.
        self._pg.flush()

    def _end(self) -> Exception:
        from psycopg import errors  # noqa: PLC0415
        from psycopg.pq import ExecStatus  # noqa: PLC0415

        result = self._pg.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            return errors.error_from_result(result)
        return Transient("the database has ended the stream")


def lsn_of(text: str) -> int:
    """Return the position in the log that PostgreSQL writes as ``16/B374D848``."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
