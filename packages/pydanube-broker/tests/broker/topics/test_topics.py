"""Policies of topics that change: retention by topic and namespace, and sealing."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from pydanube.model.descriptions import DROPS_SHOWN_MAX
from pydanube.model.errors import (
    BackupRunning,
    InvalidRequest,
    MetadataUnavailable,
    NamespaceNotFound,
    OffsetDropped,
    SchemaNotFound,
    TopicFenced,
    TopicNotFound,
)
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import (
    KEEP_ALL,
    AtTime,
    CorruptionPolicy,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    Retention,
    Start,
    TopicPolicy,
)
from pydanube.model.schemas import SchemaType, TopicSchema
from pydanube_broker.broker.publishing.schema_registry import NewSchema
from pydanube_broker.broker.topics.topics import describe_drops
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.sqlite import open_sqlite
from support.fakes.brokers import (
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
    MeddledStore,
)
from support.fakes.readers import S, attach, forget_frame, publish, stored, subscribe
from support.fakes.storages import seal

SMALL = Retention(bytes_max=1)
ACKNOWLEDGED = Retention(drops_acknowledged=True)
OTHER = SubscriptionName("other")
PARTS = [TopicName.parse(f"/default/parts-part-{number}") for number in range(3)]
BASE = TopicName.parse("/default/parts")


@asynccontextmanager
async def open_memory(_):
    yield MeddledStore()


STORES = {
    "memory": open_memory,
    "sqlite": lambda directory: open_sqlite(directory / "metadata.sqlite"),
}


@pytest.fixture(params=STORES)
async def any_world(request, tmp_path):
    """Return a journal and segments, with each kind of metadata store."""
    async with STORES[request.param](tmp_path) as store:
        yield BrokerWorld(store)


async def grown(broker, name=A_TOPIC, segments=3, policy=RELIABLE):
    """Create a topic with segments of two messages each."""
    topic = await broker.topics.create(name, policy)
    for _ in range(segments):
        await publish(topic, b"a", b"b")
        await seal(broker.storage, topic.topic_id)
    return topic


async def acknowledge(broker, end, subscription=S):
    await broker.subscriptions.mark_done(A_TOPIC, subscription, [(0, end)])


async def base_after(broker, name=A_TOPIC):
    """Apply the topic's retention; return the first offset that is left."""
    drops = await broker.topics.apply_retention(name)
    topic = await broker.topics.get(name)
    assert drops.base_offset == topic.log.base_offset
    return drops.base_offset


# By namespace and topic.


async def test_topic_follows_its_namespace_until_it_has_a_retention(any_world):
    async with any_world.broker() as broker:
        topic = await grown(broker)
        assert topic.describe().retention == KEEP_ALL
        await broker.namespaces.configure(A_TOPIC.namespace, retention=ACKNOWLEDGED)
        assert topic.describe().retention == ACKNOWLEDGED
        await broker.topics.configure(A_TOPIC, retention=KEEP_ALL)
        await broker.namespaces.configure(A_TOPIC.namespace, retention=SMALL)
        assert topic.describe().retention == KEEP_ALL
        assert await base_after(broker) == 0
    async with any_world.broker() as broker:
        assert await base_after(broker) == 0
        await broker.topics.configure(A_TOPIC, retention=None)
        assert await base_after(broker) == 4
    async with any_world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        assert (topic.policy.retention, topic.retention) == (None, SMALL)
        assert topic.log.base_offset == 4


async def test_retention_of_partitions_is_that_of_their_base_name(any_world):
    async with any_world.broker() as broker:
        await broker.topics.create_partitioned(BASE, 2, RELIABLE)
        opened = await broker.topics.get(PARTS[0])
        await broker.topics.configure(PARTS[1], retention=ACKNOWLEDGED)
        await broker.topics.configure(BASE, seal_bytes=2**20)
        # Only what changes is changed, in every partition.
        assert (opened.retention, opened.log.seal_bytes) == (KEEP_ALL, 2**20)
        other = await broker.topics.get(PARTS[1])
        assert (other.retention, other.log.seal_bytes) == (ACKNOWLEDGED, 2**20)
        await broker.topics.configure(BASE, retention=SMALL)
        await broker.topics.add_partitions(BASE, 3)
    async with any_world.broker() as broker:
        for name in PARTS:
            topic = await broker.topics.get(name)
            assert (topic.retention, topic.log.seal_bytes) == (SMALL, 2**20)


