import msgspec
import pytest

from pydanube.model.errors import (
    AlreadyExists,
    InvalidName,
    InvalidRequest,
    SubscriptionInUse,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import (
    Durability,
    NamespacePolicy,
    Retention,
    TopicPolicy,
)
from pydanube_broker.broker.pure.partitions import (
    PARTITIONS_MAX,
    has_partition,
    names_of,
    numbers_of,
    with_partition,
    with_partition_count,
)
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import PartitionedTopicRecord
from support.fakes.batches import frame_of
from support.fakes.brokers import (
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
    Outcome,
)
from support.fakes.storages import FlakyObjects, seal

FOR_A_DAY = TopicPolicy(retention=Retention(age_s=86_400.0))
NEW = PartitionedTopicRecord(partitions=0, policy=RELIABLE, created_at=7)
THREE = msgspec.structs.replace(NEW, partitions=3)


def name(text):
    return TopicName.parse(text)


def names(*texts):
    return [name(text) for text in texts]


PARTS = [A_TOPIC.partition(number) for number in range(5)]


class Crash(Exception):
    """The broker's process is killed."""


async def crash():
    raise Crash


async def nothing():
    pass


# The record.


def test_new_record_has_all_its_partitions():
    assert list(numbers_of(THREE)) == [0, 1, 2]
    assert names_of(A_TOPIC, THREE) == PARTS[:3]


def test_partitions_may_be_created_by_name_in_any_order():
    record = NEW
    for number in (2, 0, 4, 1):
        record = with_partition(record, number)
    assert record.partitions == 5
    assert record.missing == ((3, 4),)
    assert list(numbers_of(record)) == [0, 1, 2, 4]
    assert has_partition(record, 4)
    assert not has_partition(record, 3)
    assert not has_partition(record, 5)


def test_record_of_missing_partitions_is_small():
    record = with_partition(NEW, 999_999_999)
    assert record.missing == ((0, 999_999_999),)
    assert list(numbers_of(record)) == [999_999_999]


def test_raising_the_count_creates_missing_partitions():
    record = with_partition(NEW, 2)
    assert list(numbers_of(with_partition_count(A_TOPIC, record, 4))) == [0, 1, 2, 3]


@pytest.mark.parametrize("partitions", [0, 2, 3, PARTITIONS_MAX + 1])
def test_partition_count_only_rises_up_to_a_bound(partitions):
    with pytest.raises(InvalidRequest):
        with_partition_count(A_TOPIC, THREE, partitions)


# Creating.


async def test_partitions_are_topics_by_number(broker):
    await broker.topics.create_partitioned(A_TOPIC, 12, RELIABLE)
    assert (await broker.catalog.find_partitioned(A_TOPIC)).value.partitions == 12
    partitions = await broker.catalog.partitions_of(A_TOPIC)
    assert [part.topic for part in partitions] == [
        f"orders-part-{number}" for number in range(12)
    ]
    assert sorted(partitions) == await broker.catalog.names()
    ids = {(await broker.topics.get(part)).topic_id for part in partitions}
    assert len(ids) == 12
    found = await broker.catalog.partitioned()
    assert {base: each.partitions for base, each in found.items()} == {A_TOPIC: 12}
    assert {each.policy for _, each in await broker.catalog.records()} == {RELIABLE}


async def test_partitions_survive_a_restart(world):
    async with world.broker() as broker:
        await broker.topics.create_partitioned(A_TOPIC, 3, FOR_A_DAY)
    async with world.broker() as broker:
        assert await broker.catalog.partitions_of(A_TOPIC) == PARTS[:3]
        assert (await broker.topics.get(PARTS[2])).policy == FOR_A_DAY


async def test_topics_with_similar_names_are_not_partitions(broker):
    await broker.topics.create(name("/default/ab"), RELIABLE)
    await broker.topics.create_partitioned(name("/default/abc"), 2, RELIABLE)
    assert await broker.catalog.partitions_of(name("/default/a")) == []
    await broker.topics.create(name("/default/a"), RELIABLE)
    await broker.topics.create(name("/default/ab-part-x"), RELIABLE)
    await broker.topics.create(name("/default/ab-part-01"), RELIABLE)
    assert await broker.catalog.partitions_of(name("/default/a")) == names("/default/a")
    assert await broker.catalog.partitions_of(name("/default/ab")) == names(
        "/default/ab"
    )
    assert await broker.catalog.find_partitioned(name("/default/ab")) is None
    found = await broker.catalog.partitioned()
    assert {base: each.partitions for base, each in found.items()} == {
        name("/default/abc"): 2
    }


async def test_unknown_name_has_no_topics(broker):
    assert await broker.catalog.partitions_of(A_TOPIC) == []
    assert await broker.catalog.find_partitioned(A_TOPIC) is None
    with pytest.raises(TopicNotFound):
        await broker.topics.add_partitions(A_TOPIC, 2)


async def test_base_name_is_not_a_topic(broker):
    await broker.topics.create_partitioned(A_TOPIC, 2, RELIABLE)
    with pytest.raises(TopicNotFound):
        await broker.topics.get(A_TOPIC)
    text = (
        "Cannot create topic '/default/orders': partitioned topics with this base "
        r"name already exist \(found 2 partitions\)"
    )
    with pytest.raises(AlreadyExists, match=text):
        await broker.topics.create(A_TOPIC, RELIABLE, exist_ok=True)
    with pytest.raises(AlreadyExists, match=text):
        await broker.producers.open(A_TOPIC, "p", policy=RELIABLE)


async def test_plain_topic_has_no_partitions(broker):
    await broker.topics.create(A_TOPIC, RELIABLE)
    text = "a non-partitioned topic '/default/orders' already exists"
    with pytest.raises(AlreadyExists, match=text):
        await broker.topics.create_partitioned(A_TOPIC, 2, RELIABLE)
    with pytest.raises(AlreadyExists, match=text):
        await broker.topics.create(PARTS[0], RELIABLE)
    with pytest.raises(AlreadyExists, match=text):
        await broker.producers.open(PARTS[0], "p", policy=RELIABLE)
    assert await broker.catalog.names() == [A_TOPIC]


async def test_partitioned_topic_is_created_once(broker):
    async def create(count, policy, *, exist_ok=True):
        await broker.topics.create_partitioned(
            A_TOPIC, count, policy, exist_ok=exist_ok
        )

    await create(2, RELIABLE)
    await create(2, RELIABLE)
    with pytest.raises(AlreadyExists, match="Topic '/default/orders' already"):
        await create(2, RELIABLE, exist_ok=False)
    with pytest.raises(AlreadyExists):
        await create(3, RELIABLE)
    with pytest.raises(AlreadyExists):
        await create(2, NON_RELIABLE)


@pytest.mark.parametrize("count", [0, -1, PARTITIONS_MAX + 1])
async def test_partition_count_out_of_range_is_refused(broker, count):
    with pytest.raises(InvalidRequest):
        await broker.topics.create_partitioned(A_TOPIC, count, RELIABLE)
    assert await broker.catalog.find_partitioned(A_TOPIC) is None


async def test_too_long_partition_names_are_refused(broker):
    with pytest.raises(InvalidName):
        await broker.topics.create_partitioned(
            name("/default/" + "x" * 250), 2, RELIABLE
        )


async def test_all_partitions_appear_or_none(world):
    async with world.broker() as broker:
        world.store.concurrent_actions.append(crash)
        with pytest.raises(Crash):
            await broker.topics.create_partitioned(A_TOPIC, 3, RELIABLE)
    async with world.broker() as broker:
        assert await broker.catalog.names() == []
        assert await broker.catalog.partitions_of(A_TOPIC) == []
        await broker.topics.create_partitioned(A_TOPIC, 3, RELIABLE)


async def test_concurrent_creations_by_two_brokers_do_not_mix():
    mine = BrokerWorld()
    other = BrokerWorld(mine.store)
    async with mine.broker() as broker, other.broker() as second:
        mine.store.concurrent_actions.append(
            lambda: second.topics.create(PARTS[1], RELIABLE)
        )
        await broker.topics.create_partitioned(name("/default/x"), 2, RELIABLE)
        assert await broker.catalog.partitions_of(A_TOPIC) == [PARTS[1]]
        mine.store.concurrent_actions.append(
            lambda: second.topics.create(name("/default/y"), RELIABLE)
        )
        with pytest.raises(AlreadyExists, match="non-partitioned"):
            await broker.topics.create_partitioned(name("/default/y"), 2, RELIABLE)
        mine.store.concurrent_actions.append(
            lambda: second.topics.create_partitioned(name("/default/z"), 2, RELIABLE)
        )
        with pytest.raises(AlreadyExists, match="found 2 partitions"):
            await broker.topics.create(name("/default/z"), RELIABLE)
        ids = [
            (await mine.store.get(keys.topic(topic))).value.topic_id
            for topic in await broker.catalog.names()
        ]
        assert len(set(ids)) == len(ids) == 6


async def test_partition_added_during_deletion_is_deleted_too():
    mine = BrokerWorld()
    other = BrokerWorld(mine.store)
    async with mine.broker() as broker, other.broker() as second:
        await broker.topics.create_partitioned(A_TOPIC, 2, NON_RELIABLE)
        mine.store.concurrent_actions.append(
            lambda: second.topics.add_partitions(A_TOPIC, 3)
        )
        await broker.topics.delete(A_TOPIC)
        assert await broker.catalog.names() == []
        assert await broker.catalog.find_partitioned(A_TOPIC) is None


async def test_partition_whose_name_is_partitioned_is_refused(broker):
    await broker.topics.create_partitioned(PARTS[1], 1, RELIABLE)
    text = "Cannot create topic '/default/orders-part-1'"
    with pytest.raises(AlreadyExists, match=text):
        await broker.topics.create_partitioned(A_TOPIC, 2, RELIABLE)
    assert await broker.catalog.partitions_of(A_TOPIC) == []


# Creating by name.


async def test_producer_creates_partitions_like_danube_clients(broker):
    for number in (1, 0, 2):
        await broker.producers.attach(PARTS[number], f"p-{number}", policy=RELIABLE)
    assert (await broker.catalog.find_partitioned(A_TOPIC)).value.partitions == 3
    assert await broker.catalog.partitions_of(A_TOPIC) == PARTS[:3]


async def test_partition_created_by_name_is_like_its_siblings(broker):
    policy = TopicPolicy(durability=Durability.WRITTEN)
    await broker.topics.create_partitioned(A_TOPIC, 2, policy)
    limits = NamespacePolicy(max_message_size=10)
    await broker.topics.configure(A_TOPIC, limits=limits)
    topic, _ = await broker.producers.attach(PARTS[2], "p", policy=RELIABLE)
    assert (topic.policy, topic.limits) == (policy, limits)
    with pytest.raises(AlreadyExists, match="another policy"):
        await broker.producers.attach(PARTS[3], "p", policy=NON_RELIABLE)
    with pytest.raises(AlreadyExists, match="another policy"):
        await broker.topics.create(PARTS[3], RELIABLE)
    assert (await broker.catalog.find_partitioned(A_TOPIC)).value.partitions == 3


async def test_partition_that_exists_is_opened_by_its_name(broker):
    await broker.topics.create_partitioned(A_TOPIC, 2, RELIABLE)
    topic = await broker.topics.create(PARTS[1], RELIABLE, exist_ok=True)
    assert topic.name == PARTS[1]
    with pytest.raises(AlreadyExists, match="orders-part-1' already exists"):
        await broker.topics.create(PARTS[1], RELIABLE)


# Adding partitions.


async def test_partitions_are_added(world):
    async with world.broker() as broker:
        await broker.topics.create_partitioned(A_TOPIC, 2, FOR_A_DAY)
        await broker.topics.add_partitions(A_TOPIC, 4)
        for count in (4, 3, 0):
            with pytest.raises(InvalidRequest):
                await broker.topics.add_partitions(A_TOPIC, count)
    async with world.broker() as broker:
        assert await broker.catalog.partitions_of(A_TOPIC) == PARTS[:4]
        assert (await broker.topics.get(PARTS[3])).policy == FOR_A_DAY


async def test_adding_partitions_creates_missing_ones(broker):
    await broker.topics.create(PARTS[2], RELIABLE)
    await broker.topics.add_partitions(A_TOPIC, 4)
    assert await broker.catalog.partitions_of(A_TOPIC) == PARTS[:4]


async def test_creating_again_creates_missing_partitions(broker):
    await broker.topics.create(PARTS[2], RELIABLE)
    await broker.topics.create_partitioned(A_TOPIC, 3, RELIABLE, exist_ok=True)
    assert await broker.catalog.partitions_of(A_TOPIC) == PARTS[:3]


async def test_added_partitions_have_the_limits_of_the_others(broker):
    limits = NamespacePolicy(max_producers_per_topic=1)
    await broker.topics.create_partitioned(A_TOPIC, 1, RELIABLE)
    first = await broker.topics.get(PARTS[0])
    await broker.topics.configure(A_TOPIC, limits=limits)
    await broker.topics.add_partitions(A_TOPIC, 2)
    second = await broker.topics.get(PARTS[1])
    assert first.limits == second.limits == limits
    assert (await broker.catalog.get(A_TOPIC)).limits == limits
    await broker.topics.configure(A_TOPIC, limits=None)
    assert first.limits == second.limits == NamespacePolicy()


# Deleting.


async def test_single_partition_cannot_be_deleted(broker):
    await broker.topics.create_partitioned(A_TOPIC, 2, RELIABLE)
    with pytest.raises(InvalidRequest, match="Cannot delete individual partition"):
        await broker.topics.delete(PARTS[1], force=True)
    with pytest.raises(TopicNotFound):
        await broker.topics.delete(PARTS[2])
    assert await broker.catalog.partitions_of(A_TOPIC) == PARTS[:2]


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE])
async def test_deleting_a_base_name_deletes_its_partitions(broker, policy):
    await broker.topics.create_partitioned(A_TOPIC, 3, policy)
    topic = await broker.topics.get(PARTS[1])
    await broker.topics.delete(A_TOPIC)
    assert await broker.catalog.names() == []
    assert await broker.catalog.partitions_of(A_TOPIC) == []
    assert isinstance(topic.refusal, TopicNotFound)
    assert broker.topics.opened == {}
    await broker.topics.create(A_TOPIC, policy)


