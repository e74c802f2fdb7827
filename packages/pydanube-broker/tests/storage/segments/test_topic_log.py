import asyncio
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import (
    CorruptSegment,
    DiskFull,
    JournalFailed,
    NotOwner,
    ObjectsUnavailable,
    OffsetDropped,
    Overloaded,
    TopicNotFound,
)
from pydanube.model.policy import Durability, TopicPolicy
from pydanube_broker.storage.segments.tail import held_bytes_of
from pydanube_broker.storage.segments.topic_log import TailMemory
from support.fakes.batches import frame_of, offsets_of, payloads_of
from support.fakes.corrupt_objects import retry_reads_now
from support.fakes.recording_files import RecordingFiles
from support.fakes.storages import (
    World,
    open_topic,
    publish,
    read_all,
    seal,
    until,
)


async def test_a_batch_gets_its_offset_at_once_and_is_seen_when_committed(storage, log):
    told = []
    assert log.append_nowait(frame_of([b"a", b"b"]), told.append) == 0
    assert log.append_nowait(frame_of([b"c"]), told.append) == 2
    assert (log.next_offset, log.end_offset, told) == (3, 0, [])
    assert log.read_tail(0, bytes_max=100) == []
    await storage.journal.sync()
    assert (log.next_offset, log.end_offset, told) == (3, 3, [None, None])
    assert payloads_of(log.read_tail(0, bytes_max=10**6)) == [b"a", b"b", b"c"]


async def test_the_frame_itself_is_kept(storage, log):
    frame = frame_of([b"a"])
    log.append_nowait(frame, lambda error: None)
    await storage.journal.sync()
    assert log.read_tail(0, bytes_max=1)[0] is frame
    assert frame.header.epoch == 1


async def test_done_is_called_before_watchers(storage, log):
    seen = []
    log.watch(lambda: seen.append("watcher"))
    log.append_nowait(
        frame_of([b"a"]), lambda error: seen.append(("done", log.end_offset))
    )
    await storage.journal.sync()
    assert seen == [("done", 1), "watcher"]


async def test_ended_watch_is_not_called(log):
    seen = []
    unwatch = log.watch(lambda: seen.append(1))
    await publish(log, b"a")
    unwatch()
    unwatch()
    await publish(log, b"b")
    assert seen == [1]


async def test_topic_with_written_durability_does_not_sync():
    files = RecordingFiles()
    async with World(files=files).storage() as storage:
        log = await open_topic(
            storage, policy=TopicPolicy(durability=Durability.WRITTEN)
        )
        begun = len(files.operations)
        await publish(log, b"a")
        assert [each.kind for each in files.operations[begun:]] == ["write"]


async def test_messages_are_read_from_segment_and_tail(storage, log):
    for at in range(10):
        await publish(log, b"%d" % at, b"x")
    await seal(storage, 1)
    await publish(log, b"10", b"x")
    assert log.sealed_offset == 20
    assert log.read_tail(19, bytes_max=1) is None
    frames = await log.read(7, bytes_max=10**6)
    assert frames[0].base <= 7
    assert payloads_of(await read_all(log))[::2] == [b"%d" % at for at in range(11)]
    assert offsets_of(await read_all(log)) == list(range(22))
    assert await log.read(22, bytes_max=1) == []


async def test_full_disk_takes_offsets_back_before_callbacks():
    full = []
    files = RecordingFiles(
        fail=lambda op: OSError(28, "full") if full and op.kind == "write" else None
    )
    async with World(files=files).storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        other = await open_topic(storage, 2)
        full.append(True)
        told, again = [], []

        def refused(error):
            told.append(error)
            if not again:
                # The callback may append again at once, to any topic.
                full.clear()
                again.append(log.append_nowait(frame_of([b"again"]), told.append))
                again.append(other.append_nowait(frame_of([b"again"]), told.append))

        for each in (log, other, log, other):
            each.append_nowait(frame_of([b"b", b"c"]), refused)
        with pytest.raises(DiskFull):
            await storage.journal.sync()
        await storage.journal.sync()
        assert again == [1, 0]
        assert [type(error) for error in told] == [DiskFull] * 4 + [type(None)] * 2
        assert (log.end_offset, other.end_offset) == (2, 1)
        assert payloads_of(await read_all(log)) == [b"a", b"again"]


