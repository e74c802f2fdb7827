"""The history moves from one object store to another, and nothing is lost."""

import asyncio
import json

import pytest

import pydanube
from pydanube.objects.opening import open_objects
from support.drivers.commands import danube
from support.fakes.tiered_brokers import (
    local_segments,
    payloads_of,
    publish,
    settings,
    stored,
    until,
    uploaded,
)
from support.servers.object_stores import S3Server
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def add(broker, payloads, total):
    """Publish messages; return when all *total* are uploaded."""

    async def run():
        async with pydanube.connect(broker.url) as client:
            for at in range(0, len(payloads), 25):
                await publish(client, payloads[at : at + 25])
                left = max(0, len(payloads) - at - 25)
                await uploaded(client, total - left)

    asyncio.run(run())


def evict(broker):
    assert danube("storage", "evict", "--yes", url=broker.url).returncode == 0
    assert local_segments(broker.data_dir) == []


def read(broker):
    async def run():
        async with pydanube.connect(broker.url) as client:
            return await stored(client)

    return asyncio.run(run())


def said(broker, *arguments):
    done = danube("storage", *arguments, "--format", "json", url=broker.url)
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


@pytest.mark.soak
def test_history_moves_to_another_store_while_messages_arrive(tmp_path, s3):
    old, new = s3.new_store(), s3.new_store()
    expected = payloads_of(200)
    path = settings(tmp_path, old, {"new": new})
    broker = BrokerProcess(tmp_path / "data", "--config", str(path))
    with broker:
        add(broker, expected[:100], 100)
        evict(broker)

        async def interrupt():
            async with pydanube.connect(broker.url) as client:
                page = await client.storage.copy("new", bytes_per_s=1000, count=True)
                assert 0 < page.copied_count < page.segments_left
                async with asyncio.TaskGroup() as group:
                    # The next page is being copied when the broker is killed.
                    copying = group.create_task(
                        client.storage.copy("new", after=page.after)
                    )
                    await asyncio.to_thread(broker.kill)
                    copying.cancel()

        asyncio.run(interrupt())
        broker.start()
        add(broker, expected[100:150], 150)
        code, result, error = said(broker, "copy", "new")
        assert code == 0, error
        assert result["damaged"] == []
        assert 0 < result["copied"] < result["segments"]
        code, result, error = said(broker, "copy", "new")
        assert (code, result["copied"]) == (0, 0), error
        # After the copy, and before the restart.
        add(broker, expected[150:], 200)
        evict(broker)
        assert broker.stop() == 0
    settings(tmp_path, new, {"old": old})
    with broker:
        code, result, _ = said(broker, "verify")
        assert code == 11
        assert all(each["remote"] == "missing" for each in result["damaged"])
        missing = len(result["damaged"])
        code, result, error = said(broker, "verify", "--repair", "--from", "old")
        assert code == 0, error
        assert len(result["damaged"]) == missing > 0
        asyncio.run(_empty(old))
        evict(broker)
        assert read(broker) == expected
        add(broker, [b"new"], 201)
        assert said(broker, "verify")[0] == 0
        assert broker.stop() == 0
    assert asyncio.run(open_objects(*old).names("")) == []


async def _empty(store):
    objects = open_objects(*store)
    for name in await objects.names(""):
        await objects.delete(name)


def test_store_whose_copy_is_not_finished_is_not_used(tmp_path):
    new = tmp_path / "new"
    target = (f"fs://{new}", {})
    path = settings(tmp_path, (f"fs://{tmp_path}/old", {}), {"new": target})
    broker = BrokerProcess(tmp_path / "data", "--config", str(path))
    with broker:
        add(broker, payloads_of(50), 50)

        async def copy_without_finishing():
            async with pydanube.connect(broker.url) as client:
                page = await client.storage.copy("new")
                assert page.copied_count > 0
                assert page.after == ""

        asyncio.run(copy_without_finishing())
        assert broker.stop() == 0
    settings(tmp_path, target)
    with broker:

        async def is_refused():
            async with pydanube.connect(broker.url) as client:
                problems = (await client.storage.describe()).problems
            return any("has no .cluster.json" in each for each in problems)

        asyncio.run(until(is_refused, "the store is used"))
        code, _, error = said(broker, "verify")
        assert code != 0
        assert "has no .cluster.json" in error
        assert broker.stop() == 0


def test_copying_needs_a_remote_store_and_a_named_target(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        code, _, error = said(broker, "copy", "new")
        assert code == 2
        assert "storage.remote.url" in error
        assert broker.stop() == 0
    path = settings(tmp_path, (f"fs://{tmp_path}/old", {}))
    with BrokerProcess(tmp_path / "other", "--config", str(path)) as broker:
        add(broker, payloads_of(1), 1)
        code, _, error = said(broker, "copy", f"fs://{tmp_path}/new")
        assert code == 2
        assert "is not the name of a store" in error
        assert broker.stop() == 0
    assert not (tmp_path / "new").exists()
