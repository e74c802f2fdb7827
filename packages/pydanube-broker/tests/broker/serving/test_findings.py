"""A broker finds what is wrong with subscriptions, however many topics it has."""

import pytest

import pydanube
from pydanube import InvalidRequest
from pydanube.model import metrics
from pydanube.model.findings import FindingKind
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube.model.policy import FailurePolicy
from pydanube_broker.broker.serving import findings
from pydanube_broker.cluster.pure.shard_topics import shard_of
from pydanube_broker.servers.samples import samples_of
from pydanube_broker.testing import memory_broker
from pydanube_cli.diagnosis.findings import Verdict
from pydanube_cli.diagnosis.findings import subscriptions as judge
from pydanube_console.monitor import TOPICS_MAX, Monitor
from pydanube_console.pages.overview import render
from pydanube_console.pure.markup import Html
from support.fakes.batches import A_TIME
from support.fakes.broker_clusters import SHARDS
from support.fakes.brokers import RELIABLE, BrokerWorld
from support.fakes.readers import S, publish, subscribe
from support.fakes.served_clusters import ServedCluster
from support.fakes.storages import seal

pytestmark = pytest.mark.slow

LAST = "/default/z"


def named(name):
    return TopicName.parse(f"/default/{name}")


async def block(client, topic):
    """Block the subscription ``s`` of *topic* with its only message."""
    await client.subscriptions.create(topic, "s", start="earliest")
    await client.subscriptions.configure(
        topic, "s", failure_policy=FailurePolicy(redeliveries_max=0)
    )
    async with (
        client.consumer(topic, subscription="s") as consumer,
        client.producer(topic) as producer,
    ):
        await producer.send(b"bad")
        message = await consumer.receive(timeout_s=30)
        await consumer.nack(message, reason="boom")
        while not (await client.subscriptions.describe(topic, "s")).blocked:
            pass


async def test_blocked_subscription_is_found_behind_a_thousand_topics():
    count = TOPICS_MAX + 20
    async with memory_broker() as broker, broker.connect() as client:
        for number in range(count):
            await client.topics.create(f"/default/t{number:05}")
        await client.topics.create(LAST)
        await block(client, LAST)
        found = await client.cluster.list_findings()
        assert [(e.topic, e.subscription) for e in found.subscriptions] == [(LAST, "s")]
        assert (found.finding_count, found.problem_count) == (1, 1)
        assert (found.topic_count, found.subscription_count) == (count + 1, 1)
        assert (found.published, found.backlog) == (1, 1)
        # The console and the doctor say the same.
        monitor = Monitor(client)
        await monitor.take()
        page = str(render(monitor, [], Html("")))
        assert f"s of {LAST} is blocked by message 0" in page
        assert "Nothing needs attention" not in page
        assert f"{count + 1:,}" in page
        assert judge(found, count + 1).verdict is Verdict.PROBLEM
        # The alerts name them, too.
        samples = await samples_of(broker.broker, broker.server, (), is_ready=True)
        labels = (LAST, "s", "blocked")
        assert (metrics.SUBSCRIPTION_PROBLEM, labels, 1) in list(samples)


async def test_topics_that_are_not_open_are_not_called_good(tmp_path):
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create(LAST)
        monitor = Monitor(client)
        await monitor.take()
        assert "Nothing needs attention" in str(render(monitor, [], Html("")))
        # As after a restart of the broker, when nobody has used the topic.
        monitor.names.append("/default/closed")
        page = str(render(monitor, [], Html("")))
        assert "Nothing needs attention" not in page
        assert "1 topic is not measured" in page


async def test_only_topics_that_the_caller_may_see_are_examined():
    async with memory_broker() as broker, broker.connect() as client:
        for name in ("/default/a", "/default/b"):
            await client.topics.create(name)
            await block(client, name)
        topics = list(broker.broker.topics.opened.values())
        found = await findings.find(topics, lambda name: name.topic == "a", 0, 10)
        assert [each.topic for each in found.subscriptions] == ["/default/a"]
        assert (found.topic_count, found.published) == (1, 1)


async def test_findings_are_limited_and_counted():
    async with memory_broker() as broker, broker.connect() as client:
        for name in "abc":
            await client.topics.create(f"/default/{name}")
            await block(client, f"/default/{name}")
        found = await client.cluster.list_findings(2)
        assert len(found.subscriptions) == 2
        assert (found.finding_count, found.problem_count) == (3, 3)
        with pytest.raises(InvalidRequest, match="limit is 0"):
            await client.cluster.list_findings(0)


async def test_idle_topics_are_measured_by_what_the_journal_knows_of_them():
    world, read, late = BrokerWorld(), named("read"), named("late")
    async with world.broker() as broker:
        for name in (read, late):
            topic = await broker.topics.create(name, RELIABLE)
            await subscribe(broker, topic=name)
            await publish(topic, b"a", b"b")
            await seal(broker.storage, topic.topic_id)
        await broker.subscriptions.mark_done(read, S, [(0, 2)])
        await broker.topics.create(named("unused"), RELIABLE)
    async with world.broker() as broker:
        idle = [(n, TopicId(r.topic_id)) for n, r in await broker.catalog.records()]
        now_us = A_TIME + 3600 * 1_000_000
        found = await findings.find_idle(broker.views, broker.storage, idle, now_us, 9)
        assert (found.topic_count, found.subscription_count) == (3, 2)
        assert found.backlog == 2
        [finding] = found.subscriptions
        assert (finding.topic, finding.kind) == (str(late), FindingKind.LATE)
        assert not broker.topics.opened


async def problems_of(cluster, client):
    """Return the topics with problems, as findings say and as metrics say."""
    found = await client.cluster.list_findings()
    series = {
        labels[0]
        for broker_id, server in cluster.servers.items()
        for metric, labels, _ in await samples_of(
            cluster.cluster.members[broker_id].broker, server, (), is_ready=True
        )
        if metric is metrics.SUBSCRIPTION_PROBLEM
    }
    return found, {each.topic for each in found.subscriptions}, series


@pytest.mark.parametrize("idle", [40, pytest.param(5000, marks=pytest.mark.soak)])
@pytest.mark.timeout(1200)
async def test_findings_and_metrics_are_complete_after_a_failover(idle):
    blocked = {f"/default/blocked{number}" for number in range(8)}
    async with (
        ServedCluster().running("a", "b", "c") as cluster,
        pydanube.connect("danube://a,b,c") as client,
    ):
        for number in range(idle):
            await client.topics.create(f"/default/idle{number}")
        for topic in sorted(blocked):
            await client.topics.create(topic)
            await block(client, topic)
        before, named_before, series_before = await problems_of(cluster, client)
        assert (named_before, series_before) == (blocked, blocked)
        for member in cluster.cluster.members.values():
            # A failure is in the journal 20 ms later.
            member.broker.subscription_store.cursors.flush()
            await member.broker.storage.journal.sync()
        gone = cluster.owner_of(shard_of(named("blocked0"), SHARDS))
        cluster.kill(gone)
        await cluster.cluster.settled(*({"a", "b", "c"} - {gone}))
        after, named_after, series_after = await problems_of(cluster, client)
    assert (named_after, series_after) == (blocked, blocked)
    for each in (before, after):
        assert each.problem_count == each.subscription_count == len(blocked)
        assert each.topic_count == idle + len(blocked)
