"""The idle broker merges small segments, and leaves the others as they are."""

import asyncio
import errno
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count

import pytest

from pydanube.model.errors import (
    MetadataUnavailable,
    ObjectsUnavailable,
    TopicFenced,
    TopicHeld,
)
from pydanube.model.policy import KEEP_ALL, Retention, TopicPolicy
from pydanube_broker.storage.config import RemoteConfig
from pydanube_broker.storage.journal.reserve import Reserve
from pydanube_broker.storage.segments.manifest import HoldableManifest
from pydanube_broker.storage.segments.merging import MergingTimes, is_idle
from support.drivers.running import using
from support.fakes.batches import payloads_of
from support.fakes.compacted import compact
from support.fakes.object_storages import ObjectWorld
from support.fakes.small_disk import SmallDisk
from support.fakes.storages import (
    World,
    open_topic,
    publish,
    read_all,
    seal,
    until,
    wake,
)
from support.fakes.upload_worlds import UploadWorld

MIB = 1024 * 1024


async def fill(storage, topic_id=1, count=8, **arguments):
    """Open a log of *count* segments of two messages, and a tail of one."""
    log = await open_topic(storage, topic_id, **arguments)
    for at in range(count):
        await publish(log, b"%d" % at, b"", keys=[b"k%d" % at, b"k%d" % at])
        await seal(storage, topic_id)
    await publish(log, b"tail")
    return log


@asynccontextmanager
async def uploaded(world):
    """Open a storage, fill a log of it, and upload its segments; yield both."""
    async with world.storage(remote=RemoteConfig(url="s3://bucket")) as storage:
        await storage.uploader.loaded.wait()
        log = await fill(storage)
        await storage.uploader.upload_now()
        yield storage, log


async def test_small_neighbours_become_one_segment(world, storage):
    log = await fill(storage)
    old, before = log.segments, payloads_of(await read_all(log))
    await storage.merger.merge_round()
    (new,) = log.segments
    assert await world.manifest.load(1) == (new,)
    assert (new.base, new.end, new.count, new.epoch) == (0, 16, 16, 1)
    assert new.first_publish_time == old[0].first_publish_time
    assert new.last_publish_time == old[-1].last_publish_time
    assert new.checksum is not None
    assert new.part_checksums is not None
    assert payloads_of(await read_all(log)) == before
    assert storage.merger.merged_count == 8
    await storage.merger.merge_round()
    assert log.segments == (new,)


async def test_the_old_objects_stay_for_readers_that_have_them_open(world, storage):
    log = await fill(storage)
    old = [each.object_name for each in log.segments]
    await storage.merger.merge_round()
    assert all(name in world.objects.stored for name in old)
    world.now += 60.0
    wake(storage)
    await until(lambda: not any(name in world.objects.stored for name in old))
    assert log.segments[0].object_name in world.objects.stored


async def test_gaps_stay(world, storage):
    log = await fill(storage)
    await compact(storage, world.objects, log, lambda at: at % 3 == 0)
    for _ in range(8):
        await publish(log, b"more")
        await seal(storage, 1)
    before = [list(each.ranges()) for each in await read_all(log)]
    await storage.merger.merge_round()
    after = [list(each.ranges()) for each in await read_all(log)]
    assert len(log.segments) <= 2
    assert offsets_in(after) == offsets_in(before)


def offsets_in(ranges):
    return [at for frame in ranges for base, end in frame for at in range(base, end)]


async def test_a_merged_segment_survives_a_restart(world):
    async with world.storage() as storage:
        log = await fill(storage)
        before = payloads_of(await read_all(log))
        await storage.merger.merge_round()
        merged = log.segments
    async with world.storage() as storage:
        log = await open_topic(storage)
        assert log.segments == merged
        assert payloads_of(await read_all(log)) == before


async def test_a_topic_with_a_hold_stays_until_it_is_released(world, storage):
    log = await fill(storage)
    old = log.segments
    log.holds = frozenset({"lake"})
    await storage.merger.merge_round()
    assert log.segments == old
    log.holds = frozenset()
    await storage.merger.merge_round()
    assert len(log.segments) == 1


async def test_a_topic_stays_until_its_holds_are_known(world):
    async with world.storage() as storage:
        await fill(storage)
    async with world.storage() as storage:
        log = await storage.open_log(1, "/default/t1", 2, TopicPolicy())
        await storage.merger.merge_round()
        assert len(log.segments) == 8
        log.configure(TopicPolicy(), KEEP_ALL)
        await storage.merger.merge_round()
        assert len(log.segments) == 1


async def test_a_hold_that_comes_meanwhile_leaves_nothing_behind(
    world, storage, caplog
):
    log = await fill(storage)
    old, names = log.segments, set(world.objects.stored)
    put = world.objects.put

    async def put_and_hold(name, data):
        await put(name, data)
        log.holds = frozenset({"lake"})

    world.objects.put = put_and_hold
    await storage.merger.merge_round()
    assert log.segments == old
    assert set(world.objects.stored) == names
    assert "is held by lake" in caplog.text


