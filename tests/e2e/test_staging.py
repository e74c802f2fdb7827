"""A broker that is killed publishes every version of staged batches once."""

import asyncio
import random

import pyarrow as pa
import pytest

import pydanube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC = "/default/staged"
PARTITIONED = "/default/spread"
PARTS = 3
VERSIONS = 40
KILLS = 5


def batch(*payloads):
    return pa.record_batch({"payload": list(payloads)})


async def stored(client, topic):
    return [m.payload async for found in client.read(topic) for m in found]


async def restart(broker):
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
async def client(broker):
    async with pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC)
        yield client


async def test_a_kill_at_every_step_loses_nothing_and_repeats_nothing(
    broker, client, tmp_path
):
    staging = client.staging("query", 0)
    part = staging.part("0")
    await part.write(TOPIC, batch(b"1"))
    await restart(broker)
    await part.write(TOPIC, batch(b"2"))
    first = await part.finish()
    await restart(broker)
    part = staging.part("1")
    await part.write(TOPIC, batch(b"3"))
    second = await part.finish()
    assert await stored(client, TOPIC) == []
    assert not await staging.is_committed()
    commit = await staging.commit([first, second])
    assert not commit.is_repeat
    await restart(broker)
    assert await staging.is_committed()
    assert (await staging.commit([first, second])).is_repeat
    assert await stored(client, TOPIC) == [b"1", b"2", b"3"]
    assert not list((tmp_path / "data" / "staging").iterdir())


@pytest.mark.soak
async def test_kills_in_the_middle_of_commits_publish_each_version_once(broker, client):
    rng = random.Random(4711)
    # So much that a kill finds some of it appended, and some not.
    sizes = [rng.choice([10, 1000, 200_000]) for _ in range(4)]
    expected = []

    for version, size in enumerate(sizes):
        staging = client.staging("query", version)
        parts = []
        for number in range(4):
            part = staging.part(str(number))
            for at in range(10):
                head = f"{version}.{number}.{at}."
                payloads = [(head + str(n)).encode() + bytes(size) for n in (1, 2)]
                expected.extend(each[: each.index(0)] for each in payloads)
                await part.write(TOPIC, batch(*payloads))
            parts.append(await part.finish())
        async with asyncio.TaskGroup() as tasks:
            committing = tasks.create_task(staging.commit(parts))
            await asyncio.sleep(rng.choice([0.0, 0.002, 0.01, 0.03]))
            await restart(broker)
        assert committing.result().message_count == 80
        again = await staging.commit(parts)
        assert (again.message_count, again.is_repeat) == (80, True)
    found = [each[: each.index(0)] for each in await stored(client, TOPIC)]
    assert found == expected


async def write_versions(client, stop):
    """Stage and commit one version after the other, as Spark would."""
    version = 0
    while not stop.is_set() or version < VERSIONS:
        staging = client.staging("stream", version)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(write_part(staging, number))
                for number in range(PARTS)
            ]
        await staging.commit([each.result() for each in running])
        version += 1
    return version


async def write_part(staging, number):
    part = staging.part(f"{number}-0")
    for at in range(5):
        payload = f"{staging.version}.{number}.{at}".encode()
        await part.write(PARTITIONED, batch(payload))
    return await part.finish()


@pytest.mark.soak
async def test_a_stream_of_versions_survives_kills_at_any_time(broker, client):
    rng, stop = random.Random(42), asyncio.Event()
    await client.topics.create(PARTITIONED, partitions=2)
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write_versions(client, stop))
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(0.05, 0.4))
            await restart(broker)
        stop.set()
    found = []
    for topic in await client.topics.partitions(PARTITIONED):
        payloads = await stored(client, topic)
        found += payloads
        versions = [int(each.split(b".")[0]) for each in payloads]
        assert versions == sorted(versions)
    expected = [
        f"{version}.{number}.{at}".encode()
        for version in range(writing.result())
        for number in range(PARTS)
        for at in range(5)
    ]
    assert sorted(found) == sorted(expected)
