import asyncio
from random import Random

import pytest

from pydanube.model.errors import (
    DiskFull,
    ObjectsUnavailable,
    Overloaded,
    TopicFenced,
)
from pydanube.model.policy import Retention, TopicPolicy
from pydanube.objects.directory import DirectoryObjects
from pydanube.wire.files.segment_format import SegmentIdentity
from pydanube_broker.storage.config import MIB, JournalConfig, StorageConfig
from pydanube_broker.storage.journal.reserve import Reserve
from pydanube_broker.storage.segments.sealing import write_segment_object
from support.drivers.running import using
from support.fakes.arrow_memory import arrow_memory
from support.fakes.batches import frame_of, payloads_of
from support.fakes.small_disk import SmallDisk
from support.fakes.storages import (
    A_NOW_US,
    World,
    open_topic,
    publish,
    read_all,
    seal,
    search_orphans,
    until,
    wake,
)


@using(storage_config={"seal_bytes": 2000})
async def test_a_large_tail_is_sealed_by_itself(storage):
    log = await open_topic(storage)
    for at in range(20):
        await publish(log, b"%d" % at * 100)
    await until(lambda: log.tail.byte_count < 2000)
    assert len(log.segments) > 1
    assert payloads_of(await read_all(log)) == [b"%d" % at * 100 for at in range(20)]


async def test_an_old_tail_is_sealed_by_itself(world, storage):
    log = await open_topic(storage)
    await publish(log, b"a")
    world.now = 599.0
    wake(storage)
    await asyncio.sleep(0)
    assert log.sealed_offset == 0
    world.now = 600.0
    wake(storage)
    await until(lambda: log.sealed_offset == 1)


@using(storage_config={"tail_bytes_max": 5000})
async def test_publishers_wait_for_memory_until_a_topic_is_sealed(storage):
    log = await open_topic(storage)
    # Sealing is slow.
    async with log.maintenance:
        for _ in range(10):
            await publish(log, b"x" * 1000)
        assert not storage.has_room
        assert storage.problems[0].startswith("publishing waits: unsealed messages")
    await storage.wait_for_room()
    assert storage.has_room
    assert storage.problems == []
    assert log.end_offset == 10


@using(storage_config={"journal": JournalConfig(file_bytes_max=1024)})
async def test_journal_files_are_removed_when_all_is_sealed(world, storage):
    log = await open_topic(storage)
    for _ in range(20):
        await publish(log, b"x" * 500)
    before = storage.journal.file_count
    assert before > 5
    await seal(storage, 1)
    assert storage.journal.file_count == 1
    assert len(world.files.names()) == 1


async def test_journal_files_of_a_deleted_topic_are_removed():
    world = World()
    journal = JournalConfig(file_bytes_max=1024)
    async with world.storage(journal=journal) as storage:
        log = await open_topic(storage)
        for _ in range(20):
            await publish(log, b"x" * 500)
    async with world.storage(journal=journal) as storage:
        assert storage.journal.file_count > 5
        await storage.delete_topic(1)
        wake(storage)
        await until(lambda: storage.journal.file_count == 1)


@using(
    storage_config={
        "journal": JournalConfig(file_bytes_max=1024),
        "journal_bytes_max": 10_000,
    }
)
async def test_a_quiet_topic_does_not_pin_the_journal_for_ever(storage):
    quiet, busy = await open_topic(storage, 1), await open_topic(storage, 2)
    await publish(quiet, b"once")
    for _ in range(40):
        await publish(busy, b"x" * 500)
    wake(storage)
    await until(lambda: quiet.sealed_offset == 1)
    await until(lambda: storage.journal.byte_count < 20_000)


@using(storage_config={"seal_bytes": 2000})
async def test_failing_topic_does_not_prevent_sealing_others(world, storage):
    sick, healthy = await open_topic(storage, 1), await open_topic(storage, 2)
    world.objects.failing.add("t1")
    for _ in range(3):
        await publish(sick, b"x" * 1000)
        await publish(healthy, b"y" * 1000)
    await until(lambda: healthy.sealed_offset > 0)
    assert sick.sealed_offset == 0
    # It is retried after growing pauses.
    for _ in range(3):
        failures = storage.sealer.failure_count
        world.now += 100
        wake(storage)
        await until(lambda f=failures: storage.sealer.failure_count > f)
    world.objects.failing.clear()
    world.now += 100
    wake(storage)
    await until(lambda: sick.sealed_offset > 0)
    assert payloads_of(await read_all(sick)) == [b"x" * 1000] * 3


async def publish_often(log):
    for _ in range(1000):
        await publish(log, b"x" * 1000)


