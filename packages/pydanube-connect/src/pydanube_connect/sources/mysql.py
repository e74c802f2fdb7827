"""
A source of the changes in a MySQL or MariaDB server, by its binary log.

First it publishes the rows that the tables have, then each change, in the order of the
log.  The transactions that are published are stored together with the messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from pydanube_connect.connector import Source
from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.pure.records import Batch, Record
from pydanube_connect.server_access import access_problems
from pydanube_connect.sources.mysql_gtids import gtids_of
from pydanube_connect.sources.mysql_options import MysqlOptions
from pydanube_connect.sources.mysql_server import (
    Begin,
    Change,
    Event,
    LogStream,
    Server,
)
from pydanube_connect.sources.pure.change_events import (
    ChangeEvents,
    Snapshot,
    TableFacts,
    TableTopics,
)

BATCH_RECORDS_MAX = 1000
EVENTS_WITHOUT_PAUSE = 1000
"""How many events that are not published are read before other tasks get a turn."""


class LogPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a connector has published; the position of its batches."""

    gtids: str | None = None
    """The transactions that are published; None: the snapshot is not complete."""
    transaction: str | None = None
    """The transaction of which only a part is published."""
    changes: int = 0
    """How many of its changes are published."""


class MysqlSource(Source):
    """
    Publishes the rows of tables, and then all changes, as Debezium does.

    Delivery: exactly once, in the order of the log. A snapshot that is interrupted
    begins again, and repeats its messages.
    """

    Options = MysqlOptions
    extra = "mysql-cdc"
    has_effects = True  # A snapshot may lock tables for a moment.

    @classmethod
    def problems(cls, options: MysqlOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = access_problems(options)
        problem = TableTopics(options.tables).problem()
        if problem:
            found["tables"] = problem
        if not 1 <= options.port <= 65535:
            found["port"] = "must be 1 to 65535"
        if options.server_id is not None and not 1 <= options.server_id < 2**32:
            found["server_id"] = "must be 1 to 4294967295"
        return found

    async def check(self) -> None:
        """Check the settings of the server, and the tables."""
        async with Server(self.options) as server:
            await _Reading(server, self.options).check()

    async def batches(self, position: Any) -> AsyncGenerator[Batch]:
        """Yield the snapshot, unless it is published, and the changes after it."""
        options: MysqlOptions = self.options
        async with Server(options) as server:
            reading = _Reading(server, options)
            await reading.check()
            start = reading.parse(position)
            if start.gtids is None:
                async with aclosing(reading.snapshot()) as found:
                    async for batch in found:
                        yield batch
                        start = reading.parse(batch.position)
        changes = _Changes(reading, start, is_mariadb=server.is_mariadb)
        stream = LogStream(options, start.gtids or "", server, reading.topics)
        try:
            async with aclosing(changes.batches(stream)) as found:
                async for batch in found:
                    yield batch
        finally:
            stream.close()


class _Reading:
    """The reading of a server by one connector: checks, and the snapshot."""

    def __init__(self, server: Server, options: MysqlOptions) -> None:
        self.topics = TableTopics(options.tables)
        self.events = ChangeEvents(options.tombstones)
        self._server = server
        self._options = options
        self._facts: dict[tuple[str, str, tuple[str, ...]], TableFacts] = {}

    async def check(self) -> None:
        """
        Check the settings of the server, and the tables.

        Raises:
            ConnectorFailed: They are not as they must be.
        """
        await self._server.check()
        present = {(each.schema, each.name) for each in await self._server.tables()}
        for schema, table in self.topics.names:
            if (schema, table) not in present:
                raise ConnectorFailed(f"there is no table {schema}.{table}")

    def parse(self, position: Any) -> LogPosition:
        """Return a stored position; None: nothing is published."""
        try:
            return msgspec.convert(position or {}, LogPosition)
        except msgspec.ValidationError as error:
            raise ConnectorFailed(f"the stored position is invalid: {error}") from error

    async def snapshot(self) -> AsyncGenerator[Batch]:
        """Yield the rows of all tables, as they are now."""
        unfinished = msgspec.to_builtins(LogPosition())
        if self._options.snapshot is Snapshot.NEVER:
            gtids = await self._server.gtids()
        else:
            tables = await self._server.tables()
            gtids = await self._server.begin_snapshot()
            for table in tables:
                if (table.schema, table.name) not in self.topics:
                    continue
                facts = self.facts(table.schema, table.name, tuple(table.key_columns))
                rows = await self._server.open_rows(table)
                while found := await self._server.next_rows(rows):
                    records = self._records(facts, found, gtids)
                    yield Batch(list(records), unfinished)
            await self._server.end_snapshot()
        yield Batch([], msgspec.to_builtins(LogPosition(gtids=gtids)))

    def _records(
        self, facts: TableFacts, rows: list[dict[str, Any]], gtids: str
    ) -> Iterator[Record]:
        now_ms = time.time_ns() // 1_000_000
        source = {"ts_ms": now_ms, "snapshot": "true", "gtid": gtids}
        for row in rows:
            yield from self.events.of(
                facts, "r", None, row, source=source, time_ms=now_ms
            )

    def facts(self, schema: str, table: str, key: tuple[str, ...]) -> TableFacts:
        """Return what the messages of a table share."""
        found = self._facts.get((schema, table, key))
        if found is None:
            found = self._facts[schema, table, key] = TableFacts(
                source={
                    "connector": "mysql",
                    "name": self._options.host,
                    "db": schema,
                    "table": table,
                },
                key_columns=key,
                topic=self.topics.topic_of(schema, table),
                attributes={"mysql.table": f"{schema}.{table}"},
            )
        return found


class _Changes:
    """The changes in the log after a position."""

    def __init__(
        self, reading: _Reading, start: LogPosition, *, is_mariadb: bool
    ) -> None:
        self._reading = reading
        self._start = start
        self._gtids = gtids_of(start.gtids or "", is_mariadb=is_mariadb)
        self._position = start
        self._transaction: str | None = None

    async def batches(self, stream: LogStream) -> AsyncGenerator[Batch]:
        """Yield the changes, for ever."""
        records: list[Record] = []
        events = 0
        while True:
            event = stream.receive_nowait()
            if event is not None:
                records += self._records_of(event)
                events += 1
            if records and (event is None or len(records) >= BATCH_RECORDS_MAX):
                yield Batch(records, msgspec.to_builtins(self._position))
                records = []
            elif event is None:
                await stream.wait()
            elif events % EVENTS_WITHOUT_PAUSE == 0:
                await asyncio.sleep(0)

    def _records_of(self, event: Event) -> list[Record]:
        if isinstance(event, Begin):
            self._end()
            self._transaction = event.gtid
            self._position = msgspec.structs.replace(
                self._position, transaction=event.gtid, changes=0
            )
            return []
        if not isinstance(event, Change):
            self._end()
            return []
        before = self._position.changes
        self._position = msgspec.structs.replace(
            self._position, changes=before + len(event.rows)
        )
        published = 0
        if self._transaction == self._start.transaction:
            published = max(0, self._start.changes - before)
        return list(self._events(event, published))

    def _end(self) -> None:
        """Note that the transaction is read."""
        if self._transaction is not None:
            self._gtids.add(self._transaction)
            self._transaction = None
            self._position = LogPosition(gtids=str(self._gtids))

    def _events(self, change: Change, published: int) -> Iterator[Record]:
        reading = self._reading
        key = tuple(change.key_columns)
        facts = reading.facts(change.schema, change.table, key)
        source = {
            "ts_ms": change.time_s * 1000,
            "snapshot": "false",
            "gtid": self._transaction,
            "file": change.file,
            "pos": change.position,
        }
        now_ms = time.time_ns() // 1_000_000
        for before, after in change.rows[published:]:
            yield from reading.events.of(
                facts, change.operation, before, after, source=source, time_ms=now_ms
            )
