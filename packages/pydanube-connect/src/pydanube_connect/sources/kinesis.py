"""
A source of records in a stream of Amazon Kinesis.

The sequence numbers of the last records are kept with the messages that are published,
so each record is published exactly once.  New shards are found every ``DISCOVERY_S``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pydanube.aio.tasks import gather
from pydanube.declarations.pure.sections import parse_duration
from pydanube_connect.aws_connection import (
    AwsAccess,
    AwsClient,
    AwsRefused,
    aws_client,
    aws_problems,
)
from pydanube_connect.connector import Source
from pydanube_connect.kinesis_streams import stream_problems
from pydanube_connect.option_problems import duration_problems
from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.pure.records import Batch, Record
from pydanube_connect.sources.pure.kinesis_shards import (
    BEGIN,
    END,
    Positions,
    at_time,
    iterator_at,
    readable,
    with_shards,
)

RECORDS_MAX = 1000
"""The most records of an answer, which has at most 10 MiB."""
SHARDS_MAX = 1000
CALLS_MAX = 4
"""The most shards whose answers are in memory at the same time."""
DISCOVERY_S = 30.0
PAUSE_S = 0.25
"""Kinesis allows five requests for records of a shard in a second."""


class KinesisStart(Enum):
    """The beginning of a stream that was not read before."""

    EARLIEST = "earliest"
    LATEST = "latest"


class KinesisOptions(AwsAccess, frozen=True, kw_only=True):
    """The options of ``KinesisSource``."""

    stream: Annotated[str, Meta(description="The name of the stream.")]
    start: Annotated[
        KinesisStart,
        Meta(description="Where to begin in a stream that is read first."),
    ] = KinesisStart.EARLIEST
    poll: Annotated[
        str, Meta(description="How long to wait when there are no new records.")
    ] = "1s"


class KinesisSource(Source):
    """
    Publishes the records of a stream of Amazon Kinesis; the key is the partition key.

    Delivery: exactly once. Records with the same key keep their order.
    """

    Options = KinesisOptions
    extra = "aws"

    @classmethod
    def problems(cls, options: KinesisOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = aws_problems(options) | stream_problems(options.stream)
        return found | duration_problems(options, "poll")

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield the records after the sequence numbers in *position*."""
        options: KinesisOptions = self.options
        poll_s = parse_duration(options.poll)
        loop = asyncio.get_running_loop()
        async with aws_client("kinesis", options, calls_max=CALLS_MAX) as client:
            reading = _Reading(client, options, position)
            discover_at = loop.time()
            while True:
                if loop.time() >= discover_at or reading.has_ended_shards:
                    await reading.discover()
                    yield Batch([], dict(reading.positions))
                    discover_at = loop.time() + DISCOVERY_S
                is_idle = True
                shards = reading.shards_to_read()
                for at in range(0, len(shards), CALLS_MAX):
                    some = shards[at : at + CALLS_MAX]
                    for shard, found in zip(
                        some, await gather(map(reading.next_records, some)), strict=True
                    ):
                        records = reading.take(shard, found)
                        is_idle = is_idle and not records
                        if records:
                            yield Batch(records, dict(reading.positions))
                await asyncio.sleep(poll_s if is_idle else PAUSE_S)


class _Reading:
    """The shards of a stream that are read."""

    def __init__(
        self, client: AwsClient, options: KinesisOptions, position: Any
    ) -> None:
        self._client = client
        self._stream = options.stream
        self._first = BEGIN
        if position is None and options.start is KinesisStart.LATEST:
            self._first = at_time(time.time_ns() / 1e9)
        try:
            self.positions = msgspec.convert(position or {}, Positions)
        except msgspec.ValidationError as error:
            raise ConnectorFailed(f"the stored position is invalid: {error}") from error
        self._shards: Sequence[dict[str, Any]] = ()
        self._iterators: dict[str, str] = {}
        self.has_ended_shards = False
        """Whether a shard has ended since the shards were listed."""

    async def discover(self) -> None:
        """List the shards."""
        shards: list[dict[str, Any]] = []
        parameters: dict[str, Any] = {"StreamName": self._stream}
        while True:
            answer = await self._client.call("list_shards", **parameters)
            shards += answer["Shards"]
            if len(shards) > SHARDS_MAX:
                raise ConnectorFailed(
                    f"the stream {self._stream} has more than {SHARDS_MAX} shards"
                )
            if not answer.get("NextToken"):
                break
            parameters = {"NextToken": answer["NextToken"]}
        self._shards = shards
        self.positions = with_shards(self.positions, shards, first=self._first)
        # Shards that appear later are read from their beginning.
        self._first = BEGIN
        self.has_ended_shards = False

    def shards_to_read(self) -> list[str]:
        """Return the shards to read now."""
        return readable(self.positions, self._shards)

    async def next_records(self, shard: str) -> dict[str, Any]:
        """Return the next answer for *shard*."""
        iterator = self._iterators.pop(shard, None)
        if iterator is not None:
            try:
                return await self._records_at(iterator)
            except AwsRefused as error:
                # Iterators last for five minutes.
                if error.code != "ExpiredIteratorException":
                    raise
        answer = await self._client.call(
            "get_shard_iterator",
            StreamName=self._stream,
            ShardId=shard,
            **iterator_at(self.positions[shard]),
        )
        return await self._records_at(answer["ShardIterator"])

    async def _records_at(self, iterator: str) -> dict[str, Any]:
        return await self._client.call(
            "get_records", ShardIterator=iterator, Limit=RECORDS_MAX
        )

    def take(self, shard: str, answer: dict[str, Any]) -> list[Record]:
        """Return the records of *answer*, after which *shard* continues."""
        records = answer["Records"]
        if records:
            self.positions[shard] = records[-1]["SequenceNumber"]
        following = answer.get("NextShardIterator")
        if following:
            self._iterators[shard] = following
        else:
            self.positions[shard] = END
            self.has_ended_shards = True
        return [_record(shard, each) for each in records]


def _record(shard: str, record: dict[str, Any]) -> Record:
    attributes = {
        "kinesis.shard": shard,
        "kinesis.sequence_number": record["SequenceNumber"],
    }
    arrived = record.get("ApproximateArrivalTimestamp")
    if arrived is not None:
        attributes["kinesis.time"] = str(int(arrived.timestamp() * 1000))
    return Record(
        value=record["Data"], key=record["PartitionKey"], attributes=attributes
    )