async def test_a_failed_journal_refuses_batches_and_reading_goes_on():
    broken = []
    files = RecordingFiles(
        fail=lambda op: OSError(5, "broken") if broken and op.kind == "sync" else None
    )
    async with World(files=files).storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        broken.append(True)
        with pytest.raises(JournalFailed):
            await publish(log, b"b")
        with pytest.raises(JournalFailed):
            log.append_nowait(frame_of([b"c"]), lambda error: None)
        assert isinstance(storage.journal.failure, JournalFailed)
        assert (log.next_offset, log.end_offset) == (1, 1)
        assert payloads_of(log.read_tail(0, bytes_max=1)) == [b"a"]
        await seal(storage, 1)
        assert payloads_of(await log.read(0, bytes_max=1)) == [b"a"]


async def test_read_of_a_dropped_offset_names_the_next_one(storage, log):
    for at in range(3):
        await publish(log, b"%d" % at)
        await seal(storage, 1)
    log.on_dropped(2)
    assert log.base_offset == 2
    with pytest.raises(OffsetDropped, match="the next offset that exists is 2"):
        await log.read(0, bytes_max=1)
    assert offsets_of(await log.read(2, bytes_max=1)) == [2]


async def test_a_missing_object_is_reported():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        await seal(storage, 1)
        await world.objects.delete(log.segments[0].object_name)
        with pytest.raises(
            CorruptSegment, match="offsets 0 to 1: the object is missing"
        ):
            await log.read(0, bytes_max=1)


async def test_a_deleted_topic_takes_nothing(storage, log):
    await storage.delete_topic(1)
    with pytest.raises(TopicNotFound):
        log.append_nowait(frame_of([b"a"]), lambda error: None)


async def test_a_released_log_answers_nobody_and_frees_its_memory(storage, log):
    await publish(log, b"a")
    told = []
    log.append_nowait(frame_of([b"b"]), told.append)
    moved = NotOwner("another broker serves it")
    storage.release_log(log.topic_id, moved)
    assert told == [moved]
    assert log.topic_id not in storage.logs
    with pytest.raises(NotOwner):
        log.append_nowait(frame_of([b"c"]), told.append)
    with pytest.raises(NotOwner):
        await log.read(0, bytes_max=100)
    with pytest.raises(NotOwner):
        await log.find_time(0)
    # The batch is committed nevertheless, for the next broker.
    await storage.journal.sync()
    assert told == [moved]
    assert storage.find_state(log.topic_id).end_offset == 2
    memory = storage.memory
    assert (memory.byte_count, memory.pending_bytes, memory.unsealed) == (0, 0, {})


async def test_a_segment_that_is_stored_while_its_log_is_released_is_not_added():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        change = world.manifest.change

        async def release(*args, **changes):
            await change(*args, **changes)
            storage.release_log(log.topic_id, NotOwner("another broker serves it"))

        world.manifest.change = release
        with pytest.raises(NotOwner):
            await seal(storage, log.topic_id)
        assert log.segments == ()
        assert storage.sealer.sealing_seconds.count == 0


async def test_a_time_leads_to_the_first_message_that_is_not_older(storage, log):
    for at in range(0, 40, 10):
        await publish(log, b"a", b"b", b"c", publish_times=[at, at + 4, at + 8])
        if at != 30:
            await seal(storage, 1)
    found = [await log.find_time(time) for time in (-5, 0, 1, 9, 24, 30, 35, 38)]
    assert found == [0, 0, 1, 3, 7, 9, 11, 11]
    assert await log.find_time(39) == log.end_offset == 12


async def test_a_time_leads_to_the_lowest_offset_when_producers_disagree(storage, log):
    await publish(log, b"a", b"late", b"c", publish_times=[1, 90, 2])
    await seal(storage, 1)
    await publish(log, b"d", b"e", publish_times=[50, 3])
    await publish(log, b"f", time=50)
    assert [await log.find_time(time) for time in (2, 50, 51, 91)] == [1, 1, 1, 6]


