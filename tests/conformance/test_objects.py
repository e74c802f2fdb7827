"""What every object store must do, whoever provides it."""

import asyncio

import pytest

from pydanube.storage.objects import DirectoryObjects, MemoryObjects


@pytest.fixture(params=["memory", "directory"])
def objects(request, tmp_path):
    if request.param == "memory":
        return MemoryObjects()
    return DirectoryObjects(tmp_path / "made" / "here")


def test_an_object_is_read_back(objects):
    asyncio.run(objects.put("ns/topic/one", b"abc"))
    with objects.open("ns/topic/one") as file:
        assert file.read() == b"abc"


def test_an_object_takes_the_place_of_one_of_the_same_name(objects):
    asyncio.run(objects.put("a/one", b"abc"))
    asyncio.run(objects.put("a/one", b"de"))
    with objects.open("a/one") as file:
        assert file.read() == b"de"


def test_a_missing_object_cannot_be_opened(objects):
    with pytest.raises(OSError, match="none"):
        objects.open("a/none")


def test_names_are_found_by_prefix(objects):
    async def run():
        for name in ("a/b/2", "a/b/1", "a/bc/3", "d/4"):
            await objects.put(name, b"x")
        assert await objects.names("a/b/") == ["a/b/1", "a/b/2"]
        assert await objects.names("a/b") == ["a/b/1", "a/b/2", "a/bc/3"]
        assert await objects.names("") == ["a/b/1", "a/b/2", "a/bc/3", "d/4"]
        assert await objects.names("nothing/here/") == []

    asyncio.run(run())


def test_a_deleted_object_is_gone_and_may_be_deleted_again(objects):
    async def run():
        await objects.put("a/one", b"abc")
        await objects.delete("a/one")
        await objects.delete("a/one")
        assert await objects.names("") == []

    asyncio.run(run())


def test_an_object_has_a_url(objects):
    assert objects.url("a/one").endswith("/a/one")
    assert "://" in objects.url("a/one")
