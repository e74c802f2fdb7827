"""The contract of all implementations of Objects."""

import time

import pytest

from pydanube.model.errors import ObjectsUnavailable
from pydanube.storage.objects import DirectoryObjects, MemoryObjects


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
    assert before - 10_000 <= await objects.modified_at("a/one")
    assert await objects.modified_at("a/one") <= time.time_ns() // 1000
    with pytest.raises(ObjectsUnavailable):
        await objects.modified_at("a/none")
