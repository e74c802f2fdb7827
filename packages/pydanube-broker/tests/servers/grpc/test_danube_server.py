"""
What the original did wrong, done right through the same server.

``WEAK_SPOTS`` says which test answers for which weakness: loss, messages that never
come, or wrong behaviour that clients of the original may have met.
"""

from __future__ import annotations

import asyncio

import pytest

from pydanube.model.names import NamespaceName, SubscriptionName, TopicName
from pydanube.model.policy import (
    DispatchLimits,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
)
from pydanube.wire.pb import danube_api_pb2 as pb
from support.drivers.danube_calls import TOPIC, Type, danube_world
from support.fakes.guarded_clusters import eventually

NAME = TopicName.parse(TOPIC)
SUBSCRIPTION = SubscriptionName("s")
DEFAULT = NamespaceName("default")


@pytest.fixture
async def world():
    """Run a broker with the gRPC servers of the original Danube."""
    async with danube_world() as world:
        yield world


@pytest.fixture
async def client(world):
    """Connect a client of the original Danube."""
    async with world.client() as client:
        yield client


async def test_connections_are_listed_and_closed(world, client):
    await client.create_producer()
    connections = world.broker.connections
    [(number, connection)] = connections.page(0, 9)
    assert connection.facts(lambda _: True).listener == "grpc"
    connections.close(number, "new limits")

    async def is_closed():
        return number not in dict(connections.page(0, 9))

    await eventually(is_closed)


async def test_acks_and_subscribe_do_not_wait_for_messages(world, client):
    await client.create_producer()
    first = await client.consume("one")
    await client.send("a", "b")
    a, b = await first.read(2)
    # There are no more messages; the following calls must not wait for any.
    await client.ack(b)
    await client.ack(a)
    second = await client.consume("two")
    await client.send("c", "d")
    assert await first.payloads(1) == ["c"]
    assert await second.payloads(1) == ["d"]


async def test_dispatch_rate_limit_loses_no_messages(world, client):
    await client.create_producer()
    policy = NamespacePolicy(max_subscription_dispatch_rate=50)
    await world.broker.namespaces.configure(DEFAULT, policy=policy)
    stream = await client.consume()
    sent = [str(number) for number in range(60)]
    await client.send(*sent)
    for payload in sent:
        [message] = await stream.read(1)
        assert message.payload.decode() == payload
        await client.ack(message)


async def test_failover_consumers_take_over_in_order(world, client):
    await client.create_producer()
    streams = [
        await client.consume(name, type_=Type.Failover)
        for name in ("one", "two", "three")
    ]
    await client.send("a")
    for count, stream in zip((2, 1, 0), streams, strict=True):
        assert await stream.payloads(1) == ["a"]
        stream.hang_up()
        await world.until_streams(count)


async def test_exclusive_subscription_is_free_after_its_consumer_left(world, client):
    await client.create_producer()
    stream = await client.consume("one", type_=Type.Exclusive)
    await client.send("a")
    assert await stream.payloads(1) == ["a"]
    stream.hang_up()
    await world.until_streams(0)
    other = await client.consume("two", type_=Type.Exclusive)
    assert await other.payloads(1) == ["a"]


async def test_messages_of_a_lost_key_owner_are_redelivered(world, client):
    await client.create_producer()
    streams = {
        name: await client.consume(name, type_=Type.KeyShared)
        for name in ("one", "two")
    }
    keys = [f"key{number}" for number in range(16)]
    for key in keys:
        await client.send(key, routing_key=key)
    first = {(await streams["one"].payloads(1))[0]}
    streams["one"].hang_up()
    await world.until_streams(1)
    # All messages, including those sent to the lost consumer.
    got = set(await streams["two"].payloads(len(keys)))
    assert got == set(keys)
    assert first <= got


async def test_message_without_matching_key_filter_waits(world, client):
    await client.create_producer()
    stream = await client.consume("eu", type_=Type.KeyShared, key_filters=("eu-*",))
    await client.send("us", routing_key="us-1")
    await client.send("eu", routing_key="eu-1")
    assert await stream.payloads(1) == ["eu"]
    other = await client.consume("us", type_=Type.KeyShared, key_filters=("us-*",))
    assert await other.payloads(1) == ["us"]


