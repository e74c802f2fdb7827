"""
The reading of a PostgreSQL database by one connector: checks, tables, and the snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pydanube_connect.postgres_access import quoted, quoted_text
from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.pure.records import Batch, Record
from pydanube_connect.sources.postgres_replication import Server, lsn_of
from pydanube_connect.sources.postgres_values import Decode, decoder_of
from pydanube_connect.sources.pure import pgoutput
from pydanube_connect.sources.pure.change_events import (
    UNAVAILABLE,
    ChangeEvents,
    Snapshot,
    TableFacts,
    TableTopics,
)
from pydanube_connect.sources.pure.pgoutput import Relation
from pydanube_connect.sources.pure.postgres_options import PostgresOptions

log = logging.getLogger("pydanube_connect")

BATCH_RECORDS_MAX = 1000
BATCH_BYTES_MAX = 1024 * 1024


class LogPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a connector has published; the position of its batches."""

    system: str
    """Identifies the database server."""
    slot: str
    lsn: int | None = None
    """The end of the last transaction; None: the snapshot is not complete."""
    transaction: int | None = None
    """The transaction of which only a part is published, by the LSN of its commit."""
    changes: int = 0
    """How many of its changes are published."""


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table, with what its values need."""

    facts: TableFacts
    columns: Sequence[str]
    decoders: Sequence[Decode]
    identity: Sequence[int]

    def row(self, values: pgoutput.Row) -> dict[str, Any]:
        """Return the JSON values of a row, by column."""
        return {
            name: (
                None
                if value is None
                else decode(value)
                if isinstance(value, str)
                else UNAVAILABLE
            )
            for name, value, decode in zip(
                self.columns, values, self.decoders, strict=True
            )
        }

    def before(self, change: pgoutput.Change) -> dict[str, Any] | None:
        """Return the old row of *change*, or the columns that identify it."""
        if change.before is None:
            return None
        row = self.row(change.before)
        if not change.is_key:
            return row
        return {self.columns[each]: row[self.columns[each]] for each in self.identity}


@dataclass(frozen=True, slots=True)
class _Slot:
    """A replication slot."""

    confirmed: int
    """The log before this position was stored."""
    status: str | None
    """Whether the server has the log; ``lost``: it has not."""


class Reading:
    """The reading of a database by one connector."""

    def __init__(self, server: Server, options: PostgresOptions) -> None:
        self.server = server
        self.topics = TableTopics(options.tables)
        self.events = ChangeEvents(options.tombstones)
        self.publication = options.publication or options.slot
        self._options = options
        self._database = ""

    # Before anything is read.

    async def check(self, stored: Any) -> LogPosition:
        """
        Return the position to continue at, after that of the last batch.

        Raises:
            ConnectorFailed: The server, the publication or the slot is not as it must
                be.
        """
        system = await self.check_server()
        await self._create_publication()
        await self._warn_of_truncations()
        slot = self._options.slot
        found = await self._slot()
        if stored is None:
            return await self._begin(system, found)
        try:
            position = msgspec.convert(stored, LogPosition)
        except msgspec.ValidationError as error:
            raise ConnectorFailed(f"the stored position is invalid: {error}") from error
        again = (
            "changes may be missing. To begin with a snapshot again, give the "
            "connector another name and another slot"
        )
        if (position.system, position.slot) != (system, slot):
            raise ConnectorFailed(
                f"the stored position is of the slot {position.slot!r} of the server "
                f"{position.system}, not of {slot!r} of {system}: {again}"
            )
        if position.lsn is None:
            return position
        if found is None:
            raise ConnectorFailed(
                f"the replication slot {slot!r} does not exist any more: {again}"
            )
        if found.status == "lost":
            raise ConnectorFailed(
                f"the server has deleted the log that the slot {slot!r} needs "
                f"(max_slot_wal_keep_size): {again}"
            )
        if found.status == "unreserved":
            log.warning("the server may soon delete the log of the slot %s", slot)
        return position

    async def check_server(self) -> str:
        """
        Check everything that does not depend on the position; return the system.

        Raises:
            ConnectorFailed: The server or the publication is not as it must be.
        """
        system, _, _, database = await self.server.command("IDENTIFY_SYSTEM")
        self._database = database
        [(level,)] = await self.server.query("SHOW wal_level")
        if level != "logical":
            raise ConnectorFailed(
                f"the server's wal_level is {level!r}: set wal_level = logical, and "
                "start it again"
            )
        await self._check_publication()
        return system

    async def _begin(self, system: str, found: _Slot | None) -> LogPosition:
        slot = self._options.slot
        position = LogPosition(system=system, slot=slot)
        if found is None:
            return position
        if self._options.snapshot is Snapshot.NEVER:
            return msgspec.structs.replace(position, lsn=found.confirmed)
        raise ConnectorFailed(
            f"the replication slot {slot!r} exists already: choose another 'slot', or "
            "'snapshot: never' to begin where it is, or drop it with "
            f"SELECT pg_drop_replication_slot({quoted_text(slot)})"
        )

    async def _has_publication(self) -> bool:
        return bool(await self._published_operations())

    async def _published_operations(self) -> list[tuple[Any, ...]]:
        """Return a row that says whether deletions and truncations are published."""
        return await self.server.query(
            "SELECT pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s",
            (self.publication,),
        )

    async def _check_publication(self) -> None:
        """Check that the publication has the tables, or can be created for them."""
        name = self.publication
        tables = self.topics.names
        if not await self._has_publication():
            if not tables:
                raise ConnectorFailed(
                    f"there is no publication {name!r}: create it with CREATE "
                    f"PUBLICATION {quoted(name)} FOR ALL TABLES"
                )
            await self._check_identities(tables)
            return
        published = await self.server.query(
            "SELECT schemaname, tablename FROM pg_publication_tables "
            "WHERE pubname = %s",
            (name,),
        )
        for schema, table in tables:
            if (schema, table) not in published:
                raise ConnectorFailed(
                    f"the publication {name!r} lacks {schema}.{table}: ALTER "
                    f"PUBLICATION {quoted(name)} ADD TABLE "
                    f"{quoted(schema)}.{quoted(table)}"
                )

    async def _warn_of_truncations(self) -> None:
        """Warn if tables are emptied without an event, but rows have events."""
        if (True, False) in await self._published_operations():
            log.warning(
                "the publication %s publishes no truncations: a TRUNCATE leaves the "
                "rows in all copies of the tables. ALTER PUBLICATION %s SET (publish = "
                "'insert, update, delete, truncate')",
                self.publication,
                quoted(self.publication),
            )

    async def _create_publication(self) -> None:
        """Create the publication for the tables, unless it exists."""
        if await self._has_publication():
            return
        listed = ", ".join(
            f"{quoted(schema)}.{quoted(table)}" for schema, table in self.topics.names
        )
        await self.server.execute(
            f"CREATE PUBLICATION {quoted(self.publication)} FOR TABLE {listed} "
            "WITH (publish = 'insert, update, delete, truncate')"
        )

    async def _check_identities(self, tables: Sequence[tuple[str, str]]) -> None:
        """Refuse tables whose updates PostgreSQL would refuse if they are published."""
        for schema, table in tables:
            name = f"{quoted(schema)}.{quoted(table)}"
            [(exists, has_identity)] = await self.server.query(
                "SELECT c.oid IS NOT NULL, c.relreplident IN ('f', 'i') OR EXISTS ("
                "SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) "
                "FROM (SELECT to_regclass(%s) AS oid) t "
                "LEFT JOIN pg_class c ON c.oid = t.oid",
                (name,),
            )
            if not exists:
                raise ConnectorFailed(f"there is no table {schema}.{table}")
            if not has_identity:
                raise ConnectorFailed(
                    f"the table {schema}.{table} has no primary key: PostgreSQL would "
                    "refuse its updates and deletions once they are published. First "
                    f"ALTER TABLE {name} REPLICA IDENTITY FULL, or create the "
                    "publication yourself WITH (publish = 'insert')"
                )

    async def _slot(self) -> _Slot | None:
        found = await self.server.query(
            "SELECT plugin, database, confirmed_flush_lsn::text, "
            "to_jsonb(s)->>'wal_status' FROM pg_replication_slots s "
            "WHERE slot_name = %s",
            (self._options.slot,),
        )
        if not found:
            return None
        [(plugin, database, confirmed, status)] = found
        if (plugin, database) != ("pgoutput", self._database):
            raise ConnectorFailed(
                f"the replication slot {self._options.slot!r} belongs to "
                f"{plugin or 'physical replication'} of the database {database!r}: "
                "choose another 'slot'"
            )
        return _Slot(lsn_of(confirmed or "0/0"), status)

    # The snapshot.

    async def snapshot(
        self, position: LogPosition, *, is_new: bool
    ) -> AsyncGenerator[Batch]:
        """Yield the rows of all tables, as they are when the slot is created."""
        slot = self._options.slot
        unfinished = msgspec.to_builtins(position)
        if is_new:
            # From now on the slot is known to be the connector's own.
            stored = asyncio.Event()
            yield Batch([], unfinished, on_stored=lambda _: stored.set())
            await stored.wait()
        elif await self._slot() is not None:
            await self.server.execute(
                f"SELECT pg_drop_replication_slot({quoted_text(slot)})"
            )
        _, point, name, _ = await self.server.command(
            f"CREATE_REPLICATION_SLOT {quoted(slot)} LOGICAL pgoutput EXPORT_SNAPSHOT"
        )
        complete = msgspec.structs.replace(position, lsn=lsn_of(point))
        if self._options.snapshot is Snapshot.INITIAL:
            async with self.server.snapshot(name):
                for schema, table in await self._tables():
                    async for records in self._rows(schema, table, point):
                        yield Batch(records, unfinished)
        yield Batch([], msgspec.to_builtins(complete))

    async def _tables(self) -> list[tuple[Any, ...]]:
        found = await self.server.query(
            "SELECT schemaname, tablename FROM pg_publication_tables "
            "WHERE pubname = %s ORDER BY 1, 2",
            (self.publication,),
        )
        return [each for each in found if each in self.topics]

    async def _rows(
        self, schema: str, name: str, point: str
    ) -> AsyncIterator[list[Record]]:
        facts = await self.server.query(
            "SELECT a.attname, a.atttypid::int8, c.oid::int8 FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_attribute a ON a.attrelid = c.oid "
            "JOIN pg_publication_tables p ON p.schemaname = n.nspname "
            "AND p.tablename = c.relname "
            "WHERE n.nspname = %s AND c.relname = %s AND p.pubname = %s "
            "AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' "
            "AND (to_jsonb(p)->'attnames' IS NULL "
            "OR to_jsonb(p)->'attnames' ? a.attname::text) ORDER BY a.attnum",
            (schema, name, self.publication),
        )
        if not facts:
            return
        columns = tuple(each[0] for each in facts)
        types = tuple(each[1] for each in facts)
        relation = Relation(facts[0][2], schema, name, columns, types, ())
        table = await self.table(relation)
        [(condition,)] = await self.server.query(
            "SELECT to_jsonb(p)->>'rowfilter' FROM pg_publication_tables p "
            "WHERE pubname = %s AND schemaname = %s AND tablename = %s",
            (self.publication, schema, name),
        )
        listed = ", ".join(map(quoted, columns))
        where = f" WHERE {condition}" if condition else ""
        select = f"SELECT {listed} FROM {quoted(schema)}.{quoted(name)}{where}"
        source = {"snapshot": "true", "lsn": lsn_of(point), "txId": None}
        records: list[Record] = []
        size = 0
        async for row in self.server.rows(select):
            now_ms = time.time_ns() // 1_000_000
            records += self.events.of(
                table.facts,
                "r",
                None,
                table.row(row),
                source={"ts_ms": now_ms, **source},
                time_ms=now_ms,
            )
            size += sum(len(each or "") for each in row)
            if len(records) >= BATCH_RECORDS_MAX or size >= BATCH_BYTES_MAX:
                yield records
                records, size = [], 0
        if records:
            yield records

    # Facts about tables.

    async def _is_dropped(self, relation: Relation) -> bool:
        """Return whether the table is gone, of which the log has changes yet."""
        return not await self.server.query(
            "SELECT 1 FROM pg_class WHERE oid = %s::int8::oid", (relation.id,)
        )

    async def table(self, relation: Relation) -> ReadTable:
        """Return the table that *relation* describes."""
        key = await self.server.query(
            "SELECT a.attname FROM pg_index i "
            "JOIN unnest(i.indkey) WITH ORDINALITY k(number, rank) ON true "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            "WHERE i.indexrelid = (SELECT indexrelid FROM pg_index "
            "WHERE indrelid = %s::int8::oid AND (indisprimary OR indisreplident) "
            "ORDER BY indisprimary DESC LIMIT 1) AND k.rank <= i.indnkeyatts "
            "ORDER BY k.rank",
            (relation.id,),
        )
        key_columns = [each[0] for each in key]
        if not key_columns and await self._is_dropped(relation):
            # The log still says which columns identified a row; all: maybe no key.
            at = relation.identity
            is_key = len(at) < len(relation.columns) or len(at) == 1
            key_columns = [relation.columns[each] for each in at] if is_key else []
        schema, name = relation.schema, relation.table
        facts = TableFacts(
            source={
                "connector": "postgresql",
                "name": self._options.slot,
                "db": self._database,
                "schema": schema,
                "table": name,
            },
            key_columns=key_columns,
            topic=self.topics.topic_of(schema, name),
            attributes={"postgres.table": f"{schema}.{name}"},
        )
        decoders = [decoder_of(each) for each in relation.types]
        return ReadTable(facts, relation.columns, decoders, relation.identity)
