"""Segments are replaced atomically, by verified objects."""

import asyncio
from dataclasses import replace

import pytest

from pydanube.model.errors import (
    BackupRunning,
    InvalidRequest,
    MetadataUnavailable,
    SegmentsChanged,
    TopicFenced,
    TopicHeld,
    TopicNotFound,
)
from pydanube.model.policy import Retention, TopicPolicy
from pydanube.model.ranges import RangeSet
from pydanube.wire.files.segment_checksums import file_checksum
from pydanube_broker.storage.segments.replacement import REPLACED_MAX
from support.drivers.running import using
from support.fakes.batches import payloads_of
from support.fakes.compacted import compact, offer
from support.fakes.storages import (
    A_NOW_US,
    open_topic,
    publish,
    read_all,
    seal,
    search_orphans,
    until,
    wake,
)

DAY_US = 24 * 3600 * 1_000_000


@pytest.fixture
async def log(storage, policy):
    return await filled(storage, policy)


async def filled(storage, policy=None):
    """Open a log of three segments of four messages, and a tail of two."""
    log = await open_topic(storage, policy=policy)
    for at in range(0, 12, 4):
        await publish(
            log,
            *[b"%d" % n for n in range(at, at + 4)],
            keys=[b"k%d" % (n % 3) for n in range(at, at + 4)],
        )
        await seal(storage, 1)
    await publish(log, b"12", b"13")
    return log


def even(offset):
    return offset % 2 == 0 or offset == 11


def names_of(entries):
    return [entry.object_name for entry in entries]


async def test_one_segment_replaces_several(world, storage, log):
    old = log.segments
    before = payloads_of(await read_all(log))
    (new,) = await compact(storage, world.objects, log, lambda _: True)
    assert (new.base, new.end, new.count, new.has_gaps) == (0, 12, 12, False)
    assert new.first_publish_time == old[0].first_publish_time
    assert log.segments == (new,)
    assert await world.manifest.load(1) == (new,)
    assert payloads_of(await read_all(log)) == before


async def test_removed_messages_leave_gaps_in_the_offsets(world, storage, log):
    await compact(storage, world.objects, log, even)
    frames = await read_all(log)
    runs = RangeSet(run for frame in frames for run in frame.ranges())
    assert list(runs) == [*((at, at + 1) for at in range(0, 10, 2)), (10, 14)]
    assert payloads_of(frames) == [b"%d" % n for n in (*range(0, 11, 2), 11, 12, 13)]
    assert log.missing_from(0) == 5
    assert log.missing_from(12) == 0
    assert log.base_offset == 0


async def test_a_segment_with_gaps_is_read_from_any_offset(world, storage, log):
    await compact(storage, world.objects, log, lambda at: at in (3, 4, 11))
    for offset, first in ((0, 3), (3, 3), (4, 4), (5, 11), (11, 11), (12, 12)):
        frames = await log.read(offset, bytes_max=1)
        assert frames[0].end > offset
        assert frames[0].within(offset, 99).base == first
    assert await log.find_time(0) == 3
    assert log.estimate_bytes(6) < log.estimate_bytes(0)
    assert log.estimate_time(5) == log.segments[0].first_publish_time


async def test_read_continues_after_a_segment_whose_end_is_missing(world, storage, log):
    old = log.segments[:2]
    offered = await offer(world.objects, log, old, lambda at: at == 2)
    await storage.replace_segments(1, names_of(old), [offered])
    frames = await log.read(3, bytes_max=1)
    assert frames[0].base == 8


async def test_read_continues_after_an_empty_segment(world, storage, log):
    old = log.segments[:2]
    offered = await offer(world.objects, log, old, lambda _: False)
    (new,) = await storage.replace_segments(1, names_of(old), [offered])
    assert new.count == 0
    assert new.last_publish_time == old[-1].last_publish_time
    assert (await log.read(0, bytes_max=1))[0].base == 8
    assert await log.find_time(0) == 8
    await compact(storage, world.objects, log, lambda _: True)
    assert payloads_of(await read_all(log))[0] == b"8"


async def test_reader_continues_after_a_replacement(world, storage, log):
    first = (await log.read(0, bytes_max=1))[0]
    old = log.segments
    await compact(storage, world.objects, log, even)
    for entry in old:
        await world.objects.delete(entry.object_name)
    assert payloads_of([first])[0] == b"0"
    assert (await log.read(first.end, bytes_max=1))[0].end > first.end


async def test_read_is_repeated_if_its_segment_is_replaced_meanwhile(world, log):
    old = log.segments
    offered = await offer(world.objects, log, old, lambda _: True)
    real_open = world.objects.open

    def open_(name):
        if name == old[1].object_name and log.segments == old:
            # At the last moment the segment is replaced by another.
            log.on_replaced(old, (replace(new, object_name=offered.object_name),))
            raise FileNotFoundError(name)
        return real_open(name)

    new = replace(
        old[0],
        end=12,
        count=12,
        byte_count=offered.byte_count,
        checksum=offered.checksum,
        part_checksums=None,
    )
    world.objects.open = open_
    assert payloads_of(await log.read(4, bytes_max=1 << 20))[-1] == b"5"
    assert len(log.segments) == 1


