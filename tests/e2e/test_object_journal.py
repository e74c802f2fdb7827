"""A journal in S3 or Redis: nothing acknowledged is lost with a broker's disk."""

import asyncio
import json
import os
import random
import shutil
import signal
import time
from collections import defaultdict
from contextlib import suppress

import httpx
import pytest

import pydanube
from pydanube.aio.tasks import task_scope
from support.object_stores import S3Server
from support.processes import BrokerProcess
from support.redis_servers import DurableRedis
from support.tcp_proxy import Fault, tcp_proxy

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPICS = ("/default/kill-a", "/default/kill-b")
PRODUCERS = 4
DEADLINE_S = 60


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def settings(tmp_path, store, **journal):
    """Write the settings of a broker with small files; return their path."""
    url, options = store
    config = {
        "metadata": {"path": str(tmp_path / "metadata.sqlite")},
        "storage": {
            "seal_bytes": 300_000,
            "seal_interval_s": 0.05,
            "remote": {"url": url, "options": options},
            "journal": {
                "kind": "object",
                "file_bytes_max": 400_000,
                "object": {"linger_ms": 5, **journal},
            },
        },
    }
    path = tmp_path / "broker.yaml"
    path.write_text(json.dumps(config))
    return str(path)


async def publish(client, number, stop, acknowledged):
    """Publish batches until stopped; record every offset."""
    topic = TOPICS[number % len(TOPICS)]
    rng = random.Random(number)
    sequence = 0
    async with client.producer(topic, name=f"producer-{number}") as producer:
        while not stop.is_set():
            count = rng.choice([1, 1, 7, 300])
            payloads = [
                json.dumps([number, sequence + n]).encode() + bytes(50)
                for n in range(count)
            ]
            if count == 1:
                offsets = [(await producer.send(payloads[0])).offset]
            else:
                offsets = list((await producer.send_batch(payloads)).offsets)
            for payload, offset in zip(payloads, offsets, strict=True):
                acknowledged[topic].append((offset, payload))
            sequence += count


async def start(broker):
    """Start a broker, which may be killed meanwhile."""
    with suppress(AssertionError):
        await asyncio.to_thread(broker.start)


async def until_published(acknowledged, count):
    """Wait for messages in each topic: only the publishers know when."""
    while any(len(acknowledged[topic]) <= count for topic in TOPICS):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def lose_disks(broker, kills, stop, acknowledged):
    """Kill the broker again and again, and start it with a new data directory."""
    rng = random.Random(4711)
    for number in range(kills):
        await until_published(acknowledged, 10 * number)
        await asyncio.sleep(rng.uniform(0.1, 0.8))
        await asyncio.to_thread(broker.kill)
        lose_disk(broker, number)
        if rng.random() < 0.3:
            # The next one is killed while it starts.
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(start(broker))
                await asyncio.sleep(rng.uniform(0.2, 0.8))
                os.kill(broker.pid, signal.SIGKILL)
            broker.wait()
            lose_disk(broker, f"{number}-again")
        await asyncio.to_thread(broker.start)
    await until_published(acknowledged, 100)
    stop.set()


def lose_disk(broker, number):
    shutil.rmtree(broker.data_dir, ignore_errors=True)
    broker.data_dir = broker.data_dir.with_name(f"data-{number}")


async def stored(client, topic):
    return [
        (message.offset, message.producer, message.payload)
        async for batch in client.read(topic)
        for message in batch
    ]


@pytest.mark.parametrize(
    "kills",
    [4, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])],
)
def test_lost_disks_lose_and_add_no_messages(tmp_path, s3, kills):
    async def run(broker):
        acknowledged = defaultdict(list)
        stop = asyncio.Event()
        async with pydanube.connect(broker.url) as client:
            async with asyncio.TaskGroup() as tasks:
                for number in range(PRODUCERS):
                    tasks.create_task(publish(client, number, stop, acknowledged))
                tasks.create_task(lose_disks(broker, kills, stop, acknowledged))
            return acknowledged, {t: await stored(client, t) for t in TOPICS}

    path = settings(tmp_path, s3.new_store())
    with BrokerProcess(tmp_path / "data", "--config", path) as broker:
        acknowledged, found = asyncio.run(run(broker))

    check_exactly_once(acknowledged, found)


def check_exactly_once(acknowledged, found):
    """Compare what was acknowledged with what is stored."""
    for topic in TOPICS:
        by_offset = {offset: payload for offset, _, payload in found[topic]}
        assert [offset for offset, _, _ in found[topic]] == list(range(len(by_offset)))
        for offset, payload in acknowledged[topic]:
            assert by_offset[offset] == payload
        sequences = defaultdict(list)
        for _, producer, payload in found[topic]:
            number, sequence = json.loads(payload[:-50])
            assert producer == f"producer-{number}"
            sequences[number].append(sequence)
        for each in sequences.values():
            assert each == list(range(len(each)))
        assert len(acknowledged[topic]) == len(by_offset) > 100