async def test_trimmed_messages_are_not_written_again(storage):
    log = await fill(storage, count=9)
    first = log.segments[0]
    log.trim(1)
    await storage.merger.merge_round()
    assert len(log.segments) == 2
    assert log.segments[0] == first


async def test_retention_limits_what_is_merged(storage):
    policy = TopicPolicy(retention=Retention(bytes_max=1000))
    log = await fill(storage, policy=policy)
    await storage.merger.merge_round()
    assert len(log.segments) == 8


async def test_nothing_is_merged_while_a_backup_copies_segments(storage):
    log = await fill(storage)
    async with storage.keeping_segments():
        await storage.merger.merge_round()
        assert len(log.segments) == 8
    await storage.merger.merge_round()
    assert len(log.segments) == 1


async def test_nothing_is_merged_until_a_full_disk_has_space_again():
    disk = SmallDisk(4 * MIB)
    world = World(files=disk.files, reserve=Reserve(disk, MIB))
    world.reserve.open()
    async with world.storage() as storage:
        log = await fill(storage)
        world.reserve.release()
        await storage.merger.merge_round()
        assert len(log.segments) == 8
        assert world.reserve.refill()
        await storage.merger.merge_round()
        assert len(log.segments) == 1


async def test_a_damaged_segment_stops_only_its_topic(world, storage, caplog):
    damaged = await fill(storage)
    intact = await fill(storage, 2)
    old = damaged.segments
    await world.objects.delete(old[3].object_name)
    opened = world.objects.open_count
    await storage.merger.merge_round()
    assert damaged.segments == old
    assert len(intact.segments) == 1
    assert old[3].object_name in caplog.text
    opened = world.objects.open_count
    await storage.merger.merge_round()
    assert world.objects.open_count == opened, "it is not read again"


async def test_a_topic_that_leaves_meanwhile_leaves_nothing_behind(world, storage):
    log = await fill(storage)
    names = set(world.objects.stored)
    put = world.objects.put

    async def put_and_release(name, data):
        await put(name, data)
        storage.release_log(1, TopicHeld("another broker serves it"))

    world.objects.put = put_and_release
    await storage.merger.merge_round()
    assert set(world.objects.stored) == names
    assert len(await world.manifest.load(1)) == 8
    assert len(log.segments) == 8


async def test_an_object_stays_if_the_outcome_is_unknown(world, storage):
    await fill(storage)
    names = set(world.objects.stored)

    async def change(*_, **__):
        raise MetadataUnavailable("on purpose")

    world.manifest.change = change
    await storage.merger.merge_round()
    assert len(set(world.objects.stored) - names) == 1


async def test_a_full_disk_stops_one_merge_and_loses_nothing(world, storage, caplog):
    full, other = await fill(storage), await fill(storage, 2)
    before = payloads_of(await read_all(full))
    old, names = full.segments, set(world.objects.stored)
    put = world.objects.put

    async def put_unless_full(name, data):
        if "/t1/" in name:
            raise ObjectsUnavailable("No space left on device")
        await put(name, data)

    world.objects.put = put_unless_full
    await storage.merger.merge_round()
    assert full.segments == await world.manifest.load(1) == old
    assert payloads_of(await read_all(full)) == before
    assert len(other.segments) == 1
    assert set(world.objects.stored) - names == {other.segments[0].object_name}
    assert "No space left on device" in caplog.text
    # With the next segment it is tried again.
    world.objects.put = put
    await seal(storage, 1)
    await storage.merger.merge_round()
    assert payloads_of(await read_all(full)) == before
    assert len(full.segments) < len(old)


async def test_nothing_is_left_behind_if_the_remote_store_does_not_answer(
    world, storage
):
    await fill(storage)
    names = set(world.objects.stored)

    async def replace(*_):
        raise ObjectsUnavailable("on purpose")

    storage.merger._replace = replace
    await storage.merger.merge_round()
    assert set(world.objects.stored) == names


async def test_a_topic_that_accepts_nothing_more_is_not_read(world, storage):
    log = await fill(storage)
    log.refusal = TopicFenced("on purpose")
    opened = world.objects.open_count
    await storage.merger.merge_round()
    assert world.objects.open_count == opened


@using(storage_config={"merge_bytes": 0})
async def test_merging_can_be_turned_off(storage):
    log = await fill(storage)
    await storage.merger.merge_round()
    assert len(log.segments) == 8


