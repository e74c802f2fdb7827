import pytest

from pydanube.model.errors import InvalidConfig, ObjectsUnavailable
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.storage.config import RemoteConfig
from pydanube_broker.storage.remote.tiered_objects import TieredObjects, open_remote


@pytest.fixture
def local():
    return MemoryObjects()


@pytest.fixture
def remote():
    return MemoryObjects()


@pytest.fixture
def tiers(local, remote):
    return TieredObjects(local, remote)


class AbsentObjects(MemoryObjects):
    """A remote store that must not be asked."""

    def __getattribute__(self, name):
        raise AssertionError(f"{name} of the remote store was used")


async def test_new_objects_are_local(tiers, local, remote):
    await tiers.put("a/one", b"one")
    assert await tiers.put_if_absent("a/two", b"two")
    assert not await tiers.put_if_absent("a/two", b"other")
    assert await local.names("") == ["a/one", "a/two"]
    assert await remote.names("") == []


async def test_the_local_copy_is_read_first_and_then_the_remote_one(tiers, remote):
    await tiers.put("a/one", b"local")
    await remote.put("a/one", b"remote")
    assert bytes(await tiers.read("a/one")) == b"local"
    assert tiers.open("a/one").read() == b"local"
    await tiers.evict("a/one")
    assert bytes(await tiers.read("a/one", 1, 3)) == b"em"
    assert tiers.open("a/one").read() == b"remote"
    assert (await tiers.stat("a/one")).byte_count == 6


async def test_an_object_without_copies_does_not_exist(tiers):
    assert await tiers.read("a/one") is None
    assert await tiers.stat("a/one") is None
    with pytest.raises(FileNotFoundError):
        tiers.open("a/one")


async def test_the_url_is_that_of_the_local_copy_while_there_is_one(tmp_path):
    tiers = TieredObjects(DirectoryUrls(), MemoryObjects())
    await tiers.put("a/one", b"x")
    await tiers.list_local()
    assert tiers.url("a/one") == "local:///a/one"
    await tiers.evict("a/one")
    assert tiers.url("a/one") == "memory:///a/one"


class DirectoryUrls(MemoryObjects):
    def url(self, name):
        return f"local:///{name}"


async def test_changes_during_the_listing_of_local_copies_are_noticed(local, remote):
    class SlowObjects(MemoryObjects):
        async def names(self, prefix, **limits):
            found = await super().names(prefix, **limits)
            await tiers.put("new", b"x")
            await tiers.evict("old")
            return found

    tiers = TieredObjects(SlowObjects(), remote)
    await tiers.put("old", b"x")
    await tiers.put("kept", b"x")
    await tiers.list_local()
    assert [tiers.is_local(name) for name in ("old", "kept", "new", "other")] == [
        False,
        True,
        True,
        False,
    ]


async def test_changes_during_a_second_listing_are_noticed(remote):
    """The uploader lists again if it could not read the manifest."""

    class SlowObjects(MemoryObjects):
        count = 0

        async def names(self, prefix, **limits):
            found = await super().names(prefix, **limits)
            self.count += 1
            await tiers.put(f"new-{self.count}", b"x")
            return found

    tiers = TieredObjects(SlowObjects(), remote)
    for _ in range(2):
        await tiers.list_local()
    assert tiers.is_local("new-1")
    assert tiers.is_local("new-2")


async def test_an_object_that_another_program_has_stored_is_found(tiers, local):
    await tiers.list_local()
    await local.put("a/one", b"x")
    assert not tiers.is_local("a/one")
    await tiers.find_local("a/one")
    assert tiers.is_local("a/one")


async def test_deleting_removes_the_local_copy_at_once_and_remembers_the_remote_one():
    tiers = TieredObjects(MemoryObjects(), AbsentObjects())
    await tiers.put("a/one", b"x")
    await tiers.delete("a/one")
    assert await tiers.local.names("") == []
    assert list(tiers.remote_deletions) == ["a/one"]


async def test_listing_does_not_ask_the_remote_store():
    tiers = TieredObjects(MemoryObjects(), AbsentObjects())
    for name in ("a/1", "a/2", "b/1"):
        await tiers.put(name, b"x")
    assert await tiers.names("a/") == ["a/1", "a/2"]
    assert await tiers.names("", after="a/1", count_max=1) == ["a/2"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"timeout_s": 0.0}, "the timeout"),
        ({"retries": -1}, "-1 retries"),
        ({"requests_max": 0}, "a concurrency of 0"),
    ],
)
def test_remote_store_gets_the_limits_of_the_settings(settings, problem):
    # Values that only the store itself checks here, because no file is decoded.
    with pytest.raises(InvalidConfig, match=problem):
        open_remote(RemoteConfig(url="s3://bucket/prefix", **settings))


async def test_directory_without_local_copies_is_not_listed(tiers, local, monkeypatch):
    await local.put("shop/old/1", b"one")
    await tiers.list_local()
    listed = []
    names = local.names

    async def listing(prefix, **options):
        listed.append(prefix)
        return await names(prefix, **options)

    monkeypatch.setattr(local, "names", listing)
    assert await tiers.names("shop/none/") == []
    assert listed == []
    assert await tiers.names("shop/old/") == ["shop/old/1"]
    assert await tiers.names("shop/") == ["shop/old/1"]
    await tiers.put("shop/new/1", b"two")
    assert await tiers.names("shop/new/") == ["shop/new/1"]
    # A prefix that is no directory may match anything.
    assert await tiers.names("shop/n") == ["shop/new/1"]


async def test_object_whose_put_failed_is_listed(tiers, local, monkeypatch):
    await tiers.list_local()
    put = local.put

    async def put_and_fail(name, data):
        await put(name, data)
        raise ObjectsUnavailable("on purpose")

    monkeypatch.setattr(local, "put", put_and_fail)
    with pytest.raises(ObjectsUnavailable):
        await tiers.put("shop/new/1", b"one")
    assert await tiers.names("shop/new/") == ["shop/new/1"]
