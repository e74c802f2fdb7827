"""The changes in the log of a PostgreSQL database, after a position in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any

import msgspec

from pydanube_connect.pure.records import Batch, Record, Refusals
from pydanube_connect.sources.postgres_reading import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    LogPosition,
    Reading,
    ReadTable,
)
from pydanube_connect.sources.postgres_replication import LogStream
from pydanube_connect.sources.pure import pgoutput

MESSAGES_WITHOUT_PAUSE = 1000
"""How many messages that are not published are read before other tasks get a turn."""


class Changes:
    """The changes in the log after a position."""

    def __init__(
        self, reading: Reading, stream: LogStream, position: LogPosition
    ) -> None:
        self._reading = reading
        self._stream = stream
        self._start = position
        self._position = position
        self._tables: dict[int, ReadTable | None] = {}
        self._begin: pgoutput.Begin | None = None
        self._source: dict[str, Any] = {}
        self._records: list[Record] = []
        self._stored = position.lsn or 0
        self._unstored = 0

    async def batches(self) -> AsyncGenerator[Batch]:
        """Yield the changes, for ever."""
        size = messages = 0
        while True:
            message = self._stream.receive_nowait()
            if message is not None:
                self._records += await self._records_of(message)
                size += len(message)
                messages += 1
            is_full = len(self._records) >= BATCH_RECORDS_MAX or size >= BATCH_BYTES_MAX
            if self._records and (message is None or is_full):
                self._unstored += 1
                batch = Batch(
                    self._records,
                    msgspec.to_builtins(self._position),
                    on_stored=partial(self._note_stored, self._position),
                )
                self._records, size = [], 0
                yield batch
            elif message is None:
                await self._stream.wait()
            elif messages % MESSAGES_WITHOUT_PAUSE == 0:
                await asyncio.sleep(0)

    def stored_lsn(self) -> int:
        """Return the position before which everything is stored or not published."""
        if self._begin is None and not self._records and not self._unstored:
            end = self._position.lsn or 0
            self._stored = max(self._stored, end, self._stream.read_lsn)
        return self._stored

    def _note_stored(self, position: LogPosition, _: Refusals) -> None:
        self._unstored -= 1
        self._stored = max(self._stored, position.lsn or 0)

    async def _records_of(self, message: bytes) -> Iterator[Record]:
        event = pgoutput.parse(message)
        if isinstance(event, pgoutput.Begin):
            self._begin = event
            self._source = {
                "ts_ms": event.time_us // 1000,
                "snapshot": "false",
                "txId": event.transaction,
                "lsn": event.lsn,
            }
            self._position = msgspec.structs.replace(
                self._position, transaction=event.lsn, changes=0
            )
        elif isinstance(event, pgoutput.Commit):
            self._begin = None
            self._position = msgspec.structs.replace(
                self._position, lsn=event.end_lsn, transaction=None, changes=0
            )
        elif isinstance(event, pgoutput.Relation):
            self._tables[event.id] = await self._table(event)
        elif isinstance(event, pgoutput.Change | pgoutput.Truncate):
            changes = self._position.changes + 1
            self._position = msgspec.structs.replace(self._position, changes=changes)
            if not self._is_published(changes):
                return self._events(event)
        return iter(())

    def _is_published(self, number: int) -> bool:
        """Return whether an earlier run has published a change of the transaction."""
        lsn = self._position.transaction or 0
        if lsn == self._start.transaction:
            return number <= self._start.changes
        return lsn < (self._start.lsn or 0)

    async def _table(self, relation: pgoutput.Relation) -> ReadTable | None:
        if (relation.schema, relation.table) not in self._reading.topics:
            return None
        return await self._reading.table(relation)

    def _events(self, event: pgoutput.Change | pgoutput.Truncate) -> Iterator[Record]:
        now_ms = time.time_ns() // 1_000_000
        events = self._reading.events
        if isinstance(event, pgoutput.Truncate):
            for each in event.relations:
                table = self._tables.get(each)
                if table is not None:
                    yield from events.of(
                        table.facts,
                        "t",
                        None,
                        None,
                        source=self._source,
                        time_ms=now_ms,
                    )
            return
        table = self._tables.get(event.relation)
        if table is not None:
            yield from events.of(
                table.facts,
                event.operation,
                table.before(event),
                None if event.after is None else table.row(event.after),
                source=self._source,
                time_ms=now_ms,
            )
