"""Positions of subscriptions, also after a restart."""

import random

import pytest

from pydanube.aio.tasks import gather
from pydanube.model.errors import (
    AlreadyExists,
    InvalidRequest,
    QuotaExceeded,
    SubscriptionNotFound,
    TopicNotFound,
)
from pydanube.model.names import SubscriptionName
from pydanube.model.policy import (
    AtTime,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    Start,
    SubscriptionType,
)
from pydanube.objects.directory import DirectoryObjects
from pydanube_broker.storage.files import DirectoryFiles
from support.drivers.running import using
from support.fakes.brokers import (
    A_NOW_US,
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
)
from support.fakes.readers import S, a_while, attach, publish, subscribe
from support.fakes.storages import seal

PATIENT = FailurePolicy(ack_timeout_s=None)


def on_disk(tmp_path):
    """A world of files and directories."""
    world = BrokerWorld()
    world.files = DirectoryFiles(tmp_path / "journal")
    world.objects = DirectoryObjects(tmp_path / "objects")
    return world


async def ten_messages(broker, topic):
    """Publish messages 0 … 10 at times 0, 10, … 90; seal the first six."""
    for at in range(10):
        await publish(topic, b"%d" % at, time=A_NOW_US + 10 * at)
        if at == 5:
            await seal(broker.storage, topic.topic_id)


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (Start.EARLIEST, 0),
        (Start.LATEST, 10),
        (3, 3),
        (10, 10),
        (AtTime(A_NOW_US - 10**9), 0),
        (AtTime(A_NOW_US + 31), 4),
        (AtTime(A_NOW_US + 75), 8),
        (AtTime(A_NOW_US + 91), 10),
        (AtTime(2**70), 10),
        (AtTime(-(2**70)), 0),
    ],
)
async def test_new_subscription_begins_at_its_start_position(
    broker, topic, start, offset
):
    await ten_messages(broker, topic)
    subscription = await subscribe(broker, start=start)
    assert subscription.describe(10).cursor == offset
    await publish(topic, b"10")
    reader, _ = attach(subscription)
    assert await reader.offsets(11 - offset) == list(range(offset, 11))


async def test_existing_subscription_keeps_its_position(broker, topic):
    await ten_messages(broker, topic)
    await subscribe(broker, start=3)
    assert (await subscribe(broker, start=7)).describe(10).cursor == 3


@pytest.mark.parametrize("start", [-1, 11])
async def test_position_beyond_the_topic_is_refused(broker, topic, start):
    await ten_messages(broker, topic)
    with pytest.raises(InvalidRequest):
        await subscribe(broker, start=start)
    assert topic.subscriptions == {}
    subscription = await subscribe(broker, start=5)
    with pytest.raises(InvalidRequest):
        await broker.subscriptions.seek(topic, subscription, start)
    assert subscription.describe(10).cursor == 5


async def test_dropped_position_becomes_the_first_existing_one(broker, topic):
    await ten_messages(broker, topic)
    topic.log.on_dropped(1)
    for name, start in (("a", 2), ("b", AtTime(A_NOW_US)), ("c", Start.EARLIEST)):
        found = await subscribe(broker, SubscriptionName(name), start=start)
        assert found.describe(10).cursor == 6
    await broker.subscriptions.seek(topic, found, 0)
    assert found.describe(10).cursor == 6


@pytest.mark.parametrize(
    ("where", "offset"),
    [(Start.EARLIEST, 0), (Start.LATEST, 10), (4, 4), (AtTime(A_NOW_US + 85), 9)],
)
async def test_subscription_is_moved_with_its_consumers_and_across_restarts(
    world, where, offset
):
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        await ten_messages(broker, topic)
        subscription = await subscribe(broker)
        reader, _ = attach(subscription)
        await reader.first(10)
        subscription.ack([(0, 2), (6, 8)], 0)
        await broker.subscriptions.seek(topic, subscription, where)
        facts = subscription.describe(10)
        assert (facts.cursor, facts.done) == (offset, ())
        got = await reader.offsets(20 - offset)
        assert got[10:] == list(range(offset, 10))
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        assert topic.subscriptions[S].describe(10).cursor == offset


async def test_seek_unblocks_and_forgets_deferred_messages(broker, topic):
    policy = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.BLOCK)
    await ten_messages(broker, topic)
    subscription = await subscribe(broker)
    await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=policy)
    reader, _ = attach(subscription, messages=3)
    await reader.first(3)
    subscription.nack([(0, 1)])
    assert subscription.is_blocked
    await broker.subscriptions.seek(topic, subscription, 5)
    facts = subscription.describe(10)
    assert (facts.blocked, facts.delayed, facts.in_flight) == ((), 0, 0)
    assert not subscription.is_blocked


async def test_skip_acknowledges_the_next_open_messages(world):
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        await ten_messages(broker, topic)
        subscription = await subscribe(broker)
        subscription.ack([(1, 3), (7, 8)], 0)
        await broker.subscriptions.skip(A_TOPIC, S, 3)
        facts = subscription.describe(10)
        assert (facts.cursor, facts.done) == (5, ((7, 8),))
        reader, _ = attach(subscription)
        assert await reader.offsets(4) == [5, 6, 8, 9]
        await broker.subscriptions.skip(A_TOPIC, S, 0)
        assert subscription.describe(10).cursor == 5
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        facts = topic.subscriptions[S].describe(10)
        assert (facts.cursor, facts.done) == (5, ((7, 8),))
        await broker.subscriptions.skip(A_TOPIC, S, 100)
        assert topic.subscriptions[S].describe(10).backlog == 0
        with pytest.raises(InvalidRequest):
            await broker.subscriptions.skip(A_TOPIC, S, -1)