async def test_partitions_in_use_are_deleted_only_by_force(broker):
    await broker.topics.create_partitioned(A_TOPIC, 2, RELIABLE)
    told = []
    await broker.producers.open(PARTS[1], "p", policy=None, on_fenced=told.append)
    with pytest.raises(SubscriptionInUse, match="orders-part-1"):
        await broker.topics.delete(A_TOPIC)
    assert await broker.catalog.partitions_of(A_TOPIC) == PARTS[:2]
    await broker.topics.delete(A_TOPIC, force=True)
    assert [type(error) for error in told] == [TopicNotFound]


async def test_failed_deletion_leaves_the_topic_unchanged(world, broker):
    await filled(broker)
    topic = await broker.topics.get(PARTS[0])
    world.store.concurrent_actions.append(crash)
    with pytest.raises(Crash):
        await broker.topics.delete(A_TOPIC)
    assert topic.refusal is None
    assert await broker.catalog.partitions_of(A_TOPIC) == PARTS[:3]
    topic.publish_unchecked(frame_of([b"more"]), outcome := Outcome())
    assert await outcome.offset() == 2


async def filled(broker):
    """Create partitions, each with a segment and a message in the journal."""
    await broker.topics.create_partitioned(A_TOPIC, 3, RELIABLE)
    for part in PARTS[:3]:
        topic = await broker.topics.get(part)
        for _ in range(2):
            topic.publish_unchecked(frame_of([b"x"]), outcome := Outcome())
            await outcome.offset()
            if topic.end_offset == 1:
                await seal(broker.storage, topic.topic_id)


