"""The samples of a broker's metrics."""

from __future__ import annotations

from pydanube.broker.message_batcher import SingleMessage
from pydanube.model import metrics
from pydanube.servers.connections import ConnectionCounts
from pydanube.servers.samples import samples_of
from pydanube.testing import memory_broker
from support.batches import A_TIME
from support.broker_clusters import SHARDS
from support.brokers import A_TOPIC, RELIABLE, Outcome
from support.schemas import registered, strict
from support.served_clusters import ServedCluster
from support.storages import until


async def test_schema_failures_are_counted_by_topic_and_reason():
    async with memory_broker() as memory:
        broker = memory.broker
        await registered(broker)
        topic = await broker.topics.create(A_TOPIC, RELIABLE, strict())
        outcome = Outcome()
        broker.batcher.publish(topic, SingleMessage("p", b"x", A_TIME), outcome)
        assert await outcome.error() is not None
        samples = list(samples_of(broker, memory.server, (), is_ready=True))
        name = str(A_TOPIC)
        judged = (metrics.SCHEMA_VALIDATIONS, (name, "enforce"), 1)
        failed = (metrics.SCHEMA_VALIDATION_FAILURES, (name, "missing"), 1)
        assert {judged, failed} <= set(samples)


async def test_connections_of_each_listener_are_counted():
    async with memory_broker() as memory:
        counts = ConnectionCounts(listener="grpc", connections_max=2)
        assert [counts.admit() for _ in range(3)] == [True, True, False]
        counts.lose()
        samples = samples_of(memory.broker, memory.server, (), [counts], is_ready=True)
        found = {sample[0]: sample[2] for sample in samples if sample[1] == ("grpc",)}
        assert found == {
            metrics.LISTENER_CONNECTIONS: 2,
            metrics.LISTENER_CONNECTIONS_REFUSED: 1,
            metrics.LISTENER_CONNECTIONS_TIMED_OUT: 0,
            metrics.LISTENER_CONNECTIONS_BROKEN: 0,
        }


async def test_takeovers_of_a_broker_in_a_cluster_are_counted():
    async with ServedCluster().running("a", "b") as cluster:
        cluster.kill("b")
        await until(lambda: len(cluster.cluster.served("a")) == SHARDS)
        broker, server = cluster.cluster.members["a"].broker, cluster.servers["a"]
        samples = samples_of(broker, server, (), is_ready=True)
        found = {sample[0]: sample[2] for sample in samples}
        assert found[metrics.CLUSTER_SHARDS] == SHARDS
        assert found[metrics.CLUSTER_SHARDS_SERVED] >= SHARDS
        assert found[metrics.CLUSTER_LOST_SESSIONS] == 1
