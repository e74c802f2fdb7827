"""A stream of Spark that copies a topic while everything fails, each message once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pydanube
    from support.drivers.campaign_clients import Book

TARGET = "/default/copied"


class SparkCopy:
    """A query that copies *source* to ``TARGET``, and is started again if it ends."""

    def __init__(self, book: Book, spark: Any, source: str, checkpoint: Path) -> None:
        self.book = book
        self.source = source
        self._spark = spark
        self._checkpoint = str(checkpoint)

    async def run(self, client: pydanube.Client, url: str) -> None:
        """Copy until all messages of the source are copied."""
        await client.topics.create(TARGET)
        while True:
            # Spark finds its data sources only in the thread of the session.
            query = self._start(url)
            try:
                while query.isActive:
                    if await self._has_all(client):
                        return
                    await asyncio.sleep(0.5)
                failure = str(query.exception()).splitlines()[0]
                self.book.log.add(f"the query of Spark has ended: {failure}")
            finally:
                await asyncio.to_thread(query.stop)

    def _start(self, url: str) -> Any:
        rows = self._spark.readStream.format("danube").option("url", url)
        rows = rows.option("subscribe", self.source).option(
            "startingOffsets", "earliest"
        )
        copied = rows.load().select("payload").writeStream.format("danube")
        copied = copied.option("url", url).option("topic", TARGET)
        return copied.option("checkpointLocation", self._checkpoint).start()

    async def _has_all(self, client: pydanube.Client) -> bool:
        end = self.book.ends.get(self.source)
        if end is None:
            return False
        return (await client.topics.describe(TARGET)).end_offset >= end

    async def check(self, client: pydanube.Client) -> None:
        """Check that each message was copied once."""
        wanted, found = [
            Counter([each async for b in client.read(topic) for each in b.payloads])
            for topic in (self.source, TARGET)
        ]
        if wanted != found:
            self.book.violations.add(
                "Spark copies each message once",
                f"missing: {wanted - found}; more than once: {found - wanted}",
            )
        self.book.log.add(f"Spark has copied {found.total()} messages")
