"""The objects of a journal in a real Redis server."""

import logging
from contextlib import asynccontextmanager

import pytest

from pydanube.aio.tasks import gather
from pydanube.model.errors import InvalidConfig, ObjectsUnavailable
from pydanube.objects.redis_objects import open_redis
from support.servers.object_stores import SECRETS
from support.servers.redis_servers import DurableRedis

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with DurableRedis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@asynccontextmanager
async def opened(server, url=None, options=None, *, replicas_min=0, timeout_s=20.0):
    async with open_redis(
        url or server.new_url(),
        server.options if options is None else options,
        timeout_s=timeout_s,
        concurrency=8,
        replicas_min=replicas_min,
    ) as objects:
        yield objects


async def test_of_several_writers_one_stores_its_object(server):
    async with opened(server) as objects:
        stored = await gather(
            objects.put_if_absent("a", b"%d" % number) for number in range(12)
        )
        assert stored.count(True) == 1
        assert await objects.read("a") == b"%d" % stored.index(True)
        assert await objects.names("") == ["a"]


async def test_objects_are_read_in_ranges_and_removed(server):
    async with opened(server) as objects:
        await objects.put("a", b"old")
        await objects.put("a", memoryview(b"0123456789"))
        assert await objects.read("a", 2, 5) == b"234"
        assert await objects.read("a", 8) == b"89"
        assert await objects.read("a", 8, 20) == b"89"
        assert await objects.read("a", 10) == b""
        assert await objects.read("a", 0, 0) == b""
        assert await objects.read("b", 0, 5) is None
        assert await objects.read("b", 5, 5) is None
        assert await objects.read("b") is None
        found = await objects.stat("a")
        assert (found.byte_count, found.modified_at) == (10, None)
        await objects.delete("a")
        await objects.delete("a")
        assert await objects.read("a") is None
        assert await objects.stat("a") is None
        assert await objects.names("") == []


async def test_names_are_sorted_and_limited(server):
    names = ["a/1", "a/10", "a/2", "a/ä", "a/\U0001f600", "b/1"]
    async with opened(server) as objects:
        await gather(objects.put(name, b"x") for name in names)
        assert await objects.names("") == names
        assert await objects.names("a/") == names[:5]
        assert await objects.names("a/", after="a/10") == names[2:5]
        assert await objects.names("a/", after="A") == names[:5]
        assert await objects.names("a/1", count_max=1) == ["a/1"]
        assert await objects.names("c") == []


async def test_journals_with_other_prefixes_do_not_see_each_other(server):
    async with opened(server) as one, opened(server) as other:
        await one.put("a", b"1")
        assert await other.read("a") is None
        assert await other.names("") == []


async def test_objects_must_be_in_replicas_before_a_put_succeeds(
    server, tmp_path_factory
):
    url = server.new_url()
    settings = {"replicaof": f"127.0.0.1 {server.port}"}
    strict = opened(server, url, replicas_min=1, timeout_s=1.0)
    async with strict as objects:
        with pytest.raises(ObjectsUnavailable, match="0 replicas"):
            await objects.put_if_absent("a", b"1")
        # It is there, but somebody who finds it must not rely on it.
        with pytest.raises(ObjectsUnavailable, match="0 replicas"):
            await objects.read("a")
    with DurableRedis(tmp_path_factory.mktemp("replica"), **settings):
        async with opened(server, url, replicas_min=1, timeout_s=20.0) as objects:
            assert await objects.read("a") == b"1"
            assert await objects.put_if_absent("b", b"2")


async def test_server_that_forgets_is_refused(server, tmp_path, caplog):
    async with opened(server) as objects:
        await objects.verify_durability()
    with DurableRedis(tmp_path, appendfsync="everysec") as careless:
        async with opened(careless) as objects:
            with pytest.raises(InvalidConfig, match="appendfsync everysec; set"):
                await objects.verify_durability()
    hidden = {"rename-command": 'CONFIG ""'}
    with DurableRedis(tmp_path, **hidden) as silent, caplog.at_level(logging.WARNING):
        async with opened(silent) as objects:
            await objects.verify_durability()
            assert "does not show its settings" in caplog.text


async def test_errors_say_what_failed_and_no_secret(server, tmp_path):
    with DurableRedis(tmp_path) as lost:
        url = lost.new_url()
    for options, where in ((lost.options, url), ({"password": "wrong"}, None)):
        async with opened(server, where, options, timeout_s=1.0) as objects:
            with pytest.raises(ObjectsUnavailable, match="reading 'a' failed") as got:
                await objects.read("a")
            assert not any(secret in str(got.value) for secret in SECRETS)


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("s3://bucket/a", {}, "expected redis://HOST:PORT/PREFIX"),
        ("redis://localhost:1/a", {"colour": "red"}, "unknown options colour"),
        ("redis://user:secret@localhost/a", {}, "contains credentials"),
    ],
)
async def test_wrong_addresses_and_options_are_refused(url, options, reason):
    with pytest.raises(InvalidConfig, match=reason):
        async with opened(None, url, options):
            pass