@using(storage_config={"seal_bytes": 5000, "tail_bytes_max": 100_000})
async def test_unsealable_topic_gets_a_share_of_memory(world, storage):
    sick = await open_topic(storage)
    world.objects.failing.add("t1")
    await publish(sick, b"x" * 6000)
    await until(lambda: storage.sealer.failing)
    with pytest.raises(Overloaded, match=r"/default/t1 .* sealing .* on purpose"):
        await publish_often(sick)
    assert storage.has_room
    # The share is a quarter of tail_bytes_max, and one batch more.
    assert 25_000 <= sick.tail.held_bytes <= 27_000
    healthy = await open_topic(storage, 2)
    for _ in range(200):
        await publish(healthy, b"x" * 1000)
        await storage.wait_for_room()
    assert storage.memory.byte_count <= 100_000 + 2000
    assert healthy.sealed_offset > 0
    assert sick.end_offset * 1000 <= sick.tail.memory_bytes

    world.objects.failing.clear()
    world.now += 100
    wake(storage)
    await until(lambda: not storage.sealer.failing)
    await publish(sick, b"again")
    assert storage.problems == []


@using(storage_config={"seal_bytes": 2000, "tail_bytes_max": 100_000})
async def test_topics_that_cannot_be_sealed_share_half_of_the_memory(world, storage):
    world.objects.failing.add("/t")
    logs = [await open_topic(storage, number) for number in range(1, 9)]
    for log in logs:
        await publish(log, b"x" * 3000)
    await until(lambda: len(storage.sealer.failing) == len(logs))
    for log in logs:
        with pytest.raises(Overloaded):
            await publish_often(log)
    assert storage.memory.byte_count <= 50_000 + 2000
    assert storage.has_room


@using(storage_config={"seal_bytes": 2000})
async def test_problems_name_the_topic_that_cannot_be_sealed_since_when_and_why(
    world, storage, caplog
):
    log = await open_topic(storage)
    assert storage.problems == []
    world.objects.failing.add("t1")
    await publish(log, b"x" * 3000)
    await until(lambda: storage.problems)
    said = "sealing /default/t1 fails since 2023-11-14T22:13:20+00:00: "
    assert storage.problems[0].startswith(said)
    assert len(storage.sealer.failing) == 1
    # It is retried often, but logged rarely.
    for _ in range(5):
        failures = storage.sealer.failure_count
        world.now += 60
        wake(storage)
        await until(lambda f=failures: storage.sealer.failure_count > f)
        for _ in range(3):
            wake(storage)
            await asyncio.sleep(0)
    world.wall += 10**9
    assert storage.problems[0].startswith(said)
    assert len(caplog.records) == storage.sealer.failure_count == 6


@using(storage_config={"seal_bytes": 2000})
async def test_failures_of_many_topics_are_one_line_of_the_log(world, storage, caplog):
    world.objects.failing.add("/t")
    for number in range(1, 21):
        await publish(await open_topic(storage, number), b"x" * 3000)
    await until(lambda: len(storage.sealer.failing) == 20)
    assert len(caplog.records) == 1
    assert len(storage.problems) == 11


async def test_fenced_topic_accepts_no_batches(world, storage):
    log = await open_topic(storage)
    await publish(log, b"a")
    world.manifest.epochs[1] = 2
    with pytest.raises(TopicFenced):
        await seal(storage, 1)
    with pytest.raises(TopicFenced):
        log.append_nowait(frame_of([b"b"]), lambda error: None)
    assert payloads_of(log.read_tail(0, bytes_max=1)) == [b"a"]
    assert log.segments == ()
    with pytest.raises(TopicFenced):
        await seal(storage, 1)


async def test_manual_sealing_raises_the_error(world, storage):
    log = await open_topic(storage)
    await publish(log, b"a")
    world.objects.failing.add("t1")
    with pytest.raises(ObjectsUnavailable):
        await seal(storage, 1)
    world.objects.failing.clear()
    await seal(storage, 1)
    assert log.sealed_offset == 1
    (entry,) = log.segments
    assert (entry.base, entry.end, entry.count, entry.epoch) == (0, 1, 1, 1)
    assert entry.sealed_at == A_NOW_US
    assert await world.manifest.load(1) == log.segments


async def test_sealing_on_request_seals_what_there_is_of_the_topics_named(storage):
    logs = [await open_topic(storage, topic_id) for topic_id in (1, 2, 3)]
    for log in logs:
        await publish(log, b"a")
        await publish(log, b"b")
    await storage.sealer.seal_now({1, 2})
    assert [log.sealed_offset for log in logs] == [2, 2, 0]
    logs[0].refusal = TopicFenced("on purpose")
    await publish(logs[1], b"c")
    await storage.sealer.seal_now()
    assert [log.sealed_offset for log in logs] == [2, 3, 2]


async def test_sealing_on_request_raises_the_error(world, storage):
    log = await open_topic(storage)
    await publish(log, b"a")
    world.objects.failing.add("t1")
    with pytest.raises(ObjectsUnavailable):
        await storage.sealer.seal_now()


