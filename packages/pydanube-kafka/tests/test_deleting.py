"""DeleteRecords of Kafka clients trims partitions, each with its own outcome."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from pydanube.model.names import TopicName
from pydanube_kafka.deleting import HIGH_WATERMARK
from pydanube_kafka.wire.apis import Api, ErrorCode
from support.drivers.kafka_requests import KafkaRequests, kafka_broker
from support.fakes.brokers import RELIABLE
from support.fakes.kafka_clusters import KafkaCluster

pytestmark = pytest.mark.slow

TOPIC = "/default/orders"


async def delete(raw, *offsets, topic="orders", version=2):
    """Delete the records of partition n before the n-th offset."""
    types = raw.types(Api.DELETE_RECORDS, version)
    wanted = types.DeleteRecordsTopic(
        name=topic,
        partitions=tuple(
            types.DeleteRecordsPartition(partition_index=index, offset=offset)
            for index, offset in enumerate(offsets)
        ),
    )
    answer = await raw.ask(
        Api.DELETE_RECORDS, version, topics=(wanted,), timeout=timedelta(seconds=60)
    )
    (found,) = answer.topics
    return [(each.error_code, each.low_watermark) for each in found.partitions]


@asynccontextmanager
async def served():
    async with kafka_broker() as (_, client, _, raw):
        yield client, raw


async def test_records_before_an_offset_are_deleted_for_all_readers():
    async with served() as (client, raw):
        await client.topics.create(TOPIC)
        async with client.producer(TOPIC) as producer:
            for _ in range(4):
                await producer.send(b"m")
        for version in range(3):
            assert await delete(raw, version + 1, version=version) == [
                (ErrorCode.none, version + 1)
            ]
        batches = [batch async for batch in client.read(TOPIC)]
        assert [message.offset for batch in batches for message in batch] == [3]
        # What is gone already stays gone.
        assert await delete(raw, 1) == [(ErrorCode.none, 3)]
        for offset in (5, -2):
            assert await delete(raw, offset) == [(ErrorCode.offset_out_of_range, -1)]
        assert await delete(raw, HIGH_WATERMARK) == [(ErrorCode.none, 4)]


async def test_each_partition_has_its_own_outcome():
    async with served() as (client, raw):
        await client.topics.create(TOPIC, partitions=2)
        await client.topics.create("/default/memory", reliable=False)
        assert await delete(raw, 0, 1, 0) == [
            (ErrorCode.none, 0),
            (ErrorCode.offset_out_of_range, -1),
            (ErrorCode.unknown_topic_or_partition, -1),
        ]
        assert await delete(raw, 0, topic="none") == [
            (ErrorCode.unknown_topic_or_partition, -1)
        ]
        assert await delete(raw, HIGH_WATERMARK, topic="memory") == [
            (ErrorCode.invalid_request, -1)
        ]


async def test_partition_of_another_broker_is_not_trimmed_here():
    async with KafkaCluster().running("a", "b") as cluster:
        broker = cluster.cluster.members["a"].broker
        await broker.topics.add(TopicName.parse(TOPIC), RELIABLE)
        owner = await cluster.owner(TOPIC)
        (other,) = {"a", "b"} - {owner}
        for broker_id, expected in (
            (other, (ErrorCode.not_leader_or_follower, -1)),
            (owner, (ErrorCode.none, 0)),
        ):
            port = cluster.server(broker_id).brokers.port
            async with KafkaRequests(port) as raw:
                assert await delete(raw, HIGH_WATERMARK) == [expected]
