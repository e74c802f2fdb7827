"""Acknowledgements of transactions take effect with the commit, or not at all."""

from contextlib import asynccontextmanager

import pytest

from pydanube.model.errors import (
    DiskFull,
    InvalidRequest,
    MessageNotHeld,
    MetadataUnavailable,
    SubscriptionNotFound,
    TransactionFenced,
)
from pydanube.model.names import TopicName
from pydanube.model.ranges import RangeSet
from pydanube.model.staging import TransactionAcks
from pydanube_broker.broker.staging.transaction_acks import (
    ACK_RANGES_MAX,
    ACK_SUBSCRIPTIONS_MAX,
    NO_CONSUMER,
    check_bounds,
)
from pydanube_broker.storage.files import MemoryFiles
from support.fakes.brokers import A_TOPIC, NON_RELIABLE, RELIABLE, BrokerWorld
from support.fakes.memory_store import MemoryStore
from support.fakes.object_journals import object_journal_world
from support.fakes.readers import S, attach, publish, subscribe
from support.fakes.staging import quiet, stage_part, stored

RESULTS = "/default/results"
QUERY = "transaction:copy"


class FailingStore(MemoryStore):
    """A store that loses the request or the answer of the next decision."""

    def __init__(self):
        super().__init__()
        self.fails = ""

    async def put(self, key, value, *, expected=None):
        if not key.path.startswith("/queries/") or not self.fails:
            return await super().put(key, value, expected=expected)
        fails, self.fails = self.fails, ""
        if fails == "answer":
            await super().put(key, value, expected=expected)
        raise MetadataUnavailable(f"the {fails} is lost")


@pytest.fixture
def world():
    return BrokerWorld(FailingStore())


async def prepare(broker):
    """Publish ten messages, and return the subscription with a reader of them."""
    await broker.topics.create(TopicName.parse(RESULTS), RELIABLE, exist_ok=True)
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    await publish(topic, *[b"%d" % n for n in range(10)])
    subscription = await subscribe(broker)
    reader, _ = attach(subscription)
    await reader.first(10)
    return subscription, reader


def acks_of(reader, *ranges, topic=A_TOPIC, subscription=S):
    return TransactionAcks(
        topic=str(topic),
        subscription=subscription,
        consumer_id=reader.consumer.id,
        ranges=ranges,
    )


async def begin(broker):
    """Begin a transaction with one result; return what commits it."""
    version = await broker.staging.begin_transaction(QUERY)
    part = await stage_part(broker, version, "0", [(RESULTS, [b"result"])], query=QUERY)

    def commit(*acks):
        return broker.staging.commit(
            QUERY, version, [part], is_transaction=True, acks=acks
        )

    return commit


def is_done(subscription, *offsets):
    facts = subscription.describe(10)
    done = RangeSet([(0, facts.cursor), *facts.done])
    return all(done.count_in(each, each + 1) for each in offsets)


async def test_commit_acknowledges_and_publishes(broker):
    subscription, reader = await prepare(broker)
    commit = await begin(broker)
    acks = acks_of(reader, (1, 3), (5, 6))
    assert (await commit(acks)).message_count == 1
    assert is_done(subscription, 1, 2, 5)
    assert not is_done(subscription, 0)
    assert (await commit(acks)).is_repeat
    assert await stored(broker, RESULTS) == [b"result"]


async def test_refused_acknowledgement_leaves_all_messages_with_their_consumers(broker):
    subscription, reader = await prepare(broker)
    other, _ = attach(subscription, "other")
    commit = await begin(broker)
    with pytest.raises(MessageNotHeld, match="acknowledged twice"):
        await commit(acks_of(reader, (0, 2)), acks_of(other, (1, 3)))
    assert subscription.flow_of(reader.consumer)[0] == 10
    assert await stored(broker, RESULTS) == []
    await commit(acks_of(reader, (0, 3)))
    assert subscription.cursor_offset == 3


