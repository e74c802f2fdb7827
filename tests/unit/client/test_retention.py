"""Retention and sealing of topics, as clients change them."""

import pytest

import pydanube
from pydanube.model.policy import KEEP_ALL
from support.storages import seal

TOPIC = "/default/orders"
SMALL = pydanube.Retention(bytes_max=1)


async def grown(broker, client, topic=TOPIC, segments=3):
    """Publish messages, and seal each of them."""
    async with client.producer(topic) as producer:
        for _ in range(segments):
            await producer.send(b"m")
            for opened in list(broker.broker.topics.opened.values()):
                if opened.policy.is_reliable:
                    await seal(broker.broker.storage, opened.topic_id)


async def test_retention_is_planned_set_and_applied(broker, client):
    await grown(broker, client)
    assert (await client.plan_retention(TOPIC))[0].segment_count == 0
    (planned,) = await client.plan_retention(TOPIC, SMALL)
    assert (planned.segment_count, planned.message_count) == (2, 2)
    assert (planned.topic, planned.base_offset) == (TOPIC, 2)
    assert [each.base for each in planned.segments] == [0, 1]
    assert not planned.has_subscriptions
    assert (await client.describe_topic(TOPIC)).segment_count == 3
    await client.topics.configure(TOPIC, retention=SMALL)
    described = await client.describe_topic(TOPIC)
    assert described.retention == described.policy.retention == SMALL
    assert await client.apply_retention(TOPIC) == [planned]
    assert (await client.describe_topic(TOPIC)).base_offset == 2
    assert (await client.apply_retention(TOPIC))[0].segment_count == 0


async def test_dry_run_assumes_the_retention_of_the_namespace(broker, client):
    await client.create_topic("/default/own")
    await client.topics.configure("/default/own", retention=KEEP_ALL)
    await client.create_topic("/default/memory", reliable=False)
    await grown(broker, client)
    await grown(broker, client, "/default/own")

    planned = await client.plan_namespace_retention("default", SMALL)
    assert {each.topic: each.segment_count for each in planned} == {
        TOPIC: 2,
        "/default/own": 0,
    }
    (inherited,) = await client.plan_retention(
        "/default/own", inherits=True, of_namespace=SMALL
    )
    assert inherited.segment_count == 2

    await client.namespaces.configure("default", retention=SMALL)
    assert (await client.describe_namespace("default")).retention == SMALL
    assert await client.plan_namespace_retention("default") == planned
    assert await client.apply_namespace_retention("default") == planned
    assert (await client.describe_topic(TOPIC)).base_offset == 2
    assert (await client.describe_topic("/default/own")).base_offset == 0
    await client.topics.configure("/default/own", retention=None)
    described = await client.describe_topic("/default/own")
    assert (described.policy.retention, described.retention) == (None, SMALL)


async def test_each_partition_has_a_result(client):
    await client.create_topic(
        TOPIC, partitions=2, retention=pydanube.Retention(drops_acknowledged=True)
    )
    described = await client.describe_topic(f"{TOPIC}-part-1")
    assert described.retention == pydanube.Retention(drops_acknowledged=True)
    expected = [f"{TOPIC}-part-0", f"{TOPIC}-part-1"]
    assert [each.topic for each in await client.apply_retention(TOPIC)] == expected
    assert [each.topic for each in await client.plan_retention(TOPIC)] == expected


async def test_acknowledged_segments_are_dropped_and_a_new_subscription_follows(
    broker, client
):
    await client.create_topic(
        TOPIC, retention=pydanube.Retention(drops_acknowledged=True)
    )
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        await grown(broker, client)
        for _ in range(3):
            await consumer.ack(await consumer.receive(timeout_s=60))
        await consumer.flush()
        (dropped,) = await client.apply_retention(TOPIC)
    assert (dropped.segment_count, dropped.has_subscriptions) == (2, True)
    async with client.consumer(TOPIC, subscription="t", start="earliest") as consumer:
        assert (await consumer.receive(timeout_s=60)).offset == 2


async def test_limits_of_zero_are_refused_and_not_taken_for_none(client):
    await client.create_topic(TOPIC)
    for retention in (pydanube.Retention(age_s=0), pydanube.Retention(bytes_max=0)):
        for refused in (
            client.topics.configure(TOPIC, retention=retention),
            client.plan_retention(TOPIC, retention),
            client.namespaces.configure("default", retention=retention),
            client.plan_namespace_retention("default", retention),
        ):
            with pytest.raises(pydanube.InvalidRequest, match="more than 0"):
                await refused
        with pytest.raises(pydanube.InvalidRequest, match="more than 0"):
            await client.plan_retention(TOPIC, of_namespace=retention)
    with pytest.raises(pydanube.InvalidRequest, match="size of segments is 0 bytes"):
        await client.topics.configure(TOPIC, seal_bytes=0)
    with pytest.raises(pydanube.InvalidRequest, match="sealed is 0 s"):
        await client.topics.configure(TOPIC, seal_age_s=0)


async def test_topics_and_namespaces_must_exist(client):
    with pytest.raises(pydanube.TopicNotFound):
        await client.topics.configure(TOPIC, retention=SMALL)
    with pytest.raises(pydanube.TopicNotFound):
        await client.apply_retention(TOPIC)
    with pytest.raises(pydanube.TopicNotFound):
        await client.topics.configure(TOPIC, seal_bytes=None, seal_age_s=None)
    with pytest.raises(pydanube.NamespaceNotFound):
        await client.namespaces.configure("none", retention=SMALL)
    with pytest.raises(pydanube.NamespaceNotFound):
        await client.plan_namespace_retention("none")


async def test_sealing_is_set_and_cleared(client):
    await client.create_topic(TOPIC, partitions=2)
    await client.topics.configure(TOPIC, seal_bytes=2**20, seal_age_s=5.0)
    policy = (await client.describe_topic(f"{TOPIC}-part-1")).policy
    assert (policy.seal_bytes, policy.seal_age_s) == (2**20, 5.0)
    await client.topics.configure(TOPIC, seal_bytes=None, seal_age_s=None)
    policy = (await client.describe_topic(f"{TOPIC}-part-0")).policy
    assert (policy.seal_bytes, policy.seal_age_s) == (None, None)


async def test_retention_keeps_the_messages_of_the_deduplication_window(broker, client):
    await client.create_topic(TOPIC, deduplication=pydanube.Deduplication(age_s=600))
    await client.topics.configure(TOPIC, retention=SMALL)
    await grown(broker, client)
    assert [each.segment_count for each in await client.plan_retention(TOPIC)] == [0]
    await client.topics.configure(TOPIC, deduplication=None)
    assert [each.segment_count for each in await client.plan_retention(TOPIC)] == [2]
