"""The activity of a topic is that of all brokers which served it."""

import pytest

from pydanube.model.errors import InvalidRequest, PermissionDenied
from pydanube.security.principals import Principal
from pydanube_broker.servers.activity_recording import record_activity
from pydanube_broker.testing import memory_broker
from support.fakes.principals import ROOT, client_of, guarded_broker

TOPIC = "/default/t"


async def test_activity_of_topics_and_subscriptions_is_described():
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create(TOPIC, partitions=2)
        await client.subscriptions.create(TOPIC, "s")
        async with client.producer(TOPIC) as producer:
            await producer.send_batch([b"1", b"2"])
        broker.advance(10)
        await record_activity(broker.broker, 4.0)
        for step_s in (10, 300):
            found = await client.cluster.describe_activity(TOPIC, step_s=step_s)
            assert (found.step_s, found.points[-1].published_per_s) == (step_s, 0.5)
        lag = (await client.cluster.describe_activity(TOPIC, "s")).points[-1]
        assert (lag.lag, lag.age_s > 0) == (2, True)
        every = await client.cluster.describe_activity()
        assert (every.points[-1].lag, every.points[-1].published_per_s) == (2, 0.5)
        assert (await client.cluster.describe_activity("/default/other")).points == ()
        with pytest.raises(InvalidRequest, match="step_s is 60: it must be 10 or 300"):
            await client.cluster.describe_activity(step_s=60)
        with pytest.raises(InvalidRequest, match="name its topic"):
            await client.cluster.describe_activity(subscription="s")


async def test_activity_is_for_those_who_may_describe():
    async with guarded_broker() as guarded:
        async with client_of(guarded, ROOT) as root:
            await root.topics.create(TOPIC)
            await root.security.set_role("see", ["describe"])
            await root.security.add_binding("user:alice", ["see"], [TOPIC])
        async with client_of(guarded, Principal("alice", "token")) as alice:
            await alice.cluster.describe_activity(TOPIC)
            with pytest.raises(PermissionDenied):
                await alice.cluster.describe_activity("/default/other")
            with pytest.raises(PermissionDenied):
                await alice.cluster.describe_activity()
