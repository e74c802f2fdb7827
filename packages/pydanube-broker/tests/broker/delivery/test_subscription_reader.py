"""Subscriptions to a topic whose older messages are only in the remote store."""

import pytest

from pydanube.model.errors import ObjectsUnavailable
from pydanube.model.policy import CorruptionPolicy, TopicPolicy
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.broker.delivery.subscription_reader import SubscriptionReader
from pydanube_broker.dispatch.effects import Deliver
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from support.drivers.running import using
from support.fakes.batches import frame_of
from support.fakes.brokers import BrokerWorld
from support.fakes.corrupt_objects import retry_reads_now
from support.fakes.readers import a_while, attach, publish, subscribe
from support.fakes.storages import seal, until
from support.fakes.tiered_worlds import RemoteObjects

SKIPPING = TopicPolicy(on_corruption=CorruptionPolicy.SKIP)


@pytest.fixture
def remote():
    """Return the remote store."""
    return RemoteObjects()


@pytest.fixture
def world(remote):
    """Return a world with a local and a remote store."""
    return BrokerWorld(objects=TieredObjects(MemoryObjects(), remote))


@pytest.fixture
async def subscription(world, remote, broker, topic):
    """Subscribe to a topic with a remote segment 0 … 3 and a tail 3 … 4."""
    for at in range(4):
        await publish(topic, b"%d" % at)
        if at == 2:
            await seal(broker.storage, topic.topic_id)
    await world.objects.list_local()
    name = topic.segments[0].object_name
    await remote.put(name, await world.objects.local.read(name))
    await world.objects.evict(name)
    return await subscribe(broker)


async def test_history_is_delivered_from_the_remote_store(subscription, remote):
    reader, _ = attach(subscription)
    assert await reader.offsets(4) == [0, 1, 2, 3]
    assert len(remote.requests) == 1


@using(policy=SKIPPING)
async def test_consumers_wait_until_the_store_answers_again(
    broker, topic, subscription, remote, caplog
):
    remote.is_away = True
    reader, _ = attach(subscription)
    await until(lambda: subscription.is_stopped)
    for _ in range(10):
        # Not even a topic that skips damaged segments skips these.
        retry_reads_now(topic.log)
        subscription.on_policy_changed()
        await a_while()
    assert reader.reason is None
    assert reader.got == []
    assert "the store is away on purpose" in subscription.describe(4).stopped_by
    assert broker.storage.corrupt_segment_count == 0
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    remote.is_away = False
    retry_reads_now(topic.log)
    subscription.on_policy_changed()
    assert await reader.offsets(4) == [0, 1, 2, 3]
    assert not subscription.is_stopped
    assert subscription.describe(4).stopped_by is None


async def test_other_requests_get_an_error_that_they_may_repeat(
    topic, subscription, remote
):
    remote.is_away = True
    with pytest.raises(ObjectsUnavailable):
        await topic.log.read(0, bytes_max=1)
    with pytest.raises(ObjectsUnavailable):
        await topic.find_offsets([0])


async def test_only_deliveries_of_the_same_frame_that_follow_are_gathered(topic):
    reader = SubscriptionReader(topic.log)
    reader.keep(frame_of([b"%d" % at for at in range(8)]))
    inside = [Deliver(each, each, each + 3, 1, bits=0b101) for each in range(4)]
    queue = iter([*inside[:2], Deliver(5, 90, 93, 1, bits=0b101), *inside[2:]])
    cut = reader.cut(inside[0], queue)
    assert cut.encode().check().column("payload").to_pylist() == [b"0", b"2"]
    # Nobody looks at those behind the delivery of another frame.
    assert next(queue) is inside[2]
    assert reader.cut(inside[1], ()) is not None
    # A gather of its own: this one was not gathered with the others.
    cut = reader.cut(inside[3], [inside[3]])
    assert cut.encode().check().column("payload").to_pylist() == [b"3", b"5"]
