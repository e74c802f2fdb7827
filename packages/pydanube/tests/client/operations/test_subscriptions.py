"""Managing subscriptions without a consumer."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import pydanube
from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionSettings,
)
from support.drivers.running import TOPIC, nothing_comes, published, received
from support.fakes.readers import a_while

PARTS = [f"{TOPIC}-part-{n}" for n in range(2)]
IMPATIENT = FailurePolicy(
    redeliveries_max=1,
    redelivery_delay_s=0.01,
    backoff=Backoff.FIXED,
    poison=PoisonPolicy.BLOCK,
)


def numbers(count):
    return [str(n).encode() for n in range(count)]


async def settled(client, **expected):
    """Wait until the subscription's description is as expected."""
    while True:
        facts = await client.subscriptions.describe(TOPIC, "s")
        if all(getattr(facts, name) == value for name, value in expected.items()):
            return facts


async def test_settings_are_returned_as_they_were_set(client):
    await client.topics.create(TOPIC)
    assert await client.subscriptions.settings(TOPIC, "s") == SubscriptionSettings()
    limits = DispatchLimits(unacked_messages_max=7)
    await client.subscriptions.configure(TOPIC, "s", failure_policy=IMPATIENT)
    await client.subscriptions.configure(TOPIC, "s", limits=limits)
    await client.subscriptions.configure(TOPIC, "s", is_paused=True)
    expected = SubscriptionSettings(
        failure_policy=IMPATIENT, limits=limits, is_paused=True
    )
    assert await client.subscriptions.settings(TOPIC, "s") == expected
    await client.subscriptions.create(TOPIC, "s")
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.settings, facts.is_paused) == (expected, True)
    await client.subscriptions.configure(TOPIC, "s", failure_policy=None)
    await client.subscriptions.configure(TOPIC, "s", limits=None)
    await client.subscriptions.configure(TOPIC, "s", is_paused=False)
    assert await client.subscriptions.settings(TOPIC, "s") == SubscriptionSettings()


async def test_several_settings_change_with_one_call(client):
    await client.topics.create(TOPIC, partitions=2)
    limits = DispatchLimits(unacked_messages_max=7)
    await client.subscriptions.configure(
        TOPIC, "s", failure_policy=IMPATIENT, limits=limits, is_paused=True
    )
    for part in PARTS:
        assert await client.subscriptions.settings(part, "s") == SubscriptionSettings(
            failure_policy=IMPATIENT, limits=limits, is_paused=True
        )
    await client.subscriptions.configure(TOPIC, "s", failure_policy=None)
    assert await client.subscriptions.settings(TOPIC, "s") == SubscriptionSettings(
        limits=limits, is_paused=True
    )


async def test_one_wrong_setting_of_a_subscription_refuses_all(client):
    await client.topics.create(TOPIC)
    homeless = FailurePolicy(poison=PoisonPolicy.DEAD_LETTER, dead_letter_topic="/n/t")
    with pytest.raises(pydanube.NamespaceNotFound):
        await client.subscriptions.configure(
            TOPIC, "s", is_paused=True, failure_policy=homeless
        )
    assert await client.subscriptions.settings(TOPIC, "s") == SubscriptionSettings()


async def test_paused_subscription_delivers_nothing_until_it_is_resumed(client):
    await published(client, b"a")
    await client.subscriptions.configure(TOPIC, "s", is_paused=True)
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        assert await nothing_comes(c)
        await client.subscriptions.configure(TOPIC, "s", is_paused=False)
        assert await received(c, 1) == [b"a"]


async def test_subscription_is_moved_without_a_consumer(client):
    await published(client, *numbers(10))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        assert await received(c, 10) == numbers(10)
        await client.subscriptions.seek(TOPIC, "s", 7)
        assert await received(c, 3) == numbers(10)[7:]
        await client.subscriptions.seek(TOPIC, "s", "earliest")
        assert await received(c, 10) == numbers(10)
    await client.subscriptions.seek(TOPIC, "s", "latest")
    assert (await client.subscriptions.describe(TOPIC, "s")).backlog == 0


@pytest.mark.parametrize("type_", ["exclusive", "failover", "shared", "key_shared"])
async def test_acks_from_before_a_subscription_moved_are_not_sent_again(
    broker, client, type_
):
    await published(client, *numbers(3))
    await client.subscriptions.create(TOPIC, "s", type=type_, start="earliest")
    async with client.consumer(TOPIC, subscription="s", type=type_) as c:
        # The broker is asked to confirm the first one, and not those that follow soon.
        for count, end in [(1, 1), (2, 3)]:
            await c.ack(await c.receive_batch(max_messages=count, timeout_s=60))
            while (await client.subscriptions.describe(TOPIC, "s")).cursor < end:
                await a_while()
        await client.subscriptions.seek(TOPIC, "s", "earliest")
        broker.disconnect_all()
        while c.is_connected:
            await a_while()
        assert sorted(await received(c, 3)) == numbers(3)


async def test_subscription_is_moved_to_a_time(client):
    times = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(5)]
    async with client.producer(TOPIC) as producer:
        await producer.send_batch(
            pa.table({"payload": numbers(5), "publish_time": times})
        )
    await client.subscriptions.create(TOPIC, "s", start=times[3])
    assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 3
    between = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    await client.subscriptions.seek(TOPIC, "s", between)
    assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 1
    async with client.consumer(TOPIC, subscription="t", start=times[4]) as c:
        assert await received(c, 1) == [b"4"]
        await c.seek(times[2])
        assert await received(c, 3) == [b"2", b"3", b"4"]
    payloads = [b.payloads async for b in client.read(TOPIC, start=between)]
    assert payloads == [numbers(5)[1:]]


