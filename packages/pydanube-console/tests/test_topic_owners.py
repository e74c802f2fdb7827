"""The brokers of partitions are known, and moves are described."""

import pytest

pytest.importorskip("nicegui")

import pydanube
from pydanube.model.clusters import ShardMove
from pydanube_console.topic_owners import move_text, owners_of
from support.fakes.served_clusters import ServedCluster
from support.worlds.current import memory_broker

TOPIC = "/default/t"


@pytest.mark.slow
async def test_owners_are_the_brokers_that_serve_the_partitions():
    async with (
        ServedCluster().running("a", "b"),
        pydanube.connect("danube://a") as client,
    ):
        await client.topics.create(TOPIC, partitions=6)
        names = await client.topics.partitions(TOPIC)
        found = await owners_of(client, names)
        assert list(found) == names
        assert set(found.values()) == {"a", "b"}
        owner = found[names[0]]
        other = "b" if owner == "a" else "a"
        text = move_text(names[0], await client.cluster.move_topic(names[0], other))
        assert f"{names[0]} moves from {owner} to {other}" in text


async def test_single_broker_has_no_owners():
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create(TOPIC)
        assert await owners_of(client, [TOPIC]) == {}


def test_move_names_the_other_topics_of_the_shard():
    move = ShardMove(shard=1, target="b", topics=(TOPIC, "/default/u"), topic_count=3)
    text = move_text(TOPIC, move)
    assert (
        text == f"{TOPIC} moves from (no broker) to b, with 2 other topics of its shard"
    )
    same = ShardMove(shard=1, source="b", target="b")
    assert move_text(TOPIC, same) == f"b serves {TOPIC} already, or will soon"
