"""
A source of the entries of Redis streams.

The identifiers of the last entries are stored with the messages, so each entry is
published exactly once, without a consumer group.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.model.errors import InvalidName
from pydanube.model.names import TopicName
from pydanube_connect.connector import Source
from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.pure.records import Batch, Record
from pydanube_connect.redis_connection import (
    RedisConnection,
    connection_problems,
    redis_client,
    translated,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis  # An extra.

log = logging.getLogger("pydanube_connect")

BATCH_ENTRIES_MAX = 1000
BATCH_ENTRIES_FIRST = 16
"""How many entries are read first, before their size is known."""
BATCH_BYTES = 4 * 1024 * 1024
"""How many bytes of a stream to read at a time, by the size of the entries before."""
WAIT_MS = 5000
"""How long Redis holds a request for new entries."""


class StreamStart(Enum):
    """Where to begin in streams that are read first."""

    EARLIEST = "earliest"
    LATEST = "latest"


class MissingEntries(Enum):
    """The answer to entries that Redis has deleted before they were read."""

    FAIL = "fail"
    CONTINUE = "continue"


class RedisSourceOptions(RedisConnection, frozen=True, kw_only=True):
    """The options of ``RedisSource``."""

    streams: Annotated[
        dict[str, str | None],
        Meta(
            description="The streams, each with the topic to publish to; empty: the "
            "topic of the connector."
        ),
    ]
    field: Annotated[
        str | None,
        Meta(
            description="The field with the payload; by default the payload is a JSON "
            "object of all fields."
        ),
    ] = None
    start: Annotated[
        StreamStart,
        Meta(description="Where to begin in streams that are read first."),
    ] = StreamStart.EARLIEST
    missing_entries: Annotated[
        MissingEntries,
        Meta(
            description="What to do if Redis, from version 7, has deleted entries that "
            "were not read."
        ),
    ] = MissingEntries.FAIL


class RedisSource(Source):
    """
    Publishes the entries of Redis streams, in their order.

    Delivery: exactly once.
    """

    Options = RedisSourceOptions
    extra = "redis"

    @classmethod
    def problems(cls, options: RedisSourceOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = connection_problems(options)
        if not options.streams or not all(options.streams):
            found["streams"] = "has no stream, such as 'orders:'"
        for topic in filter(None, options.streams.values()):
            try:
                TopicName.parse(topic)
            except InvalidName as error:
                found["streams"] = str(error)
        return found

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield the entries after *position*, the last identifiers by stream."""
        options: RedisSourceOptions = self.options
        async with translated(options), redis_client(options) as redis:
            if position is None:
                position = await self._beginning(redis)
                yield Batch([], position)
            reading = _Reading(redis, options, position)
            async with aclosing(reading.batches()) as batches:
                async for batch in batches:
                    yield batch

    async def _beginning(self, redis: Redis) -> dict[str, Any]:
        """Return the position before the first entries, or after the last ones."""
        found = {}
        for stream in self.options.streams:
            facts = await _facts_of(redis, stream)
            added, length = facts.get("entries-added"), facts.get("length", 0)
            if self.options.start is StreamStart.LATEST:
                last = facts.get("last-generated-id", b"0-0").decode()
                found[stream] = [last, added or 0]
            else:
                found[stream] = ["0-0", 0 if added is None else added - length]
        return found


