"""Segments that are only in the remote store: which requests reading them makes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from pydanube.model.errors import CorruptSegment, ObjectsUnavailable
from pydanube.wire.files.segment_ranges import WHOLE_BYTES_MAX
from pydanube_broker.storage.segments.range_cache import RangeCache
from pydanube_broker.storage.segments.segment_cache import AHEAD_KEEP_S, AHEAD_SHARE
from pydanube_broker.storage.storage_opening import REMOTE_READS_MAX
from support.fakes.batches import A_TIME, offsets_of, payloads_of
from support.fakes.corrupt_objects import forget_segments, retry_reads_now
from support.fakes.storages import open_topic, publish, read_all, seal, until
from support.fakes.tiered_worlds import (
    COUNT,
    LARGE,
    TieredWorld,
    age_row_groups_ahead,
    expect_local,
    incompressible,
    row_groups_ahead,
    sealed_topic,
    settle,
)


@pytest.fixture
def world():
    """Return a world with a remote store."""
    return TieredWorld()


@pytest.fixture
def storage_config():
    """Return settings with which each large message has a row group."""
    return {"row_group_bytes": LARGE}


@pytest.fixture
async def large(world, storage):
    """Open a topic with one remote segment of 12 row groups."""
    log = await sealed_topic(storage, incompressible(1))
    assert log.segments[0].byte_count > WHOLE_BYTES_MAX
    await world.move_to_remote(log)
    return log


async def test_segment_is_read_with_one_request_for_the_footer_and_each_row_group(
    world, storage, large
):
    assert payloads_of(await read_all(large)) == incompressible(1)
    assert await read_all(large)
    footer, *groups = world.remote.requests
    size = large.segments[0].byte_count
    assert footer[2] == size
    assert len(groups) == COUNT
    # The row groups follow each other without overlapping, in any order of requests.
    groups.sort()
    for (_, _, end), (_, begin, _) in pairwise(groups):
        assert end == begin
    assert sum(end - begin for _, begin, end in groups) < size
    assert storage.cache.remote.request_count == len(world.remote.requests)


async def test_small_segment_is_read_with_one_request(world, storage):
    log = await sealed_topic(storage, [b"a", b"b"])
    await world.move_to_remote(log)
    assert payloads_of(await read_all(log)) == [b"a", b"b"]
    entry = log.segments[0]
    assert world.remote.requests == [(entry.object_name, 0, entry.byte_count)]


async def test_readers_of_the_same_row_group_share_its_request(world, large):
    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(large.read(0, bytes_max=1))
    requested = set(world.remote.requests)
    assert len(requested) == len(world.remote.requests) <= 3


async def test_reading_one_message_requests_at_most_one_row_group_ahead(
    world, storage, large
):
    await large.read(0, bytes_max=1)
    # The row groups of 0 and 1, and the footer.
    await settle(storage)
    assert len(world.remote.requests) <= 3


async def test_sequential_reader_requests_more_and_more_row_groups_ahead(
    world, storage, large
):
    waiting = []
    for offset in range(5):
        await large.read(offset, bytes_max=1)
        await settle(storage)
        waiting.append(len(world.remote.requests) - 1 - (offset + 1))
    # The last are all that the segment has.
    assert waiting == [1, 2, 4, 4, 7]


async def test_requests_ahead_are_under_way_at_the_same_time(world, storage, large):
    for offset in range(4):
        await large.read(offset, bytes_max=1)
        await settle(storage)
    world.remote.open_door.clear()
    await large.read(4, bytes_max=1)
    await until(lambda: world.remote.under_way == 4)
    world.remote.open_door.set()
    assert offsets_of(await read_all(large)) == list(range(COUNT))


async def test_requests_ahead_leave_requests_for_other_readers(world, storage):
    one = await sealed_topic(storage, incompressible(1, 40))
    other = await open_topic(storage, topic_id=2)
    await publish(other, b"x")
    await seal(storage, 2)
    await world.move_to_remote(one)
    await world.move_to_remote(other)
    for offset in range(5):
        await one.read(offset, bytes_max=1)
        await settle(storage)
    world.remote.open_door.clear()
    await one.read(5, bytes_max=1)
    await one.read(6, bytes_max=1)
    name = other.segments[0].object_name
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(other.read(0, bytes_max=1))
        await until(lambda: world.remote.requests[-1][0] == name)
        assert world.remote.under_way < REMOTE_READS_MAX
        world.remote.open_door.set()
    assert payloads_of(reading.result()) == [b"x"]


async def test_reading_ahead_continues_in_the_next_segments(world, storage):
    log = await sealed_topic(storage, *(incompressible(at, 9) for at in range(3)))
    await world.move_to_remote(log)
    names = [entry.object_name for entry in log.segments]
    for offset in range(7):
        await log.read(offset, bytes_max=1)
        await settle(storage)
    requested = [name for name, _, _ in world.remote.requests]
    assert requested.count(names[0]) == 10
    assert requested.count(names[1]) > 1
    assert offsets_of(await read_all(log)) == list(range(27))
    assert len(world.remote.requests) == len(set(world.remote.requests)) == 30


async def test_small_segments_are_read_ahead_too(world, storage):
    log = await sealed_topic(storage, *([b"%d" % at] for at in range(40)))
    await world.move_to_remote(log)
    assert offsets_of(await read_all(log)) == list(range(40))
    assert world.remote.under_way_max > 8
    assert len(world.remote.requests) == 40


async def test_reading_ahead_ends_at_local_segments(world, storage):
    log = await sealed_topic(storage, *([b"%d" % at] for at in range(8)))
    await world.move_to_remote(log, 3)
    assert offsets_of(await read_all(log)) == list(range(8))
    assert len(world.remote.requests) == 3


async def test_slow_store_does_not_delay_readers_of_local_segments(world, storage):
    log = await sealed_topic(storage, *([b"%d" % at] for at in range(30)))
    await world.move_to_remote(log, 29)
    world.remote.open_door.clear()
    async with asyncio.TaskGroup() as tasks:
        reads = [tasks.create_task(log.read(at, bytes_max=1)) for at in range(29)]
        await until(lambda: world.remote.under_way == REMOTE_READS_MAX)
        assert offsets_of(await log.read(29, bytes_max=1)) == [29]
        assert not any(read.done() for read in reads)
        world.remote.open_door.set()
    assert [offsets_of(read.result()) for read in reads] == [[at] for at in range(29)]
    assert world.remote.under_way_max == REMOTE_READS_MAX


async def test_store_that_goes_away_is_retried_and_is_no_corruption(
    world, storage, large, caplog
):
    await large.read(0, bytes_max=1)
    await settle(storage)
    world.remote.is_away = True
    for offset in range(6, 9):
        with pytest.raises(ObjectsUnavailable, match=f"offsets 0 to {COUNT}"):
            await large.read(offset, bytes_max=1)
    count = len(world.remote.requests)
    # Until the next attempt is due, nothing is requested.
    with pytest.raises(ObjectsUnavailable) as failure:
        await large.read(6, bytes_max=1)
    assert len(world.remote.requests) == count
    assert failure.value.retry_at > 0
    assert storage.corrupt_segment_count == 0
    assert storage.cache.remote.failure_count == 3
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    world.remote.is_away = False
    retry_reads_now(large)
    caplog.set_level("INFO")
    assert offsets_of(await read_all(large)) == list(range(COUNT))
    assert "the remote object store can be read again" in caplog.text


async def test_failure_of_reading_ahead_is_not_remembered(world, storage, large):
    await large.read(0, bytes_max=1)
    await large.read(1, bytes_max=1)
    await settle(storage)
    world.remote.is_away = True
    await large.read(2, bytes_max=1)
    await settle(storage)
    world.remote.is_away = False
    assert offsets_of(await read_all(large)) == list(range(COUNT))


async def test_object_that_is_missing_in_both_stores_is_an_error(world, storage, large):
    await world.remote.delete(large.segments[0].object_name)
    with pytest.raises(CorruptSegment, match="is missing") as failure:
        await large.read(0, bytes_max=1)
    assert not failure.value.is_damaged
    assert storage.corrupt_segment_count == 1


async def test_damage_of_the_remote_copy_is_found(world, storage, large):
    world.remote.damage(large.segments[0].object_name, 40_000)
    with pytest.raises(CorruptSegment, match="row group 0, offsets 0 to 1") as failure:
        await large.read(0, bytes_max=1)
    assert failure.value.is_damaged
    assert offsets_of(await large.read(1, bytes_max=1)) == [1]


async def test_shorter_remote_object_is_damaged(world, large):
    world.remote.shorten(large.segments[0].object_name, 100)
    with pytest.raises(CorruptSegment, match="ends before byte"):
        await large.read(0, bytes_max=1)


async def test_remote_copy_replaces_a_damaged_local_copy(world, storage, caplog):
    log = await sealed_topic(storage, [b"whole"])
    await world.move_to_remote(log)
    name = log.segments[0].object_name
    content = bytearray(await world.remote.read(name))
    content[10] ^= 1
    await world.objects.put(name, bytes(content))
    assert payloads_of(await log.read(0, bytes_max=1)) == [b"whole"]
    assert "the remote copy is read instead" in caplog.text
    assert storage.corrupt_segment_count == 0


async def test_damaged_local_copy_without_remote_copy_is_an_error(world, storage):
    log = await sealed_topic(storage, [b"x"])
    await world.objects.list_local()
    name = log.segments[0].object_name
    world.local.stored[name] = world.local.stored[name].slice(0, 100)
    with pytest.raises(CorruptSegment, match="the file has 100 bytes"):
        await log.read(0, bytes_max=1)


async def test_open_segment_may_be_evicted(world, storage):
    log = await sealed_topic(storage, incompressible(1))
    await world.objects.list_local()
    await log.read(0, bytes_max=1)
    await world.move_to_remote(log)
    assert offsets_of(await read_all(log)) == list(range(COUNT))
    # The footer is known already.
    assert len(world.remote.requests) <= COUNT


async def test_copy_that_is_evicted_while_it_is_opened_is_read_remotely(world, storage):
    log = await sealed_topic(storage, [b"x"])
    await world.move_to_remote(log)
    expect_local(world, log.segments[0])
    assert payloads_of(await log.read(0, bytes_max=1)) == [b"x"]


async def test_memory_is_bounded_while_reading_ahead(world, storage_config):
    bytes_max = 6 * LARGE
    async with world.storage(**storage_config, cache_bytes_max=bytes_max) as storage:
        log = await sealed_topic(storage, incompressible(1, 30))
        await world.move_to_remote(log)
        cache = storage.cache
        for offset in range(30):
            assert offsets_of(await log.read(offset, bytes_max=1)) == [offset]
            assert cache.ahead_bytes <= bytes_max // AHEAD_SHARE
            assert cache.byte_count + cache.ahead_bytes <= bytes_max
        assert (cache.ahead_bytes == 0) == (not row_groups_ahead(storage))


async def test_bytes_that_nobody_reads_make_room_for_other_readers(
    world, storage_config
):
    async with world.storage(**storage_config, cache_bytes_max=6 * LARGE) as storage:
        log = await sealed_topic(storage, incompressible(1, 30))
        await world.move_to_remote(log)
        for offset in range(4):
            await log.read(offset, bytes_max=1)
        await settle(storage)
        abandoned = row_groups_ahead(storage)
        assert abandoned
        age_row_groups_ahead(storage, AHEAD_KEEP_S + 1)
        for offset in range(20, 26):
            await log.read(offset, bytes_max=1)
            await settle(storage)
        assert not abandoned & row_groups_ahead(storage)


async def test_nothing_is_read_ahead_without_a_cache(world, storage_config):
    async with world.storage(**storage_config, cache_bytes_max=0) as storage:
        log = await sealed_topic(storage, [b"a"], [b"b"], [b"c"])
        await world.move_to_remote(log)
        assert offsets_of(await read_all(log)) == [0, 1, 2]
        assert storage.cache.byte_count == storage.cache.ahead_bytes == 0


async def test_segments_of_a_deleted_topic_leave_the_memory(world, storage, large):
    for offset in range(3):
        await large.read(offset, bytes_max=1)
    await settle(storage)
    assert storage.cache.ahead_bytes > 0
    await storage.delete_topic(1)
    assert storage.cache.byte_count == storage.cache.ahead_bytes == 0


async def test_time_is_found_without_reading_payloads(world, storage):
    log = await open_topic(storage)
    for at, payload in enumerate(incompressible(1)):
        await publish(log, payload, time=A_TIME + at)
    await seal(storage, 1)
    await world.move_to_remote(log)
    assert await log.find_time(A_TIME + 7) == 7
    _, *columns = world.remote.requests
    assert len(columns) == 1
    assert columns[0][2] - columns[0][1] < 1000


async def test_long_footer_takes_a_second_request(world, storage):
    log = await open_topic(storage)
    for at, payload in enumerate(incompressible(1)):
        # Keys are in the statistics of the footer.
        await publish(log, payload, keys=[b"%04d" % at + b"k" * 4000])
    await seal(storage, 1)
    await world.move_to_remote(log)
    assert offsets_of(await log.read(0, bytes_max=1)) == [0]
    first, second, *_ = world.remote.requests
    assert second[1] < first[1]
    assert first[2] == second[2] == log.segments[0].byte_count


async def test_segment_without_checksums_is_read_in_ranges(world, storage, large):
    entry = replace(large.segments[0], part_checksums=None, checksum=None)
    assert payloads_of(await storage.cache.read(entry, 3, 1)) == [incompressible(1)[3]]
    assert len(world.remote.requests) <= 3


# The cache on the local disk.


@asynccontextmanager
async def disk_cache(world, path, **settings):
    """Open a storage with a cache of ranges in *path*."""
    settings = {"bytes_max": 1 << 30, "free_bytes_min": 0} | settings
    with ThreadPoolExecutor(1) as thread:
        async with world.storage(row_group_bytes=LARGE) as storage:
            cache = RangeCache(path, thread, **settings)
            await cache.open()
            storage.cache.remote.cache = cache
            yield storage, cache


async def written(cache):
    """Return when all that was cached is on the disk."""
    await until(lambda: not cache.is_writing)


async def test_second_reader_reads_from_the_local_disk(world, tmp_path):
    async with disk_cache(world, tmp_path) as (storage, cache):
        log = await sealed_topic(storage, incompressible(1))
        await world.move_to_remote(log)
        await read_all(log)
        await written(cache)
        count = len(world.remote.requests)
        forget_segments(log)
        assert payloads_of(await read_all(log)) == incompressible(1)
        assert len(world.remote.requests) == count
        assert cache.hit_count == count


async def test_cache_survives_a_restart(world, tmp_path):
    async with disk_cache(world, tmp_path) as (storage, cache):
        log = await sealed_topic(storage, incompressible(1))
        await world.move_to_remote(log)
        await read_all(log)
        await written(cache)
    count = len(world.remote.requests)
    async with disk_cache(world, tmp_path) as (storage, cache):
        log = await open_topic(storage, epoch=2)
        assert payloads_of(await read_all(log)) == incompressible(1)
        assert len(world.remote.requests) == count


async def test_wrong_bytes_on_the_local_disk_are_requested_again(
    world, tmp_path, caplog
):
    async with disk_cache(world, tmp_path) as (storage, cache):
        log = await sealed_topic(storage, incompressible(1))
        await world.move_to_remote(log)
        await read_all(log)
        await written(cache)
        for path in tmp_path.iterdir():
            path.write_bytes(bytes(path.stat().st_size))
        forget_segments(log)
        assert payloads_of(await read_all(log)) == incompressible(1)
        assert storage.corrupt_segment_count == 0
        assert "wrong bytes" in caplog.text
        await written(cache)
        count = len(world.remote.requests)
        forget_segments(log)
        assert payloads_of(await read_all(log)) == incompressible(1)
        assert len(world.remote.requests) == count
