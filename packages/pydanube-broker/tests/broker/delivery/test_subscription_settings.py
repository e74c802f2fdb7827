"""Settings of subscriptions."""

from dataclasses import replace

import pytest

from pydanube.model.errors import (
    InvalidName,
    InvalidRequest,
    NamespaceNotFound,
    TopicNotFound,
)
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import (
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    Start,
    SubscriptionSettings,
    SubscriptionType,
)
from pydanube_broker.metadata import keys
from support.drivers.running import using
from support.fakes.brokers import (
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
)
from support.fakes.readers import S, a_while, attach, publish, subscribe

NO_DELAY = FailurePolicy(redelivery_delay_s=0.0, redelivery_delay_s_max=0.0)
DROPPING = replace(NO_DELAY, redeliveries_max=0, poison=PoisonPolicy.DROP)


async def decide(broker, **changes):
    defaults = {"failure_policy": None, "limits": None, "is_paused": False}
    await broker.subscriptions.change_settings(A_TOPIC, S, **(defaults | changes))


async def test_unset_settings_are_the_defaults(broker, topic):
    settings = await broker.subscriptions.settings(A_TOPIC, S)
    assert settings == SubscriptionSettings()
    subscription = await subscribe(broker)
    facts = subscription.describe(topic.end_offset)
    assert (facts.settings, facts.is_paused) == (settings, False)


async def test_settings_may_be_set_before_the_subscription_exists(broker, topic):
    await decide(broker, failure_policy=DROPPING)
    await publish(topic, b"a", b"b")
    subscription = await subscribe(broker)
    reader, _ = attach(subscription)
    await reader.first(2)
    subscription.nack([(0, 1)])
    assert subscription.describe(2).counts.given_up == 1
    assert subscription.describe(2).settings.failure_policy == DROPPING


async def test_settings_survive_a_restart(world):
    limits = DispatchLimits(unacked_messages_max=3)
    settings = SubscriptionSettings(
        failure_policy=DROPPING, limits=limits, is_paused=True
    )
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        await subscribe(broker)
        await decide(broker, failure_policy=DROPPING, limits=limits, is_paused=True)
        await publish(topic, *[b"x"] * 10)
    async with world.broker() as broker:
        assert await broker.subscriptions.settings(A_TOPIC, S) == settings
        topic = await broker.topics.get(A_TOPIC)
        subscription = topic.subscriptions[S]
        reader, _ = attach(subscription)
        await a_while()
        assert reader.got == []
        await broker.subscriptions.change_settings(A_TOPIC, S, is_paused=False)
        assert await reader.offsets(3) == [0, 1, 2]
        await a_while()
        assert len(reader.got) == 3


async def test_changed_settings_apply_to_an_active_subscription(broker, topic):
    subscription = await subscribe(broker)
    reader, _ = attach(subscription)
    await publish(topic, b"a", b"b", b"c")
    await reader.first(3)
    await decide(broker, is_paused=True)
    await publish(topic, b"d")
    subscription.ack([(0, 3)], 0)
    await a_while()
    assert len(reader.got) == 3
    assert subscription.describe(4).is_paused
    await decide(broker, limits=DispatchLimits(unacked_messages_max=1))
    await publish(topic, b"e")
    assert await reader.offsets(4) == [0, 1, 2, 3]
    await a_while()
    assert len(reader.got) == 4
    await broker.subscriptions.change_settings(A_TOPIC, S, limits=None)
    assert await reader.offsets(5) == [0, 1, 2, 3, 4]


async def test_settings_can_be_changed_separately(broker, topic):
    limits = DispatchLimits(unacked_messages_max_per_consumer=5)
    await decide(broker, failure_policy=DROPPING, limits=limits, is_paused=True)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=NO_DELAY)
    await broker.subscriptions.change_settings(A_TOPIC, S, is_paused=False)
    assert await broker.subscriptions.settings(A_TOPIC, S) == SubscriptionSettings(
        failure_policy=NO_DELAY, limits=limits
    )
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=None)
    await broker.subscriptions.change_settings(A_TOPIC, S, limits=None)
    assert await broker.subscriptions.settings(A_TOPIC, S) == SubscriptionSettings()


async def test_settings_are_deleted_with_subscription_and_topic(world, broker):
    await broker.topics.create(A_TOPIC, RELIABLE)
    await subscribe(broker)
    await decide(broker, is_paused=True)
    await broker.subscriptions.delete(A_TOPIC, S)
    assert await broker.subscriptions.settings(A_TOPIC, S) == (SubscriptionSettings())
    # Also the settings of a subscription that never existed.
    await decide(broker, is_paused=True)
    await broker.topics.delete(A_TOPIC)
    assert await world.store.scan(keys.SETTINGS) == []


