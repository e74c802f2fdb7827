"""What brokers publish themselves arrives once, whichever brokers serve the topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from pydanube.model.errors import ProducerFenced, QuotaExceeded
from pydanube.model.names import TopicName
from pydanube.model.policy import (
    FailurePolicy,
    PoisonPolicy,
    Start,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.retry import RetryPolicy
from pydanube.security.quotas import Quota, QuotaTarget
from pydanube_broker.broker.delivery.internal_batches import InternalBatch, Source
from pydanube_broker.broker.governance.audit import AUDIT_TOPIC, AuditTopic
from pydanube_broker.broker.topics import dead_letters
from support.fakes.batches import frame_of
from support.fakes.broker_clusters import BrokerCluster
from support.fakes.brokers import A_NOW_US, RELIABLE
from support.fakes.readers import Reader, S, attach, publish, stored
from support.fakes.storages import until

SOURCES = [TopicName.parse(f"/default/orders{number}") for number in range(8)]
DEAD = TopicName.parse("/default/dead")
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


class World:
    """A cluster of two brokers, and where its topics are."""

    def __init__(self, cluster: BrokerCluster, stack: AsyncExitStack) -> None:
        self.cluster = cluster
        self.stack = stack

    def broker(self, name: str):
        return self.cluster.members[name].broker

    async def owner_of(self, topic: TopicName) -> str:
        """The name of the broker that serves *topic*."""

        async def find(broker) -> str:
            await broker.topics.get(topic)
            return broker.broker_id

        return await self.cluster.ask(find)

    async def source_elsewhere(self) -> TopicName:
        """A topic that another broker serves than the dead-letter topic."""
        owner = await self.owner_of(DEAD)
        for topic in SOURCES:
            if await self.owner_of(topic) != owner:
                return topic
        raise AssertionError("all topics are at the same broker")

    async def subscribe(self, topic: TopicName):
        """The topic and its subscription at its owner, and a consumer with credit."""

        async def do(broker):
            await broker.subscriptions.open(
                topic, S, SubscriptionType.SHARED, Start.EARLIEST
            )
            await broker.subscriptions.change_settings(topic, S, failure_policy=POLICY)
            opened = await broker.topics.get(topic)
            return opened, opened.subscriptions[S]

        opened, subscription = await self.cluster.ask(do)
        return opened, subscription, attach(subscription)[0]

    async def dead(self) -> list[tuple[bytes, str]]:
        """The dead letters: payload and original offset."""

        async def read(broker):
            return await stored(await broker.topics.get(DEAD))

        return [
            (payload, attributes["x-original-topic-offset"])
            for payload, attributes, _, _ in await self.cluster.ask(read)
        ]


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        world = World(BrokerCluster(), stack)
        for name in ("a", "b"):
            await stack.enter_async_context(world.cluster.broker(name))
        await world.cluster.settled("a", "b")
        topics = world.broker("a").topics
        for topic in (*SOURCES, DEAD):
            await topics.add(topic, RELIABLE)
        yield world


async def fail(subscription, reader: Reader, count: int) -> None:
    offsets = await reader.offsets(count)
    subscription.nack([(offset, offset + 1) for offset in offsets], reason="broken")


async def test_dead_letters_reach_a_topic_that_another_broker_serves():
    async with running() as world:
        topic, subscription, reader = await world.subscribe(
            await world.source_elsewhere()
        )
        await publish(topic, b"a", b"b")
        await fail(subscription, reader, 2)
        await until(lambda: subscription.cursor_offset == 2)
        assert await world.dead() == [(b"a", "0"), (b"b", "1")]
        assert subscription.describe(2).dead_letter_error is None


async def test_a_dead_letter_topic_is_created_at_whichever_broker_is_to_serve_it():
    async with running() as world:
        await world.broker(await world.owner_of(DEAD)).topics.delete(DEAD)
        for topic in SOURCES:
            opened, subscription, reader = await world.subscribe(topic)
            await publish(opened, b"a")
            await fail(subscription, reader, 1)
            await until(lambda each=subscription: each.cursor_offset == 1)
        assert len(await world.dead()) == len(SOURCES)


async def test_a_dead_letter_whose_answer_was_lost_has_one_copy():
    async with running() as world:
        topic, subscription, reader = await world.subscribe(
            await world.source_elsewhere()
        )
        world.cluster.answers_left = 0
        await publish(topic, b"a", b"b", b"c")
        await fail(subscription, reader, 3)
        await until(lambda: subscription.counts.dead_letter_failures >= 3)
        assert "answer" in str(subscription.dead_letter_error)
        world.cluster.answers_left = None
        await until(lambda: subscription.cursor_offset == 3)
        assert [each[1] for each in await world.dead()] == ["0", "1", "2"]


async def test_dead_letters_wait_for_a_topic_whose_broker_is_lost():
    async with running() as world:
        topic, subscription, reader = await world.subscribe(
            await world.source_elsewhere()
        )
        lost = await world.owner_of(DEAD)
        world.cluster.answers_left = 0
        await publish(topic, b"a", b"b")
        await fail(subscription, reader, 1)
        await until(lambda: subscription.counts.dead_letter_failures)
        # The first copy is stored there, and its answer was lost with the broker.
        world.cluster.lose(lost)
        world.cluster.answers_left = None
        await reader.offsets(2)
        subscription.nack([(1, 2)], reason="broken")
        await until(lambda: subscription.cursor_offset == 2)
        assert await world.dead() == [(b"a", "0"), (b"b", "1")]


async def test_a_message_has_one_copy_if_its_broker_is_lost_before_it_is_acked():
    async with running() as world:
        name = await world.source_elsewhere()
        topic, subscription, reader = await world.subscribe(name)
        await publish(topic, b"a", b"b", b"c")
        world.cluster.answers_left = 0
        await reader.offsets(3)
        subscription.nack([(2, 3)], reason="broken")
        await until(lambda: subscription.counts.dead_letter_failures)
        world.cluster.lose(await world.owner_of(name))
        world.cluster.answers_left = None
        topic, subscription, reader = await world.subscribe(name)
        await fail(subscription, reader, 3)
        await until(lambda: subscription.cursor_offset == 3)
        assert sorted(await world.dead()) == [(b"a", "0"), (b"b", "1"), (b"c", "2")]


async def test_messages_that_fail_again_after_a_seek_have_other_dead_letters():
    async with running() as world:
        topic, subscription, reader = await world.subscribe(
            await world.source_elsewhere()
        )
        await publish(topic, b"a")
        await fail(subscription, reader, 1)
        await until(lambda: subscription.cursor_offset == 1)
        owner = world.broker(await world.owner_of(topic.name))
        await owner.subscriptions.seek(topic, subscription, Start.EARLIEST)
        await reader.first(2)
        subscription.nack([(0, 1)], reason="broken again")
        await until(lambda: subscription.cursor_offset == 1)
        assert await world.dead() == [(b"a", "0"), (b"a", "0")]


async def test_a_broker_that_cannot_be_reached_is_named():
    async with running() as world:
        topic, subscription, reader = await world.subscribe(
            await world.source_elsewhere()
        )
        own, other = await world.owner_of(topic.name), await world.owner_of(DEAD)
        with world.cluster.cutting(own, other):
            await publish(topic, b"a")
            await fail(subscription, reader, 1)
            await until(lambda: subscription.counts.dead_letter_failures)
            assert f"{other} cannot be reached" in str(subscription.dead_letter_error)
            assert subscription.describe(1).parked == 1
        await until(lambda: subscription.cursor_offset == 1)
        assert len(await world.dead()) == 1


async def test_the_audit_log_of_every_broker_reaches_its_topic():
    async with running() as world:
        for name in ("a", "b"):
            audit = AuditTopic(
                world.broker(name).internal.publish, name, lambda: A_NOW_US
            )
            await audit.publish([name.encode()])
            await audit.publish([name.encode() * 2])

        async def read(broker):
            return await stored(await broker.topics.get(AUDIT_TOPIC))

        found = await world.cluster.ask(read)
        assert [each[0] for each in found] == [b"a", b"aa", b"b", b"bb"]
        assert {each[2]["producer"] for each in found} == {"audit"}


# One broker.


def batch(*positions: int, producer: str = "broker/test") -> InternalBatch:
    frame = frame_of([b"%d" % each for each in positions], producer=producer)
    return InternalBatch(positions, frame)


def source(generation: int = 1, epoch: int = 1, settled: int = 0) -> Source:
    return Source(
        producer="broker/test", generation=generation, epoch=epoch, settled=settled
    )


async def positions_in(broker) -> list[int]:
    return [int(each[0]) for each in await stored(await broker.topics.get(DEAD))]


async def test_positions_in_any_order_are_stored_once(broker):
    publish_at = broker.internal.publish
    await publish_at(DEAD, source(), [batch(7, 8), batch(1)])
    await publish_at(DEAD, source(), [batch(0, 1, 2, 7), batch(8, 9)])
    await publish_at(DEAD, source(), [batch(9)])
    assert await positions_in(broker) == [7, 8, 1, 0, 2, 9]


async def test_stored_positions_are_known_after_a_restart(world):
    async with world.broker() as broker:
        await broker.internal.publish(DEAD, source(), [batch(*range(0, 2000, 2))])
    async with world.broker() as broker:
        await broker.internal.publish(DEAD, source(), [batch(0, 1, 1998, 1999)])
        assert (await positions_in(broker))[1000:] == [1, 1999]


async def test_an_older_session_of_a_source_is_refused(broker):
    publish_at = broker.internal.publish
    await publish_at(DEAD, source(2, 2), [batch(0)])
    for older in (source(1, 2), source(2, 1), source(3, 1)):
        with pytest.raises(ProducerFenced):
            await publish_at(DEAD, older, [batch(1)])
    assert await positions_in(broker) == [0]


async def test_a_higher_generation_of_a_source_has_other_messages(world):
    async with world.broker() as broker:
        await broker.internal.publish(DEAD, source(), [batch(0)])
        await broker.internal.publish(DEAD, source(2), [batch(0)])
    async with world.broker() as broker:
        await broker.internal.publish(DEAD, source(2), [batch(0, 1)])
        assert await positions_in(broker) == [0, 0, 1]


async def test_settled_positions_leave_memory_and_journal(world):
    async with world.broker() as broker:
        publish_at = broker.internal.publish
        await publish_at(DEAD, source(), [batch(*range(0, 600, 2))])
        await publish_at(DEAD, source(settled=590), [batch(601)])
        topic = await broker.topics.get(DEAD)
        await broker.storage.journal.sync()
        [state] = broker.storage.find_state(topic.topic_id).producers.values()
        assert [run[0] for run in state.runs] == [590, 592, 594, 596, 598, 601]
    async with world.broker() as broker:
        await broker.internal.publish(DEAD, source(settled=590), [batch(598, 601)])
        assert len(await positions_in(broker)) == 301


async def test_internal_producers_are_no_producers_of_clients(world):
    async with world.broker() as broker:
        await broker.internal.publish(DEAD, source(A_NOW_US), [batch(0)])
    async with world.broker() as broker:
        topic, session = await broker.producers.open(DEAD, "p", policy=None)
        assert session.producer_id == 1
        assert topic.describe().producers == ("p",)


async def test_a_topic_remembers_a_bounded_number_of_sources(broker, monkeypatch):
    monkeypatch.setattr(
        "pydanube_broker.broker.serving.internal_publishing.SOURCES_MAX", 3
    )
    for number in range(5):
        name = f"broker/{number}"
        await broker.internal.publish(
            *(DEAD, Source(producer=name, generation=1, epoch=1)),
            [batch(0, producer=name)],
        )
    topic = await broker.topics.get(DEAD)
    await broker.storage.journal.sync()
    state = broker.storage.find_state(topic.topic_id)
    assert list(state.producers) == ["broker/2", "broker/3", "broker/4"]
    assert list(topic.sessions) == ["broker/2", "broker/3", "broker/4"]


async def test_quotas_hold_for_what_the_broker_publishes(broker):
    target = QuotaTarget.parse("/default")
    topic = await broker.topics.create(DEAD, TopicPolicy())
    await broker.quotas.set(target, Quota(storage_bytes=1000))
    topic.pacing.add("storage_bytes", 1000)
    with pytest.raises(QuotaExceeded, match="storage_bytes"):
        await broker.internal.publish(DEAD, source(), [batch(0)])
    await broker.quotas.remove(target)
    await broker.internal.publish(DEAD, source(), [batch(0)])
    assert await positions_in(broker) == [0]
