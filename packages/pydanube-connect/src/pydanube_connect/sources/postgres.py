"""
A source of the changes in a PostgreSQL database, by logical replication.

First it publishes the rows that the tables have, then each change, in the order of the
log.  Its position there is stored together with the messages, and the server keeps
the log until it is told that they are stored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from pydanube_connect.connector import Source
from pydanube_connect.pure.records import Batch
from pydanube_connect.sources.postgres_changes import Changes
from pydanube_connect.sources.postgres_reading import LogPosition, Reading
from pydanube_connect.sources.postgres_replication import open_server
from pydanube_connect.sources.pure.change_events import TableTopics
from pydanube_connect.sources.pure.postgres_options import PostgresOptions


class PostgresSource(Source):
    """
    Publishes the rows of tables, and then all changes, as Debezium does.

    Delivery: exactly once, in the order of the transactions' commits. A snapshot that
    is interrupted begins again, and repeats its messages.
    """

    Options = PostgresOptions
    extra = "postgres-cdc"
    has_effects = True

    @classmethod
    def problems(cls, options: PostgresOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {}
        if not options.url.strip():
            found["url"] = "must not be empty"
        problem = TableTopics(options.tables).problem()
        if problem:
            found["tables"] = problem
        allowed = "abcdefghijklmnopqrstuvwxyz0123456789_"
        if not 0 < len(options.slot) < 64 or set(options.slot) - set(allowed):
            found["slot"] = "has lower-case letters, digits and '_', at most 63"
        if options.publication == "":
            found["publication"] = "must not be empty"
        return found

    async def check(self) -> None:
        """Check the server and the tables, as before the first snapshot."""
        options: PostgresOptions = self.options
        async with open_server(options.url, options.password) as server:
            await Reading(server, options).check_server()

    async def batches(self, position: Any) -> AsyncGenerator[Batch]:
        """Yield the snapshot, unless it is published, and the changes after it."""
        options: PostgresOptions = self.options
        async with open_server(options.url, options.password) as server:
            reading = Reading(server, options)
            start = await reading.check(position)
            if start.lsn is None:
                snapshot = reading.snapshot(start, is_new=position is None)
                async with aclosing(snapshot) as found:
                    async for batch in found:
                        yield batch
                        start = msgspec.convert(batch.position, LogPosition)
            stream = await server.start_log(options.slot, reading.publication)
            changes = Changes(reading, stream, start)
            with stream.confirming(changes.stored_lsn):
                async with aclosing(changes.batches()) as found:
                    async for batch in found:
                        yield batch