async def test_nothing_is_sealed_on_request_on_a_full_disk():
    reserve = Reserve(SmallDisk(10 * MIB), MIB)
    reserve.open()
    async with World(reserve=reserve).storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        reserve.release()
        with pytest.raises(DiskFull):
            await storage.sealer.seal_now()
        assert log.sealed_offset == 0


@using(storage_config={"seal_bytes": 3000})
async def test_a_long_tail_becomes_several_segments(world, storage):
    log = await open_topic(storage)
    world.objects.failing.add("t1")
    for _ in range(10):
        await publish(log, b"x" * 1000)
    await until(lambda: storage.sealer.failure_count)
    world.objects.failing.clear()
    await seal(storage, 1)
    assert len(log.segments) == 5
    assert [s.base for s in log.segments[1:]] == [s.end for s in log.segments[:-1]]


@using(storage_config={"orphan_keep_s": 0})
async def test_orphans_are_deleted_when_the_topic_is_opened(world, storage):
    log = await open_topic(storage, epoch=2)
    orphan = "default/t1/00000000000000000000-00000000000000000009-1.parquet"
    newer = "default/t1/00000000000000000000-00000000000000000009-3.parquet"
    other = "default/t11/00000000000000000000-00000000000000000009-1.parquet"
    await publish(log, b"a")
    await seal(storage, 1)
    for name in (orphan, newer, other, "default/t1/notes.txt"):
        await world.objects.put(name, b"x")
    search_orphans(storage, log)
    await until(lambda: orphan not in world.objects.stored)
    kept = set(await world.objects.names(""))
    assert kept == {
        newer,
        other,
        "default/t1/notes.txt",
        log.segments[0].object_name,
    }


async def test_orphans_are_kept_for_a_week_and_logged_when_they_are_deleted(
    world, storage, caplog
):
    week_us = 7 * 24 * 3600 * 1_000_000
    log = await open_topic(storage, epoch=2)
    orphan = "default/t1/00000000000000000000-00000000000000000009-1.parquet"
    await world.objects.put(orphan, b"x")
    world.wall = A_NOW_US + week_us - 1
    search_orphans(storage, log)
    await until(lambda: orphan in world.objects.examined)
    assert await world.objects.names("") == [orphan]
    world.wall += 1
    world.now += 1
    wake(storage)
    with caplog.at_level("INFO"):
        await until(lambda: orphan not in world.objects.stored)
    assert f"deleting the orphan {orphan}" in caplog.text


async def test_retention_drops_whole_segments(world, storage):
    policy = TopicPolicy(retention=Retention(age_s=60))
    log = await open_topic(storage, policy=policy)
    for at in range(3):
        await publish(log, b"a", time=A_NOW_US + at * 60_000_000)
        await seal(storage, 1)
    await storage.sealer.apply_retention(storage.logs[1])
    assert log.base_offset == 0
    world.wall = A_NOW_US + 121_000_000
    await storage.sealer.apply_retention(storage.logs[1])
    assert log.base_offset == 2
    assert await world.manifest.load(1) == log.segments
    assert await world.objects.names("") == [log.segments[0].object_name]


async def test_retention_is_applied_periodically(world, storage):
    policy = TopicPolicy(retention=Retention(bytes_max=1))
    log = await open_topic(storage, policy=policy)
    for _ in range(3):
        await publish(log, b"a")
        await seal(storage, 1)
    world.now = 61.0
    wake(storage)
    await until(lambda: log.base_offset == 2)


async def test_failed_deletions_of_dropped_objects_are_repeated(world, storage):
    log = await open_topic(
        storage, policy=TopicPolicy(retention=Retention(bytes_max=1))
    )
    for _ in range(3):
        await publish(log, b"a")
        await seal(storage, 1)
    names = [segment.object_name for segment in log.segments]
    world.objects.failing.add("default/t1")
    dropped = await storage.sealer.apply_retention(log)
    assert [each.object_name for each in dropped] == names[:2]
    # For readers they are dropped; the objects are not forgotten.
    assert (log.base_offset, len(world.objects.stored)) == (2, 3)
    world.now += 60
    wake(storage)
    await until(lambda: storage.sealer.failure_count == 1)
    assert len(world.objects.stored) == 3
    world.objects.failing.clear()
    world.now += 120
    wake(storage)
    await until(lambda: list(world.objects.stored) == names[2:])


async def test_new_log_drops_nothing_until_it_is_configured(world, storage):
    policy = TopicPolicy(retention=Retention(bytes_max=1))
    log = await storage.open_log(1, "/default/t1", 1, policy)
    for _ in range(2):
        await publish(log, b"a")
        await seal(storage, 1)
    assert await storage.sealer.apply_retention(log) == ()
    log.configure(policy, policy.retention)
    assert len(await storage.sealer.apply_retention(log)) == 1


