"""What clients are told about topics."""

from __future__ import annotations

import pytest

from pydanube_kafka.pure.nodes import NOBODY, number_of
from pydanube_kafka.wire.apis import Api, ErrorCode
from support.drivers.kafka_requests import KafkaRequests
from support.fakes.broker_clusters import SHARDS
from support.fakes.kafka_clusters import KafkaCluster

pytestmark = pytest.mark.slow


async def test_metadata_waits_for_brokers_that_take_partitions_over():
    async with (
        KafkaCluster().running("a") as cluster,
        KafkaRequests(cluster.server("a").brokers.port) as raw,
    ):
        types = raw.types(Api.CREATE_TOPICS, 2)
        topic = types.CreatableTopic(
            name="t",
            num_partitions=3,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        await raw.ask(Api.CREATE_TOPICS, 2, topics=(topic,))
        shards = cluster.server("a").broker.shards
        epochs = dict(shards.served)
        assert set(epochs) == set(range(SHARDS))
        left = []

        async def take_one():
            shard, epoch = left.pop()
            shards.served[shard] = epoch

        shards.owners.wait_for_change = take_one
        named = raw.types(Api.METADATA, 12).MetadataRequestTopic
        for wanted in (named(name="t", topic_id=None),), None:
            shards.served.clear()
            left = list(epochs.items())
            found = await raw.ask(
                Api.METADATA,
                12,
                topics=wanted,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
            (told,) = found.topics
            assert len(told.partitions) == 3
            for each in told.partitions:
                assert each.error_code is ErrorCode.none
                assert each.leader_id == number_of("a") != NOBODY
                assert each.leader_epoch > 0