async def test_several_settings_change_together(any_world):
    limits = NamespacePolicy(max_publish_rate=7)
    async with any_world.broker() as broker:
        await broker.topics.create_partitioned(BASE, 2, RELIABLE)
        opened = await broker.topics.get(PARTS[0])
        await broker.topics.configure(
            BASE, limits=limits, retention=SMALL, seal_bytes=2**20
        )
        assert (opened.limits, opened.has_own_limits) == (limits, True)
        assert (opened.retention, opened.log.seal_bytes) == (SMALL, 2**20)
    async with any_world.broker() as broker:
        for name in PARTS[:2]:
            topic = await broker.topics.get(name)
            assert (topic.limits, topic.retention) == (limits, SMALL)
            assert topic.log.seal_bytes == 2**20


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"schema": TopicSchema(subject="nothing")}, SchemaNotFound),
        ({"schema": TopicSchema(subject="")}, InvalidRequest),
        ({"limits": NamespacePolicy(max_publish_rate=-1)}, InvalidRequest),
        ({"seal_bytes": 1}, InvalidRequest),
    ],
)
async def test_one_wrong_setting_refuses_all(world, broker, wrong, error):
    topic = await grown(broker)
    before = await world.store.get(keys.topic(A_TOPIC))
    settings = {"retention": SMALL, "on_corruption": CorruptionPolicy.SKIP}
    with pytest.raises(error):
        await broker.topics.configure(A_TOPIC, **settings, **wrong)
    assert await world.store.get(keys.topic(A_TOPIC)) == before
    assert topic.retention == KEEP_ALL
    assert topic.policy.on_corruption is CorruptionPolicy.STOP


async def test_schema_of_a_partition_is_that_of_all_and_its_retention_is_its_own(
    broker,
):
    await broker.registry.register(
        "text", NewSchema(type=SchemaType.STRING, definition="")
    )
    await broker.topics.create_partitioned(BASE, 2, RELIABLE)
    schema = TopicSchema(subject="text")
    await broker.topics.configure(PARTS[0], schema=schema, retention=SMALL)
    first, second = [await broker.topics.get(name) for name in PARTS[:2]]
    assert (first.schema, second.schema) == (schema, schema)
    assert (first.retention, second.retention) == (SMALL, KEEP_ALL)


async def test_concurrent_changes_of_two_settings_both_apply(world, broker):
    topic = await grown(broker)

    async def meddle():
        key = keys.topic(A_TOPIC)
        stored = await world.store.get(key)
        policy = TopicPolicy(retention=SMALL)
        record = type(stored.value)(topic_id=1, policy=policy, created_at=0)
        await world.store.put(key, record)

    world.store.concurrent_actions.append(meddle)
    await broker.topics.configure(A_TOPIC, on_corruption=CorruptionPolicy.SKIP)
    policy = (await world.store.get(keys.topic(A_TOPIC))).value.policy
    assert policy.retention == SMALL
    assert policy.on_corruption is CorruptionPolicy.SKIP
    assert topic.policy.on_corruption is CorruptionPolicy.SKIP


async def test_invalid_changes_are_refused_and_change_nothing(broker):
    topic = await grown(broker)
    for settings in ({"retention": Retention(age_s=0.0)}, {"seal_bytes": 1}):
        with pytest.raises(InvalidRequest):
            await broker.topics.configure(A_TOPIC, **settings)
        with pytest.raises(InvalidRequest):
            await broker.topics.create(PARTS[0], TopicPolicy(**settings))
        with pytest.raises(InvalidRequest):
            await broker.topics.create_partitioned(BASE, 2, TopicPolicy(**settings))
    with pytest.raises(InvalidRequest):
        await broker.namespaces.configure(
            A_TOPIC.namespace, retention=Retention(age_s=-1.0)
        )
    assert (topic.policy.seal_bytes, topic.retention) == (None, KEEP_ALL)
    with pytest.raises(NamespaceNotFound):
        await broker.namespaces.configure("none", retention=SMALL)
    with pytest.raises(TopicNotFound):
        await broker.topics.configure(PARTS[0], retention=SMALL)


async def test_topics_in_memory_have_no_retention(broker):
    await broker.topics.create(A_TOPIC, NON_RELIABLE)
    for settings in ({"retention": SMALL}, {"retention": None}, {"seal_bytes": 2**20}):
        with pytest.raises(InvalidRequest, match="not reliable"):
            await broker.topics.configure(A_TOPIC, **settings)
    for call in (broker.topics.plan_retention, broker.topics.apply_retention):
        with pytest.raises(InvalidRequest, match="not reliable"):
            await call(A_TOPIC)


