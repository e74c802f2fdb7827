"""Acknowledged messages survive a kill of the broker, once and in order."""

import asyncio
import random
from functools import partial

import pytest

import pydanube
from pydanube.model.policy import FailurePolicy, PoisonPolicy
from support.drivers.exactly_once import (
    TOPICS,
    check_exactly_once,
    publish_during,
    stored_messages,
    until_published,
)
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CONSUMED_BEFORE = 500


async def kill_and_restart(broker, kills, acknowledged):
    rng = random.Random(4711)
    for number in range(kills):
        await until_published(acknowledged, CONSUMED_BEFORE * number // kills)
        await asyncio.sleep(rng.uniform(0.1, 0.5))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
    await until_published(acknowledged, CONSUMED_BEFORE)


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.soak)])
def test_kills_lose_and_add_no_messages(tmp_path, kills):
    # Small files, so that the journal rolls and segments are sealed in between.
    options = tmp_path / "broker.yaml"
    options.write_text(
        "storage: {seal_bytes: 300000, seal_interval_s: 0.05, "
        "journal: {file_bytes_max: 400000}}\n"
    )
    with BrokerProcess(tmp_path / "data", "--config", str(options)) as broker:
        disturb = partial(kill_and_restart, broker, kills)
        acknowledged, found = asyncio.run(publish_during(broker.url, disturb))

    check_exactly_once(acknowledged, found, more_than=CONSUMED_BEFORE)


def test_cursor_survives_a_kill(tmp_path):
    async def consume_some(broker):
        async with pydanube.connect(broker.url) as client:
            async with client.producer(TOPICS[0]) as producer:
                await producer.send_batch([str(n) for n in range(100)])
            async with client.consumer(
                TOPICS[0], subscription="s", start="earliest"
            ) as consumer:
                batch = await consumer.receive_batch(max_messages=60, timeout_s=60)
                await consumer.ack(batch[:50])
                await consumer.ack(batch[55])
                await consumer.flush()
                await asyncio.to_thread(broker.kill)

    async def consume_the_rest(broker):
        async with (
            pydanube.connect(broker.url) as client,
            client.consumer(TOPICS[0], subscription="s") as consumer,
        ):
            return [(await consumer.receive(timeout_s=60)).offset for _ in range(49)]

    with BrokerProcess(tmp_path / "data") as broker:
        asyncio.run(consume_some(broker))
        broker.start()
        offsets = asyncio.run(consume_the_rest(broker))

    assert offsets == [*range(50, 55), *range(56, 100)]


def test_acknowledged_messages_are_not_redelivered_after_a_kill(
    tmp_path,
):
    async def consume(broker):
        async with pydanube.connect(broker.url) as client:
            async with client.producer(TOPICS[0]) as producer:
                await producer.send_batch([str(n) for n in range(100)])
            async with client.consumer(
                TOPICS[0], subscription="s", start="earliest"
            ) as consumer:
                batch = await consumer.receive_batch(max_messages=100, timeout_s=60)
                # The broker is killed before it has written any of these.
                await consumer.ack(batch[:50])
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
                return [
                    (await consumer.receive(timeout_s=60)).offset for _ in range(50)
                ]

    with BrokerProcess(tmp_path / "data") as broker:
        assert asyncio.run(consume(broker)) == list(range(50, 100))


def done_of(subscription):
    """Return the acknowledged offsets."""
    done = {n for base, end in subscription.done for n in range(base, end)}
    return done | set(range(subscription.cursor))


@pytest.mark.soak
def test_failed_message_or_its_dead_letter_survives_a_kill(tmp_path):
    """Kill the broker while all messages go to the dead-letter topic."""
    topic, dead = TOPICS[0], "/default/dead"
    policy = FailurePolicy(
        redeliveries_max=0,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=dead,
    )

    async def refuse_all(broker, kills):
        async with pydanube.connect(broker.url) as client:
            async with client.producer(topic) as producer:
                for base in range(0, 2000, 20):
                    await producer.send_batch([str(base + n) for n in range(20)])
            await client.subscriptions.configure(topic, "s", failure_policy=policy)
            async with client.consumer(
                topic, subscription="s", start="earliest"
            ) as consumer:
                refused = 0
                while refused < 1400:
                    batch = await consumer.receive_batch(max_messages=100, timeout_s=60)
                    await consumer.nack(batch, reason="no")
                    refused += len(batch)
                    if kills and refused >= kills[0]:
                        kills.pop(0)
                        await asyncio.to_thread(broker.kill)
                        await asyncio.to_thread(broker.start)
            # Messages that were rejected after the last kill become dead letters.
            while True:
                facts = await client.subscriptions.describe(topic, "s")
                if not facts.parked and len(done_of(facts)) > 500:
                    return facts, [m for *_, m in await stored_messages(client, dead)]
                await asyncio.sleep(0.05)

    with BrokerProcess(tmp_path / "data") as broker:
        facts, letters = asyncio.run(refuse_all(broker, kills=[250, 700]))

    assert {int(letter) for letter in letters} >= done_of(facts)


def test_graceful_stop_saves_everything(tmp_path):
    async def fill(broker):
        async with pydanube.connect(broker.url) as client:
            async with client.producer(TOPICS[0]) as producer:
                await producer.send_batch(["a", "b", "c"])
            async with client.consumer(
                TOPICS[0], subscription="s", start="earliest"
            ) as consumer:
                await consumer.ack(await consumer.receive(timeout_s=60))

    async def look(broker):
        async with pydanube.connect(broker.url) as client:
            return await client.topics.describe(TOPICS[0])

    with BrokerProcess(tmp_path / "data") as broker:
        asyncio.run(fill(broker))
        assert broker.stop() == 0
        broker.start()
        facts = asyncio.run(look(broker))

    assert (facts.end_offset, facts.epoch) == (3, 2)
    assert facts.subscriptions[0].cursor == 1


def test_graceful_restarts_under_load_lose_nothing(tmp_path):
    """Producers and a consumer continue after two restarts."""

    async def publish_until(client, stop):
        count = 0
        async with client.producer(TOPICS[0], name="busy") as producer:
            while not stop.is_set() or not count:
                await producer.send_batch([str(count + n) for n in range(100)])
                count += 100
        return count

    async def consume_all(client, publishing):
        seen = set()
        async with client.consumer(
            TOPICS[0], subscription="s", start="earliest"
        ) as consumer:
            while not publishing.done() or len(seen) < publishing.result():
                batch = await consumer.receive_batch(timeout_s=0.5)
                seen.update(batch.offsets)
                await consumer.ack(batch)
        return seen

    async def run(broker):
        stop = asyncio.Event()
        async with pydanube.connect(broker.url) as client:
            await client.topics.create(TOPICS[0])
            async with asyncio.TaskGroup() as tasks:
                publishing = tasks.create_task(publish_until(client, stop))
                consuming = tasks.create_task(consume_all(client, publishing))
                for _ in range(2):
                    await asyncio.sleep(0.3)
                    assert await asyncio.to_thread(broker.stop) == 0
                    await asyncio.to_thread(broker.start)
                stop.set()
            facts = await client.topics.describe(TOPICS[0])
        return publishing.result(), consuming.result(), facts

    with BrokerProcess(tmp_path / "data") as broker:
        count, seen, facts = asyncio.run(run(broker))

    assert facts.end_offset == count > 0
    assert seen == set(range(count))
    assert facts.subscriptions[0].cursor == count