async def lose_disk_and_server(broker, server, kills, stop, acknowledged):
    """Kill the broker or the Redis server, or both, again and again."""
    rng = random.Random(4711)
    for number in range(kills):
        await until_published(acknowledged, 10 * number)
        await asyncio.sleep(rng.uniform(0.1, 0.8))
        if number % 3 != 0:
            await asyncio.to_thread(server.kill)
        if number % 3 != 1:
            await asyncio.to_thread(broker.kill)
            lose_disk(broker, number)
        if number % 3 != 0:
            await asyncio.sleep(rng.uniform(0, 0.3))
            await asyncio.to_thread(server.start)
        if number % 3 != 1:
            await asyncio.to_thread(broker.start)
    await until_published(acknowledged, 100)
    stop.set()


@pytest.mark.parametrize(
    "kills",
    [3, pytest.param(30, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])],
)
def test_killed_redis_server_loses_no_messages(tmp_path, kills):
    async def run(broker, server):
        acknowledged = defaultdict(list)
        stop = asyncio.Event()
        async with pydanube.connect(broker.url) as client:
            async with asyncio.TaskGroup() as tasks:
                for number in range(PRODUCERS):
                    tasks.create_task(publish(client, number, stop, acknowledged))
                tasks.create_task(
                    lose_disk_and_server(broker, server, kills, stop, acknowledged)
                )
            return acknowledged, {t: await stored(client, t) for t in TOPICS}

    (tmp_path / "redis").mkdir()
    with DurableRedis(tmp_path / "redis") as server:
        path = tmp_path / "broker.yaml"
        redis = {"url": server.new_url(), "options": server.options}
        storage = {
            "seal_bytes": 300_000,
            "seal_interval_s": 0.05,
            "remote": {"url": f"fs://{tmp_path / 'segments'}"},
            "journal": {"kind": "redis", "file_bytes_max": 400_000, "redis": redis},
        }
        metadata = {"path": str(tmp_path / "metadata.sqlite")}
        path.write_text(json.dumps({"metadata": metadata, "storage": storage}))
        with BrokerProcess(tmp_path / "data", "--config", str(path)) as broker:
            acknowledged, found = asyncio.run(run(broker, server))
    check_exactly_once(acknowledged, found)


async def until(condition, what):
    """Ask until *condition* holds: only other processes know when."""
    deadline = time.monotonic() + DEADLINE_S
    while not await condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


async def readiness(broker):
    async with httpx.AsyncClient(timeout=10) as http:
        return (await http.get(f"{broker.http_url}/readyz")).json()


async def publish_one(url, payload):
    async with (
        pydanube.connect(url) as client,
        client.producer(TOPICS[0]) as producer,
    ):
        return (await producer.send(payload)).offset


async def payloads(url):
    async with pydanube.connect(url) as client:
        return [payload for _, _, payload in await stored(client, TOPICS[0])]


@pytest.mark.parametrize("is_idle", [False, True])
def test_broker_that_comes_back_is_fenced(tmp_path, s3, is_idle):
    async def run(old, new):
        await publish_one(old.url, b"0")
        os.kill(old.pid, signal.SIGSTOP)
        await asyncio.to_thread(new.start)
        assert await publish_one(new.url, b"1") == 1
        os.kill(old.pid, signal.SIGCONT)
        async with task_scope() as tasks:
            if not is_idle:
                tasks.run(publish_one(old.url, b"refused"))

            async def is_fenced():
                return not (await readiness(old))["ready"]

            await until(is_fenced, "the old broker is not fenced")
            assert "ended by another broker" in (await readiness(old))["message"]
            assert (await readiness(new))["ready"]
        assert await publish_one(new.url, b"2") == 2
        assert await payloads(new.url) == [b"0", b"1", b"2"]

    path = settings(tmp_path, s3.new_store())
    new = BrokerProcess(tmp_path / "new", "--config", path)
    with BrokerProcess(tmp_path / "old", "--config", path) as old:
        try:
            asyncio.run(run(old, new))
            assert old.stop() != 0
        finally:
            new.__exit__()


def test_outage_of_the_store_is_a_problem_and_ends(tmp_path, s3):
    async def run():
        async with tcp_proxy(s3.port) as proxy, task_scope() as tasks:
            url, options = s3.new_store(proxy.port)
            path = settings(tmp_path, (url, options), outage_s=0, timeout_s=2)
            broker = BrokerProcess(tmp_path / "data", "--config", path)
            try:
                # In a thread, because the proxy needs this one.
                await asyncio.to_thread(broker.start)
                await publish_one(broker.url, b"0")
                proxy.fault = Fault.REFUSE
                proxy.cut()
                sending = tasks.run(publish_one(broker.url, b"1"))

                async def is_reported():
                    problems = (await readiness(broker)).get("problems", [])
                    return any("not acknowledged" in each for each in problems)

                await until(is_reported, "the outage is not reported")
                assert not sending.done()
                proxy.fault = Fault.NONE
                assert await sending == 1
                assert await payloads(broker.url) == [b"0", b"1"]
                assert "problems" not in await readiness(broker)
            finally:
                broker.__exit__()

    asyncio.run(run())