@pytest.mark.parametrize(
    ("failure_policy", "words"),
    [
        (FailurePolicy(redeliveries_max=-1), "redeliveries_max is -1"),
        (FailurePolicy(redeliveries_max=2**32), "redeliveries_max"),
        (FailurePolicy(ack_timeout_s=0), "ack_timeout_s is 0; it must be more"),
        (FailurePolicy(ack_timeout_s=-1), "ack_timeout_s is -1"),
        (FailurePolicy(ack_timeout_s=float("nan")), "ack_timeout_s is nan"),
        (FailurePolicy(redelivery_delay_s=float("inf")), "redelivery_delay_s is inf"),
        (FailurePolicy(redelivery_delay_s_max=-0.5), "redelivery_delay_s_max is -0.5"),
        (
            FailurePolicy(poison=PoisonPolicy.DEAD_LETTER),
            "^dead_letter_topic must be configured when poison_policy is DeadLetter$",
        ),
        (FailurePolicy(dead_letter_expired=True), "when dead_letter_expired is set"),
        (FailurePolicy(dead_letter_topic=str(A_TOPIC)), "its own dead-letter topic"),
    ],
)
async def test_invalid_policy_is_refused_with_a_message(
    broker, topic, failure_policy, words
):
    with pytest.raises(InvalidRequest, match=words):
        await decide(broker, failure_policy=failure_policy)
    assert await broker.subscriptions.settings(A_TOPIC, S) == SubscriptionSettings()


@pytest.mark.parametrize(
    "name", ["unacked_messages_max", "unacked_messages_max_per_consumer"]
)
@pytest.mark.parametrize("value", [0, -1, 2**32])
async def test_invalid_limit_is_refused_with_a_message(broker, topic, name, value):
    with pytest.raises(InvalidRequest, match=f"{name} is {value}"):
        await decide(broker, limits=DispatchLimits(**{name: value}))


@using(policy=NON_RELIABLE)
async def test_settings_require_a_reliable_topic(broker, topic):
    words = "subscription failure policy can only be configured for reliable topics"
    with pytest.raises(InvalidRequest, match=f"^{words}$"):
        await decide(broker, failure_policy=DROPPING)
    assert await broker.subscriptions.settings(A_TOPIC, S) == SubscriptionSettings()


async def test_missing_topic_has_no_settings(broker):
    with pytest.raises(TopicNotFound):
        await decide(broker, is_paused=True)
    with pytest.raises(TopicNotFound):
        await broker.subscriptions.settings(A_TOPIC, S)


async def test_dead_letter_topic_must_be_usable(broker, topic):
    def to(name):
        return FailurePolicy(poison=PoisonPolicy.DEAD_LETTER, dead_letter_topic=name)

    await broker.topics.create(TopicName.parse("/default/direct"), NON_RELIABLE)
    await broker.topics.create_partitioned(
        TopicName.parse("/default/parts"), 2, RELIABLE
    )
    for name, error, words in (
        ("/default/direct", InvalidRequest, "not reliable"),
        ("/default/parts", InvalidRequest, "has partitions"),
        ("/nowhere/dead", NamespaceNotFound, "nowhere"),
        ("dead letters", InvalidName, "invalid format"),
    ):
        with pytest.raises(error, match=words):
            await decide(broker, failure_policy=to(name))
    await decide(broker, failure_policy=to("/default/parts-part-0"))
    # The topic is created when it is needed.
    await decide(broker, failure_policy=to("/default/dead"))
    assert TopicName.parse("/default/dead") not in await broker.catalog.names()


async def test_ack_timeout_of_a_consumer_overrides_the_policy(broker, topic):
    await decide(broker, failure_policy=replace(NO_DELAY, ack_timeout_s=None))
    _, subscription = await broker.subscriptions.open(
        A_TOPIC, S, SubscriptionType.SHARED, Start.EARLIEST, ack_timeout_s=0.02
    )
    reader, _ = attach(subscription)
    await publish(topic, b"a")
    assert [each.attempt for each in await reader.first(2)] == [1, 2]
    assert subscription.describe(1).counts.timed_out >= 1
    await decide(broker, failure_policy=replace(NO_DELAY, ack_timeout_s=3600.0))
    assert [each.attempt for each in await reader.first(3)] == [1, 2, 3]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan"), float("inf")])
async def test_invalid_ack_timeout_of_a_consumer_is_refused(broker, topic, timeout_s):
    with pytest.raises(InvalidRequest, match="ack_timeout_s is"):
        await broker.subscriptions.open(
            A_TOPIC,
            S,
            SubscriptionType.SHARED,
            Start.EARLIEST,
            ack_timeout_s=timeout_s,
        )
    assert topic.subscriptions == {}


async def test_settings_of_subscriptions_are_independent(broker, topic):
    await decide(broker, is_paused=True)
    other = await subscribe(broker, SubscriptionName("other"))
    reader, _ = attach(other)
    await publish(topic, b"a")
    assert await reader.offsets(1) == [0]
