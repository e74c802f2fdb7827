"""The contract of all implementations of Objects."""

import asyncio
import time

import pytest

from pydanube.objects.directory import DirectoryObjects
from pydanube.objects.memory import MemoryObjects


@pytest.fixture(params=["memory", "directory"])
def objects(request, tmp_path):
    if request.param == "memory":
        return MemoryObjects()
    return DirectoryObjects(tmp_path / "made" / "here")


async def test_an_object_is_read_back(objects):
    await objects.put("ns/topic/one", b"abc")
    with objects.open("ns/topic/one") as file:
        assert file.read() == b"abc"


async def test_object_replaces_one_of_the_same_name(objects):
    await objects.put("a/one", b"abc")
    await objects.put("a/one", b"de")
    with objects.open("a/one") as file:
        assert file.read() == b"de"


def test_a_missing_object_cannot_be_opened(objects):
    with pytest.raises(OSError, match="none"):
        objects.open("a/none")


async def test_names_are_found_by_prefix(objects):
    for name in ("a/b/2", "a/b/1", "a/bc/3", "d/4"):
        await objects.put(name, b"x")
    assert await objects.names("a/b/") == ["a/b/1", "a/b/2"]
    assert await objects.names("a/b") == ["a/b/1", "a/b/2", "a/bc/3"]
    assert await objects.names("") == ["a/b/1", "a/b/2", "a/bc/3", "d/4"]
    assert await objects.names("nothing/here/") == []


async def test_a_deleted_object_is_gone_and_may_be_deleted_again(objects):
    await objects.put("a/one", b"abc")
    await objects.delete("a/one")
    await objects.delete("a/one")
    assert await objects.names("") == []


def test_an_object_has_a_url(objects):
    assert objects.url("a/one").endswith("/a/one")
    assert "://" in objects.url("a/one")


async def test_an_object_may_have_the_longest_names_of_namespace_and_topic(objects):
    name = f"{'n' * 255}/{'é' * 127}/{0:020d}-{1:020d}-1.parquet"
    await objects.put(name, b"abc")
    assert await objects.names(name[:-20]) == [name]
    await objects.delete(name)
    assert await objects.names("") == []


async def test_prefix_that_is_too_long_has_no_objects(objects):
    assert await objects.names(f"default/{'é' * 255}/") == []


async def test_an_object_has_the_time_at_which_it_was_stored(objects):
    before = time.time_ns() // 1000
    await objects.put("a/one", b"abc")
    # File systems round times down, by at most 10 ms.
    found = await objects.stat("a/one")
    assert found.byte_count == 3
    assert before - 10_000 <= found.modified_at <= time.time_ns() // 1000
    assert await objects.stat("a/none") is None


async def test_one_of_many_writers_stores_an_absent_object(objects):
    for at in range(20):
        name = f"race/{at}"
        async with asyncio.TaskGroup() as group:
            puts = [
                group.create_task(objects.put_if_absent(name, b"%d" % writer))
                for writer in range(12)
            ]
        outcomes = [each.result() for each in puts]
        assert outcomes.count(True) == 1
        assert bytes(await objects.read(name)) == b"%d" % outcomes.index(True)


async def test_put_if_absent_leaves_the_object_that_is_there(objects):
    await objects.put("a/one", b"abc")
    assert not await objects.put_if_absent("a/one", b"de")
    assert bytes(await objects.read("a/one")) == b"abc"


async def test_ranges_of_an_object_are_read(objects):
    await objects.put("a/one", b"abcdef")
    assert bytes(await objects.read("a/one")) == b"abcdef"
    assert bytes(await objects.read("a/one", 2, 4)) == b"cd"
    assert bytes(await objects.read("a/one", 4)) == b"ef"
    assert bytes(await objects.read("a/one", 4, 100)) == b"ef"
    assert await objects.read("a/none") is None


async def test_names_are_listed_in_pages(objects):
    for at in range(5):
        await objects.put(f"a/{at}", b"x")
    assert await objects.names("a/", count_max=2) == ["a/0", "a/1"]
    assert await objects.names("a/", after="a/1", count_max=2) == ["a/2", "a/3"]
    assert await objects.names("a/", after="a/4") == []
