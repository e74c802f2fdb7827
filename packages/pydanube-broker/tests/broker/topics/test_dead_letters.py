"""Dead letters: no message that a subscription gives up on is lost."""

import asyncio
import copy
import json
from dataclasses import replace

import pytest

from pydanube.model.errors import TopicNotFound
from pydanube.model.ids import producer_id_of
from pydanube.model.names import NamespaceName, SubscriptionName, TopicName
from pydanube.model.policy import (
    FailurePolicy,
    PoisonPolicy,
    Start,
    TopicPolicy,
)
from pydanube.model.retry import RetryPolicy
from pydanube.wire.native.frames import GROWTH_BYTES_MAX
from pydanube_broker.broker.topics import dead_letters
from pydanube_broker.broker.topics.dead_letters import HISTORY_MAX, DeadLetter
from pydanube_broker.dispatch.effects import Park
from support.drivers.running import using
from support.fakes.batches import A_TIME
from support.fakes.brokers import (
    A_NOW_US,
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
)
from support.fakes.corrupt_objects import forget_segments
from support.fakes.readers import S, a_while, attach, publish, stored, subscribe
from support.fakes.storages import seal, until

DEAD = TopicName.parse("/default/dead.letters")
POLICY = FailurePolicy(
    redeliveries_max=0,
    redelivery_delay_s=0.0,
    poison=PoisonPolicy.DEAD_LETTER,
    dead_letter_topic=str(DEAD),
)


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch):
    """Make the pauses after failures very short."""
    monkeypatch.setattr(dead_letters, "RETRIES", RetryPolicy(0.001, 0.002))


@pytest.fixture
def failure_policy():
    return POLICY


@pytest.fixture
async def subscription(broker, topic, failure_policy):
    subscription = await subscribe(broker)
    await broker.subscriptions.change_settings(
        A_TOPIC, S, failure_policy=failure_policy
    )
    return subscription


@pytest.fixture
async def reader(subscription):
    return attach(subscription)[0]


async def fail(subscription, reader, count, reason="broken"):
    """Wait for *count* messages and nack all of them."""
    offsets = await reader.offsets(count)
    subscription.nack([(offset, offset + 1) for offset in offsets], reason=reason)


async def dead(broker, count):
    """Return the messages of the dead-letter topic when there are *count*."""
    while True:
        try:
            topic = await broker.topics.get(DEAD)
        except TopicNotFound:
            await a_while()
            continue
        if topic.end_offset >= count:
            return await stored(topic)
        await a_while()


async def until_done(subscription, topic):
    while subscription.backlog(topic.end_offset):
        await a_while()


async def test_dead_letter_has_the_message_its_origin_and_the_reason(
    broker, topic, subscription, reader
):
    await publish(topic, b"ok")
    await publish(
        topic,
        b"bad",
        keys=[b"k"],
        attributes=[{"user": "anna"}],
        schema_id=7,
        schema_version=2,
        producer="web-1",
    )
    await reader.first(2)
    subscription.nack([(1, 2)], reason="cannot be parsed")
    [(payload, attributes, row, frame)] = await dead(broker, 1)
    assert (payload, row["key"]) == (b"bad", b"k")
    assert frame.header.first_publish_time == A_TIME
    assert (frame.header.schema_id, frame.header.schema_version) == (7, 2)
    assert row["producer"] == "web-1"
    assert attributes == {
        "user": "anna",
        "x-original-topic": "/default/orders",
        "x-original-subscription": "s",
        "x-original-topic-offset": "1",
        "x-original-producer": "web-1",
        "x-original-producer-id": str(producer_id_of("/default/orders", "web-1")),
        "x-original-broker-addr": "b-1",
        "x-poison-policy": "dead_letter",
        "x-delivery-attempt": "1",
        "x-failure-reason": "cannot be parsed",
    }
    while subscription.describe(2).parked:
        await a_while()
    facts = subscription.describe(2)
    assert (facts.cursor, facts.done) == (0, ((1, 2),))
    assert (facts.counts.dead_lettered, facts.counts.nacked) == (1, 1)


@using(failure_policy=replace(POLICY, redeliveries_max=2, ack_timeout_s=0.01))
async def test_unacknowledged_message_is_dead_lettered_after_its_attempts(
    broker, topic, subscription, reader
):
    await publish(topic, b"slow")
    [(_, attributes, _, _)] = await dead(broker, 1)
    assert [each.attempt for each in reader.got] == [1, 2, 3]
    assert attributes["x-delivery-attempt"] == "3"
    assert "not acknowledged" in attributes["x-failure-reason"]
    await until_done(subscription, topic)
    assert subscription.describe(1).counts.timed_out == 3


