"""Retention through the command line and restarts, and while the broker is killed."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

import pydanube
from pydanube.model.policy import KEEP_ALL
from support.drivers.commands import danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/jobs"
WAIT_S = 60


@pytest.fixture
def options(tmp_path):
    """Return options of a broker that seals and drops whenever it can."""
    settings = tmp_path / "broker.yaml"
    settings.write_text(
        "storage: {seal_age_s: 0, seal_interval_s: 0.01, seal_pace: 0, "
        "retention_interval_s: 0.01, orphan_keep_s: 1}\n"
    )
    return ("--config", str(settings))


def answer_of(*arguments, url):
    done = danube(*arguments, "--format", "json", url=url)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def publish(client, topic, count):
    """Publish messages, each of which becomes a segment."""
    async with client.producer(topic) as producer:
        for number in range(count):
            offset = (await producer.send(str(number))).offset
            await until(
                client, topic, lambda facts, end=offset + 1: facts.sealed_offset == end
            )


async def until(client, topic, condition):
    deadline = time.monotonic() + WAIT_S
    while not condition(facts := await client.topics.describe(topic)):
        assert time.monotonic() < deadline, facts
        await asyncio.sleep(0.02)


def test_retention_is_changed_by_command_and_survives_a_restart(tmp_path, options):
    async def fill(broker):
        async with pydanube.connect(broker.url) as client:
            await client.topics.create(TOPIC)
            await publish(client, TOPIC, 4)
            await client.subscriptions.create(TOPIC, "s", start="earliest")

    async def acknowledge(broker):
        async with pydanube.connect(broker.url) as client:
            await client.subscriptions.skip(TOPIC, "s", 2)
            await until(client, TOPIC, lambda facts: facts.base_offset == 2)

    with BrokerProcess(tmp_path / "data", *options) as broker:
        url = broker.url
        asyncio.run(fill(broker))
        change = ("topics", "configure", TOPIC, "--set")
        small = (*change, "retention.size=1", "--dry-run")
        (planned,) = answer_of(*small, url=url)["drops"]
        assert (planned["segment_count"], planned["message_count"]) == (3, 3)
        assert planned["base_offset"] == 3
        assert [each["base"] for each in planned["segments"]] == [0, 1, 2]
        assert answer_of("topics", "describe", TOPIC, url=url)["base_offset"] == 0
        shown = danube(*small, url=url).stdout
        assert "Segments to drop" in shown
        assert planned["segments"][0]["object_name"][:20] in shown

        answer_of(*change, "retention.acknowledged=true", url=url)
        apply = ("topics", "apply-retention", TOPIC)
        assert answer_of(*apply, url=url)[0]["segment_count"] == 0
        sealing = ("sealing.size=1MiB", "--set", "sealing.age=1s")
        assert len(answer_of(*change, *sealing, url=url)["changes"]) == 2
        assert broker.stop() == 0

        broker.start()
        described = danube("topics", "describe", TOPIC, url=url).stdout
        assert "not acknowledged by all subscriptions" in described
        assert "at 1.0 MiB or after 1s" in described
        asyncio.run(acknowledge(broker))

        limit = ("namespaces", "configure", "default", "--set", "retention.size=1")
        planned = answer_of(*limit, "--dry-run", url=url)["drops"]
        assert [each["segment_count"] for each in planned] == [0]
        answer_of(*limit, url=url)
        assert "up to 1 B" in danube("namespaces", "list", url=url).stdout
        assert answer_of("topics", "describe", TOPIC, url=url)["base_offset"] == 2
        inherit = (*change, "retention=inherit")
        (planned,) = answer_of(*inherit, "--dry-run", url=url)["drops"]
        assert (planned["segment_count"], planned["base_offset"]) == (1, 3)
        answer_of(*inherit, url=url)
        # A pass of the broker may be faster.
        (dropped,) = answer_of(*apply, url=url)
        assert dropped["base_offset"] == 3
        (planned,) = answer_of(*apply, "--dry-run", url=url)
        assert planned["segment_count"] == 0
        assert answer_of("topics", "describe", TOPIC, url=url)["base_offset"] == 3


def test_topic_that_nobody_uses_after_the_start_loses_its_old_segments(
    tmp_path, options
):
    async def fill(broker):
        async with pydanube.connect(broker.url) as client:
            for topic in (TOPIC, "/default/kept"):
                await client.topics.create(topic)
                await publish(client, topic, 4)
            await client.topics.configure("/default/kept", retention=KEEP_ALL)

    def segments(topic):
        return len(list(Path(tmp_path, "data", "objects", topic[1:]).glob("*.parquet")))

    with BrokerProcess(tmp_path / "data", *options) as broker:
        asyncio.run(fill(broker))
        broker.stop()
        broker.start()
        # This opens no topic.
        limit = ("namespaces", "configure", "default", "--set", "retention.size=1")
        answer_of(*limit, url=broker.url)
        deadline = time.monotonic() + WAIT_S
        while segments(TOPIC) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (
            answer_of("topics", "describe", TOPIC, url=broker.url)["base_offset"] == 3
        )
        assert segments("/default/kept") == 4
        assert broker.stop() == 0


@pytest.mark.soak
def test_kills_during_retention_lose_nothing_and_leave_no_objects(tmp_path, options):
    """One subscription keeps up; the messages of a slow one must stay."""

    async def run(broker):
        fast: list[int] = []
        stop = asyncio.Event()
        async with pydanube.connect(broker.url) as client:
            await client.topics.create(
                TOPIC, retention=pydanube.Retention(drops_acknowledged=True)
            )
            for name in ("fast", "slow"):
                await client.subscriptions.create(TOPIC, name, start="earliest")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(produce(client, stop))
                tasks.create_task(consume(client, fast, stop))
                tasks.create_task(follow(client, stop))
                tasks.create_task(kill(broker, stop))
            slow = (await client.subscriptions.describe(TOPIC, "slow")).cursor
            facts = await client.topics.describe(TOPIC)
            assert 0 < facts.base_offset <= slow < facts.end_offset
            left = [
                offset
                async for batch in client.read(TOPIC, start=slow)
                for offset in batch.offsets
            ]
            assert left == list(range(slow, facts.end_offset))
            assert sorted(set(fast)) == list(range(max(fast) + 1))
            for name in ("slow", "fast"):
                await client.subscriptions.seek(TOPIC, name, "latest")
            # The newest segment stays, and nothing else, after orphans were kept a
            # while.  A restarted broker searches for them.
            await until(client, TOPIC, is_down_to_the_newest_segment)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            (segment,) = (await client.storage.segments(TOPIC)).segments
            await objects_are(tmp_path / "data" / "objects", {segment.object_name})

    async def produce(client, stop):
        async with client.producer(TOPIC, name="p") as producer:
            while not stop.is_set():
                await producer.send_batch([bytes(100)] * 5)

    async def consume(client, seen, stop):
        async with client.consumer(TOPIC, subscription="fast") as consumer:
            while not stop.is_set():
                try:
                    batch = await consumer.receive_batch(timeout_s=0.2)
                except pydanube.TimedOut:
                    continue
                seen += batch.offsets
                await consumer.ack(batch)

    async def follow(client, stop):
        while not stop.is_set():
            # On a busy machine, starting a broker can take longer than a request.
            with suppress(pydanube.ConnectionLost):
                facts = await client.subscriptions.describe(TOPIC, "slow")
                half = facts.cursor + facts.backlog // 2
                await client.subscriptions.seek(TOPIC, "slow", half)
            await asyncio.sleep(0.05)

    async def kill(broker, stop):
        rng = random.Random(15)
        for _ in range(5):
            await asyncio.sleep(rng.uniform(0.2, 0.6))
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        await asyncio.sleep(0.3)
        stop.set()

    with BrokerProcess(tmp_path / "data", *options) as broker:
        asyncio.run(run(broker))


def is_down_to_the_newest_segment(facts):
    return facts.segment_count == 1 and facts.sealed_offset == facts.end_offset


async def objects_are(directory, names):
    deadline = time.monotonic() + WAIT_S
    while True:
        found = {
            str(path.relative_to(directory)) for path in directory.rglob("*.parquet")
        }
        if found == names:
            return
        assert time.monotonic() < deadline, found ^ names
        await asyncio.sleep(0.1)
