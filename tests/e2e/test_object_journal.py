"""A journal in S3 or Redis: nothing acknowledged is lost with a broker's disk."""

import asyncio
import json
import os
import random
import shutil
import signal
import time
from functools import partial

import httpx
import pytest

import pydanube
from pydanube.aio.tasks import task_scope
from support.drivers.exactly_once import (
    TOPICS,
    check_exactly_once,
    publish_during,
    stored_messages,
    until_published,
)
from support.servers.object_stores import S3Server
from support.servers.processes import BrokerProcess
from support.servers.redis_servers import DurableRedis
from support.servers.tcp_proxy import Fault, tcp_proxy

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PUBLISHED_MIN = 100
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


async def lose_disks(broker, kills, acknowledged):
    """Kill the broker again and again, and start it with a new data directory."""
    rng = random.Random(4711)
    for number in range(kills):
        await until_published(acknowledged, 10 * number)
        await asyncio.sleep(rng.uniform(0.1, 0.8))
        await asyncio.to_thread(broker.kill)
        lose_disk(broker, number)
        if rng.random() < 0.3:
            # The next one is killed while it starts.
            broker.spawn()
            await asyncio.sleep(rng.uniform(0.2, 0.8))
            await asyncio.to_thread(broker.kill)
            lose_disk(broker, f"{number}-again")
        await asyncio.to_thread(broker.start)
    await until_published(acknowledged, PUBLISHED_MIN)


def lose_disk(broker, number):
    shutil.rmtree(broker.data_dir, ignore_errors=True)
    broker.data_dir = broker.data_dir.with_name(f"data-{number}")


@pytest.mark.parametrize(
    "kills",
    [2, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])],
)
def test_lost_disks_lose_and_add_no_messages(tmp_path, s3, kills):
    path = settings(tmp_path, s3.new_store())
    with BrokerProcess(tmp_path / "data", "--config", path) as broker:
        disturb = partial(lose_disks, broker, kills)
        acknowledged, found = asyncio.run(publish_during(broker.url, disturb))

    check_exactly_once(acknowledged, found, more_than=PUBLISHED_MIN)


async def lose_disk_and_server(broker, server, kills, acknowledged):
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
    await until_published(acknowledged, PUBLISHED_MIN)


@pytest.mark.parametrize(
    "kills",
    [2, pytest.param(30, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])],
)
def test_killed_redis_server_loses_no_messages(tmp_path, kills):
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
            disturb = partial(lose_disk_and_server, broker, server, kills)
            acknowledged, found = asyncio.run(publish_during(broker.url, disturb))
    check_exactly_once(acknowledged, found, more_than=PUBLISHED_MIN)


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
        return [payload for _, _, payload in await stored_messages(client, TOPICS[0])]


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
            assert "another broker has ended" in (await readiness(old))["message"]
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
