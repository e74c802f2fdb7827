"""The samples of a broker's metrics."""

from __future__ import annotations

import pytest

from pydanube.model import metrics
from pydanube.model.errors import QuotaExceeded
from pydanube.model.names import TopicName
from pydanube.model.topic_patterns import TopicPattern
from pydanube.security.principals import ANONYMOUS
from pydanube.security.quotas import Quota
from pydanube_broker.broker.publishing.message_batcher import SingleMessage
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.samples import samples_of
from pydanube_broker.servers.topic_samples import TopicSeries
from pydanube_broker.testing import memory_broker
from support.fakes.batches import A_TIME
from support.fakes.broker_clusters import SHARDS
from support.fakes.brokers import A_TOPIC, RELIABLE, Outcome
from support.fakes.schemas import registered, strict
from support.fakes.served_clusters import ServedCluster
from support.fakes.storages import until


async def test_schema_failures_are_counted_by_topic_and_reason():
    async with memory_broker() as memory:
        broker = memory.broker
        await registered(broker)
        topic = await broker.topics.create(A_TOPIC, RELIABLE, strict())
        outcome = Outcome()
        broker.batcher.publish(topic, SingleMessage("p", b"x", A_TIME), outcome)
        assert await outcome.error() is not None
        samples = await samples_of(broker, memory.server, (), is_ready=True)
        name = str(A_TOPIC)
        judged = (metrics.SCHEMA_VALIDATIONS, (name, "enforce"), 1)
        failed = (metrics.SCHEMA_VALIDATION_FAILURES, (name, "missing"), 1)
        assert {judged, failed} <= set(samples)


async def test_requests_publishing_and_deliveries_are_timed():
    async with (
        memory_broker() as memory,
        memory.connect() as client,
        client.producer("/default/orders") as producer,
        client.consumer(
            "/default/orders", subscription="s", start="earliest"
        ) as consumer,
    ):
        await producer.send(b"x")
        await consumer.receive()
        samples = await samples_of(memory.broker, memory.server, (), is_ready=True)
        found = {(sample[0], *sample[1]): sample[2] for sample in samples}
        for name in ("open_producer", "open_consumer"):
            assert found[metrics.REQUEST_SECONDS, name].count == 1
        assert found[metrics.PUBLISH_SECONDS,].count == 1
        assert found[metrics.DELIVERY_AGE_SECONDS,].count == 1
        assert found[metrics.JOURNAL_COMMIT_SECONDS,].count >= 1


async def test_lag_is_the_age_of_the_oldest_unacknowledged_message():
    async with (
        memory_broker() as memory,
        memory.connect() as client,
        client.producer("/default/orders") as producer,
        client.consumer("/default/orders", subscription="s") as consumer,
    ):
        topic = await memory.broker.topics.get(TopicName.parse("/default/orders"))
        (subscription,) = topic.subscriptions.values()
        assert subscription.lag_s(A_TIME) == 0.0
        await producer.send(b"x")
        message = await consumer.receive()
        published_at = topic.log.estimate_time(0)
        assert subscription.lag_s(published_at + 5_000_000) == 5.0
        assert subscription.lag_s(published_at - 5_000_000) == 0.0
        await consumer.ack(message)
        await consumer.flush()
        assert subscription.lag_s(published_at + 5_000_000) == 0.0


async def test_only_topics_that_match_have_series():
    async with memory_broker() as memory:
        for name in ("/default/a", "/default/b", "/other/c"):
            if name.startswith("/other"):
                await memory.broker.namespaces.create("other")
            await memory.broker.topics.create(TopicName.parse(name), RELIABLE)
        series = TopicSeries(pattern=TopicPattern("/default/*"), series_max=1)
        samples = await samples_of(
            memory.broker, memory.server, (), (), series, is_ready=True
        )
        topics = [s[1][0] for s in samples if s[0] is metrics.TOPIC_MESSAGES_IN]
        assert topics == ["/default/a", metrics.OTHER]


async def test_connections_of_each_listener_are_counted():
    async with memory_broker() as memory:
        counts = ConnectionCounts(listener="grpc", connections_max=2)
        assert [counts.admit() for _ in range(3)] == [True, True, False]
        counts.lose()
        samples = await samples_of(
            memory.broker, memory.server, (), [counts], is_ready=True
        )
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
        samples = await samples_of(broker, server, (), is_ready=True)
        found = {sample[0]: sample[2] for sample in samples}
        assert found[metrics.CLUSTER_SHARDS] == SHARDS
        assert found[metrics.CLUSTER_SHARDS_SERVED] >= SHARDS
        assert found[metrics.CLUSTER_LOST_SESSIONS] == 1


async def test_quotas_and_failed_logins_are_counted():
    async with memory_broker() as memory:
        meter = memory.broker.quotas.of_principal(ANONYMOUS)
        meter.set_quota(Quota(connections=1, bytes_in_per_s=1024), 0.0)
        meter.connect()
        with pytest.raises(QuotaExceeded):
            meter.connect()
        meter.take_in(3 * 1024, 0.0)
        memory.server.authenticator.failed_count["token"] += 2
        samples = set(await samples_of(memory.broker, memory.server, (), is_ready=True))
        assert {
            (metrics.QUOTA_REFUSALS, ("principal", "connections"), 1),
            (metrics.QUOTA_THROTTLED_SECONDS, ("principal", "bytes_in_per_s"), 2.0),
            (metrics.AUTHENTICATION_FAILURES, ("token",), 2),
        } <= samples
