"""What clients learn of all brokers of a cluster."""

from __future__ import annotations

import pytest

import pydanube
from pydanube.model.findings import FindingKind
from pydanube.model.names import TopicName
from pydanube.model.policy import FailurePolicy, PoisonPolicy
from pydanube_broker.cluster.pure.shard_topics import shard_of
from support.fakes.broker_clusters import SHARDS
from support.fakes.guarded_clusters import eventually
from support.fakes.served_clusters import ServedCluster
from support.fakes.storages import until

BLOCKING = FailurePolicy(
    redeliveries_max=0, redelivery_delay_s=0.0, poison=PoisonPolicy.BLOCK
)


@pytest.fixture
async def cluster():
    async with ServedCluster().running("a", "b", "c") as cluster:
        # The last one may have come when all shards had an owner.
        await until(lambda: all(map(cluster.cluster.served, "abc")))
        yield cluster


def topics_of_each(cluster):
    """One topic for each broker, by broker."""
    found = {}
    for number in range(100):
        name = f"/default/t{number}"
        owner = cluster.owner_of(shard_of(TopicName.parse(name), SHARDS))
        found.setdefault(owner, name)
    return found


async def block(client, topic):
    """Let a message fail for good."""
    await client.topics.create(topic)
    await client.subscriptions.create(topic, "s", start="earliest")
    await client.subscriptions.configure(topic, "s", failure_policy=BLOCKING)
    async with client.producer(topic) as producer:
        await producer.send(b"bad")
    async with client.consumer(topic, subscription="s") as consumer:
        await consumer.nack(await consumer.receive(timeout_s=60))


async def test_findings_have_the_topics_of_all_brokers_also_after_moves(cluster):
    topics = topics_of_each(cluster)
    assert set(topics) == {"a", "b", "c"}
    async with pydanube.connect("danube://a") as client:
        for topic in topics.values():
            await block(client, topic)

        async def are_all_blocked():
            found = await client.cluster.list_findings()
            kinds = {each.topic: each.kind for each in found.subscriptions}
            expected = dict.fromkeys(topics.values(), FindingKind.BLOCKED)
            return (kinds, found.topic_count) == (expected, 3)

        await eventually(are_all_blocked)
        # The next owner knows it, although nobody uses the topic.
        await cluster.drain("c")
        await eventually(are_all_blocked)
        (one,) = (await client.cluster.list_findings(limit=1)).subscriptions
        assert one.topic in topics.values()
        assert (await client.cluster.list_findings(limit=1)).finding_count == 3


async def test_connections_of_all_brokers_are_listed_and_closed(cluster):
    topics = topics_of_each(cluster)
    async with (
        pydanube.connect("danube://a") as client,
        pydanube.connect("danube://a") as other,
    ):
        for topic in topics.values():
            await client.topics.create(topic)
        async with other.producer(topics["c"], name="far"):

            async def is_listed():
                found = await client.cluster.list_connections()
                assert found.connection_count == len(found.connections)
                named = [
                    (each.broker_id, member.name)
                    for each in found.connections
                    for member in each.members
                ]
                return named == [("c", "far")]

            await eventually(is_listed)
            [far] = [
                each
                for each in (await client.cluster.list_connections()).connections
                if each.members
            ]
            with pytest.raises(pydanube.InvalidRequest, match="one of a, b, c"):
                await client.cluster.close_connection(far.connection_id)
            with pytest.raises(pydanube.InvalidRequest, match="no connection"):
                await client.cluster.close_connection(1, "a")
            await client.cluster.close_connection(far.connection_id, "c")

            async def has_connected_again():
                found = await client.cluster.list_connections()
                return [
                    each.connection_id != far.connection_id
                    for each in found.connections
                    if each.members
                ] == [True]

            await eventually(has_connected_again)