class _Reading:
    """The reading of streams after the entries that are published."""

    def __init__(
        self, redis: Redis, options: RedisSourceOptions, position: Mapping[str, Any]
    ) -> None:
        self._redis = redis
        self._options = options
        self._last: dict[str, str] = {}
        self._entries_max = BATCH_ENTRIES_FIRST
        # How many entries of a stream precede those that are read next: Redis counts
        # all that were ever added.
        self._before: dict[str, int] = {}
        for name in options.streams:
            self._last[name], self._before[name] = position.get(name, ("0-0", 0))

    async def batches(self) -> AsyncGenerator[Batch]:
        """Yield the next entries, for ever."""
        while True:
            records = await self._read()
            if records:
                position = {
                    each: [self._last[each], self._before[each]] for each in self._last
                }
                yield Batch(records, position)
            else:
                # What arrives is read again, together with the facts of the streams.
                await self._redis.xread(dict(self._last), count=1, block=WAIT_MS)

    async def _read(self) -> list[Record]:
        names = list(self._options.streams)
        async with self._redis.pipeline(transaction=True) as pipeline:
            for name in names:
                pipeline.xinfo_stream(name)
            pipeline.xread(dict(self._last), count=self._entries_max)
            *facts, found = await pipeline.execute(raise_on_error=False)
        if isinstance(found, Exception):
            raise found
        listed = {name.decode(): entries for name, entries in _listed(found)}
        entries_max, self._entries_max = (
            self._entries_max,
            next_count(self._entries_max, listed),
        )
        records: list[Record] = []
        for name, each in zip(names, facts, strict=True):
            entries = listed.get(name, [])
            if not self._is_complete(name, each, len(entries), entries_max):
                # The stream was created anew: it is read from its beginning.
                continue
            if entries:
                self._last[name] = entries[-1][0].decode()
                records += self._records(name, entries)
        return records

    def _is_complete(self, name: str, facts: Any, count: int, count_max: int) -> bool:
        """
        Count the next *count* entries of a stream, and notice what is missing.

        There are more if they are *count_max*.  Return whether the entries can be used.
        """
        if isinstance(facts, Exception):
            if "no such key" in str(facts):
                return True
            raise facts
        last = self._last[name]
        if _number(facts["last-generated-id"]) < _number(last):
            self._report(f"the stream {name} was created anew after the entry {last}")
            self._last[name], self._before[name] = "0-0", 0
            return False
        added = facts.get("entries-added")
        if added is None:  # Before version 7.
            return True
        unread = added - self._before[name]
        there = count if count < count_max else facts["length"]
        if unread > there:
            self._report(
                f"Redis has deleted {unread - there:,} entries after {last} of the "
                f"stream {name}"
            )
            self._before[name] += unread - there
        self._before[name] += count
        return True

    def _report(self, problem: str) -> None:
        if self._options.missing_entries is MissingEntries.FAIL:
            raise ConnectorFailed(
                f"{problem}, which were not read; 'missing_entries: continue' goes on "
                "with what is there"
            )
        log.warning("%s", problem)

    def _records(
        self, stream: str, entries: Iterable[tuple[bytes, Mapping[bytes, bytes]]]
    ) -> list[Record]:
        topic, name = self._options.streams[stream], self._options.field
        field = None if name is None else name.encode()
        return [
            Record(
                value={_text(each): _text(value) for each, value in fields.items()}
                if field is None
                else fields.get(field, b""),
                attributes={"redis.stream": stream, "redis.id": entry_id.decode()},
                topic=topic,
            )
            for entry_id, fields in entries
        ]


def next_count(count: int, listed: Mapping[str, Any]) -> int:
    """
    Return how many entries of each stream to read after reading *count*.

    The count at most doubles, and entries as large as those *listed* have together at
    most ``BATCH_BYTES`` for each stream.
    """
    means = [
        sum(map(len, chain.from_iterable(fields.values() for _, fields in entries)))
        // len(entries)
        for entries in listed.values()
    ]
    if not means:
        return count
    return max(1, min(BATCH_ENTRIES_MAX, 2 * count, BATCH_BYTES // max(1, *means)))


async def _facts_of(redis: Redis, stream: str) -> dict[str, Any]:
    from redis.exceptions import ResponseError  # noqa: PLC0415

    try:
        found: dict[str, Any] = await redis.xinfo_stream(stream)
    except ResponseError as error:
        if "no such key" in str(error):
            return {}
        raise
    return found


def _listed(found: Any) -> Any:
    """Return the answer to XREAD as pairs; it is a mapping in version 3 of RESP."""
    if isinstance(found, Mapping):
        return [(name, entries[0]) for name, entries in found.items()]
    return found or []


def _number(entry_id: bytes | str) -> tuple[int, int]:
    text = entry_id.decode() if isinstance(entry_id, bytes) else entry_id
    time, _, sequence = text.partition("-")
    return int(time), int(sequence or 0)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