async def test_retention_is_not_compared_when_a_topic_is_created_again(broker):
    topic = await grown(broker)
    policy = TopicPolicy(retention=SMALL, seal_bytes=2**20)
    assert await broker.topics.create(A_TOPIC, policy, exist_ok=True) is topic
    assert topic.retention == KEEP_ALL


# What all subscriptions have acknowledged.


async def test_segments_go_when_every_subscription_has_acknowledged_them(any_world):
    async with any_world.broker() as broker:
        await grown(broker, policy=TopicPolicy(retention=ACKNOWLEDGED))
        assert await base_after(broker) == 0
        await subscribe(broker)
        await subscribe(broker, OTHER)
        await acknowledge(broker, 6)
        assert await base_after(broker) == 0
        await acknowledge(broker, 3, OTHER)
        assert await base_after(broker) == 2
    async with any_world.broker() as broker:
        assert await base_after(broker) == 2
        await acknowledge(broker, 6, OTHER)
        # The newest segment stays.
        assert await base_after(broker) == 4


async def test_deleted_subscription_keeps_nothing(broker):
    await grown(broker, policy=TopicPolicy(retention=ACKNOWLEDGED))
    await subscribe(broker)
    await subscribe(broker, OTHER)
    await acknowledge(broker, 6)
    await broker.subscriptions.delete(A_TOPIC, OTHER)
    assert await base_after(broker) == 4
    await broker.subscriptions.delete(A_TOPIC, S)
    assert await base_after(broker) == 4


async def test_acks_that_are_not_in_the_journal_do_not_count(broker):
    topic = await grown(broker, policy=TopicPolicy(retention=ACKNOWLEDGED))
    subscription = await subscribe(broker)
    subscription.ack([(0, 6)], 0)
    assert subscription.cursor_offset == 6
    # The cursor is written after a linger time, so this comes first.
    assert (await broker.topics.plan_retention(A_TOPIC)).segment_count == 0
    await acknowledge(broker, 6)
    assert (await broker.topics.plan_retention(A_TOPIC)).segment_count == 2
    # A seek back counts before it is in the journal.
    subscription.seek(3)
    assert (await broker.topics.plan_retention(A_TOPIC)).segment_count == 1
    assert topic.log.base_offset == 0


async def test_subscription_without_a_cursor_keeps_everything(world):
    async with world.broker() as broker:
        topic = await grown(broker, policy=TopicPolicy(retention=ACKNOWLEDGED))
        await subscribe(broker)
        await acknowledge(broker, 6)
        state = broker.storage.find_state(topic.topic_id)
        # As after a recovery that has found no cursors.
        del state.cursors[S]
        assert await base_after(broker) == 0


async def test_later_subscription_begins_at_what_is_left(world, broker):
    await grown(broker, policy=TopicPolicy(retention=ACKNOWLEDGED))
    await subscribe(broker)
    await acknowledge(broker, 4)
    assert await base_after(broker) == 4
    reader, _ = attach(await subscribe(broker, OTHER))
    assert await reader.offsets(2) == [4, 5]


async def test_subscription_created_while_segments_are_dropped_begins_after_them(
    world, broker
):
    await grown(broker, policy=TopicPolicy(retention=ACKNOWLEDGED))
    await subscribe(broker)
    await acknowledge(broker, 4)
    created = []

    async def create():
        created.append(await subscribe(broker, OTHER))
        created.append(await subscribe(broker, SubscriptionName("at"), start=1))

    world.store.concurrent_actions.append(create)
    assert await base_after(broker) == 4
    for subscription in created:
        reader, _ = attach(subscription)
        assert await reader.offsets(2) == [4, 5]
        assert reader.reason is None


async def test_segments_stay_for_a_subscription_that_is_being_created(world, broker):
    await grown(broker, policy=TopicPolicy(retention=ACKNOWLEDGED))
    await subscribe(broker)
    await acknowledge(broker, 6)
    bases = []

    async def apply():
        bases.append(await base_after(broker))

    world.store.concurrent_actions.append(apply)
    reader, _ = attach(await subscribe(broker, OTHER, start=3))
    assert bases == [2]
    assert await reader.offsets(3) == [3, 4, 5]
    assert await base_after(broker) == 2