async def test_many_messages_of_several_schemas_are_copied_in_order(
    broker, topic, subscription, reader
):
    for schema_id in (0, 3, 0):
        await publish(topic, *[b"%d" % schema_id] * 100, schema_id=schema_id)
    commits = broker.storage.journal.commit_count
    await fail(subscription, reader, 300)
    letters = await dead(broker, 300)
    offsets = [int(each[1]["x-original-topic-offset"]) for each in letters]
    assert offsets == list(range(300))
    assert [each[3].header.schema_id for each in letters[::100]] == [0, 3, 0]
    await until_done(subscription, topic)
    # Three batches with one commit; the others are of the new topic.
    assert broker.storage.journal.commit_count - commits < 6


async def test_dead_letter_topic_is_created_when_first_needed(
    broker, topic, subscription, reader
):
    await publish(topic, b"a")
    await broker.topics.create(DEAD, TopicPolicy(ttl_s=5.0))
    await fail(subscription, reader, 1)
    await dead(broker, 1)
    assert (await broker.topics.get(DEAD)).policy.ttl_s == 5.0


async def test_message_is_acknowledged_only_when_its_copy_is_on_disk(world):
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        subscription = await subscribe(broker)
        await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=POLICY)
        reader, _ = attach(subscription)
        await publish(topic, b"a", b"b")
        offsets = await reader.offsets(2)
        subscription.nack([(offset, offset + 1) for offset in offsets])
        # One iteration after the other, to see the first moment.
        await until(lambda: not subscription.backlog(2))
        crashed = BrokerWorld(world.store)
        crashed.files = copy.deepcopy(world.files)
    async with crashed.broker() as broker:
        assert {each[0] for each in await stored(await broker.topics.get(DEAD))} == {
            b"a",
            b"b",
        }


async def test_draining_finishes_copies(world):
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        subscription = await subscribe(broker)
        await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=POLICY)
        await broker.topics.create(DEAD, RELIABLE)
        reader, _ = attach(subscription)
        await publish(topic, *[b"x"] * 2000)
        await fail(subscription, reader, 1000)
        await asyncio.sleep(0)
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        backlog = topic.subscriptions[S].backlog(topic.end_offset)
        copied = (await broker.topics.get(DEAD)).end_offset
        assert backlog + copied == 2000


async def test_failure_is_described_and_retried_until_success(
    broker, topic, subscription, reader
):
    direct = await broker.topics.create(DEAD, NON_RELIABLE)
    await publish(topic, b"a", b"b")
    await fail(subscription, reader, 2)
    while subscription.counts.dead_letter_failures < 5:
        await a_while()
    facts = subscription.describe(2)
    assert facts.parked == 2
    assert (
        facts.dead_letter_error
        == f"{DEAD} is not reliable: none of its messages are stored"
    )
    assert broker.counts.dead_letter_failures >= 5
    # Other messages are delivered meanwhile.
    await publish(topic, b"c")
    assert await reader.offsets(3) == [0, 1, 2]
    assert direct.name == DEAD
    await broker.topics.delete(DEAD)
    assert {each[0] for each in await dead(broker, 2)} == {b"a", b"b"}
    while subscription.describe(3).parked:
        await a_while()
    assert subscription.describe(3).dead_letter_error is None


async def test_copying_is_retried_without_consumers(
    broker, topic, subscription, reader
):
    await broker.topics.create(DEAD, NON_RELIABLE)
    await publish(topic, b"a")
    await fail(subscription, reader, 1)
    while subscription.counts.dead_letter_failures < 2:
        await a_while()
    subscription.detach(reader.consumer)
    await broker.topics.delete(DEAD)
    await dead(broker, 1)
    await until_done(subscription, topic)
    # Then the subscription has no task any more.
    while subscription._task is not None:
        await a_while()


@using(failure_policy=replace(POLICY, poison=PoisonPolicy.BLOCK))
async def test_changed_policy_applies_to_messages_that_have_failed(
    broker, topic, subscription, reader
):
    await publish(topic, b"a", b"b")
    await fail(subscription, reader, 2)
    while not subscription.is_blocked:
        await a_while()
    assert subscription.describe(2).blocked == ((0, 2),)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=POLICY)
    assert len(await dead(broker, 2)) == 2
    await until_done(subscription, topic)


