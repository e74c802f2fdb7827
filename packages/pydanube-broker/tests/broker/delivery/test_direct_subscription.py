"""Subscriptions of non-reliable topics."""

import pytest

from pydanube.model.names import SubscriptionName
from pydanube.model.policy import NamespacePolicy, SubscriptionType
from pydanube.wire.batches import Codec
from support.fakes.brokers import A_NOW_US, A_TOPIC, NON_RELIABLE
from support.fakes.readers import attach, publish, subscribe


@pytest.fixture
def policy():
    return NON_RELIABLE


async def test_messages_are_delivered_at_once(broker, topic):
    subscription = await subscribe(broker)
    reader, _ = attach(subscription)
    await publish(topic, b"a", b"b")
    assert [each.offset for each in reader.got] == [0, 1]
    facts = subscription.describe(2)
    assert (facts.backlog, facts.in_flight) == (0, 0)
    assert facts.counts.delivered == 2


async def test_messages_without_credit_are_dropped_and_counted(broker, topic):
    subscription = await subscribe(broker)
    reader, consumer = attach(subscription, messages=3)
    await publish(topic, *[b"x"] * 5)
    assert len(reader.got) == 3
    assert subscription.counts.dropped == 2
    subscription.credit(consumer, 1, 0)
    await publish(topic, b"y")
    assert reader.got[3].offset == 5


async def test_delivery_and_expiry_times_have_no_effect(broker, topic):
    subscription = await subscribe(broker)
    reader, _ = attach(subscription)
    later, earlier = A_NOW_US + 10**9, A_NOW_US - 10**9
    await publish(
        topic, b"a", b"b", deliver_at=[later, None], expires_at=[None, earlier]
    )
    assert len(reader.got) == 2
    rows = reader.frames[0].check().to_pylist()
    assert rows[0]["deliver_at"] is not None
    assert rows[1]["expires_at"] is not None


async def test_nacks_and_rates_have_no_effect(broker, topic):
    subscription = await subscribe(broker)
    await broker.topics.configure(
        A_TOPIC, limits=NamespacePolicy(max_subscription_dispatch_rate=1)
    )
    reader, _ = attach(subscription)
    await publish(topic, *[b"x"] * 5)
    subscription.nack([(0, 5)])
    assert [each.attempt for each in reader.got] == [1] * 5


async def test_each_subscription_gets_all_messages(broker, topic):
    readers = []
    for name in ("a", "b"):
        subscription = await subscribe(broker, SubscriptionName(name))
        readers += [attach(subscription, each)[0] for each in ("one", "two")]
    await publish(topic, *[b"x"] * 36)
    assert [len(each.got) for each in readers] == [18] * 4


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_messages_of_a_key_go_to_one_consumer(broker, topic, codec):
    subscription = await subscribe(broker, type_=SubscriptionType.KEY_SHARED)
    readers = [attach(subscription, name)[0] for name in ("one", "two")]
    keys = [b"k%d" % (at % 10) for at in range(100)]
    for _ in range(3):
        await publish(topic, *[b"x"] * 100, keys=keys, codec=codec)
    seen = [{keys[got.offset % 100] for got in each.got} for each in readers]
    assert seen[0].isdisjoint(seen[1])
    assert len(seen[0] | seen[1]) == 10
    assert sum(len(each.got) for each in readers) == 300
    assert subscription.counts.dropped == 0