async def test_failed_creation_of_a_subscription_keeps_nothing(world, broker):
    topic = await grown(broker, policy=TopicPolicy(retention=ACKNOWLEDGED))
    await subscribe(broker)
    await acknowledge(broker, 6)

    async def fail():
        raise MetadataUnavailable("on purpose")

    world.store.concurrent_actions.append(fail)
    with pytest.raises(MetadataUnavailable):
        await subscribe(broker, OTHER)
    assert topic.starting == {}
    assert await base_after(broker) == 4


async def test_seek_while_segments_are_dropped_ends_after_them(world, broker):
    topic = await grown(broker, policy=TopicPolicy(retention=ACKNOWLEDGED))
    subscription = await subscribe(broker)
    await acknowledge(broker, 6)

    async def seek():
        await broker.subscriptions.seek(topic, subscription, Start.EARLIEST)

    world.store.concurrent_actions.append(seek)
    assert await base_after(broker) == 4
    reader, _ = attach(subscription)
    assert await reader.offsets(2) == [4, 5]
    assert reader.reason is None


# Dry runs and holds.


async def test_dry_run_tells_what_would_be_dropped_and_drops_nothing(broker):
    topic = await grown(broker)

    def plan(policy, of_namespace):
        assert (policy, of_namespace) == (topic.policy, KEEP_ALL)
        return SMALL

    drops = await broker.topics.plan_retention(A_TOPIC, plan)
    assert (drops.segment_count, drops.message_count, drops.base_offset) == (2, 4, 4)
    assert [(each.base, each.end) for each in drops.segments] == [(0, 2), (2, 4)]
    assert drops.byte_count == sum(each.byte_count for each in drops.segments)
    assert (topic.log.base_offset, topic.retention) == (0, KEEP_ALL)
    assert (await broker.topics.plan_retention(A_TOPIC)).segment_count == 0
    await broker.topics.configure(A_TOPIC, retention=SMALL)
    assert await broker.topics.apply_retention(A_TOPIC) == drops


async def test_number_of_described_segments_is_limited(broker):
    topic = await grown(broker, segments=1)
    many = [*topic.segments] * (DROPS_SHOWN_MAX + 1)
    drops = describe_drops(topic, many, [])
    assert (drops.segment_count, len(drops.segments)) == (1001, 1000)
    assert drops.base_offset == topic.log.sealed_offset


async def test_held_topic_drops_nothing_and_the_answer_says_why(world):
    async with world.broker() as broker:
        topic = await grown(broker, policy=TopicPolicy(retention=SMALL))
        await broker.holds.add(topic.log, "lake", "a table")
        for call in (broker.topics.plan_retention, broker.topics.apply_retention):
            drops = await call(A_TOPIC)
            assert (drops.segment_count, drops.held_by) == (0, ("lake",))
    # Holds are known before retention is applied, also if opening failed before.
    async with world.broker() as broker:
        world.store.failing.add("/holds/")
        with pytest.raises(MetadataUnavailable):
            await broker.topics.get(A_TOPIC)
        (log,) = broker.storage.logs.values()
        assert await broker.storage.sealer.apply_retention(log) == ()
        world.store.failing.clear()
        assert await base_after(broker) == 0
        await broker.holds.remove(log, "lake")
        assert await base_after(broker) == 4


async def test_nothing_is_dropped_on_request_while_a_backup_is_made(broker):
    topic = await grown(broker, policy=TopicPolicy(retention=SMALL))
    async with broker.storage.keeping_segments():
        with pytest.raises(BackupRunning):
            await broker.topics.apply_retention(A_TOPIC)
        assert (await broker.topics.plan_retention(A_TOPIC)).segment_count == 2
    assert topic.log.base_offset == 0
    assert await base_after(broker) == 4


# Topics that are not open.


def named(name):
    return TopicName.parse(f"/default/{name}")


async def test_idle_topics_with_segments_to_drop_are_found_without_opening_them(world):
    dropping = TopicPolicy(retention=SMALL)
    async with world.broker() as broker:
        small = await grown(broker, named("small"), policy=dropping)
        await grown(broker, named("single"), segments=1, policy=dropping)
        await grown(broker, named("kept"))
        held = await grown(broker, named("held"), policy=dropping)
        await broker.holds.add(held.log, "reader", "")
        assert await broker.topics.find_idle_drops() == set()
    async with world.broker() as broker:
        assert await broker.topics.find_idle_drops() == {small.topic_id}
        assert broker.topics.opened == {}
        await broker.topics.open_ids({small.topic_id}, "test")
        assert list(broker.topics.opened) == [small.name]
        assert await broker.topics.find_idle_drops() == set()