async def test_cursors_are_on_disk_before_acknowledged_segments_are_dropped(
    world, storage
):
    policy = TopicPolicy(retention=Retention(drops_acknowledged=True))
    log = await open_topic(storage, policy=policy)
    for _ in range(3):
        await publish(log, b"a")
        await seal(storage, 1)
    cursors = [2, 2]
    log.follow_cursors(lambda: cursors)
    synced = storage.journal.sync_count
    changed_after = []
    change = world.manifest.change

    async def change_and_note(*args, **changes):
        changed_after.append(storage.journal.sync_count - synced)
        assert log.first_kept == 2
        await change(*args, **changes)

    world.manifest.change = change_and_note
    await storage.sealer.apply_retention(log)
    assert (log.base_offset, changed_after) == (2, [1])


async def test_nothing_is_dropped_if_the_manifest_fails(world, storage):
    log = await open_topic(
        storage, policy=TopicPolicy(retention=Retention(bytes_max=1))
    )
    for _ in range(2):
        await publish(log, b"a")
        await seal(storage, 1)
    world.manifest.epochs[1] = 2
    with pytest.raises(TopicFenced):
        await storage.sealer.apply_retention(log)
    # The outcome may be unknown: new subscriptions begin after the drops.
    assert (log.base_offset, log.first_kept, len(log.segments)) == (0, 1, 2)
    assert len(world.objects.stored) == 2


@using(storage_config={"seal_bytes": 2**20})
async def test_topic_is_sealed_at_the_size_of_its_policy(storage):
    logs = [
        await open_topic(storage, 1, policy=TopicPolicy(seal_bytes=65536)),
        await open_topic(storage, 2),
    ]
    for log in logs:
        for _ in range(9):
            await publish(log, bytes(8192))
    await until(lambda: logs[0].segments)
    assert not logs[1].segments
    # A changed size takes effect at once.
    logs[1].configure(TopicPolicy(seal_bytes=65536), Retention())
    await until(lambda: logs[1].segments)


async def test_topic_is_sealed_at_the_age_of_its_policy(world, storage):
    young = await open_topic(storage, 1, policy=TopicPolicy(seal_age_s=1200.0))
    log = await open_topic(storage, 2, policy=TopicPolicy(seal_age_s=5.0))
    await publish(young, b"a")
    await publish(log, b"a")
    world.now = 5.0
    wake(storage)
    await until(lambda: log.segments)
    world.now = 1199.0
    wake(storage)
    await asyncio.sleep(0)
    assert not young.segments
    world.now = 1200.0
    wake(storage)
    await until(lambda: young.segments)


async def test_deleted_topic_drops_nothing(world, storage):
    log = await open_topic(
        storage, policy=TopicPolicy(retention=Retention(bytes_max=1))
    )
    for _ in range(2):
        await publish(log, b"a")
        await seal(storage, 1)
    (first, *_) = log.segments
    await storage.delete_topic(1)
    # An object of a later topic of the same name.
    await world.objects.put(first.object_name, b"new")
    assert await storage.sealer.apply_retention(log) == ()
    assert list(world.objects.stored) == [first.object_name]


def test_sealing_takes_the_memory_of_row_groups_whatever_the_segment_has(tmp_path):
    config = StorageConfig(row_group_bytes=MIB)
    identity = SegmentIdentity(topic="/default/a", topic_id=1, epoch=1)
    randbytes = Random(1).randbytes
    frames = [frame_of([randbytes(100_000) for _ in range(10)]) for _ in range(24)]
    for number, frame in enumerate(frames):
        frame.stamp(number * 10, 1)
    new = DirectoryObjects(tmp_path).new_object()
    with arrow_memory() as memory:
        segment = write_segment_object(config, frames, identity, new, sealed_at=1)
    assert segment.byte_count > 23_000_000
    assert memory.peak_bytes < 12 * MIB


async def test_sealing_that_fails_leaves_room_for_publishers(world, storage):
    log = await open_topic(storage)
    await publish(log, b"a")
    world.objects.failing.add("t1")
    with pytest.raises(ObjectsUnavailable):
        await storage.sealer.seal_now()
    assert storage.memory.sealing_bytes == 0
    assert storage.has_room


async def test_segment_that_cannot_be_stored_takes_no_space(world, tmp_path):
    world.objects = DirectoryObjects(tmp_path)
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        (tmp_path / "default").write_bytes(b"a file where a directory is needed")
        with pytest.raises(ObjectsUnavailable):
            await storage.sealer.seal_now()
        assert list((tmp_path / ".parts").iterdir()) == []
        (tmp_path / "default").unlink()
        await storage.sealer.seal_now()
        assert list((tmp_path / ".parts").iterdir()) == []
        assert payloads_of(await read_all(log)) == [b"a"]
