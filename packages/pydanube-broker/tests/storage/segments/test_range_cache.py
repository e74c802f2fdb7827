from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pydanube.model.segments import SegmentEntry
from pydanube_broker.storage.segments.range_cache import (
    PENDING_BYTES_MAX,
    RangeCache,
    range_name,
)
from support.fakes.storages import until

ENTRY = SegmentEntry(
    base=0,
    end=10,
    epoch=1,
    count=10,
    byte_count=1000,
    object_name="a/b",
    first_publish_time=0,
    last_publish_time=0,
    sealed_at=1,
)

NAMES = [range_name(ENTRY, at, at + 1) for at in range(10)]


@pytest.fixture
def thread():
    """Return the thread that uses the disk."""
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.fixture
async def new_cache(tmp_path, thread):
    """Return a function that opens a cache in the same directory."""

    async def open_cache(path=tmp_path / "cache", *, bytes_max=100, free_bytes_min=0):
        cache = RangeCache(
            path, thread, bytes_max=bytes_max, free_bytes_min=free_bytes_min
        )
        await cache.open()
        return cache

    return open_cache


async def put(cache, name, data):
    cache.put(name, data)
    await until(lambda: not cache.is_writing)


def sizes_in(path):
    return {each.name: each.stat().st_size for each in path.iterdir()}


async def test_range_that_was_put_is_returned(new_cache):
    cache = await new_cache()
    assert await cache.get(NAMES[0]) is None
    await put(cache, NAMES[0], memoryview(b"abc"))
    assert await cache.get(NAMES[0]) == b"abc"
    assert (cache.hit_count, cache.miss_count, cache.byte_count) == (1, 1, 3)


async def test_least_recently_used_ranges_are_removed(new_cache, tmp_path):
    cache = await new_cache(bytes_max=100)
    await put(cache, NAMES[0], bytes(40))
    await put(cache, NAMES[1], bytes(40))
    await cache.get(NAMES[0])
    await put(cache, NAMES[2], bytes(40))
    assert await cache.get(NAMES[1]) is None
    assert cache.byte_count == 80
    assert sizes_in(tmp_path / "cache") == {NAMES[0]: 40, NAMES[2]: 40}


async def test_range_larger_than_the_cache_is_not_cached(new_cache, tmp_path):
    cache = await new_cache(bytes_max=10)
    await put(cache, NAMES[0], bytes(11))
    assert await cache.get(NAMES[0]) is None
    assert sizes_in(tmp_path / "cache") == {}


async def test_ranges_that_wait_for_the_disk_are_bounded(new_cache):
    cache = await new_cache(bytes_max=10 * PENDING_BYTES_MAX)
    half = bytes(PENDING_BYTES_MAX // 2)
    for name in NAMES[:4]:
        cache.put(name, half)
    await until(lambda: not cache.is_writing)
    assert cache.byte_count == PENDING_BYTES_MAX


async def test_files_of_an_earlier_process_are_found(new_cache, tmp_path):
    cache = await new_cache()
    for name in NAMES[:3]:
        await put(cache, name, bytes(30))
    (tmp_path / "cache" / "something").write_bytes(b"else")
    smaller = await new_cache(bytes_max=70)
    assert smaller.byte_count == 60
    assert sum([await smaller.get(name) is not None for name in NAMES[:3]]) == 2
    # Foreign files are left alone.
    assert len(sizes_in(tmp_path / "cache")) == 3


async def test_discarded_range_is_removed(new_cache, tmp_path, thread):
    cache = await new_cache()
    await put(cache, NAMES[0], b"abc")
    cache.discard(NAMES[0])
    assert await cache.get(NAMES[0]) is None
    assert cache.byte_count == 0
    thread.submit(lambda: None).result()
    assert sizes_in(tmp_path / "cache") == {}


async def test_file_that_was_removed_is_a_miss(new_cache, tmp_path):
    cache = await new_cache()
    await put(cache, NAMES[0], b"abc")
    (tmp_path / "cache" / NAMES[0]).unlink()
    assert await cache.get(NAMES[0]) is None
    assert cache.byte_count == 0
    await put(cache, NAMES[0], b"abc")
    assert await cache.get(NAMES[0]) == b"abc"


async def test_nothing_is_cached_on_a_full_disk(new_cache, tmp_path):
    cache = await new_cache(free_bytes_min=1 << 60)
    await put(cache, NAMES[0], b"abc")
    assert await cache.get(NAMES[0]) is None
    assert cache.byte_count == 0
    assert sizes_in(tmp_path / "cache") == {}


async def test_failing_disk_only_means_no_caching(new_cache, tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    cache = await new_cache(tmp_path / "file")
    await put(cache, NAMES[0], b"abc")
    assert await cache.get(NAMES[0]) is None
    assert cache.byte_count == 0
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "reading continues without it" in caplog.text


async def test_unreadable_file_is_a_miss(new_cache, tmp_path, caplog):
    cache = await new_cache()
    await put(cache, NAMES[0], b"abc")
    path = tmp_path / "cache" / NAMES[0]
    path.unlink()
    path.mkdir()
    assert await cache.get(NAMES[0]) is None
    assert "does not work" in caplog.text


def test_name_depends_on_the_object_and_the_range():
    others = [
        range_name(ENTRY, 0, 2),
        range_name(replace(ENTRY, checksum=1), 0, 1),
        range_name(replace(ENTRY, object_name="a"), 0, 1),
        range_name(replace(ENTRY, sealed_at=2), 0, 1),
    ]
    assert len({NAMES[0], *others}) == 5
    assert range_name(ENTRY, 0, 1) == NAMES[0]