@using(storage_config={"seal_interval_s": 0.001})
async def test_old_objects_are_kept_for_readers_that_have_them_open(
    world, storage, log
):
    old = names_of(log.segments)
    await compact(storage, world.objects, log, even)
    wake(storage)
    await asyncio.sleep(0)
    assert set(old) <= set(await world.objects.names(""))
    world.now += 61
    wake(storage)
    await until(lambda: len(world.objects.stored) == 1)
    assert await world.objects.names("") == names_of(log.segments)


@using(storage_config={"seal_interval_s": 0.001})
async def test_failed_deletion_of_old_objects_is_retried(world, storage, log):
    old = names_of(log.segments)
    await compact(storage, world.objects, log, even)
    world.objects.failing.add(old[0])
    world.now += 61
    await until(lambda: storage.sealer.failure_count)
    world.objects.failing.clear()
    world.now += 61
    await until(lambda: len(world.objects.stored) == 1)


async def test_old_objects_left_by_a_crash_are_deleted_when_the_topic_opens(world):
    async with world.storage() as storage:
        log = await filled(storage)
        await compact(storage, world.objects, log, even)
        assert len(await world.objects.names("")) == 4
    async with world.storage(seal_interval_s=0.001, orphan_keep_s=0) as storage:
        log = await open_topic(storage, epoch=2)
        await until(lambda: len(world.objects.stored) == 1)
        assert await world.objects.names("") == names_of(log.segments)
        assert payloads_of(await read_all(log)) == [
            b"%d" % n for n in (*range(0, 11, 2), 11, 12, 13)
        ]


@using(storage_config={"seal_interval_s": 0.001, "orphan_keep_s": 0})
async def test_replacement_by_deleted_orphans_is_refused(world, storage, log):
    old = log.segments
    offered = await offer(world.objects, log, old, even)
    search_orphans(storage, log)
    await until(lambda: offered.object_name not in world.objects.stored)
    with pytest.raises(SegmentsChanged, match="run the maintenance again"):
        await storage.replace_segments(1, names_of(old), [offered])
    assert log.segments == old
    assert len(payloads_of(await read_all(log))) == 14


@using(storage_config={"seal_interval_s": 0.001})
async def test_orphans_of_runs_are_kept_until_they_are_old(world, storage, log):
    old = await offer(world.objects, log, log.segments, even)
    recent = old.object_name.replace("1700000000", "1700086400")
    world.objects.now_us += DAY_US
    await world.objects.put(recent, b"of a run at work")
    world.wall = A_NOW_US + 7 * DAY_US
    search_orphans(storage, log)
    await until(lambda: old.object_name not in world.objects.stored)
    left = set(await world.objects.names(""))
    assert left == {recent, *names_of(log.segments)}
    # The others are searched for again when they are due.
    world.wall += DAY_US
    world.now += DAY_US / 1_000_000
    await until(lambda: recent not in world.objects.stored)


@using(storage_config={"seal_interval_s": 0.001})
async def test_old_objects_of_a_deleted_topic_are_not_taken_for_those_of_the_next(
    world, storage, log
):
    old = names_of(log.segments)
    await compact(storage, world.objects, log, even)
    await storage.delete_topic(1)
    await world.objects.put(old[0], b"of a topic with the same name")
    # Deletions are before sealing.
    other = await open_topic(storage, 2)
    await publish(other, b"old")
    world.now += 601
    wake(storage)
    await until(lambda: other.sealed_offset == 1)
    names = [old[0], other.segments[0].object_name]
    assert await world.objects.names("") == names


@using(policy=TopicPolicy(retention=Retention(age_s=60)))
async def test_a_held_topic_is_neither_replaced_nor_dropped(world, storage, log):
    log.holds = frozenset({"lake"})
    with pytest.raises(TopicHeld, match="held by lake"):
        await compact(storage, world.objects, log, even)
    world.wall = A_NOW_US + 3600_000_000
    await storage.sealer.apply_retention(storage.logs[1])
    assert len(log.segments) == 3
    log.holds = frozenset()
    await storage.sealer.apply_retention(storage.logs[1])
    assert len(log.segments) == 1


async def test_a_fenced_log_is_not_changed(world, storage, log):
    old = log.segments
    world.manifest.epochs[1] = 2
    with pytest.raises(TopicFenced):
        await compact(storage, world.objects, log, even)
    assert log.segments == old
    assert await world.manifest.load(1) == old
    with pytest.raises(TopicFenced):
        await compact(storage, world.objects, log, even)


async def test_unavailable_manifest_changes_nothing(world, storage, log):
    old = log.segments

    async def fail(*_, **__):
        raise MetadataUnavailable("on purpose")

    world.manifest.change = fail
    with pytest.raises(MetadataUnavailable):
        await compact(storage, world.objects, log, even)
    assert log.segments == old
    assert len(payloads_of(await read_all(log))) == 14


