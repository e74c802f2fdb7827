"""
Nothing acknowledged is lost, repeated or reordered while whole brokers lose topics.

Brokers of a cluster, without servers, lose their sessions, are drained, and seal and
upload segments at random moments, while producers publish.  In other runs consumers
refuse all messages meanwhile, and each message has one dead letter in the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from random import Random

import pytest

from pydanube.model.clusters import BrokerMode
from pydanube.model.dead_letters import ORIGINAL_OFFSET, ORIGINAL_TOPIC
from pydanube.model.errors import BrokerError
from pydanube.model.names import TopicName
from pydanube.model.policy import (
    FailurePolicy,
    PoisonPolicy,
    Start,
    SubscriptionType,
)
from pydanube.model.retry import RetryPolicy
from pydanube_broker.broker.topics import dead_letters
from support.fakes.batches import frame_of, payloads_of
from support.fakes.broker_clusters import BrokerCluster
from support.fakes.brokers import A_TOPIC, RELIABLE, Outcome
from support.fakes.readers import CREDIT_BYTES, S, attach, stored
from support.fakes.storages import read_all, seal, until

TOPICS = [A_TOPIC.partition(number) for number in range(3)]
BROKERS = ("a", "b", "c")
DEAD = TopicName.parse("/default/dead")
DEAD_LETTERS = FailurePolicy(
    redeliveries_max=0,
    redelivery_delay_s=0.0,
    poison=PoisonPolicy.DEAD_LETTER,
    dead_letter_topic=str(DEAD),
)


class Producer:
    """Publishes 0, 1, 2, … to one topic, each until it is acknowledged."""

    def __init__(self, topic) -> None:
        self.topic = topic
        self.acked: dict[int, bytes] = {}
        """The acknowledged payloads by their offsets."""
        self.is_stopped = False
        self._resume = (0, 0)

    async def run(self, cluster) -> None:
        while not self.is_stopped:
            for member in list(cluster.members.values()):
                with suppress(BrokerError):
                    await self._publish(member.broker)
            await asyncio.sleep(0)

    async def _publish(self, broker) -> None:
        topic, session = await broker.producers.open(
            self.topic, "p", policy=None, resume=self._resume
        )
        self._resume = (session.producer_id, session.epoch)
        while not self.is_stopped:
            sequence = len(self.acked)
            outcome, payload = Outcome(), b"%d" % sequence
            frame = frame_of(
                [payload],
                producer=session.name,
                producer_id=session.producer_id,
                producer_epoch=session.epoch,
                base_sequence=sequence,
            )
            topic.publish(session, frame, outcome)
            offset = await outcome.offset()
            assert offset not in self.acked
            self.acked[offset] = payload

    async def read(self, broker) -> list[bytes]:
        topic = await broker.topics.get_reliable(self.topic)
        return payloads_of(await read_all(topic.log))


class Refuser:
    """Consumes one topic, and refuses all messages, which become dead letters."""

    def __init__(self, topic) -> None:
        self.topic = topic
        self.end_offset = 0
        """The end of the topic when all of its messages were acknowledged."""

    async def run(self, cluster) -> None:
        while True:
            for member in list(cluster.members.values()):
                with suppress(BrokerError):
                    await self._consume(member.broker)
            await asyncio.sleep(0)

    async def _consume(self, broker) -> None:
        await broker.subscriptions.open(
            self.topic, S, SubscriptionType.SHARED, Start.EARLIEST
        )
        await broker.subscriptions.change_settings(
            self.topic, S, failure_policy=DEAD_LETTERS
        )
        topic = await broker.topics.get(self.topic)
        subscription = topic.subscriptions[S]
        reader, consumer = attach(subscription, messages=20)
        refused = 0
        while reader.reason is None:
            for each in reader.got[refused:]:
                subscription.nack([(each.offset, each.offset + 1)])
                subscription.credit(consumer, 1, CREDIT_BYTES)
                refused += 1
            if subscription.cursor_offset == topic.end_offset:
                self.end_offset = topic.end_offset
            await asyncio.sleep(0)


async def disturb(cluster, stack, rng) -> None:
    """Do something to a broker that interrupts its topics."""
    name = rng.choice(BROKERS)
    if name not in cluster.members:
        await stack.enter_async_context(cluster.broker(name, seal_pace=0.0))
        return
    match rng.randrange(4):
        case 0:
            cluster.lose(name)
        case 1:
            mode = rng.choice([BrokerMode.ACTIVE, BrokerMode.DRAINING])
            await cluster.set_mode(name, mode)
        case _:
            storage = cluster.members[name].broker.storage
            for topic_id in list(storage.logs):
                with suppress(BrokerError, KeyError):
                    await seal(storage, topic_id)
            if rng.random() < 0.5:
                cluster.remote.refuses_segments ^= True


async def run(seed: int) -> None:
    rng, cluster = Random(seed), BrokerCluster()
    producers = [Producer(name) for name in TOPICS]
    async with AsyncExitStack() as stack:
        for name in BROKERS:
            await stack.enter_async_context(cluster.broker(name, seal_pace=0.0))
        for name in TOPICS:
            await cluster.members["a"].broker.topics.add(name, RELIABLE)
        async with asyncio.TaskGroup() as tasks:
            for producer in producers:
                tasks.create_task(producer.run(cluster))
            for _ in range(25):
                for _ in range(rng.randrange(300)):
                    await asyncio.sleep(0)
                await disturb(cluster, stack, rng)
            cluster.remote.refuses_segments = False
            for name in BROKERS:
                await cluster.set_mode(name, BrokerMode.ACTIVE)
                if name not in cluster.members:
                    await stack.enter_async_context(cluster.broker(name))
            # All topics are served again.
            counts = [len(each.acked) for each in producers]
            for producer, count in zip(producers, counts, strict=True):
                await until(lambda p=producer, c=count: len(p.acked) > c)
            for producer in producers:
                producer.is_stopped = True
        for producer in producers:
            stored = await cluster.ask(producer.read)
            for offset, payload in producer.acked.items():
                assert stored[offset] == payload
            assert stored == [b"%d" % number for number in range(len(stored))]


async def run_with_dead_letters(seed: int) -> None:
    rng, cluster = Random(seed), BrokerCluster()
    refusers = [Refuser(name) for name in TOPICS]
    async with AsyncExitStack() as stack:
        for name in BROKERS:
            await stack.enter_async_context(cluster.broker(name, seal_pace=0.0))
        for name in (*TOPICS, DEAD):
            await cluster.members["a"].broker.topics.add(name, RELIABLE)
        producers = [Producer(name) for name in TOPICS]
        async with asyncio.TaskGroup() as tasks:
            consuming = [tasks.create_task(each.run(cluster)) for each in refusers]
            for producer in producers:
                tasks.create_task(producer.run(cluster))
            for _ in range(12):
                for _ in range(rng.randrange(300)):
                    await asyncio.sleep(0)
                cluster.answers_left = rng.choice([None, None, 0, 1])
                await disturb(cluster, stack, rng)
            cluster.remote.refuses_segments, cluster.answers_left = False, None
            for name in BROKERS:
                await cluster.set_mode(name, BrokerMode.ACTIVE)
                if name not in cluster.members:
                    await stack.enter_async_context(cluster.broker(name))
            for producer in producers:
                producer.is_stopped = True
            for producer, refuser in zip(producers, refusers, strict=True):
                await until(lambda p=producer, r=refuser: r.end_offset >= len(p.acked))
            for each in consuming:
                each.cancel()

        async def read(broker):
            return await stored(await broker.topics.get_reliable(DEAD))

        found = Counter(
            (attributes[ORIGINAL_TOPIC], int(attributes[ORIGINAL_OFFSET]))
            for _, attributes, _, _ in await cluster.ask(read)
        )
        assert found == Counter(
            (str(each.topic), offset)
            for each in refusers
            for offset in range(each.end_offset)
        )


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_each_refused_message_has_one_dead_letter(seed, monkeypatch) -> None:
    monkeypatch.setattr(dead_letters, "RETRIES", RetryPolicy(0.001, 0.002))
    await run_with_dead_letters(seed)


# An owner that uses segments which are not uploaded is found by four of these seeds.
@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_nothing_acknowledged_is_lost_by_brokers_of_a_cluster(seed: int) -> None:
    await run(seed)