async def test_a_time_in_a_batch_without_times_of_its_own_is_the_batchs(log):
    await publish(log, b"a", b"b", time=10)
    await publish(log, b"c", b"d", time=20)
    assert [await log.find_time(time) for time in (10, 11, 21)] == [0, 2, 4]


async def test_a_search_for_a_time_reads_one_column_of_one_row_group():
    world = World()
    async with world.storage(row_group_bytes=4000) as storage:
        log = await open_topic(storage)
        for at in range(20):
            await publish(log, bytes(1000), time=at)
        await seal(storage, 1)
        world.objects.open_count = 0
        assert await log.find_time(13) == 13
        # The footer, and the row group that its statistics point to.
        assert world.objects.open_count == 2
        assert storage.cache.byte_count < 1000 * 20 + 100_000


async def test_a_search_for_a_time_survives_that_the_segment_is_dropped():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a", time=1)
        await seal(storage, 1)
        await publish(log, b"b", time=2)
        await seal(storage, 1)
        await world.objects.delete(log.segments[0].object_name)
        with pytest.raises(CorruptSegment):
            await log.find_time(1)
        retry_reads_now(log)
        searching = asyncio.get_running_loop().create_task(log.find_time(1))
        await asyncio.sleep(0)
        log.on_dropped(1)
        assert await searching == 1


async def test_what_is_left_to_read_is_estimated_without_reading():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        for at in range(10):
            await publish(log, bytes(100), time=1000 + at)
        await seal(storage, 1)
        await publish(log, bytes(100), bytes(100), time=2000)
        sealed, tail = log.segment_bytes, log.tail.byte_count
        world.objects.open_count = 0
        assert log.estimate_bytes(0) == sealed + tail
        assert log.estimate_bytes(5) == sealed // 2 + tail
        assert log.estimate_bytes(11) == tail
        assert log.estimate_bytes(12) == 0
        assert [log.estimate_time(at) for at in (0, 5, 11)] == [1000, 1004, 2000]
        assert log.estimate_time(12) is None
        assert world.objects.open_count == 0


async def test_missing_offsets_between_segments_are_reported_and_counted(storage, log):
    for at in range(4):
        await publish(log, b"%d" % at)
        await seal(storage, 1)
    log.segments = (log.segments[0], log.segments[3])
    assert payloads_of(await log.read(0, bytes_max=10**6)) == [b"0"]
    for offset in (1, 2):
        with pytest.raises(OffsetDropped, match="the next offset that exists is 3"):
            await log.read(offset, bytes_max=10**6)
    assert [log.next_kept(offset) for offset in range(5)] == [0, 3, 3, 3, 4]
    assert [log.missing_from(offset) for offset in range(5)] == [2, 2, 1, 0, 0]


def test_publishers_wait_for_the_memory_that_sealing_takes():
    memory = TailMemory(seal_bytes=10_000, bytes_max=80_000)
    memory.byte_count = 75_000
    assert memory.has_room
    with memory.sealing(1000):
        assert memory.has_room
    with memory.sealing(1_000_000):
        # An eighth of the limit.
        assert memory.sealing_bytes == 10_000
        assert not memory.has_room
        memory.byte_count = 70_000
        assert memory.has_room
        memory.byte_count = 75_000
        memory.room_check.clear()
    assert memory.sealing_bytes == 0
    assert memory.room_check.is_set()


def test_sealing_of_many_topics_counts_no_more_than_that_of_one():
    memory = TailMemory(seal_bytes=10_000, bytes_max=80_000)
    with memory.sealing(8000), memory.sealing(8000), memory.sealing(8000):
        assert memory.sealing_bytes == 10_000
    assert memory.sealing_bytes == 0


def test_the_sealer_wakes_when_what_it_can_seal_is_three_quarters_of_its_memory():
    memory = TailMemory(seal_bytes=100_000, bytes_max=80_000)
    memory.on_grown(59_000, 59_000, memory.seal_bytes)
    assert not memory.due.is_set()
    memory.on_grown(60_000, 1000, memory.seal_bytes)
    assert memory.due.is_set()
    memory.due.clear()
    # What cannot be sealed counts neither here nor for the limit.
    memory.unsealable_bytes = 40_000
    memory.on_grown(69_000, 9000, memory.seal_bytes)
    assert not memory.due.is_set()
    memory.on_grown(70_000, 1000, memory.seal_bytes)
    assert memory.due.is_set()