async def test_idle_topics_follow_the_retention_of_their_namespace(world):
    async with world.broker() as broker:
        topic = await grown(broker)
    async with world.broker() as broker:
        assert await broker.topics.find_idle_drops() == set()
        await broker.namespaces.configure(A_TOPIC.namespace, retention=SMALL)
        assert await broker.topics.find_idle_drops() == {topic.topic_id}


async def test_idle_topics_are_found_by_what_their_subscriptions_have_acknowledged(
    world,
):
    policy = TopicPolicy(retention=Retention(drops_acknowledged=True))
    async with world.broker() as broker:
        topic = await grown(broker, policy=policy)
        await subscribe(broker)
        unread = await grown(broker, named("unread"), policy=policy)
        await subscribe(broker, topic=unread.name)
        await acknowledge(broker, 4)
    async with world.broker() as broker:
        assert await broker.topics.find_idle_drops() == {topic.topic_id}


async def test_topic_that_cannot_be_opened_does_not_keep_others_from_it(world, caplog):
    async with world.broker() as broker:
        first = await grown(broker, named("first"))
        second = await grown(broker, named("second"))
    async with world.broker() as broker:
        world.store.failing.add(f"/holds/{first.topic_id}/")
        await broker.topics.open_ids({first.topic_id, second.topic_id}, "be tested")
        assert list(broker.topics.opened) == [second.name]
    assert "/default/first: opening it to be tested failed: " in caplog.text


# Trimming.


async def test_trimmed_messages_are_gone_for_readers_and_cursors_move(world):
    async with world.broker() as broker:
        topic = await grown(broker)
        await publish(topic, b"a", b"b")
        first = await subscribe(broker)
        reader, _ = attach(first, messages=2)
        assert await reader.offsets(2) == [0, 1]
        await subscribe(broker, name=OTHER)
        drops = await broker.topics.trim(A_TOPIC, 5)
        assert (drops.base_offset, drops.segment_count) == (5, 2)
        assert [each.base for each in topic.segments] == [4]
        first.credit(reader.consumer, 100, 1 << 20)
        assert (await reader.offsets(5))[2:] == [5, 6, 7]
        assert reader.reason is None
        for subscription in topic.subscriptions.values():
            assert subscription.describe(8).backlog == 3
            assert subscription.cursor_offset == 5
        for wanted in (0, 4):
            with pytest.raises(OffsetDropped, match="next offset that exists is 5"):
                await topic.log.read(wanted, bytes_max=1)
        assert await topic.locate(Start.EARLIEST) == await topic.locate(AtTime(0)) == 5
        described = topic.describe()
        assert (described.base_offset, described.message_count) == (5, 3)
        # Inside the tail, and from then on the newest segment alone is left.
        assert (await broker.topics.trim(A_TOPIC, 7)).base_offset == 7
        assert topic.log.read_tail(6, bytes_max=1) is None
        assert topic.segments[-1].base == 4
        assert (await topic.log.read(7, bytes_max=1))[0].end == 8
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        assert (topic.log.base_offset, topic.end_offset) == (7, 8)
        reader, _ = attach(topic.find_subscription(OTHER))
        assert await reader.offsets(1) == [7]


async def test_view_of_a_trimmed_topic_begins_at_its_start(world):
    async with world.broker() as broker:
        await grown(broker)
        await subscribe(broker)
        await broker.topics.trim(A_TOPIC, 5)
    async with world.broker() as broker:
        look = (await broker.views.look_at([A_TOPIC])).found[A_TOPIC]
        assert (look.offsets.base_offset, look.offsets.end_offset) == (5, 6)
        async with broker.views.viewing(A_TOPIC) as view:
            assert view.describe().base_offset == 5
            assert view.describe().message_count == 1
        assert broker.topics.opened == {}


async def test_failed_messages_are_forgotten_when_they_are_trimmed(broker):
    topic = await grown(broker)
    await broker.subscriptions.change_settings(
        A_TOPIC,
        S,
        failure_policy=FailurePolicy(redeliveries_max=0, poison=PoisonPolicy.BLOCK),
    )
    subscription = await subscribe(broker)
    reader, consumer = attach(subscription, messages=1)
    await reader.first(1)
    subscription.nack([(0, 1)])
    assert subscription.is_blocked
    await broker.topics.trim(A_TOPIC, 2)
    assert not subscription.is_blocked
    subscription.credit(consumer, 100, 1 << 20)
    assert (await reader.offsets(5))[1:] == [2, 3, 4, 5]
    assert topic.log.base_offset == 2