async def test_messages_are_skipped_by_number(client):
    await published(client, *numbers(10))
    await client.subscriptions.create(TOPIC, "s", start="earliest")
    ids = [pydanube.MessageId(TOPIC, n) for n in (1, 2)]
    await client.subscriptions.mark_done(TOPIC, "s", ids)
    await client.subscriptions.skip(TOPIC, "s", 3)
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.cursor, facts.backlog) == (5, 5)
    with pytest.raises(pydanube.InvalidRequest):
        await client.subscriptions.skip(TOPIC, "s", 0)


async def test_mark_done_of_the_blocking_message_unblocks_the_subscription(client):
    await published(client, b"poison")
    await client.subscriptions.configure(TOPIC, "s", failure_policy=IMPATIENT)
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        for _ in range(2):
            await consumer.nack(await consumer.receive(timeout_s=60), reason="no")
        await settled(client, blocked=((0, 1),))
        await published(client, b"good")
        assert await nothing_comes(consumer)
        await client.subscriptions.mark_done(TOPIC, "s", pydanube.MessageId(TOPIC, 0))
        assert await received(consumer, 1) == [b"good"]
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.cursor, facts.blocked) == (1, ())
    assert facts.counts.nacked == 2


async def test_only_messages_of_the_topic_are_marked(client):
    await published(client, b"m")
    await client.subscriptions.create(TOPIC, "s")
    with pytest.raises(
        pydanube.InvalidRequest, match="cannot acknowledge a message of"
    ):
        await client.subscriptions.mark_done(
            TOPIC, "s", pydanube.MessageId("/default/b", 0)
        )
    with pytest.raises(pydanube.SubscriptionNotFound):
        await client.subscriptions.mark_done(
            TOPIC, "none", pydanube.MessageId(TOPIC, 0)
        )


async def test_subscription_of_some_partitions_can_be_completed_and_deleted(client):
    await client.topics.create(TOPIC, partitions=2)
    subscriptions = client.subscriptions
    await subscriptions.create(PARTS[0], "s", type="shared")
    with pytest.raises(pydanube.AlreadyExists):
        await subscriptions.create(TOPIC, "s", type="exclusive")
    with pytest.raises(pydanube.SubscriptionNotFound):
        await subscriptions.describe(PARTS[1], "s")
    await subscriptions.create(TOPIC, "s", type="shared")
    assert (await subscriptions.describe(PARTS[1], "s")).type.value == "shared"
    with pytest.raises(pydanube.AlreadyExists):
        await subscriptions.create(TOPIC, "s", type="shared")
    await subscriptions.delete(PARTS[0], "s")
    await subscriptions.delete(TOPIC, "s")
    with pytest.raises(pydanube.SubscriptionNotFound):
        await subscriptions.delete(TOPIC, "s")


async def test_operations_on_a_partitioned_topic_apply_to_all_partitions(client):
    await client.topics.create(TOPIC, partitions=2)
    await client.subscriptions.create(TOPIC, "s", type="shared", start="earliest")
    await client.subscriptions.configure(TOPIC, "s", failure_policy=IMPATIENT)
    await client.subscriptions.configure(TOPIC, "s", is_paused=True)
    for name in PARTS:
        await published(client, *numbers(4), topic=name)
        facts = await client.subscriptions.describe(name, "s")
        assert (facts.is_paused, facts.backlog) == (True, 4)
        assert facts.settings.failure_policy == IMPATIENT
    assert (await client.subscriptions.settings(TOPIC, "s")).is_paused
    await client.subscriptions.seek(TOPIC, "s", "latest")
    for name in PARTS:
        assert (await client.subscriptions.describe(name, "s")).backlog == 0
    await client.subscriptions.seek(TOPIC, "s", "earliest")
    await client.subscriptions.mark_done(
        TOPIC, "s", [pydanube.MessageId(p, 0) for p in PARTS]
    )
    for name in PARTS:
        assert (await client.subscriptions.describe(name, "s")).backlog == 3
    for call in (
        client.subscriptions.seek(TOPIC, "s", 1),
        client.subscriptions.skip(TOPIC, "s", 1),
    ):
        with pytest.raises(pydanube.InvalidRequest, match="name it"):
            await call
    await client.subscriptions.skip(PARTS[1], "s", 3)
    assert (await client.subscriptions.describe(PARTS[1], "s")).backlog == 0
    await client.subscriptions.delete(TOPIC, "s")
    with pytest.raises(pydanube.SubscriptionNotFound):
        await client.subscriptions.describe(PARTS[1], "s")


async def test_operations_of_reliable_topics_are_refused_on_others(client):
    await client.topics.create(TOPIC, reliable=False)
    for call in (
        client.subscriptions.configure(TOPIC, "s", failure_policy=IMPATIENT),
        client.subscriptions.configure(TOPIC, "s", is_paused=True),
    ):
        with pytest.raises(pydanube.InvalidRequest, match="reliable"):
            await call


async def test_start_that_does_not_exist_is_refused(client):
    await published(client, b"m")
    with pytest.raises(pydanube.InvalidRequest):
        await client.subscriptions.create(TOPIC, "s", start=7)
    await client.subscriptions.create(TOPIC, "s", start=1)
