import asyncio
import dataclasses
from contextlib import asynccontextmanager

import pytest

from pydanube.aio.tasks import gather, task_scope
from pydanube.model.clusters import BrokerMode
from pydanube.model.errors import (
    InvalidRequest,
    NotOwner,
    ProducerBusy,
    StagedPartNotFound,
    StagingClosed,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import ProducerAccess, TopicPolicy
from pydanube_broker.broker.pure.producer_registrations import ProducerRegistration
from pydanube_broker.cluster.pure.shard_topics import shard_of
from pydanube_broker.storage.config import StagingConfig
from support.fakes.broker_clusters import SHARDS, BrokerCluster
from support.fakes.brokers import A_NOW_US
from support.fakes.readers import a_while
from support.fakes.staging import A_QUERY, PartMaker, stored
from support.fakes.storages import until


def topic_in(shard, number=0):
    """The name of a topic that belongs to *shard*."""
    names = (TopicName.parse(f"/default/t{each}") for each in range(1000))
    return [each for each in names if shard_of(each, SHARDS) == shard][number]


@pytest.fixture
def cluster():
    return BrokerCluster()


@asynccontextmanager
async def two_brokers(cluster):
    async with cluster.broker("a") as a, cluster.broker("b") as b:
        await cluster.settled("a", "b")
        yield a.broker, b.broker


def owner_of(cluster, topic):
    """The broker that serves *topic*, and its name."""
    shard = shard_of(TopicName.parse(str(topic)), SHARDS)
    for name, member in cluster.members.items():
        if shard in cluster.served(name):
            return name, member.broker
    raise AssertionError(topic)


def topics_of(cluster):
    """A topic of each broker, by the broker's name."""
    return {name: str(topic_in(min(cluster.served(name)))) for name in cluster.members}


async def create(cluster, *topics):
    member = next(iter(cluster.members.values()))
    for each in topics:
        await member.broker.topics.add(TopicName.parse(each), TopicPolicy())


async def stage(cluster, version, topic, payloads, *, name="p"):
    """Stage one part for a topic at its owner."""
    _, broker = owner_of(cluster, topic)
    part = PartMaker(broker, version, name, part_id=f"{name} of {topic}")
    await part.write(topic, payloads)
    return await part.finish()


async def contents(cluster, topic):
    return await cluster.ask(lambda broker: stored(broker, topic))


async def test_commit_publishes_topics_of_several_brokers(cluster):
    async with two_brokers(cluster) as (a, b):
        topics = topics_of(cluster)
        await create(cluster, *topics.values())
        parts = [
            await stage(cluster, 1, topic, [b"1 %d" % n for n in range(3)])
            for topic in topics.values()
        ]
        assert [await contents(cluster, each) for each in topics.values()] == [[], []]
        committed = await a.staging.commit(A_QUERY, 1, parts)
        assert (committed.message_count, committed.is_repeat) == (6, False)
        for topic in topics.values():
            assert await contents(cluster, topic) == [b"1 0", b"1 1", b"1 2"]
        repeated = await b.staging.commit(A_QUERY, 1, parts)
        assert (repeated.message_count, repeated.is_repeat) == (6, True)
        await until(lambda: not cluster.remote.staged())


async def begin_commit(cluster, tasks, broker, version, parts):
    """Decide a commit that cannot be carried out, because no part can be read again."""
    cluster.remote.part_reads_left = len(parts)
    committing = tasks.create_task(broker.staging.commit(A_QUERY, version, parts))
    await until(lambda: cluster.remote.part_reads_left == 0)
    while (await broker.staging.describe(A_QUERY)).is_finished:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return committing


async def test_next_owner_carries_out_a_decided_commit(cluster):
    async with two_brokers(cluster) as (a, _), asyncio.TaskGroup() as tasks:
        topics = topics_of(cluster)
        await create(cluster, *topics.values())
        parts = [await stage(cluster, 1, each, [b"x"]) for each in topics.values()]
        committing = await begin_commit(cluster, tasks, a, 1, parts)
        cluster.lose("b")
        await cluster.settled("a")
        cluster.remote.part_reads_left = None
        assert (await committing).message_count == 2
        for each in topics.values():
            assert await contents(cluster, each) == [b"x"]


async def test_every_broker_describes_the_finished_parts_of_all(cluster):
    async with two_brokers(cluster) as brokers:
        topics = topics_of(cluster)
        await create(cluster, *topics.values())
        parts = [await stage(cluster, 1, each, [b"x"]) for each in topics.values()]
        for broker in brokers:
            facts = await broker.staging.describe(A_QUERY)
            assert facts.part_count == len(parts)
            assert facts.byte_count == sum(part.byte_count for part in parts)
        await brokers[0].staging.drop_version(A_QUERY, 1)
        assert (await brokers[1].staging.describe(A_QUERY)).part_count == 0


async def test_next_owner_appends_only_what_is_missing(cluster):
    async with two_brokers(cluster) as (a, _), asyncio.TaskGroup() as tasks:
        topic = topics_of(cluster)["b"]
        await create(cluster, topic)
        parts = [
            await stage(cluster, 1, topic, [b"%d" % n], name=f"p{n}") for n in range(3)
        ]
        cluster.remote.part_reads_left = len(parts) + 1
        committing = tasks.create_task(a.staging.commit(A_QUERY, 1, parts))
        while await contents(cluster, topic) != [b"0"]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        cluster.lose("b")
        await cluster.settled("a")
        cluster.remote.part_reads_left = None
        assert (await committing).message_count == 3
        assert await contents(cluster, topic) == [b"0", b"1", b"2"]


async def test_commit_continues_when_topics_move(cluster):
    async with two_brokers(cluster) as (a, _), asyncio.TaskGroup() as tasks:
        topics = topics_of(cluster)
        await create(cluster, *topics.values())
        parts = [await stage(cluster, 1, each, [b"x"]) for each in topics.values()]
        committing = await begin_commit(cluster, tasks, a, 1, parts)
        await cluster.set_mode("a", BrokerMode.DRAINING)
        await cluster.settled("b")
        cluster.remote.part_reads_left = None
        assert (await committing).message_count == 2
        for each in topics.values():
            assert await contents(cluster, each) == [b"x"]


async def test_other_broker_answers_when_the_deciding_one_is_lost(cluster):
    async with two_brokers(cluster) as (a, b), asyncio.TaskGroup() as tasks:
        topic = topics_of(cluster)["a"]
        await create(cluster, topic)
        parts = [await stage(cluster, 1, topic, [b"x"])]
        committing = await begin_commit(cluster, tasks, a, 1, parts)
        committing.cancel()
        cluster.lose("a")
        await cluster.settled("b")
        cluster.remote.part_reads_left = None
        repeated = await b.staging.commit(A_QUERY, 1, parts)
        assert (repeated.message_count, repeated.is_repeat) == (1, True)
        assert await contents(cluster, topic) == [b"x"]


async def test_two_brokers_that_commit_at_once_publish_once(cluster):
    async with two_brokers(cluster) as (a, b):
        topics = topics_of(cluster)
        await create(cluster, *topics.values())
        parts = [await stage(cluster, 1, each, [b"x"]) for each in topics.values()]
        both = await gather(each.staging.commit(A_QUERY, 1, parts) for each in (a, b))
        assert sorted(each.is_repeat for each in both) == [False, True]
        for each in topics.values():
            assert await contents(cluster, each) == [b"x"]


async def test_versions_follow_each_other(cluster):
    async with two_brokers(cluster) as (a, b):
        topic = topics_of(cluster)["a"]
        await create(cluster, topic)
        for version, broker in enumerate([a, b, b, a]):
            part = await stage(cluster, version, topic, [b"%d" % version])
            await broker.staging.commit(A_QUERY, version, [part])
        assert await contents(cluster, topic) == [b"0", b"1", b"2", b"3"]
        late = await a.staging.commit(A_QUERY, 1, [])
        assert (late.message_count, late.is_repeat) == (0, True)


async def test_query_that_two_brokers_claim_at_once_has_one_owner(cluster):
    async with two_brokers(cluster) as (a, b):
        owners = await gather(
            broker.staging.claim(A_QUERY, member)
            for broker, member in [(a, "user:a"), (b, "user:b"), (a, "user:c")]
        )
        assert len(set(owners)) == 1
        await create(cluster, topic := topics_of(cluster)["a"])
        parts = [await stage(cluster, 1, topic, [b"1"])]
        await a.staging.commit(A_QUERY, 1, parts)
        for broker in (a, b):
            assert await broker.staging.claim(A_QUERY, "user:d") == owners[0]
        await b.staging.release(A_QUERY)
        assert await a.staging.claim(A_QUERY, "user:d") == "user:d"
        assert await b.staging.claim(A_QUERY, owners[0]) == "user:d"
        assert (await b.staging.describe(A_QUERY)).committed_version == 1


async def test_version_without_messages_is_committed(cluster):
    async with two_brokers(cluster) as (a, b):
        topic = topics_of(cluster)["a"]
        await create(cluster, topic)
        await stage(cluster, 1, topic, [b"unnamed"])
        assert (await a.staging.commit(A_QUERY, 1, [])).message_count == 0
        assert (await b.staging.describe(A_QUERY)).committed_version == 1
        assert cluster.remote.staged() == []
        assert await contents(cluster, topic) == []


async def test_parts_of_a_committed_version_are_refused(cluster):
    async with two_brokers(cluster) as (a, b):
        topic = topics_of(cluster)["b"]
        await create(cluster, topic)
        part = PartMaker(b, 1, "late")
        await part.write(topic, [b"x"])
        await a.staging.commit(A_QUERY, 1, [])
        await until(lambda: A_QUERY in b.staging.commits.queries.values)
        with pytest.raises(StagingClosed, match="has committed version 1"):
            await part.finish()


async def test_part_that_is_dropped_while_it_is_stored_is_not_called_corrupt(cluster):
    async with two_brokers(cluster):
        topic = topics_of(cluster)["a"]
        await create(cluster, topic)
        staging = owner_of(cluster, topic)[1].staging
        part = PartMaker(owner_of(cluster, topic)[1], 1, "p")
        await part.write(topic, [b"x"])
        content = staging.files.content

        async def drop_and_read(number):
            await staging.drop_part(part.key)
            await a_while()
            return await content(number)

        staging.files.content = drop_and_read
        with pytest.raises(StagedPartNotFound, match="dropped while"):
            await part.finish()


async def test_missing_part_refuses_the_commit(cluster):
    async with two_brokers(cluster) as (a, _):
        topic = topics_of(cluster)["a"]
        await create(cluster, topic)
        part = await stage(cluster, 1, topic, [b"x"])
        missing = dataclasses.replace(part, part_id="other")
        with pytest.raises(StagedPartNotFound, match="stage the version again"):
            await a.staging.commit(A_QUERY, 1, [part, missing])
        with pytest.raises(InvalidRequest, match="named twice"):
            await a.staging.commit(A_QUERY, 1, [part, part])
        assert (await a.staging.commit(A_QUERY, 1, [part])).message_count == 1


async def test_dropped_version_can_be_staged_again(cluster):
    async with two_brokers(cluster) as (a, b):
        topic = topics_of(cluster)["a"]
        await create(cluster, topic)
        part = await stage(cluster, 1, topic, [b"first"])
        await b.staging.drop_version(A_QUERY, 1)
        assert cluster.remote.staged() == []
        with pytest.raises(StagedPartNotFound):
            await a.staging.commit(A_QUERY, 1, [part])
        again = await stage(cluster, 1, topic, [b"second"], name="another")
        await a.staging.commit(A_QUERY, 1, [again])
        assert await contents(cluster, topic) == [b"second"]


async def test_version_that_is_dropped_while_its_commit_is_prepared_is_refused(cluster):
    async with two_brokers(cluster) as (a, b), task_scope() as tasks:
        topic = topics_of(cluster)["a"]
        await create(cluster, topic)
        part = await stage(cluster, 1, topic, [b"x"])
        with cluster.remote.holding_part_reads() as held:
            committing = tasks.start(a.staging.commit(A_QUERY, 1, [part]))
            await held.wait()
            await b.staging.drop_version(A_QUERY, 1)
        with pytest.raises(StagedPartNotFound):
            await committing
        assert (await b.staging.describe(A_QUERY)).committed_version is None


async def test_decided_version_is_not_dropped(cluster):
    async with two_brokers(cluster) as (a, b), asyncio.TaskGroup() as tasks:
        topic = topics_of(cluster)["a"]
        await create(cluster, topic)
        parts = [await stage(cluster, 1, topic, [b"x"])]
        committing = await begin_commit(cluster, tasks, a, 1, parts)
        await b.staging.drop_version(A_QUERY, 1)
        assert len(cluster.remote.staged()) == 1
        cluster.remote.part_reads_left = None
        assert (await committing).message_count == 1


async def test_expired_parts_and_old_queries_are_removed(cluster):
    async with two_brokers(cluster) as (a, b):
        topic = topics_of(cluster)["a"]
        await create(cluster, topic)
        part = await stage(cluster, 1, topic, [b"x"])
        await b.staging.sweep(A_NOW_US)
        assert len(cluster.remote.staged()) == 1
        config = StagingConfig()
        await b.staging.sweep(A_NOW_US + int(config.expiry_s * 1e6) + 1)
        assert cluster.remote.staged() == []
        with pytest.raises(StagedPartNotFound):
            await a.staging.commit(A_QUERY, 1, [part])
        await a.staging.commit(A_QUERY, 1, [])
        known = b.staging.commits.queries.values
        await until(lambda: known[A_QUERY].value.version == 1)
        await b.staging.sweep(A_NOW_US + int(config.query_memory_s * 1e6) + 1)
        assert (await a.staging.describe(A_QUERY)).committed_version is None


async def test_topic_that_was_deleted_before_the_commit_refuses_it(cluster):
    async with two_brokers(cluster) as (a, b):
        topic = topics_of(cluster)["b"]
        await create(cluster, topic)
        part = await stage(cluster, 1, topic, [b"x"])
        await b.topics.delete(TopicName.parse(topic), force=True)
        await create(cluster, topic)
        with pytest.raises(TopicNotFound, match="stage the version again"):
            await a.staging.commit(A_QUERY, 1, [part])


async def test_messages_of_a_topic_that_is_deleted_later_are_dropped(cluster):
    async with two_brokers(cluster) as (a, b), asyncio.TaskGroup() as tasks:
        topics = topics_of(cluster)
        await create(cluster, *topics.values())
        parts = [await stage(cluster, 1, each, [b"x"]) for each in topics.values()]
        committing = await begin_commit(cluster, tasks, a, 1, parts)
        await b.topics.delete(TopicName.parse(topics["b"]), force=True)
        cluster.remote.part_reads_left = None
        await committing
        assert a.staging.dropped_count + b.staging.dropped_count == 1
        assert await contents(cluster, topics["a"]) == [b"x"]


async def test_topic_with_an_exclusive_producer_is_refused(cluster):
    async with two_brokers(cluster) as (_, b):
        topic = topics_of(cluster)["b"]
        await create(cluster, topic)
        registrations = (await b.topics.get(TopicName.parse(topic))).registrations
        request = ProducerRegistration(name="p", access=ProducerAccess.EXCLUSIVE)
        registrations.register(request, 0)
        with pytest.raises(ProducerBusy, match="has an exclusive producer: p"):
            await stage(cluster, 1, topic, [b"x"])


async def test_stage_belongs_to_the_owner(cluster):
    async with two_brokers(cluster) as (a, _):
        topic = topics_of(cluster)["b"]
        await create(cluster, topic)
        with pytest.raises(NotOwner):
            await PartMaker(a, 1, "p").open(topic)