@pytest.mark.parametrize("is_redelivered", [False, True])
async def test_consumer_stays_while_what_is_read_for_it_is_trimmed(
    broker, monkeypatch, is_redelivered
):
    topic = await grown(broker)
    subscription = await subscribe(broker)
    is_reading, goes_on = asyncio.Event(), asyncio.Event()
    read = topic.log.read

    async def read_slowly(offset, *, bytes_max):
        is_reading.set()
        await goes_on.wait()
        return await read(offset, bytes_max=bytes_max)

    if is_redelivered:
        earlier, _ = attach(subscription, "earlier", messages=2)
        await earlier.first(2)
        forget_frame(subscription)
    monkeypatch.setattr(topic.log, "read", read_slowly)
    reader, _ = attach(subscription)
    if is_redelivered:
        subscription.detach(earlier.consumer)
    await is_reading.wait()
    await broker.topics.trim(A_TOPIC, 3)
    goes_on.set()
    assert await reader.offsets(3) == [3, 4, 5]
    assert reader.reason is None


async def test_trim_is_refused_beyond_the_end_and_without_stored_messages(broker):
    topic = await grown(broker)
    with pytest.raises(InvalidRequest, match="ends at offset 6; 7 is beyond it"):
        await broker.topics.trim(A_TOPIC, 7)
    for before in (0, Start.EARLIEST):
        assert (await broker.topics.trim(A_TOPIC, before)).base_offset == 0
    assert (await broker.catalog.get_topic(A_TOPIC)).value.start_offset == 0
    await broker.topics.create(named("memory"), NON_RELIABLE)
    with pytest.raises(InvalidRequest, match="not reliable"):
        await broker.topics.trim(named("memory"), Start.LATEST)
    with pytest.raises(TopicNotFound):
        await broker.topics.trim(named("none"), Start.LATEST)
    # All messages go, and offsets are never assigned again.
    assert (await broker.topics.trim(A_TOPIC, Start.LATEST)).base_offset == 6
    assert (topic.describe().message_count, len(topic.segments)) == (0, 1)
    assert await publish(topic, b"next") == 6
    assert [payload for payload, *_ in await stored(topic)] == [b"next"]


async def test_fenced_writer_trims_nothing(world):
    async with world.broker() as broker:
        topic = await grown(broker)
        await world.store.put(keys.EPOCHS.key(topic.topic_id), topic.log.epoch + 1)
        with pytest.raises(TopicFenced):
            await broker.topics.trim(A_TOPIC, 2)
        assert topic.log.base_offset == 0


async def test_held_topic_keeps_trimmed_segments_until_it_is_released(world):
    async with world.broker() as broker:
        topic = await grown(broker)
        await broker.holds.add(topic.log, "lake", "a table")
        drops = await broker.topics.trim(A_TOPIC, 4)
        assert (drops.base_offset, drops.segment_count) == (4, 0)
        assert drops.held_by == ("lake",)
        assert (topic.log.base_offset, len(topic.segments)) == (4, 3)
        # It stays so in a description, and in a topic that is not open.
        assert topic.describe().message_count == 2
    async with world.broker() as broker:
        assert await broker.topics.find_idle_drops() == set()
        await world.store.delete(keys.HOLDS.within(topic.topic_id).key("lake"))
        assert await broker.topics.find_idle_drops() == {topic.topic_id}
        assert await base_after(broker) == 4
        assert [each.base for each in (await broker.topics.get(A_TOPIC)).segments] == [
            4
        ]


async def test_log_that_lost_its_end_continues_where_it_was_trimmed(world):
    async with world.broker() as broker:
        await broker.topics.create(A_TOPIC, RELIABLE)
        stored_record = await broker.catalog.get_topic(A_TOPIC)
        record = msgspec.structs.replace(stored_record.value, start_offset=9)
        await world.store.put(keys.topic(A_TOPIC), record)
    async with world.broker() as broker:
        look = (await broker.views.look_at([A_TOPIC])).found[A_TOPIC]
        assert (look.offsets.base_offset, look.offsets.end_offset) == (9, 9)
        topic = await broker.topics.get(A_TOPIC)
        assert await publish(topic, b"next") == 9
    async with world.broker() as broker:
        topic = await broker.topics.get(A_TOPIC)
        assert (topic.log.base_offset, topic.end_offset) == (9, 10)