async def test_names_and_bounds_of_acknowledgements_are_checked(broker):
    _, reader = await prepare(broker)
    commit = await begin(broker)
    acks = acks_of(reader, (0, 2))
    with pytest.raises(InvalidRequest, match="names a consumer twice"):
        await commit(acks, acks)
    with pytest.raises(SubscriptionNotFound, match="was deleted"):
        await commit(acks_of(reader, (0, 2), subscription="unknown"))
    name = TopicName.parse("/default/direct")
    await broker.topics.create(name, NON_RELIABLE)
    with pytest.raises(InvalidRequest, match="not reliable"):
        await commit(acks_of(reader, (0, 2), topic=name))
    for ranges in ([(2, 2)], [(3, 5), (4, 6)], [(3, 5), (0, 1)]):
        with pytest.raises(InvalidRequest, match="not in order"):
            check_bounds([acks_of(reader, *ranges)])
    many = [(2 * n, 2 * n + 1) for n in range(ACK_RANGES_MAX + 1)]
    with pytest.raises(InvalidRequest, match="10001 ranges"):
        check_bounds([acks_of(reader, *many)])
    with pytest.raises(InvalidRequest, match="smaller transactions"):
        check_bounds([acks] * (ACK_SUBSCRIPTIONS_MAX + 1))


async def test_only_transactions_acknowledge(broker):
    _, reader = await prepare(broker)
    with pytest.raises(InvalidRequest, match="only a transaction"):
        await broker.staging.commit("q", 0, [], acks=[acks_of(reader, (0, 1))])


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_messages_of_a_commit_with_unknown_outcome_are_held(world, lost):
    async with world.broker() as broker:
        subscription, reader = await prepare(broker)
        commit = await begin(broker)
        acks = acks_of(reader, (0, 2))
        world.store.fails = lost
        with pytest.raises(MetadataUnavailable):
            await commit(acks)
        # The consumer leaves meanwhile.
        subscription.detach(reader.consumer)
        second, _ = attach(subscription)
        assert 0 not in await second.offsets(8)
        if lost == "answer":
            assert (await commit(acks)).is_repeat
            assert subscription.cursor_offset == 2
            assert await stored(broker, RESULTS) == [b"result"]
            return
        with pytest.raises(MessageNotHeld):
            await commit(acks)
        assert sorted(await second.offsets(10)) == list(range(10))
        assert await stored(broker, RESULTS) == []
        await commit(acks_of(second, (0, 10)))
        assert subscription.cursor_offset == 10


async def fail_to_carry_out(broker, *, deletes=False):
    """Decide a commit that the full disk stops; return its acknowledgements."""
    subscription, reader = await prepare(broker)
    commit = await begin(broker)
    acks = acks_of(reader, (0, 2), (4, 5))
    broker.storage.journal.refusal = "on purpose"
    with pytest.raises(DiskFull):
        await commit(acks)
    assert not is_done(subscription, 0)
    if deletes:
        broker.storage.journal.refusal = None
        await broker.subscriptions.delete(A_TOPIC, S, force=True)
        await subscribe(broker)
        broker.storage.journal.refusal = "on purpose"
    return commit, acks


async def test_nobody_receives_messages_of_a_decided_commit_after_a_restart(world):
    async with world.broker() as broker:
        await fail_to_carry_out(broker)
    async with world.broker() as broker:
        # Before anything else can happen.
        subscription = await subscribe(broker)
        assert is_done(subscription, 0, 1, 4)
        reader, _ = attach(subscription)
        assert await reader.offsets(7) == [2, 3, 5, 6, 7, 8, 9]
        await quiet(broker)
        assert await stored(broker, RESULTS) == [b"result"]
    async with world.broker() as broker:
        assert is_done(await subscribe(broker), 0, 1, 4)


async def test_subscription_that_is_created_after_the_decision_begins_anew(broker):
    commit, acks = await fail_to_carry_out(broker, deletes=True)
    broker.storage.journal.refusal = None
    assert (await commit(acks)).is_repeat
    assert (await subscribe(broker)).cursor_offset == 0
    assert await stored(broker, RESULTS) == [b"result"]