async def test_slow_key_does_not_block_other_keys(world, client):
    await client.create_producer()
    stream = await client.consume(type_=Type.KeyShared)
    limits = DispatchLimits(unacked_messages_max=100)
    await world.broker.subscriptions.change_settings(NAME, SUBSCRIPTION, limits=limits)
    await client.send(*["slow"] * 12, routing_key="slow")
    await client.send(*["quick"] * 3, routing_key="quick")
    assert sorted(await stream.payloads(15)) == ["quick"] * 3 + ["slow"] * 12


async def test_key_changes_owner_after_its_messages_are_acknowledged(world, client):
    await client.create_producer()
    old = await client.consume("old", type_=Type.KeyShared)
    keys = [f"key{number}" for number in range(12)]
    for key in keys:
        await client.send(f"{key} first", routing_key=key)
    first = await old.read(len(keys))
    new = await client.consume("new", type_=Type.KeyShared)
    for key in keys:
        await client.send(f"{key} second", routing_key=key)
    seconds = []
    all_came = asyncio.Event()

    async def read(stream):
        while not all_came.is_set():
            [message] = await stream.read(1)
            key, which = message.payload.decode().split()
            # Keys of the new consumer wait for the old owner's messages.
            assert stream is old or key in done
            assert which == "second"
            seconds.append(key)
            await client.ack(message)
            if len(seconds) == len(keys):
                all_came.set()

    done = set()
    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(read(stream)) for stream in (old, new)]
        for key, message in zip(keys, first, strict=True):
            done.add(key)
            await client.ack(message)
        await all_came.wait()
        for task in reading:
            task.cancel()
    assert sorted(seconds) == sorted(keys)


async def test_limit_of_unacknowledged_messages_applies_at_once(world, client):
    await client.create_producer()
    stream = await client.consume()
    limits = DispatchLimits(unacked_messages_max=2)
    await world.broker.subscriptions.change_settings(NAME, SUBSCRIPTION, limits=limits)
    await client.send("a", "b", "c")
    a, b = await stream.read(2)
    subscription = world.broker.topics.opened[NAME].subscriptions[SUBSCRIPTION]
    assert subscription.describe(3).in_flight == 2
    await client.ack(a, b)
    assert await stream.payloads(1) == ["c"]


async def test_new_failure_policy_applies_to_failed_messages(world, client):
    await client.create_producer()
    stream = await client.consume()
    policy = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.BLOCK)
    await world.broker.subscriptions.change_settings(
        NAME, SUBSCRIPTION, failure_policy=policy
    )
    await client.send("bad", "good")
    bad, good = await stream.read(2)
    await client.nack(bad)
    await client.ack(good)
    await client.send("next")
    dropping = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.DROP)
    await world.broker.subscriptions.change_settings(
        NAME, SUBSCRIPTION, failure_policy=dropping
    )
    assert await stream.payloads(1) == ["next"]


async def test_subscription_type_cannot_change_while_in_use(world, client):
    await client.create_producer()
    await client.subscribe("one", type_=Type.Shared)
    request = pb.ConsumerRequest(
        topic_name=TOPIC,
        consumer_name="two",
        subscription="s",
        subscription_type=Type.Exclusive,
    )
    status, text = await client.call.refusal(
        "danube.ConsumerService/Subscribe", request
    )
    assert status == "INVALID_ARGUMENT"
    assert "shared, not exclusive" in text


async def test_publish_rate_limit_delays_and_refuses_nothing(world, client):
    await client.create_producer()
    policy = NamespacePolicy(max_publish_rate=100)
    await world.broker.namespaces.configure(DEFAULT, policy=policy)
    async with asyncio.TaskGroup() as tasks:
        for number in range(130):
            tasks.create_task(client.send(str(number)))
    assert world.broker.topics.opened[NAME].end_offset == 130


