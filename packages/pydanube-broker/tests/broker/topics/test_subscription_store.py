"""Failures survive restarts and failovers: a blocked subscription stays blocked."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from pydanube.model.names import TopicName
from pydanube.model.policy import (
    FailurePolicy,
    PoisonPolicy,
    Start,
    SubscriptionType,
)
from support.fakes.broker_clusters import BrokerCluster
from support.fakes.brokers import A_TOPIC, RELIABLE
from support.fakes.readers import S, a_while, attach, publish, subscribe
from support.fakes.storages import seal, until

DEAD = TopicName.parse("/default/dead")
BLOCK = FailurePolicy(redeliveries_max=1, redelivery_delay_s=0.0)
TYPES = list(SubscriptionType)


async def open_blocked(broker, type_=SubscriptionType.SHARED):
    """Return a subscription that message 1 of 3 has blocked; 0 is acknowledged."""
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=BLOCK)
    subscription = await subscribe(broker, type_=type_)
    reader, _ = attach(subscription)
    await publish(topic, b"a", b"b", b"c", keys=[b"k"] * 3)
    for attempt in (1, 2):
        await until(
            lambda n=attempt: any(e.offset == 1 and e.attempt == n for e in reader.got)
        )
        subscription.nack([(1, 2)], reason="cannot be parsed")
    subscription.ack([(0, 1)], 0)
    await until(lambda: subscription.is_blocked)
    return topic, subscription


async def reopened(broker):
    topic = await broker.topics.get(A_TOPIC)
    return topic, topic.subscriptions[S]


@pytest.mark.parametrize("type_", TYPES)
async def test_blocked_subscription_is_blocked_after_a_restart(world, type_):
    async with world.broker() as broker:
        topic, _ = await open_blocked(broker, type_)
    async with world.broker() as broker:
        # Nobody has opened the topic.
        [topic] = broker.topics.opened.values()
        subscription = topic.subscriptions[S]
        assert subscription.is_blocked
        assert subscription.describe(3).blocked == ((1, 2),)
        reader, _ = attach(subscription)
        await publish(topic, b"d", keys=[b"k"])
        await a_while()
        assert subscription.describe(4).blocked == ((1, 2),)
        assert 1 not in {each.offset for each in reader.got}
        assert 3 not in {each.offset for each in reader.got}
        await broker.subscriptions.mark_done(A_TOPIC, S, [(1, 2)])
        assert not subscription.is_blocked
        assert sorted(await reader.offsets(2)) == [2, 3]


async def test_blocked_subscription_of_a_sealed_topic_is_reported_after_a_restart(
    world,
):
    async with world.broker() as broker:
        topic, _ = await open_blocked(broker)
        await seal(broker.storage, topic.topic_id)
    async with world.broker() as broker:
        [topic] = broker.topics.opened.values()
        assert topic.subscriptions[S].is_blocked


@pytest.mark.parametrize("type_", TYPES)
async def test_message_has_its_failures_and_attempts_after_a_restart(world, type_):
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=BLOCK)
        subscription = await subscribe(broker, type_=type_)
        reader, _ = attach(subscription)
        await publish(topic, b"a", b"b", b"c", keys=[b"k", b"l", b"m"])
        await reader.offsets(3)
        subscription.nack([(1, 2)], reason="broken")
    async with world.broker() as broker:
        topic, subscription = await reopened(broker)
        assert not subscription.is_blocked
        reader, _ = attach(subscription)
        got = {each.offset: each.attempt for each in await reader.first(3)}
        assert got == {0: 1, 1: 2, 2: 1}
        subscription.nack([(1, 2)], reason="broken again")
        await until(lambda: subscription.is_blocked)


async def test_poison_message_is_given_up_by_the_policy_after_the_restart(world):
    async with world.broker() as broker:
        await open_blocked(broker)
    policy = FailurePolicy(
        redeliveries_max=0,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=str(DEAD),
    )
    async with world.broker() as broker:
        _, subscription = await reopened(broker)
        await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=policy)
        assert not subscription.is_blocked
        reader, _ = attach(subscription)
        await until(lambda: subscription.counts.dead_lettered == 1)
        assert {each.offset for each in reader.got} <= {2}


async def test_seek_forgets_failures(world):
    async with world.broker() as broker:
        topic, subscription = await open_blocked(broker)
        await broker.subscriptions.seek(topic, subscription, Start.EARLIEST)
    async with world.broker() as broker:
        _, subscription = await reopened(broker)
        assert not subscription.is_blocked
        reader, _ = attach(subscription)
        assert {each.attempt for each in await reader.first(3)} == {1}


async def test_acknowledged_messages_have_no_failures_in_the_journal(world):
    async with world.broker() as broker:
        topic, subscription = await open_blocked(broker)
        await broker.storage.journal.sync()
        subscription.ack([(1, 2)], 0)
        await until(lambda: not subscription.is_blocked)
    async with world.broker() as broker:
        state = broker.storage.find_state(topic.topic_id)
        assert not state.has_failures


async def test_blocked_subscription_is_blocked_after_a_failover():
    async with AsyncExitStack() as stack:
        cluster = BrokerCluster()
        member = await stack.enter_async_context(cluster.broker("a"))
        await cluster.settled("a")
        await open_blocked(member.broker)
        await member.broker.storage.journal.sync()
        await until(
            lambda: any(
                state.has_failures
                for state in member.broker.storage.journal.state.topics.values()
            )
        )
        other = await stack.enter_async_context(cluster.broker("b"))
        cluster.lose("a")
        await cluster.settled("b")
        await until(lambda: A_TOPIC in other.broker.topics.opened)
        subscription = other.broker.topics.opened[A_TOPIC].subscriptions[S]
        assert subscription.is_blocked
        reader, _ = attach(subscription)
        await a_while()
        assert 1 not in {each.offset for each in reader.got}