async def test_subscription_that_was_deleted_after_the_decision_is_left_out(world):
    async with world.broker() as broker:
        await fail_to_carry_out(broker)
        broker.storage.journal.refusal = None
        await broker.subscriptions.delete(A_TOPIC, S, force=True)
        broker.storage.journal.refusal = "on purpose"
    async with world.broker() as broker:
        await quiet(broker)
        assert await stored(broker, RESULTS) == [b"result"]
        assert (await subscribe(broker)).cursor_offset == 0


@asynccontextmanager
async def restarted(world):
    async with world.broker() as broker:
        yield broker, await subscribe(broker)


async def test_transaction_does_not_survive_a_restart(world):
    async with world.broker() as broker:
        _, reader = await prepare(broker)
        version = await broker.staging.begin_transaction(QUERY)
    async with restarted(world) as (broker, subscription):
        with pytest.raises(TransactionFenced, match="has restarted"):
            await broker.staging.commit(
                QUERY, version, [], is_transaction=True, acks=[acks_of(reader, (0, 2))]
            )
        assert subscription.cursor_offset == 0


async def test_nothing_is_acknowledged_if_the_results_are_lost_with_the_disk():
    world = object_journal_world()
    async with world.broker() as broker:
        await fail_to_carry_out(broker)
    world.staged = MemoryFiles()
    async with restarted(world) as (broker, subscription):
        assert subscription.cursor_offset == 0
        assert broker.staging.pending_count == 0
        reader, _ = attach(subscription)
        assert await reader.offsets(10) == list(range(10))
        await (await begin(broker))(acks_of(reader, (0, 10)))
        assert await stored(broker, RESULTS) == [b"result"]


def read_on(base, end):
    """What a reader without a consumer has read."""
    return TransactionAcks(
        topic=str(A_TOPIC),
        subscription=S,
        consumer_id=NO_CONSUMER,
        ranges=((base, end),),
    )


async def test_a_reader_without_a_consumer_moves_the_cursor_with_the_commit(world):
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        await publish(topic, *[b"%d" % n for n in range(10)])
        subscription = await subscribe(broker)
        for base, end in ((0, 4), (4, 10)):
            version = await broker.staging.begin_transaction(QUERY)
            await broker.staging.commit(
                QUERY, version, [], is_transaction=True, acks=[read_on(base, end)]
            )
            assert subscription.cursor_offset == end
    async with world.broker() as broker:
        found = (await broker.topics.get(A_TOPIC)).subscriptions[S]
        assert found.cursor_offset == 10


async def test_a_commit_is_refused_if_the_cursor_has_moved_since(world):
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        await publish(topic, *[b"%d" % n for n in range(10)])
        subscription = await subscribe(broker)
        version = await broker.staging.begin_transaction(QUERY)
        subscription.seek(3)
        with pytest.raises(MessageNotHeld, match="cursor"):
            await broker.staging.commit(
                QUERY, version, [], is_transaction=True, acks=[read_on(0, 4)]
            )
        with pytest.raises(InvalidRequest):
            await broker.staging.commit(
                QUERY, version, [], is_transaction=True, acks=[read_on(3, 11)]
            )
        assert subscription.cursor_offset == 3


async def test_a_commit_is_not_refused_because_what_it_acknowledges_was_trimmed(world):
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        await publish(topic, *[b"%d" % n for n in range(10)])
        subscription = await subscribe(broker)
        for start, begin, end, cursor in ((2, 0, 4, 4), (8, 4, 6, 8)):
            version = await broker.staging.begin_transaction(QUERY)
            await broker.topics.trim(A_TOPIC, start)
            await broker.staging.commit(
                QUERY, version, [], is_transaction=True, acks=[read_on(begin, end)]
            )
            assert subscription.cursor_offset == cursor