async def test_a_replacement_with_an_unknown_outcome_loses_no_messages(world):
    async with world.storage() as storage:
        log = await filled(storage)
        change = world.manifest.change

        async def change_without_answer(*args, **changes):
            await change(*args, **changes)
            raise MetadataUnavailable("on purpose")

        world.manifest.change = change_without_answer
        with pytest.raises(MetadataUnavailable):
            await compact(storage, world.objects, log, lambda _: True)
        world.manifest.change = change
        log.trim(4)
        assert len(await storage.sealer.apply_retention(log)) == 1
        assert await world.manifest.load(1) == log.segments
    async with world.storage() as storage:
        log = await open_topic(storage, epoch=2)
        assert payloads_of(await read_all(log, 4)) == [b"%d" % n for n in range(4, 14)]


async def test_a_topic_is_sealed_during_a_backup_that_forbids_a_replacement(
    storage, world, log
):
    async with storage.keeping_segments():
        with pytest.raises(BackupRunning):
            await compact(storage, world.objects, log, even)
        await seal(storage, 1)
    assert await world.manifest.load(1) == log.segments


async def test_a_topic_that_is_not_open_has_nothing_to_replace(storage, log):
    with pytest.raises(TopicNotFound):
        await storage.replace_segments(2, ["a"], [])


async def test_segments_that_are_not_there_any_more_cannot_be_replaced(
    world, storage, log
):
    old = log.segments
    offered = await offer(world.objects, log, old, even)
    for names in (
        ["default/t1/another"],
        names_of(old)[::-1],
        [*names_of(old), "one more"],
        names_of([old[0], old[2]]),
    ):
        with pytest.raises(SegmentsChanged, match="does not have all the segments"):
            await storage.replace_segments(1, names, [offered])


async def test_unsuitable_replacement_is_refused(world, storage, log):
    async def junk(objects, like):
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"a": [1]}), sink)
        data = sink.getvalue()
        name = like.replace("-1.parquet", "-1-f.1.parquet")
        await objects.put(name, data)
        from crc32c import crc32c

        from pydanube_broker.storage.segments.replacement import Replacement

        return Replacement(
            object_name=name, byte_count=data.size, checksum=crc32c(data)
        )

    old, objects = log.segments, world.objects

    async def refused(match, offered, entries=old):
        with pytest.raises(InvalidRequest, match=match):
            await storage.replace_segments(1, names_of(entries), offered)
        assert log.segments == old

    good = await offer(objects, log, old, even)
    await refused("at least one", [])
    await refused("at least one", [good], entries=())
    await refused(f"at most {REPLACED_MAX}", [good] * (REPLACED_MAX + 1))
    await refused("follow each other", [good], entries=old[:2])
    await refused("follow each other", [good, good])
    await refused("checksum", [replace(good, checksum=1)])
    await refused("bytes", [replace(good, byte_count=1)])
    await refused("has to stay", [await offer(objects, log, old, lambda a: a < 11)])
    short = await offer(objects, log, old, even, end=11)
    await refused("cannot be read", [short])
    await refused("not a segment", [await junk(objects, old[0].object_name)])
    moved = replace(good, object_name=f"elsewhere/{good.object_name}")
    await objects.put(moved.object_name, objects.stored[good.object_name])
    await refused("cannot be the name", [moved])
    newer = replace(good, object_name=good.object_name.replace("-1-", "-9-"))
    await objects.put(newer.object_name, objects.stored[good.object_name])
    await refused("cannot be the name", [newer])
    log.topic_id = 7
    other = await offer(objects, log, old, even)
    log.topic_id = 1
    await refused("is of topic 7", [other])


async def test_more_messages_than_there_were_are_refused(world, storage, log):
    whole = log.segments
    full = await offer(world.objects, log, whole, lambda _: True)
    await compact(storage, world.objects, log, even)
    with pytest.raises(InvalidRequest, match="cannot take the place of"):
        await storage.replace_segments(1, names_of(log.segments), [full])


async def test_an_object_that_is_no_parquet_is_refused(world, storage, log):
    offered = await offer(world.objects, log, log.segments, even)
    await world.objects.put(offered.object_name, b"x" * 100)
    with world.objects.open(offered.object_name) as file:
        checksum, byte_count = file_checksum(file)
    damaged = replace(offered, checksum=checksum, byte_count=byte_count)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        await storage.replace_segments(1, names_of(log.segments), [damaged])


async def test_sealing_continues_after_replaced_segments(world, storage, log):
    await compact(storage, world.objects, log, even)
    await seal(storage, 1)
    await publish(log, b"14")
    assert [(e.base, e.end, e.count) for e in log.segments] == [
        (0, 12, 7),
        (12, 14, 2),
    ]
    assert all(entry.checksum is not None for entry in log.segments)
    assert payloads_of(await read_all(log))[-1] == b"14"