@using(failure_policy=replace(POLICY, poison=PoisonPolicy.BLOCK))
async def test_copying_is_retried_if_there_were_never_consumers(
    broker, topic, subscription, reader
):
    await broker.topics.create(DEAD, NON_RELIABLE)
    await publish(topic, b"a")
    await fail(subscription, reader, 1)
    await until(lambda: subscription.is_blocked)
    subscription.detach(reader.consumer)
    await until(lambda: subscription._task is None)
    await broker.topics.delete(DEAD)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=POLICY)
    await broker.topics.create(DEAD, NON_RELIABLE)
    await until(lambda: subscription.counts.dead_letter_failures > 2)
    await broker.topics.delete(DEAD)
    await dead(broker, 1)
    await until_done(subscription, topic)


async def test_policy_without_dead_letters_ends_copying(
    broker, topic, subscription, reader
):
    await broker.topics.create(DEAD, NON_RELIABLE)
    await publish(topic, b"a")
    await fail(subscription, reader, 1)
    while not subscription.counts.dead_letter_failures:
        await a_while()
    dropping = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.DROP)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=dropping)
    await until_done(subscription, topic)
    assert subscription.describe(1).counts.given_up == 1


async def test_repeated_dead_letter_keeps_its_history(
    broker, topic, subscription, reader
):
    deader = TopicName.parse("/default/deader")
    await publish(topic, b"a", attributes=[{"user": "anna"}])
    await fail(subscription, reader, 1, "first")
    await dead(broker, 1)
    second = await subscribe(broker, SubscriptionName("t"), topic=DEAD)
    policy = replace(POLICY, dead_letter_topic=str(deader))
    await broker.subscriptions.change_settings(DEAD, second.name, failure_policy=policy)
    again, _ = attach(second)
    await fail(second, again, 1, "second")
    while (
        deader not in broker.topics.opened
        or not broker.topics.opened[deader].end_offset
    ):
        await a_while()
    [(_, attributes, _, _)] = await stored(broker.topics.opened[deader])
    assert attributes["user"] == "anna"
    assert attributes["x-original-topic"] == str(DEAD)
    assert attributes["x-failure-reason"] == "second"
    assert json.loads(attributes["x-dead-letter-history"]) == [
        {
            "topic": str(A_TOPIC),
            "subscription": "s",
            "offset": "0",
            "attempt": "1",
            "reason": "first",
        }
    ]


async def test_message_does_not_return_to_topic_that_dead_lettered_it(
    broker, topic, subscription, reader
):
    await publish(topic, b"a")
    await fail(subscription, reader, 1)
    await dead(broker, 1)
    back = await subscribe(broker, SubscriptionName("back"), topic=DEAD)
    policy = replace(POLICY, dead_letter_topic=str(A_TOPIC))
    await broker.subscriptions.change_settings(DEAD, back.name, failure_policy=policy)
    again, _ = attach(back)
    fresh = await broker.topics.get(DEAD)
    await publish(fresh, b"fresh")
    await fail(back, again, 2)
    # A message that was never there is copied; one that came from there stays.
    while topic.end_offset < 2:
        await a_while()
    assert [each[0] for each in await stored(topic)] == [b"a", b"fresh"]
    while not back.describe(2).dead_letter_error:
        await a_while()
    assert "cannot go back" in back.describe(2).dead_letter_error
    assert back.describe(2).parked == 1


@using(
    failure_policy=replace(POLICY, dead_letter_expired=True, poison=PoisonPolicy.BLOCK)
)
async def test_expired_messages_are_dead_lettered_if_configured(
    broker, topic, subscription, reader
):
    await publish(topic, b"late", b"ok", expires_at=[A_NOW_US - 1, None])
    assert await reader.offsets(1) == [1]
    [(payload, attributes, row, _)] = await dead(broker, 1)
    assert payload == b"late"
    assert attributes["x-failure-reason"] == "expired"
    assert attributes["x-delivery-attempt"] == "0"
    # In the dead-letter topic the message does not expire.
    assert "expires_at" not in row
    subscription.ack([(1, 2)], 0)
    await until_done(subscription, topic)
    counts = subscription.describe(2).counts
    assert (counts.expired, counts.dead_lettered) == (1, 1)


async def test_seek_cancels_pending_copies(broker, topic, subscription, reader):
    await broker.topics.create(DEAD, NON_RELIABLE)
    await publish(topic, b"a", b"b")
    await fail(subscription, reader, 2)
    while not subscription.counts.dead_letter_failures:
        await a_while()
    await broker.subscriptions.seek(topic, subscription, Start.EARLIEST)
    assert subscription.describe(2).parked == 0
    assert [each.offset for each in await reader.first(4)] == [0, 1, 0, 1]


