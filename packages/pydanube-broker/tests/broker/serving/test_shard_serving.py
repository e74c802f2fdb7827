"""Brokers of one cluster: whole brokers without servers, with object journals."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.clusters import BrokerMode
from pydanube.model.errors import (
    InvalidRequest,
    MetadataUnavailable,
    NotOwner,
    OffsetDropped,
    SessionLost,
    TopicFenced,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import NamespacePolicy, Retention
from pydanube.model.schemas import TopicSchema
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.cluster.overview import STREAM
from pydanube_broker.cluster.pure.shard_topics import shard_of
from pydanube_broker.cluster.shard_moves import move_shard
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.storage.journal.state import SKIPPED_OFFSETS
from support.fakes.batches import frame_of, payloads_of
from support.fakes.broker_clusters import SHARDS, BrokerCluster
from support.fakes.brokers import A_TOPIC, NON_RELIABLE, RELIABLE, Outcome
from support.fakes.readers import attach, subscribe
from support.fakes.schemas import new_schema
from support.fakes.shard_owners import KnownOwners
from support.fakes.storages import read_all, seal, until

SHARD = shard_of(A_TOPIC, SHARDS)


@pytest.fixture
def cluster():
    return BrokerCluster()


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


async def start(stack, cluster, *broker_ids, **settings):
    """Start brokers, and return them when all shards are served."""
    members = [
        await stack.enter_async_context(cluster.broker(each, **settings))
        for each in broker_ids
    ]
    await cluster.settled(*broker_ids)
    return members


def owner_of(cluster, shard=SHARD):
    (owner,) = [each for each in cluster.members if shard in cluster.served(each)]
    return owner


def owner_broker(cluster):
    return cluster.members[owner_of(cluster)].broker


async def opened(broker, name="p", topic=A_TOPIC):
    return await broker.producers.open(topic, name, policy=RELIABLE)


async def opened_topic(broker, name=A_TOPIC):
    await broker.topics.add(name, RELIABLE, exist_ok=True)
    return await broker.topics.get_reliable(name)


def publish(topic, session, payload, sequence=None):
    outcome = Outcome()
    frame = frame_of(
        [payload],
        producer=session.name,
        producer_id=session.producer_id,
        producer_epoch=session.epoch,
        base_sequence=session.next_sequence if sequence is None else sequence,
    )
    topic.publish(session, frame, outcome)
    return outcome


async def published(cluster, *payloads, name="p"):
    """Publish to the owner of the topic; return the offsets."""
    topic, session = await cluster.ask(lambda broker: opened(broker, name))
    return [await publish(topic, session, each).offset() for each in payloads]


async def stored(cluster):
    """Return all messages of the topic at its owner."""
    topic = await cluster.ask(lambda broker: broker.topics.get_reliable(A_TOPIC))
    return payloads_of(await read_all(topic.log))


async def test_only_the_owner_serves_a_topic(cluster, stack):
    await start(stack, cluster, "a", "b")
    owner = owner_of(cluster)
    (other,) = {"a", "b"} - {owner}
    broker = cluster.members[other].broker
    with pytest.raises(NotOwner, match=f"connect to danube://{owner}:6651"):
        await opened(broker)
    # The topic was created nevertheless.
    assert await published(cluster, b"x") == [0]
    with pytest.raises(NotOwner):
        await broker.topics.get(A_TOPIC)
    with pytest.raises(NotOwner):
        await broker.topics.delete(A_TOPIC)


async def test_any_broker_finds_the_owner(cluster, stack):
    await start(stack, cluster, "a", "b")
    owner = owner_of(cluster)
    (other,) = {"a", "b"} - {owner}
    topics = cluster.members[other].broker.topics
    with pytest.raises(TopicNotFound):
        await topics.find_addresses(A_TOPIC)
    await topics.add(A_TOPIC, RELIABLE)
    assert (await topics.find_addresses(A_TOPIC))[STREAM] == f"danube://{owner}:6651"
    assert await cluster.members[owner].broker.topics.find_addresses(A_TOPIC) == {}
    # Nobody is sent to a broker that has not opened the shard yet, or leaves it.
    cluster.members[owner].broker.shard_serving.refuse_messages(SHARD)
    with pytest.raises(NotOwner, match="being taken over; try again"):
        await cluster.members[owner].broker.topics.find_addresses(A_TOPIC)


async def test_any_broker_creates_topics(cluster, stack):
    await start(stack, cluster, "a", "b")
    for number, member in enumerate(cluster.members.values()):
        await member.broker.topics.add(A_TOPIC.partition(number), RELIABLE)
    names = await cluster.members["a"].broker.catalog.names()
    assert names == [A_TOPIC.partition(0), A_TOPIC.partition(1)]
    for name in names:
        topic = await cluster.ask(lambda broker, name=name: broker.topics.get(name))
        assert topic.end_offset == 0


async def test_nothing_is_lost_when_the_session_of_a_broker_ends(cluster, stack):
    await start(stack, cluster, "a", "b")
    assert await published(cluster, b"a", b"b") == [0, 1]
    owner = owner_of(cluster)
    cluster.lose(owner)
    assert await stored(cluster) == [b"a", b"b"]
    assert owner_of(cluster) != owner
    assert await published(cluster, b"c") == [2]


async def test_the_new_owner_knows_cursors_and_producers(cluster, stack):
    await start(stack, cluster, "a", "b")
    topic, session = await cluster.ask(opened)
    await publish(topic, session, b"a").offset()
    await publish(topic, session, b"b").offset()
    broker = cluster.members[owner_of(cluster)].broker
    subscription = await subscribe(broker)
    await broker.subscriptions.seek(topic, subscription, 1)
    cluster.lose(owner_of(cluster))

    taken = await cluster.ask(lambda broker: broker.topics.get(A_TOPIC))
    assert [each.cursor_offset for each in taken.subscriptions.values()] == [1]
    # The client sends its last batch again: nobody told it that it is stored.
    resume = session.producer_id, session.epoch
    again, resumed = await cluster.ask(
        lambda broker: broker.producers.open(A_TOPIC, "p", policy=None, resume=resume)
    )
    assert resumed.next_sequence == 2
    assert await publish(again, resumed, b"b", sequence=1).offset() == 1
    assert await stored(cluster) == [b"a", b"b"]


async def test_a_broker_without_its_session_serves_nothing(cluster, stack):
    await start(stack, cluster, "a", "b")
    await published(cluster, b"a")
    member = cluster.members[owner_of(cluster)]
    told = []
    topic, _ = await member.broker.producers.open(
        A_TOPIC, "q", policy=None, on_fenced=told.append
    )
    cluster.lose(owner_of(cluster))
    await cluster.ask(lambda broker: broker.topics.get(A_TOPIC))
    assert [type(error) for error in told] == [NotOwner]
    with pytest.raises(SessionLost, match="Look up the topic again"):
        await member.broker.topics.get(A_TOPIC)
    with pytest.raises(NotOwner):
        await topic.log.read(0, bytes_max=100)
    assert not member.broker.topics.opened
    assert not member.broker.storage.logs


async def test_a_drained_broker_hands_its_topics_over(cluster, stack):
    await start(stack, cluster, "a", "b")
    await published(cluster, b"a", b"b")
    owner = owner_of(cluster)
    member = cluster.members[owner]
    reader, _ = attach(await subscribe(member.broker))
    assert await reader.offsets(2) == [0, 1]
    await cluster.set_mode(owner, BrokerMode.DRAINING)
    (other,) = {"a", "b"} - {owner}
    await cluster.settled(other)
    assert isinstance(reader.reason, NotOwner)
    with pytest.raises(NotOwner, match=f"connect to danube://{other}:6651"):
        await member.broker.topics.get(A_TOPIC)
    assert await published(cluster, b"c") == [2]
    assert await stored(cluster) == [b"a", b"b", b"c"]
    # Its own session goes on, and takes shards again.
    await cluster.set_mode(owner, BrokerMode.ACTIVE)
    await cluster.set_mode(other, BrokerMode.DRAINING)
    await cluster.settled(owner)
    assert await published(cluster, b"d") == [3]
    assert await stored(cluster) == [b"a", b"b", b"c", b"d"]


async def test_acks_are_not_confirmed_behind_the_mark_that_ends_a_shard(cluster, stack):
    await start(stack, cluster, "a", "b")
    await published(cluster, b"a", b"b")
    owner = owner_of(cluster)
    member = cluster.members[owner]
    subscription = await subscribe(member.broker)
    (other,) = {"a", "b"} - {owner}
    answers = []
    with cluster.remote.holding_journals():
        await move_shard(cluster.store, SHARD, other)
        await until(lambda: SHARD not in cluster.served(owner))
        # The mark is on its way to the journal.
        subscription.ack([(0, 1)], 0)
        subscription.save_cursor_now(answers.append)
    await until(lambda: SHARD in cluster.served(other))
    assert [type(each) for each in answers] == [NotOwner]
    taken = await cluster.ask(lambda broker: broker.topics.get(A_TOPIC))
    assert [each.cursor_offset for each in taken.subscriptions.values()] == [0]


@pytest.mark.parametrize("is_uploaded", [False, True])
async def test_segments_of_the_earlier_owner_are_read(cluster, stack, is_uploaded):
    await start(stack, cluster, "a", "b")
    await published(cluster, b"a", b"b")
    member = cluster.members[owner_of(cluster)]
    (topic_id,) = member.broker.storage.logs
    if not is_uploaded:
        # Its disk has the segment, which no other broker can read.
        cluster.remote.refuses_segments = True
    await seal(member.broker.storage, topic_id)
    await published(cluster, b"c")
    if is_uploaded:
        await member.broker.storage.uploader.upload_now()
    log = member.broker.storage.logs[topic_id]
    assert [each.is_uploaded for each in log.segments] == [is_uploaded]
    cluster.lose(owner_of(cluster))
    assert await stored(cluster) == [b"a", b"b", b"c"]
    new = cluster.members[owner_of(cluster)].broker.storage.logs[topic_id]
    assert [each.end for each in new.segments] == ([2] if is_uploaded else [])


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_topic_that_moves_during_a_merge_keeps_its_segments(
    cluster, stack, is_lost
):
    await start(stack, cluster, "a", "b")
    owner = owner_of(cluster)
    (other,) = {"a", "b"} - {owner}
    storage = cluster.members[owner].broker.storage
    payloads = [b"%d" % number for number in range(8)]
    for payload in payloads:
        await published(cluster, payload)
        (topic_id,) = storage.logs
        await seal(storage, topic_id)
    await storage.uploader.upload_now()
    old = [each.object_name for each in storage.logs[topic_id].segments]
    put, uploading, gate = cluster.remote.put, asyncio.Event(), asyncio.Event()

    async def put_later(name, data):
        if name.endswith(".parquet"):
            uploading.set()
            await gate.wait()
        await put(name, data)

    cluster.remote.put = put_later
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(storage.merger.merge_round())
        await uploading.wait()
        if is_lost:
            cluster.lose(owner)
        else:
            await move_shard(cluster.store, SHARD, other)
        await until(lambda: SHARD in cluster.served(other))
        gate.set()
    assert not storage.merger.merged_count
    assert await stored(cluster) == payloads
    log = cluster.members[other].broker.storage.logs[topic_id]
    assert [each.object_name for each in log.segments] == old
    if not is_lost:
        # What was uploaded in vain is removed.
        await until(lambda: {*cluster.remote.segments()} == {*old})


async def test_the_new_owner_finishes_a_deletion(cluster, stack):
    await start(stack, cluster, "a", "b")
    await published(cluster, b"a")
    member = cluster.members[owner_of(cluster)]
    (topic_id,) = member.broker.storage.logs
    await seal(member.broker.storage, topic_id)
    await member.broker.storage.uploader.upload_now()

    async def fail(*_):
        raise NotOwner("on purpose")

    member.broker.topics.remove_content = fail
    with pytest.raises(NotOwner):
        await member.broker.topics.delete(A_TOPIC, force=True)
    assert await cluster.store.scan(keys.SEGMENTS)
    cluster.lose(owner_of(cluster))
    await cluster.settled(*cluster.members)
    async with cluster.store.watch(keys.DELETED_TOPICS) as watch:
        async for _ in watch:
            if not await cluster.store.scan(keys.DELETED_TOPICS):
                break
    assert not await cluster.store.scan(keys.SEGMENTS)
    with pytest.raises(TopicNotFound):
        await cluster.ask(lambda broker: broker.topics.get(A_TOPIC))


async def test_a_topic_that_is_opened_while_its_shard_leaves_is_closed(cluster, stack):
    (member,) = await start(stack, cluster, "a")
    broker = member.broker
    await broker.catalog.create(A_TOPIC, RELIABLE)
    load = broker.holds.load

    async def leave(topic_log):
        broker.shard_serving.stop(SHARD)
        await load(topic_log)

    broker.holds.load = leave
    with pytest.raises(NotOwner):
        await broker.topics.get(A_TOPIC)
    assert not broker.topics.opened
    assert not broker.storage.logs


async def test_non_reliable_topics_have_owners_too(cluster, stack):
    await start(stack, cluster, "a", "b")
    member = cluster.members["a"]
    await member.broker.topics.add(A_TOPIC, NON_RELIABLE)
    topic = await cluster.ask(lambda broker: broker.topics.get(A_TOPIC))
    first = owner_of(cluster)
    assert topic.shard == SHARD
    cluster.lose(first)
    again = await cluster.ask(lambda broker: broker.topics.get(A_TOPIC))
    assert again is not topic
    assert owner_of(cluster) != first


def test_errors_name_the_owner_if_it_is_known():
    shards = Shards(4, owners := KnownOwners())
    name = TopicName.parse("/default/a")
    with pytest.raises(NotOwner, match="shard 3 is being taken over; try again"):
        shards.epoch_of(name, 3)
    record = SessionRecord(broker_id="b", addresses={"stream": "s"}, started_at=0)
    owners.by_shard[3] = record
    with pytest.raises(NotOwner, match="in shard 3: connect to s"):
        shards.epoch_of(name, 3)
    with pytest.raises(InvalidRequest, match="outside of a cluster"):
        shards.epoch_of(name, None)


# Journals that are lost.


async def test_a_shard_goes_on_without_a_lost_journal_only_by_request(
    cluster, stack, caplog
):
    await start(stack, cluster, "a", "b")
    await published(cluster, b"sealed", b"sealed, too")
    owner = owner_of(cluster)
    (other,) = {"a", "b"} - {owner}
    first, second = cluster.members[owner], cluster.members[other]
    topic = await opened_topic(first.broker)
    await subscribe(first.broker)
    await seal(first.broker.storage, topic.topic_id)
    await until(lambda: topic.log.uploaded_offset == 2)
    assert await published(cluster, b"lost") == [2]
    key = keys.SESSION_JOURNALS.key(first.session.session_id)
    journal = await cluster.store.get(key)
    cluster.lose(owner)
    cluster.remote.lose_journal(journal.value.prefix)
    await until(lambda: SHARD in second.takeovers.owners.waits)
    shards = (await second.broker.forget_broker(owner, accept_loss=False)).moves
    assert [each.topics for each in shards if each.shard == SHARD] == [(str(A_TOPIC),)]
    with pytest.raises(NotOwner, match="no broker serves"):
        await second.broker.topics.get(A_TOPIC)
    await second.broker.forget_broker(owner, accept_loss=True)
    await cluster.settled(other)
    assert f"{A_TOPIC}: messages from offset 2 on" in caplog.text
    assert second.takeovers.owners.counts.lost_topics == 1
    assert await published(cluster, b"next") == [2 + SKIPPED_OFFSETS]
    # Readers see the gap, and subscriptions go on behind it.
    with pytest.raises(OffsetDropped, match="offset 2 of"):
        await stored(cluster)
    subscription = await subscribe(second.broker)
    reader, _ = attach(subscription)
    assert await reader.offsets(2) == [0, 1]
    await until(lambda: isinstance(reader.reason, OffsetDropped))
    reader, _ = attach(subscription, "d")
    await until(lambda: [each.payload for each in reader.got][-1:] == [b"next"])


# Creating and opening.


async def test_topics_are_opened_while_the_journal_cannot_be_written(cluster, stack):
    (member,) = await start(stack, cluster, "a")
    await published(cluster, b"first")
    with cluster.remote.holding_journals():
        topics = member.broker.topics
        names = [TopicName.parse(f"/default/new-{n}") for n in range(3)]
        created = [await topics.create(name, RELIABLE) for name in names[:2]]
        await topics.add(names[2], RELIABLE)
        assert [topic.name for topic in created] == names[:2]
        outcomes = []
        for topic in created:
            topic.publish_unchecked(frame_of([b"x"]), outcome := Outcome())
            outcomes.append(outcome)
        assert not any(outcome.is_known for outcome in outcomes)
    assert [await outcome.offset() for outcome in outcomes] == [0, 0]
    # Another broker finds them.
    cluster.lose("a")
    await start(stack, cluster, "b")
    for name in names[:2]:
        topic = await cluster.ask(lambda broker, name=name: opened_topic(broker, name))
        assert payloads_of(await read_all(topic.log)) == [b"x"]


async def test_a_subscription_that_is_being_created_does_not_delay_other_topics(
    cluster, stack
):
    (member,) = await start(stack, cluster, "a")
    await published(cluster, b"first")
    async with asyncio.TaskGroup() as tasks:
        with cluster.remote.holding_journals():
            waiting = tasks.create_task(subscribe(member.broker))
            await asyncio.sleep(0)
            await member.broker.topics.create(TopicName.parse("/default/new"), RELIABLE)
            assert not waiting.done()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_subscription_is_not_created_while_its_shard_leaves(
    cluster, stack, is_closed
):
    (member,) = await start(stack, cluster, "a")
    await published(cluster, b"first")
    topic = member.broker.topics.opened[A_TOPIC]
    async with task_scope() as tasks:
        with cluster.remote.holding_journals():
            creating = tasks.start(subscribe(member.broker))
            await until(lambda: topic.starting)
            member.broker.shard_serving.refuse_messages(SHARD)
            if is_closed:
                member.broker.shard_serving.stop(SHARD)
        with pytest.raises(NotOwner):
            await creating
    assert not topic.subscriptions
    assert not await cluster.store.scan(keys.SUBSCRIPTIONS)


# Records that other brokers change.


async def test_changes_at_any_broker_reach_the_owner(cluster, stack):
    await start(stack, cluster, "a", "b")
    topic = await cluster.ask(opened_topic)
    owner = owner_of(cluster)
    (other,) = {"a", "b"} - {owner}
    broker = cluster.members[other].broker
    retention = Retention(age_s=60.0)
    await broker.topics.configure(A_TOPIC, limits=NamespacePolicy(max_publish_rate=7))
    await until(lambda: topic.limits.max_publish_rate == 7)
    await broker.topics.configure(A_TOPIC, retention=retention)
    await until(lambda: topic.log.retention == retention)
    await broker.topics.configure(A_TOPIC, limits=None)
    await until(lambda: not topic.has_own_limits)


async def test_changes_of_a_namespace_reach_all_open_topics(cluster, stack):
    await start(stack, cluster, "a", "b")
    names = [A_TOPIC.partition(number) for number in range(8)]
    topics = [
        await cluster.ask(lambda broker, name=name: opened_topic(broker, name))
        for name in names
    ]
    namespaces = cluster.members["a"].broker.namespaces
    await namespaces.configure(
        A_TOPIC.namespace, policy=NamespacePolicy(max_publish_rate=9)
    )
    await namespaces.configure(A_TOPIC.namespace, retention=Retention(age_s=60.0))
    await until(lambda: {each.limits.max_publish_rate for each in topics} == {9})
    await until(lambda: {each.log.retention.age_s for each in topics} == {60.0})


async def test_schemas_that_are_bound_at_any_broker_reach_the_owner(cluster, stack):
    await start(stack, cluster, "a", "b")
    topic = await cluster.ask(opened_topic)
    (other,) = {"a", "b"} - {owner_of(cluster)}
    broker = cluster.members[other].broker
    await broker.registry.register("orders", new_schema())
    await broker.topics.configure(A_TOPIC, schema=TopicSchema(subject="orders"))
    await until(lambda: topic.schema == TopicSchema(subject="orders"))
    await broker.topics.configure(A_TOPIC, schema=None)
    await until(lambda: topic.schema is None)


# Deletions at other brokers.


async def test_any_broker_deletes_a_topic_by_force(cluster, stack):
    await start(stack, cluster, "a", "b")
    await published(cluster, b"old")
    topic = await cluster.ask(opened_topic)
    (other,) = {"a", "b"} - {owner_of(cluster)}
    broker = cluster.members[other].broker
    with pytest.raises(NotOwner):
        await broker.topics.delete(A_TOPIC)
    await broker.topics.delete(A_TOPIC, force=True)
    # Its owner has removed the contents, and serves a new topic of this name.
    assert await cluster.store.scan(keys.DELETED_TOPICS) == []
    assert await cluster.store.scan(keys.SHARD_TOPICS) == []
    assert topic.topic_id not in owner_broker(cluster).storage.logs
    assert await published(cluster, b"new") == [0]
    assert await stored(cluster) == [b"new"]


async def test_partitions_of_several_owners_are_deleted_by_force(cluster, stack):
    await start(stack, cluster, "a", "b")
    topics = cluster.members["a"].broker.topics
    await topics.create_partitioned(A_TOPIC, 8, RELIABLE)
    partitions = [
        await cluster.ask(lambda broker, name=name: broker.topics.get(name))
        for name in map(A_TOPIC.partition, range(8))
    ]
    assert {each.shard in cluster.served("a") for each in partitions} == {True, False}
    await topics.delete(A_TOPIC, force=True)
    for broker_id in "ab":
        broker = cluster.members[broker_id].broker
        assert await broker.catalog.names() == []
        assert not broker.storage.logs
        await until(lambda broker=broker: not broker.topics.opened)


async def test_topics_without_contents_are_closed_by_their_owner(cluster, stack):
    await start(stack, cluster, "a", "b")
    await cluster.members["a"].broker.topics.add(A_TOPIC, NON_RELIABLE)
    await cluster.ask(lambda broker: broker.topics.get(A_TOPIC))
    owner = owner_broker(cluster)
    (other,) = {"a", "b"} - {owner_of(cluster)}
    await cluster.members[other].broker.topics.delete(A_TOPIC, force=True)
    await until(lambda: A_TOPIC not in owner.topics.opened)


async def test_changes_are_applied_later_if_the_store_does_not_answer(cluster, stack):
    await start(stack, cluster, "a", "b")
    topic = await cluster.ask(opened_topic)
    namespaces = owner_broker(cluster).namespaces
    find, failures = namespaces.find, [MetadataUnavailable("on purpose")]

    async def fail_once(name):
        if failures:
            raise failures.pop()
        return await find(name)

    namespaces.find = fail_once
    (other,) = {"a", "b"} - {owner_of(cluster)}
    await cluster.members[other].broker.topics.configure(
        A_TOPIC, limits=NamespacePolicy(max_publish_rate=3)
    )
    await until(lambda: topic.limits.max_publish_rate == 3)
    assert not failures


async def test_trimmed_topic_stays_trimmed_after_a_move_and_a_failover(cluster, stack):
    await start(stack, cluster, "a", "b")
    await published(cluster, *[b"%d" % number for number in range(6)])
    owner = owner_of(cluster)
    (other,) = {"a", "b"} - {owner}
    topic = await cluster.members[owner].broker.topics.get_reliable(A_TOPIC)
    await cluster.members[owner].broker.topics.trim(A_TOPIC, 4)
    await move_shard(cluster.store, SHARD, other)
    await until(lambda: SHARD in cluster.served(other))
    assert await stored(cluster) == [b"4", b"5"]
    # The earlier owner changes nothing any more.
    with pytest.raises((NotOwner, TopicFenced)):
        await cluster.members[owner].broker.catalog.trim(
            A_TOPIC, topic.topic_id, 5, epoch=topic.log.epoch
        )
    broker = cluster.members[other].broker
    await broker.topics.trim(A_TOPIC, 5)
    cluster.lose(other)
    assert await stored(cluster) == [b"5"]
    assert owner_of(cluster) == owner
    assert await published(cluster, b"6") == [6]