async def test_publishers_need_not_wait_for_batches_that_a_full_disk_refused():
    full = []
    files = RecordingFiles(
        fail=lambda op: OSError(28, "full") if full and op.kind == "write" else None
    )
    async with World(files=files).storage(tail_bytes_max=2000) as storage:
        log = await open_topic(storage)
        full.append(True)
        told = []
        log.append_nowait(frame_of([b"x" * 2000]), told.append)
        assert not storage.has_room
        assert f"take {storage.memory.pending_bytes} bytes" in storage.problems[0]
        async with task_scope() as tasks:
            waiting = tasks.run(storage.wait_for_room())
            # Nothing is sealed that would wake it.
            await until(lambda: told and waiting.done())
        assert isinstance(told[0], DiskFull)


async def test_publishers_need_not_wait_for_batches_of_a_topic_that_cannot_be_sealed():
    world = World()
    world.objects.failing.add("t1")
    async with world.storage(tail_bytes_max=20_000) as storage:
        log, memory = await open_topic(storage), storage.memory
        await publish(log, b"x" * 12_000)
        log.append_nowait(frame_of([b"x" * 12_000]), ignore)
        log.on_seal_failed(ObjectsUnavailable("on purpose"))
        assert not memory.has_room
        memory.room_check.clear()
        # From now on it counts for the half that such topics share.
        await storage.journal.sync()
        assert memory.room_check.is_set()


@pytest.mark.parametrize("seed", range(5))
async def test_memory_is_counted_and_publishers_wake_whatever_happens(seed):
    rng, full = Random(seed), []
    files = RecordingFiles(
        fail=lambda op: OSError(28, "full") if full and op.kind == "write" else None
    )
    world = World(files=files)
    async with world.storage(tail_bytes_max=20_000, seal_bytes=4000) as storage:
        memory, opened, pending = storage.memory, {}, []
        memory.room_check.set()
        for topic_id in range(1, 151):
            if not memory.has_room:
                memory.room_check.clear()
            what = rng.choice(["append"] * 6 + ["sync", "seal", "fail", "heal", "end"])
            if len(opened) < 3:
                opened[topic_id] = await open_topic(storage, topic_id)
            chosen = rng.choice(list(opened))
            if what == "append":
                with suppress(Overloaded):
                    frame = frame_of([bytes(rng.randrange(2000))])
                    done = partial(take_off, pending, frame)
                    opened[chosen].append_nowait(frame, done)
                    pending.append(frame)
            elif what == "sync":
                full[:] = [True] * rng.randrange(2)
                with suppress(DiskFull):
                    await storage.journal.sync()
                full.clear()
            elif what == "seal":
                world.now += 100
                with suppress(ObjectsUnavailable):
                    await storage.sealer.seal_now({chosen})
            elif what == "fail":
                world.objects.failing.add(f"t{chosen}/")
            elif what == "heal":
                world.objects.failing.clear()
            elif rng.random() < 0.5:
                del opened[chosen]
                storage.release_log(chosen, NotOwner("on purpose"))
            else:
                world.objects.failing.clear()
                await storage.delete_topic(chosen)
                del opened[chosen]
            check_counts(memory, opened.values(), pending)
        world.objects.failing.clear()
        for topic_id in opened:
            storage.release_log(topic_id, NotOwner("on purpose"))
        check_counts(memory, (), pending)
        assert pending == []
        await until(lambda: not memory.sealing_bytes)
        assert (memory.byte_count, memory.unsealed) == (0, {})


def ignore(error):
    pass


def take_off(pending, frame, error):
    # Frames compare by their bytes.
    del pending[next(at for at, each in enumerate(pending) if each is frame)]


def check_counts(memory, logs, pending):
    """Compare the memory of all tails with the tails, and publishers are woken."""
    assert memory.byte_count == sum(log.tail.held_bytes for log in logs)
    assert 0 <= memory.unsealable_bytes <= memory.byte_count
    assert memory.pending_bytes == sum(map(held_bytes_of, pending))
    assert memory.room_check.is_set() or not memory.has_room