@pytest.mark.parametrize(
    ("size", "size_max", "is_taken"),
    [(5_000_000, 0, True), (5_000_000, 4_999_999, False), (9_000_000, 0, False)],
)
async def test_message_size_is_limited_by_the_policy(
    world, client, size, size_max, is_taken
):
    await client.create_producer()
    policy = NamespacePolicy(max_message_size=size_max)
    await world.broker.namespaces.configure(DEFAULT, policy=policy)
    message = client.message(bytes(size))
    if is_taken:
        await client.call("danube.ProducerService/SendMessage", message)
        return
    status, text = await client.call.refusal(
        "danube.ProducerService/SendMessage", message
    )
    assert status == "INVALID_ARGUMENT"
    assert f"Message size {size} exceeds maximum allowed" in text


@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        ("ProducerService/SendMessage", pb.StreamMessage),
        ("ConsumerService/Ack", pb.AckRequest),
        ("ConsumerService/Nack", pb.NackRequest),
    ],
)
async def test_message_without_id_is_refused(world, client, method, request_type):
    await client.create_producer()
    status, _ = await client.call.refusal(f"danube.{method}", request_type())
    assert status == "INVALID_ARGUMENT"
    await client.send("and the server goes on")


async def test_names_with_a_common_prefix_are_independent(world, client):
    await client.create_producer(topic="/default/foobar")
    await client.create_producer(topic="/default/foo")
    request = pb.TopicLookupRequest(topic="/default/foo")
    answer = await client.call("danube.Discovery/TopicPartitions", request)
    assert list(answer.partitions) == ["/default/foo"]
    request = pb.TopicLookupRequest(topic="/default/fo")
    answer = await client.call("danube.Discovery/TopicPartitions", request)
    assert list(answer.partitions) == []


async def test_refused_messages_are_not_retried_forever(world, client):
    await client.create_producer()
    unknown = client.message("x")
    unknown.msg_id.producer_id = 4711
    foreign = client.message("x")
    foreign.msg_id.topic_name = "/default/others"
    too_late = client.message("x", publish_time=2**63)
    statuses = [
        (await client.call.refusal("danube.ProducerService/SendMessage", each))[0]
        for each in (unknown, foreign, too_late)
    ]
    assert statuses == ["UNAVAILABLE", "INVALID_ARGUMENT", "INVALID_ARGUMENT"]


WEAK_SPOTS = {
    "2.1": [test_acks_and_subscribe_do_not_wait_for_messages],
    "2.2": [test_dispatch_rate_limit_loses_no_messages],
    "2.3": [test_failover_consumers_take_over_in_order],
    "2.4": [test_exclusive_subscription_is_free_after_its_consumer_left],
    "2.5": [
        test_messages_of_a_lost_key_owner_are_redelivered,
        test_message_without_matching_key_filter_waits,
        test_slow_key_does_not_block_other_keys,
    ],
    "2.6": [test_key_changes_owner_after_its_messages_are_acknowledged],
    "2.7": [test_limit_of_unacknowledged_messages_applies_at_once],
    "2.8": [test_new_failure_policy_applies_to_failed_messages],
    "2.9": [test_subscription_type_cannot_change_while_in_use],
    "2.14": [
        test_publish_rate_limit_delays_and_refuses_nothing,
        test_message_size_is_limited_by_the_policy,
    ],
    "2.16": [test_message_without_id_is_refused],
    "3.2": [test_names_with_a_common_prefix_are_independent],
    "6": [test_refused_messages_are_not_retried_forever],
}


async def test_segments_with_messages_after_an_offset_are_listed(world, client):
    await client.create_producer()
    for number in range(9):
        await client.send(str(number))
        await world.broker.storage.sealer.seal_now()

    async def listed(after):
        request = pb.ListSegmentDescriptorsRequest(topic=TOPIC, after_offset=after)
        answer = await client.call(
            "danube.StorageService/ListSegmentDescriptors", request
        )
        return [(each.start_offset, each.end_offset) for each in answer.segments]

    assert await listed(0) == [(at, at) for at in range(9)]
    assert await listed(6) == [(7, 7), (8, 8)]
    await world.broker.storage.merger.merge_round()
    # The merged segment has messages after offset 6, and some before it.
    assert await listed(0) == await listed(6) == [(0, 8)]
    assert await listed(8) == []
