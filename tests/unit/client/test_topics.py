"""Topics and partitions, as a client manages them."""

import pytest

import pydanube
from pydanube.model.policy import NamespacePolicy
from support.running import TOPIC, published, with_client

PARTS = [f"{TOPIC}-part-{n}" for n in range(3)]


def test_a_partitioned_topic_from_its_creation_to_its_end():
    async def test(client):
        await client.create_topic(TOPIC, partitions=2, ttl_s=60, retention_age_s=3600)
        assert await client.partitions(TOPIC) == PARTS[:2]
        assert await client.topics() == PARTS[:2]
        await client.add_partitions(TOPIC, 3)
        assert await client.partitions(TOPIC) == PARTS
        policies = [(await client.describe_topic(p)).policy for p in PARTS]
        assert [each.ttl_s for each in policies] == [60.0] * 3
        assert policies[0] == policies[2]
        await client.delete_topic(TOPIC)
        assert await client.topics() == []
        assert await client.partitions(TOPIC) == []

    with_client(test)


def test_partitions_are_listed_by_number():
    async def test(client):
        await client.create_topic(TOPIC, partitions=12)
        assert await client.partitions(TOPIC) == [
            f"{TOPIC}-part-{n}" for n in range(12)
        ]

    with_client(test)


def test_a_partitioned_topic_is_created_once():
    async def test(client):
        await client.create_topic(TOPIC, partitions=2)
        with pytest.raises(pydanube.AlreadyExists):
            await client.create_topic(TOPIC, partitions=2)
        await client.create_topic(TOPIC, partitions=2, exist_ok=True)
        with pytest.raises(pydanube.AlreadyExists):
            await client.create_topic(TOPIC, partitions=3, exist_ok=True)
        with pytest.raises(pydanube.AlreadyExists):
            await client.create_topic(TOPIC)

    with_client(test)


def test_partitions_only_become_more():
    async def test(client):
        await client.create_topic(TOPIC, partitions=2)
        for number in (1, 2):
            with pytest.raises(pydanube.InvalidRequest):
                await client.add_partitions(TOPIC, number)
        with pytest.raises(pydanube.InvalidRequest):
            await client.create_topic("/default/none", partitions=0)
        await client.create_topic("/default/plain")
        with pytest.raises(pydanube.BrokerError):
            await client.add_partitions("/default/plain", 2)

    with_client(test)


def test_a_partition_is_not_deleted_alone_and_the_name_is_no_topic():
    async def test(client):
        await client.create_topic(TOPIC, partitions=2)
        with pytest.raises(pydanube.InvalidRequest, match="partition"):
            await client.delete_topic(PARTS[0])
        with pytest.raises(pydanube.TopicNotFound):
            await client.describe_topic(TOPIC)

    with_client(test)


def test_limits_of_a_partitioned_topic_hold_for_every_partition():
    async def test(client):
        await client.create_topic(TOPIC, partitions=2)
        limits = NamespacePolicy(max_message_size=3)
        await client.set_topic_limits(TOPIC, limits)
        await client.add_partitions(TOPIC, 3)
        for name in PARTS:
            assert (await client.describe_topic(name)).limits == limits

    with_client(test)


def test_a_time_to_live_is_a_positive_number():
    async def test(client):
        for ttl_s in (0, -1):
            with pytest.raises(pydanube.InvalidRequest):
                await client.create_topic(TOPIC, ttl_s=ttl_s)

    with_client(test)


def test_a_name_that_stands_for_one_topic_or_none_is_no_riddle():
    async def test(client):
        await published(client, b"m")
        assert await client.existing_partitions(TOPIC) == [TOPIC]
        assert await client.one_partition(TOPIC, "this") == TOPIC
        with pytest.raises(pydanube.TopicNotFound):
            await client.existing_partitions("/default/none")
        await client.create_topic("/default/many", partitions=2)
        with pytest.raises(pydanube.InvalidRequest, match="this is of one: name it"):
            await client.one_partition("/default/many", "this")

    with_client(test)
