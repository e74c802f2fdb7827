"""Replications between two brokers in this process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import InvalidRequest, TopicNotFound
from pydanube.model.policy import FailurePolicy, PoisonPolicy
from pydanube_connect.replication.pure.naming import TopicNaming
from pydanube_connect.replication.replicator import Replication
from pydanube_connect.replication.running import cut_over, find_lag, remove, replicate
from support.drivers.running import received
from support.worlds.current import two_brokers

pytestmark = pytest.mark.slow

ORDERS = "/default/orders"
COPY = "/mirror/orders"


class Order(msgspec.Struct):
    number: int


def replication(**options):
    naming = TopicNaming.parse(["/default/*"], ["/default/=/mirror/"])
    return Replication(name="edge", naming=naming, **options)


@asynccontextmanager
async def replicating(source_url, target_url, **options):
    """Replicate; yield a function that waits until a condition of the status holds."""
    stop, changed, last = asyncio.Event(), asyncio.Event(), []

    def report(status):
        last[:] = [status]
        changed.set()

    async def until(condition):
        while not (last and condition(last[0])):
            changed.clear()
            waiting = tasks.start(changed.wait())
            await asyncio.wait([waiting, running], return_when="FIRST_COMPLETED")
            if running.done():
                await running

    async with task_scope() as tasks:
        running = tasks.start(
            replicate(
                *(replication(**options), source_url, target_url, report),
                stop=stop,
                interval_s=0.02,
            )
        )
        yield until
        stop.set()
        await running


async def messages(client, topic):
    return [each async for batch in client.read(topic) for each in batch]


def test_messages_arrive_as_they_were():
    async def run():
        async with two_brokers() as ((one, source), (two, target)):
            async with source.producer(ORDERS, schema=Order) as producer:
                for number in range(3):
                    await producer.send(
                        Order(number), key=f"k{number}", attributes={"a": "b"}
                    )
            await source.topics.create("/default/parts", partitions=2)
            async with source.producer("/default/parts") as producer:
                for number in range(20):
                    await producer.send(str(number), key=str(number % 7))
            async with replicating(one.url, two.url) as until:
                await until(lambda each: each.messages == 23)
                async with source.producer(ORDERS, schema=Order) as producer:
                    await producer.send(Order(3))
                await until(lambda each: each.messages == 24 and not each.lag)
                # A topic that comes later.
                async with source.producer("/default/later") as producer:
                    await producer.send(b"later")
                await until(lambda each: each.messages == 25)
            old, new = await messages(source, ORDERS), await messages(target, COPY)
            for sent, other in zip(old, new, strict=True):
                assert sent.value == other.value
                for name in ("key", "attributes", "publish_time", "offset"):
                    assert getattr(sent, name) == getattr(other, name)
            assert (await target.topics.describe(COPY)).schema is not None
            for number in range(2):
                name = f"parts-part-{number}"
                old = await messages(source, f"/default/{name}")
                new = await messages(target, f"/mirror/{name}")
                assert [each.payload for each in old] == [each.payload for each in new]
            facts = await source.topics.describe(ORDERS)
            assert [each.name for each in facts.holds] == ["replicate-edge"]
            [own] = facts.subscriptions
            assert (own.subscription, own.backlog) == ("replicate-edge", 0)
            lags = await find_lag(replication(), one.url, two.url)
            assert {each.lag for each in lags} == {0}

    asyncio.run(run())


def test_subscriptions_continue_at_the_target():
    async def run():
        async with two_brokers() as ((one, source), (two, target)):
            dead = "/default/dead"
            await source.topics.create(dead)
            policy = FailurePolicy(
                poison=PoisonPolicy.DEAD_LETTER, dead_letter_topic=dead
            )
            await source.topics.create(ORDERS)
            async with (
                source.consumer(
                    ORDERS, subscription="billing", type="shared", start="earliest"
                ) as consumer,
                source.producer(ORDERS) as producer,
            ):
                await source.subscriptions.configure(
                    ORDERS, "billing", failure_policy=policy
                )
                async with replicating(one.url, two.url) as until:
                    await until(lambda each: each.state == "running")
                    await producer.send_batch([b"%d" % each for each in range(10)])
                    received = []
                    while len(received) < 10:
                        received += await consumer.receive_batch()
                    await consumer.ack(received[:3])
                    await consumer.ack(received[5:7])
                    await consumer.flush()
                    await until(lambda each: each.messages >= 5)
                # This one is left for the cut-over.
                await producer.send(b"10")
            for _ in range(2):
                [moved] = await cut_over(replication(), one.url, two.url)
                assert (moved.subscription, moved.source_cursor) == ("billing", 3)
            settings = await target.subscriptions.settings(COPY, "billing")
            assert settings.failure_policy == replace(
                policy, dead_letter_topic="/mirror/dead"
            )
            async with target.consumer(
                COPY, subscription="billing", type="shared"
            ) as consumer:
                payloads = []
                while len(payloads) < 6:
                    payloads += (await consumer.receive_batch()).payloads
            assert payloads == [b"3", b"4", b"7", b"8", b"9", b"10"]
            assert (await source.topics.describe(ORDERS)).holds == ()

            async def replicate_again():
                async with replicating(one.url, two.url) as until:
                    await until(lambda each: each.state == "running")

            with pytest.raises(InvalidRequest, match="has been cut over"):
                await replicate_again()

    asyncio.run(run())


def test_the_target_takes_over_without_the_source():
    async def run():
        async with two_brokers() as ((one, source), (two, target)):
            await source.topics.create(ORDERS)
            await source.subscriptions.create(ORDERS, "billing", start="earliest")
            async with source.producer(ORDERS) as producer:
                await producer.send_batch([b"a", b"b", b"c"])
            await source.subscriptions.skip(ORDERS, "billing", 2)
            async with replicating(one.url, two.url) as until:
                await until(lambda each: each.checkpoints)
            [moved] = await cut_over(replication(), None, two.url)
            assert (moved.topic, moved.cursor) == (COPY, 2)
            await remove(replication(), one.url, two.url)
            assert (await source.topics.describe(ORDERS)).holds == ()
            with pytest.raises(TopicNotFound):
                await target.topics.describe("/default/replicate-edge.positions")

    asyncio.run(run())


def test_replication_whose_position_was_trimmed_stops_and_can_be_removed():
    async def run():
        async with two_brokers() as ((one, source), (two, target)):
            await source.topics.create(ORDERS)
            await source.subscriptions.create(ORDERS, "billing", start="earliest")
            async with source.producer(ORDERS) as producer:
                await producer.send(b"a")
            async with replicating(one.url, two.url) as until:
                await until(lambda each: each.checkpoints and each.messages)
            await target.topics.trim("/default/replicate-edge.subscriptions", "latest")
            with pytest.raises(InvalidRequest, match="trimmed"):
                await cut_over(replication(), None, two.url)
            await target.topics.trim("/default/replicate-edge.positions", "latest")
            with pytest.raises(InvalidRequest, match="trimmed"):
                async with replicating(one.url, two.url) as until:
                    await until(lambda each: each.state == "running")
            assert len(await messages(target, COPY)) == 1
            await remove(replication(), one.url, two.url)
            assert (await source.topics.describe(ORDERS)).holds == ()

    asyncio.run(run())


def test_target_may_be_trimmed_before_the_cut_over():
    async def run():
        async with (
            two_brokers() as ((one, source), (two, target)),
            source.producer(ORDERS) as producer,
        ):
            await source.subscriptions.create(ORDERS, "billing", start="earliest")
            await source.subscriptions.create(ORDERS, "audit", start="earliest")
            await producer.send_batch([b"%d" % each for each in range(6)])
            await source.subscriptions.skip(ORDERS, "audit", 5)
            async with replicating(one.url, two.url) as until:
                await until(lambda each: each.messages == 6 and each.checkpoints)
                await target.topics.trim(COPY, 4)
                await producer.send(b"6")
                await until(lambda each: each.messages == 7 and not each.lag)
            # The start of the replicator and the cut-over read the trimmed topic, too.
            async with replicating(one.url, two.url) as until:
                await until(lambda each: each.state == "running")
                await target.topics.trim(COPY, "latest")
                await producer.send(b"7")
                await until(lambda each: each.messages == 1 and not each.lag)
            await producer.send(b"8")
            moved = await cut_over(replication(), one.url, two.url)
            assert {each.subscription for each in moved} == {"billing", "audit"}
            for name in ("billing", "audit"):
                async with target.consumer(COPY, subscription=name) as consumer:
                    assert await received(consumer, 2) == [b"7", b"8"]
            assert await payloads(source, ORDERS) == [b"%d" % n for n in range(9)]

    asyncio.run(run())


async def payloads(client, topic):
    return [each.payload for each in await messages(client, topic)]


def test_a_target_that_is_not_passive_is_an_error():
    async def run():
        async with (
            two_brokers() as ((one, source), (two, target)),
            source.producer(ORDERS) as producer,
        ):
            await producer.send(b"1")

            async def fail():
                async with replicating(one.url, two.url) as until:
                    await until(lambda each: each.messages == 1)
                    async with target.producer(COPY) as other:
                        await other.send(b"other")
                    await producer.send(b"2")
                    await until(lambda each: each.messages == 2)

            with pytest.raises(InvalidRequest, match="another program has published"):
                await fail()

    asyncio.run(run())


def test_a_topic_that_was_created_again_is_an_error():
    async def run():
        async with two_brokers() as ((one, source), (two, _)):
            async with source.producer(ORDERS) as producer:
                await producer.send(b"1")

            async def replicate_one():
                async with replicating(one.url, two.url) as until:
                    await until(lambda each: each.messages == 1)

            await replicate_one()
            await source.topics.delete(ORDERS, force=True)
            await source.topics.create(ORDERS)
            with pytest.raises(InvalidRequest, match="deleted and created again"):
                await replicate_one()

    asyncio.run(run())


def test_a_replication_may_begin_at_the_end():
    async def run():
        async with two_brokers() as ((one, source), (two, target)):
            async with source.producer(ORDERS) as producer:
                await producer.send(b"old")
                for payload in (b"1", b"2"):
                    async with replicating(
                        one.url, two.url, from_latest=True, bytes_per_s=1e6
                    ) as until:
                        await until(lambda each: each.state == "running")
                        await producer.send(payload)
                        await until(lambda each: each.messages == 1)
            found = [each.payload for each in await messages(target, COPY)]
            assert found == [b"1", b"2"]

    asyncio.run(run())