async def test_mark_done_acknowledges_messages(world):
    policy = FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.BLOCK)
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        await ten_messages(broker, topic)
        subscription = await subscribe(broker)
        await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=policy)
        reader, _ = attach(subscription, messages=2)
        await reader.first(2)
        subscription.nack([(0, 1)])
        subscription.ack([(1, 2)], 0)
        await broker.subscriptions.mark_done(A_TOPIC, S, [(0, 1), (8, 10)])
        assert not subscription.is_blocked
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        facts = topic.subscriptions[S].describe(10)
        assert (facts.cursor, facts.done) == (2, ((8, 10),))


@pytest.mark.parametrize("what", ["skip", "mark_done"])
async def test_missing_subscription_cannot_be_moved(broker, topic, what):
    argument = 1 if what == "skip" else [(0, 1)]
    with pytest.raises(SubscriptionNotFound):
        await getattr(broker.subscriptions, what)(A_TOPIC, S, argument)
    await broker.topics.delete(A_TOPIC)
    with pytest.raises(TopicNotFound):
        await getattr(broker.subscriptions, what)(A_TOPIC, S, argument)


@using(policy=NON_RELIABLE)
async def test_subscription_of_a_non_reliable_topic_has_no_cursor(broker, topic):
    subscription = await subscribe(broker)
    with pytest.raises(InvalidRequest, match="not reliable"):
        await broker.subscriptions.seek(topic, subscription, Start.EARLIEST)
    with pytest.raises(InvalidRequest, match="not reliable"):
        await broker.subscriptions.skip(A_TOPIC, S, 1)


@pytest.mark.slow
async def test_scattered_acks_survive_a_restart(tmp_path):
    """Acknowledge every second of 10,000 messages in random order: very many gaps."""
    count = 10_000
    world = on_disk(tmp_path)
    offsets = list(range(0, count, 2))
    random.Random(1).shuffle(offsets)
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        for _ in range(4):
            await publish(topic, *[b"x"] * (count // 4))
        subscription = await subscribe(broker)
        await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=PATIENT)
        reader, _ = attach(subscription, messages=count)
        await reader.first(count)
        for at in range(0, len(offsets), 100):
            subscription.ack([(o, o + 1) for o in offsets[at : at + 100]], 0)
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        subscription = topic.subscriptions[S]
        assert subscription.backlog(count) == count // 2
        reader, _ = attach(subscription, messages=count)
        assert await reader.offsets(count // 2) == list(range(1, count, 2))
        # The journal stores a bit per message, not 16 bytes per gap.
        state = broker.storage.find_state(topic.topic_id)
        assert state.cursors[S].done.byte_count < count


@pytest.mark.slow
async def test_deferred_messages_survive_a_restart(tmp_path):
    world = on_disk(tmp_path)
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        an_hour = A_NOW_US + 3600 * 10**6
        await publish(topic, *[b"x"] * 3000, deliver_at=[None, an_hour, None] * 1000)
        subscription = await subscribe(broker)
        await broker.subscriptions.change_settings(A_TOPIC, S, failure_policy=PATIENT)
        reader, _ = attach(subscription, messages=3000)
        got = await reader.offsets(2000)
        subscription.ack([(offset, offset + 1) for offset in got], 0)
        assert subscription.describe(3000).delayed == 1000
    async with world.broker() as broker:
        subscription = (await broker.topics.get(A_TOPIC)).subscriptions[S]
        assert subscription.backlog(3000) == 1000
        reader, _ = attach(subscription)
        await a_while()
        assert reader.got == []
        assert subscription.describe(3000).delayed == 1000


async def test_subscriptions_need_no_consumers(broker, topic):
    for name in "cab":
        await broker.subscriptions.open(
            A_TOPIC, SubscriptionName(name), SubscriptionType.SHARED, Start.LATEST
        )
    assert sorted(topic.subscriptions) == ["a", "b", "c"]
    with pytest.raises(AlreadyExists):
        await broker.subscriptions.open(
            A_TOPIC,
            SubscriptionName("a"),
            SubscriptionType.SHARED,
            Start.LATEST,
            exist_ok=False,
        )
    await broker.subscriptions.delete(A_TOPIC, SubscriptionName("b"))
    assert sorted(topic.subscriptions) == ["a", "c"]


async def test_topic_limits_are_enforced(broker, topic):
    limits = NamespacePolicy(
        max_subscriptions_per_topic=1, max_consumers_per_subscription=2
    )
    await broker.topics.configure(A_TOPIC, limits=limits)
    subscription = await subscribe(broker)
    with pytest.raises(QuotaExceeded):
        await subscribe(broker, SubscriptionName("t"))
    # An existing subscription can be opened again.
    assert await subscribe(broker) is subscription
    attach(subscription, "a")
    _, consumer = attach(subscription, "b")
    with pytest.raises(QuotaExceeded):
        attach(subscription, "c")
    # A consumer that replaces another does not count.
    attach(subscription, "a")
    subscription.detach(consumer)
    attach(subscription, "c")


async def test_note_of_a_first_report_spares_a_subscription_made_meanwhile(broker):
    topic = await broker.topics.get_or_create(A_TOPIC, RELIABLE)
    await ten_messages(broker, topic)

    async def report(offset, note, **options):
        await broker.subscriptions.report_progress(
            A_TOPIC, S, offset, note=note, **options
        )

    await gather((report(3, "third", is_exact=True), report(0, "first")))
    found = topic.subscriptions[S]
    assert (found.cursor_offset, found.note) == (3, "third")
