"""Decided commits of a cluster are carried out, whichever broker serves the topics."""

import asyncio

import pytest

from pydanube.model.clusters import BrokerMode
from pydanube.model.errors import Unavailable
from pydanube.model.names import TopicName
from pydanube.model.ranges import RangeSet
from pydanube.model.staging import TransactionAcks
from pydanube_broker.broker.staging.shared_staging import COMPLETION_S
from pydanube_broker.cluster.pure.shard_topics import shard_of
from pydanube_broker.cluster.shard_moves import move_shard
from pydanube_broker.metadata import keys
from support.fakes.broker_clusters import SHARDS, BrokerCluster
from support.fakes.brokers import RELIABLE
from support.fakes.held_store import HeldStore
from support.fakes.readers import S, a_while, attach, publish, subscribe
from support.fakes.staging import stage_part, stored
from support.fakes.storages import seal, until

QUERY = "transaction:copy"


class World:
    """Two brokers, and the topics of a transaction at the first of them."""

    def __init__(self):
        self.cluster = BrokerCluster()
        self.cluster.store = HeldStore()

    @property
    def store(self):
        return self.cluster.store

    def topic_of(self, name):
        shard = min(self.cluster.served(name))
        names = (TopicName.parse(f"/default/{name}{n}") for n in range(1000))
        return next(each for each in names if shard_of(each, SHARDS) == shard)

    async def prepare(self, a, b):
        """Publish four messages, which a consumer receives; return the consumer."""
        self.source, self.results = self.topic_of("a"), self.topic_of("b")
        await b.topics.create(self.results, RELIABLE)
        topic = await a.topics.create(self.source, RELIABLE)
        await publish(topic, *[b"%d" % n for n in range(4)])
        subscription = await subscribe(a, topic=self.source)
        reader, consumer = attach(subscription)
        await reader.first(4)
        return consumer

    async def begin(self, a, b, consumer):
        """Begin a transaction that acknowledges two messages; return its commit."""
        version = await a.staging.begin_transaction(QUERY)
        part = await stage_part(
            b, version, "0", [(str(self.results), [b"result"])], query=QUERY
        )
        acks = TransactionAcks(
            topic=str(self.source),
            subscription=S,
            consumer_id=consumer.id,
            ranges=[(0, 1), (2, 3)],
        )

        def commit():
            return a.staging.commit(
                QUERY, version, [part], is_transaction=True, acks=[acks]
            )

        return commit

    async def decision(self):
        stored = await self.store.get(keys.QUERIES.key(QUERY))
        return None if stored is None else stored.value.decision

    async def parts(self):
        """What the decision waits for: topics with messages, and acknowledgements."""
        decision = await self.decision()
        return [*decision.topics, *decision.acks]

    async def decided(self):
        while await self.decision() is None:  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.fixture
def world():
    return World()


def done_of(subscription):
    facts = subscription.describe(10)
    done = RangeSet([(0, facts.cursor), *facts.done])
    return [offset for offset in range(4) if done.count_in(offset, offset + 1)]


async def test_acks_are_kept_if_the_topic_leaves_while_they_are_applied(world, caplog):
    # The next owner reads the decision only when the first one has gone on.
    cluster = world.cluster
    async with cluster.broker("a") as a, cluster.broker("b") as b:
        await cluster.settled("a", "b")
        consumer = await world.prepare(a.broker, b.broker)
        commit = await world.begin(a.broker, b.broker, consumer)
        topic_id = a.broker.topics.opened[world.source].topic_id
        subscription = keys.SUBSCRIPTIONS.key(topic_id, S).path
        async with asyncio.TaskGroup() as tasks:
            with cluster.holding_commits("a"):
                committing = tasks.create_task(commit())
                await world.decided()
                holding = world.store.holding(subscription)
                is_applying = holding.__enter__()
            await is_applying.wait()
            await cluster.set_mode("a", BrokerMode.DRAINING)
            with world.store.holding(keys.QUERIES.path) as is_adopting:
                await is_adopting.wait()
                holding.__exit__(None, None, None)
                # The first owner ends its attempt.
                await until(lambda: "commit" in caplog.text)
                await a_while()
            await cluster.settled("b")
            assert (await committing).message_count == 1
        assert done_of(await subscribe(b.broker, topic=world.source)) == [0, 2]
        assert await stored(b.broker, str(world.results)) == [b"result"]
        assert await world.decision() is None
        assert "deleted" not in caplog.text


@pytest.mark.parametrize("late", ["a", "b"], ids=["acknowledges", "its messages"])
async def test_commit_that_takes_long_says_that_it_is_decided(world, late, request):
    async with world.cluster.broker("a") as a, world.cluster.broker("b") as b:
        await world.cluster.settled("a", "b")
        consumer = await world.prepare(a.broker, b.broker)
        commit = await world.begin(a.broker, b.broker, consumer)
        a.broker.staging.completion_s = 0.0
        with world.cluster.holding_commits(late):
            with pytest.raises(Unavailable, match="the commit is decided"):
                await commit()
            while sum(each.is_done for each in await world.parts()) < 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
            with pytest.raises(Unavailable, match=request.node.callspec.id) as caught:
                await commit()
        late_topic = world.source if late == "a" else world.results
        assert f"such as {late_topic}" in str(caught.value)
        a.broker.staging.completion_s = COMPLETION_S
        assert (await commit()).is_repeat


async def test_next_owner_of_a_topic_does_not_carry_out_an_older_decision(world):
    cluster, store = world.cluster, world.store
    async with cluster.broker("a") as a, cluster.broker("b") as b:
        await cluster.settled("a", "b")
        consumer = await world.prepare(a.broker, b.broker)
        commit = await world.begin(a.broker, b.broker, consumer)
        key = keys.topic(world.results)
        shard = (await store.get(key)).value.shard
        async with asyncio.TaskGroup() as tasks:
            with cluster.holding_commits("b"):
                committing = tasks.create_task(commit())
                with cluster.holding_commits("a"):
                    await world.decided()
                    holding = store.holding(key.path)
                    has_read = holding.__enter__()
                # The next owner has read the decision, and the present one has not.
                await has_read.wait()
            while not (await world.decision()).topics[0].is_done:  # noqa: ASYNC110
                await asyncio.sleep(0)
            # The journal does not tell the next owner what it has published.
            (topic_id,) = b.broker.storage.logs
            await seal(b.broker.storage, topic_id)
            await b.broker.storage.uploader.upload_now()
            await move_shard(store, shard, "a")
            await until(lambda: shard in cluster.served("a"))
            holding.__exit__(None, None, None)
            await committing
        assert await stored(a.broker, str(world.results)) == [b"result"]