async def assert_nothing_is_left(world, broker):
    assert await broker.catalog.names() == []
    assert await broker.catalog.partitions_of(A_TOPIC) == []
    assert not broker.storage.logs
    assert await world.objects.names("") == []
    for prefix in (keys.EPOCHS, keys.SEGMENTS, keys.SUBSCRIPTIONS, keys.SETTINGS):
        assert await world.store.scan(prefix) == []


# Earlier steps: the names, then each partition's segments and other records.
@pytest.mark.parametrize("at", range(1, 7))
async def test_deletion_interrupted_by_a_crash_is_finished_at_the_next_start(world, at):
    async with world.broker() as broker:
        await filled(broker)
        world.store.concurrent_actions += [nothing] * at + [crash]
        with pytest.raises(Crash):
            await broker.topics.delete(A_TOPIC)
        assert await broker.catalog.names() == []
    world.store.concurrent_actions.clear()
    async with world.broker() as broker:
        await assert_nothing_is_left(world, broker)
        await broker.topics.create(A_TOPIC, RELIABLE)


async def test_failure_to_remove_one_partition_does_not_stop_the_others(world):
    world.objects = FlakyObjects()
    async with world.broker() as broker:
        await filled(broker)
        world.objects.failing.add("orders-part-0")
        with pytest.raises(Exception, match="on purpose"):
            await broker.topics.delete(A_TOPIC)
        assert await broker.catalog.names() == []
        assert [*await world.objects.names("")] == [
            each for each in await world.objects.names("") if "part-0" in each
        ]
    world.objects.failing.clear()
    async with world.broker() as broker:
        await assert_nothing_is_left(world, broker)