async def test_segments_are_merged_while_the_process_is_idle(world, monkeypatch):
    used_s = count()
    is_busy = True
    world.merging = MergingTimes(
        interval_s=0.0, processor_time=lambda: next(used_s) if is_busy else 0.0
    )
    errors = [OSError(errno.EMFILE, "on purpose")]

    def is_held(_):
        # The first time, the lock cannot be opened.
        if errors:
            raise errors.pop()
        return False

    async with world.storage() as storage:
        await fill(storage)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not storage.merger.merged_count
        monkeypatch.setattr(HoldableManifest, "is_held", property(is_held))
        is_busy = False
        await until(lambda: storage.merger.merged_count == 8)
        assert not errors


def test_a_process_is_idle_if_it_uses_little_of_a_processor():
    assert is_idle(0.1, 60.0)
    assert not is_idle(30.0, 60.0)


async def test_remote_copies_stay_until_the_merged_segment_has_one():
    world = UploadWorld()
    async with uploaded(world) as (storage, log):
        old = {each.object_name for each in log.segments}
        world.remote.gate = asyncio.Event()
        await storage.merger.merge_round()
        for _ in range(2):
            world.now += 60.0
            wake(storage)
            await until(lambda: not storage.memory.due.is_set())
        await until(lambda: world.remote.waiting)
        assert old <= set(world.remote.stored)
        assert not storage.uploader.objects.remote_deletions
        world.remote.gate.set()
        await storage.uploader.upload_now()
        world.now += 60.0
        wake(storage)
        await until(lambda: not old & set(world.remote.stored))
        assert not old & set(world.objects.stored)
        assert log.segments[0].object_name in world.remote.stored


async def test_a_segment_that_is_evicted_meanwhile_is_not_loaded():
    world = UploadWorld()
    async with uploaded(world) as (storage, log):
        old, loaded = log.segments, []
        world.remote.open = loaded.append
        await world.objects.delete(old[0].object_name)
        await storage.merger.merge_round()
        assert log.segments == old
        assert not loaded


async def test_a_topic_is_sealed_while_its_merged_segment_is_uploaded():
    world = ObjectWorld()
    async with uploaded(world) as (storage, log):
        before = payloads_of(await read_all(log))
        world.remote.gate = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            merging = tasks.create_task(storage.merger.merge_round())
            await until(lambda: world.remote.waiting)
            await seal(storage, 1)
            assert log.sealed_offset == log.end_offset
            assert not merging.done()
            assert not storage.merger.merged_count
            world.remote.gate.set()
        merged, tail = log.segments
        assert merged.is_uploaded
        assert (merged.base, merged.end, tail.end) == (0, 16, 17)
        assert await world.manifest.load(1) == log.segments
        assert payloads_of(await read_all(log)) == before


async def test_a_merged_segment_whose_upload_came_too_late_is_removed():
    world = ObjectWorld()
    async with uploaded(world) as (storage, log):
        old = log.segments
        world.remote.gate = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(storage.merger.merge_round())
            await until(lambda: world.remote.waiting)
            log.holds = frozenset({"lake"})
            world.remote.gate.set()
        assert log.segments == await world.manifest.load(1) == old
        names = {each.object_name for each in old}
        await until(lambda: names == {*world.remote.stored} & {*_segments(world)})
        assert {*world.objects.stored} == names


async def release(storage, world, log, kept):
    storage.release_log(log.topic_id, TopicFenced("it has moved"))


async def delete(storage, world, log, kept):
    await storage.delete_topic(log.topic_id)


async def drop(storage, world, log, kept):
    log.retention = Retention(bytes_max=log.segment_bytes // 2)
    assert await storage.sealer.apply_retention(log)


async def rewrite(storage, world, log, kept):
    await compact(storage, world.objects, log, lambda at: at % 3 == 0)


async def begin_backup(storage, world, log, kept):
    await kept.enter_async_context(storage.keeping_segments())


@pytest.mark.parametrize("change", [release, delete, drop, rewrite, begin_backup])
async def test_what_happens_while_a_merged_segment_is_uploaded_comes_first(change):
    world = ObjectWorld()
    async with (
        AsyncExitStack() as kept,
        uploaded(world) as (storage, log),
    ):
        world.remote.gate = gate = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(storage.merger.merge_round())
            await until(lambda: world.remote.waiting)
            # Only the merged segment waits.
            world.remote.gate = None
            await change(storage, world, log, kept)
            expected = await world.manifest.load(1)
            gate.set()
        assert await world.manifest.load(1) == expected
        assert not storage.merger.merged_count
        names = {each.object_name for each in expected}
        assert names <= world.remote.stored.keys()
        # What was uploaded in vain is removed from both stores.
        await until(
            lambda: (
                not any(
                    f"{0:020}-{16:020}-" in each and each not in names
                    for each in [*_segments(world), *world.objects.stored]
                )
            )
        )
        if log.refusal is None:
            assert log.segments == expected
            count = 1 + sum(each.count for each in expected)
            assert len(payloads_of(await read_all(log))) == count


def _segments(world):
    return [each for each in world.remote.stored if each.endswith(".parquet")]