async def test_parked_messages_dropped_by_retention_are_acknowledged(
    broker, topic, subscription, reader
):
    await broker.topics.create(DEAD, NON_RELIABLE)
    for payload in (b"a", b"b"):
        await publish(topic, payload)
        await seal(broker.storage, topic.topic_id)
    await fail(subscription, reader, 2)
    while not subscription.counts.dead_letter_failures:
        await a_while()
    topic.log.on_dropped(1)
    await broker.topics.delete(DEAD)
    letters = await dead(broker, 1)
    assert [each[0] for each in letters] == [b"b"]
    await until_done(subscription, topic)


async def test_unreadable_message_does_not_block_other_copies(
    world, broker, topic, subscription, reader
):
    await publish(topic, b"damaged")
    await seal(broker.storage, topic.topic_id)
    await publish(topic, b"whole")
    await reader.first(2)
    [segment] = topic.log.segments
    forget_segments(topic.log)
    await world.objects.delete(segment.object_name)
    subscription.nack([(0, 2)])
    assert [each[0] for each in await dead(broker, 1)] == [b"whole"]
    await until(lambda: subscription.describe(2).parked == 1)
    assert "is missing" in subscription.describe(2).dead_letter_error


async def test_deleted_topic_leaves_no_running_tasks(
    broker, topic, subscription, reader
):
    await broker.topics.create(DEAD, NON_RELIABLE)
    await publish(topic, b"a")
    await fail(subscription, reader, 1)
    while not subscription.counts.dead_letter_failures:
        await a_while()
    await broker.topics.delete(A_TOPIC, force=True)
    await a_while()
    assert subscription._task is None
    assert broker.dead_letters._queues == {}


async def test_dead_letter_topic_may_be_in_another_namespace(broker):
    await broker.namespaces.create(NamespaceName("graves"))
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    subscription = await subscribe(broker)
    elsewhere = TopicName.parse("/graves/orders")
    policy = replace(POLICY, dead_letter_topic=str(elsewhere))
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=policy)
    reader, _ = attach(subscription)
    await publish(topic, b"a")
    await fail(subscription, reader, 1)
    while elsewhere not in broker.topics.opened or not (
        broker.topics.opened[elsewhere].end_offset
    ):
        await a_while()


def dead_letter(**attributes):
    return DeadLetter(
        offset=1,
        payload=b"x",
        key=None,
        attributes=attributes,
        publish_time_us=A_TIME,
        producer="p",
        park=Park(1, 2, 3, "r" * 5000),
    )


def test_history_and_reasons_are_bounded():
    noted = json.dumps([{"topic": f"/default/t{n}"} for n in range(100)])
    found = dead_letter(
        **{"x-original-topic": "/default/x", "x-dead-letter-history": noted}
    )
    assert "/default/t3" in found.sources()

    class Origin:
        topic, name = A_TOPIC, S

    found.add_origin(Origin, "broker")
    assert len(json.loads(found.attributes["x-dead-letter-history"])) == HISTORY_MAX
    assert len(found.attributes["x-failure-reason"]) == 1000


def test_added_attributes_fit_into_the_growth_allowance():
    long = "\N{PILE OF POO}" * 1000
    entry = {"topic": long, "subscription": long, "reason": long}
    found = dead_letter(
        **{
            "x-original-topic": long,
            "x-original-subscription": long,
            "x-failure-reason": long,
            "x-dead-letter-history": json.dumps([entry] * 100),
        }
    )
    before = found.size

    class Origin:
        topic = TopicName.parse(f"/{'é' * 127}/{'é' * 127}")
        name = "é" * 127

    found.producer = "é" * 127
    found.park = Park(1, 2, 3, long)
    found.add_origin(Origin, "http://" + "a" * 253 + ":6650")
    size = sum(len(k.encode()) + len(v.encode()) for k, v in found.attributes.items())
    assert before > GROWTH_BYTES_MAX
    assert size < GROWTH_BYTES_MAX - 2048


@pytest.mark.parametrize(
    "noted",
    [
        *("", "no json", "{}", "[1, null]", "[" * 100_000, f"[{'1' * 100_000}]"),
        *('[{"topic": []}]', '[{"topic": {}}]'),
    ],
    ids=range(8),
)
def test_malformed_history_attribute_is_ignored(noted):
    found = dead_letter(**{"x-original-topic": "a", "x-dead-letter-history": noted})
    assert found.sources() <= {"a", ""}


async def test_message_with_a_forged_history_does_not_block_other_copies(
    broker, topic, subscription, reader
):
    forged = {"x-dead-letter-history": "[" * 100_000}
    await publish(topic, b"forged", b"b", attributes=[forged, None])
    await fail(subscription, reader, 2)
    assert [each[0] for each in await dead(broker, 2)] == [b"forged", b"b"]
