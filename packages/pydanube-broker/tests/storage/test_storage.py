import asyncio
from contextlib import suppress

import pytest

from pydanube.model.errors import (
    CorruptJournal,
    DiskFull,
    InconsistentDirectory,
    ObjectsUnavailable,
    TopicFenced,
    TopicNotFound,
)
from pydanube.model.ranges import RangeSet
from pydanube.wire.files.journal_format import (
    CursorSaved,
    CursorState,
    ProducerDeleted,
    ProducerOpened,
    SubscriptionDeleted,
)
from pydanube_broker.storage.config import MIB, JournalConfig
from pydanube_broker.storage.files import DirectoryFiles
from pydanube_broker.storage.journal.reserve import Reserve
from support.fakes.batches import frame_of, payloads_of
from support.fakes.small_disk import SmallDisk
from support.fakes.storages import World, open_topic, publish, read_all, seal, until


def opened(name, producer_id):
    return ProducerOpened(topic_id=1, name=name, producer_id=producer_id, epoch=1)


async def test_reopened_log_continues_at_its_end():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a", b"b")
        await seal(storage, 1)
        await publish(log, b"c")
    async with world.storage() as storage:
        assert storage.recovered == [(1, "/default/t1")]
        log = await open_topic(storage, epoch=2)
        assert (log.base_offset, log.sealed_offset, log.end_offset) == (0, 2, 3)
        assert await publish(log, b"d") == 3
        assert payloads_of(await read_all(log)) == [b"a", b"b", b"c", b"d"]
        assert storage.find_state(1).epoch == 2


async def test_cursors_and_producers_are_remembered():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        told = []
        storage.save(opened("p", 7), told.append)
        cursor = CursorState(1, RangeSet([(3, 5)]))
        storage.save(CursorSaved(1, "billing", cursor), told.append)
        storage.save(CursorSaved(1, "audit", CursorState(9)))
        storage.save(opened("q", 8))
        await publish(log, b"a", b"b", producer="p", producer_id=7)
        storage.save(SubscriptionDeleted(1, "audit"))
        storage.save(ProducerDeleted(1, "q"))
        assert told == [None, None]
    async with world.storage() as storage:
        state = storage.find_state(1)
        assert state.cursors == {"billing": CursorState(1, RangeSet([(3, 5)]))}
        assert list(state.producers) == ["p"]
        assert state.producers["p"].next_sequence == 2


async def test_a_cursor_of_an_unknown_topic_is_refused():
    async with World().storage() as storage:
        told = []
        storage.save(CursorSaved(1, "billing", CursorState(1)), told.append)
        assert told == []
        await storage.journal.sync()
        assert [type(error) for error in told] == [TopicNotFound]


async def test_a_deleted_topic_leaves_nothing():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await open_topic(storage, 2)
        await publish(log, b"a")
        await seal(storage, 1)
        await publish(log, b"b")
        await storage.delete_topic(1)
        assert storage.find_state(1) is None
        assert await world.manifest.load(1) == ()
        assert await world.objects.names("") == []
        assert not storage.memory.unsealed
        assert 1 not in storage.logs
    async with world.storage() as storage:
        assert storage.recovered == [(2, "/default/t2")]


async def test_a_recovered_topic_can_be_deleted_without_being_opened():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        await seal(storage, 1)
        await publish(log, b"b")
    # Its metadata is deleted already, so only the files name their topic.
    world.manifest.segments.clear()
    async with world.storage() as storage:
        again = await open_topic(storage, 5, name="/default/t1")
        await publish(again, b"new")
        await seal(storage, 5)
        await storage.delete_topic(1)
        assert payloads_of(await read_all(again)) == [b"new"]
        assert await world.objects.names("") == [again.segments[0].object_name]
    async with world.storage() as storage:
        assert storage.recovered == [(5, "/default/t1")]


async def test_a_topic_is_deleted_again_if_that_failed():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        await seal(storage, 1)
        world.objects.failing.add("t1")
        with pytest.raises(ObjectsUnavailable):
            await storage.delete_topic(1)
        with pytest.raises(TopicNotFound):
            log.append_nowait(frame_of([b"b"]), lambda error: None)
    world.objects.failing.clear()
    async with world.storage() as storage:
        assert storage.recovered == [(1, "/default/t1")]
        await storage.delete_topic(1)
        assert await world.objects.names("") == []


async def test_a_topic_of_another_broker_is_not_deleted():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        await seal(storage, 1)
        world.manifest.epochs[1] = 2
        with pytest.raises(TopicFenced):
            await storage.delete_topic(1)
        assert await world.objects.names("") == [log.segments[0].object_name]


async def test_manifest_decides_what_is_sealed():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        await publish(log, b"b")
        before = world.copy()
        await seal(storage, 1)
    # The crash came between the manifest and the journal.
    world.files = before.files
    async with world.storage() as storage:
        log = await open_topic(storage, epoch=2)
        assert (log.sealed_offset, log.end_offset, log.tail.byte_count) == (2, 2, 0)
        assert payloads_of(await read_all(log)) == [b"a", b"b"]
        assert await publish(log, b"c") == 2


async def test_topic_of_another_broker_continues_after_its_segments():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a")
        state = world.files
    # Meanwhile another broker has served it, from the end of the segments.
    world.files = type(state)()
    async with world.storage() as storage:
        log = await open_topic(storage, epoch=2)
        for payload in (b"x", b"y", b"z"):
            await publish(log, payload)
        await seal(storage, 1)
    world.files = state
    async with world.storage() as storage:
        log = await open_topic(storage, epoch=3)
        assert payloads_of(await read_all(log)) == [b"x", b"y", b"z"]
        assert await publish(log, b"d") == 3
    async with world.storage() as storage:
        log = await open_topic(storage, epoch=4)
        assert payloads_of(await read_all(log)) == [b"x", b"y", b"z", b"d"]


async def test_missing_messages_are_reported():
    world = World()
    journal = JournalConfig(file_bytes_max=1024)
    async with world.storage(journal=journal) as storage:
        log = await open_topic(storage)
        for _ in range(10):
            await publish(log, b"x" * 500)
    world.files.remove(world.files.names()[0])
    async with world.storage(journal=journal) as storage:
        with pytest.raises(CorruptJournal, match="messages 0 to 2 are neither"):
            await open_topic(storage, epoch=2)


async def test_error_of_the_body_is_raised_unchanged():
    with pytest.raises(ValueError, match="mine"):
        async with World().storage():
            raise ValueError("mine")


async def test_statistics_of_storage_follow_its_topics():
    async with World().storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"a", b"b")
        assert storage.memory.unsealed == {1: log}
        assert log.tail.byte_count > 0
        await seal(storage, 1)
        assert storage.logs == {1: log}
        assert not storage.memory.unsealed
        assert storage.sealer.sealing_seconds.count == 1
        assert log.segment_bytes == log.segments[0].byte_count
        assert storage.segment_url(log.segments[0]).startswith("memory:///default")


async def test_a_topic_with_later_messages_in_the_object_store_is_refused():
    world = World()
    async with world.storage() as storage:
        await publish(await open_topic(storage), b"a")
    older = world.copy()
    async with world.storage() as storage:
        log = await open_topic(storage, epoch=2)
        await publish(log, b"b")
        await seal(storage, 1)
    older.objects = world.objects
    async with older.storage() as storage:
        with pytest.raises(InconsistentDirectory, match="up to offset 2"):
            await open_topic(storage, epoch=2)
        # The object belongs to a topic of the same name with another number.
        await open_topic(storage, topic_id=2, name="/default/t1")


async def test_a_topic_whose_journal_files_are_missing_is_opened_at_the_start():
    world = World()
    async with world.storage(journal=JournalConfig(file_bytes_max=1024)) as storage:
        log = await open_topic(storage)
        for _ in range(20):
            await publish(log, b"x" * 100)
    while len(world.files.names()) > 1:
        world.files.remove(world.files.names()[0])
    async with world.storage() as storage:
        assert storage.must_be_opened(1)
        with pytest.raises(CorruptJournal, match="begins with 0000000000000000"):
            await open_topic(storage, epoch=2)


async def test_the_journal_remembers_the_highest_metadata_revision():
    world = World()
    async with world.storage(journal=JournalConfig(file_bytes_max=1024)) as storage:
        storage.note_metadata_revision(7)
        storage.note_metadata_revision(5)
        log = await open_topic(storage)
        for _ in range(20):
            await publish(log, b"x" * 100)
    while len(world.files.names()) > 1:
        world.files.remove(world.files.names()[0])
    async with world.storage() as storage:
        assert storage.journal.state.metadata_revision == 7


async def test_batches_before_a_refusal_are_acknowledged_and_later_ones_refused(
    tmp_path,
):
    # Files whose commits are made in a thread.
    world = World(files=DirectoryFiles(tmp_path))
    outcomes = []
    done = asyncio.Event()

    def note(error):
        outcomes.append(error)
        if len(outcomes) == 2:
            done.set()

    async with world.storage() as storage:
        log = await open_topic(storage)
        log.append_nowait(frame_of([b"x" * 1_000_000]), note)
        await asyncio.sleep(0)
        storage.journal.refusal = "on purpose"
        log.append_nowait(frame_of([b"y"]), note)
        await done.wait()
        assert outcomes[0] is None
        assert isinstance(outcomes[1], DiskFull)
        storage.journal.refusal = ""
        assert await publish(log, b"z") == 1
        assert [len(each) for each in payloads_of(await read_all(log))] == [
            1_000_000,
            1,
        ]


@pytest.mark.parametrize("is_pinned", [False, True])
async def test_a_full_disk_can_be_emptied_by_deleting_topics(is_pinned):
    disk = SmallDisk(4 * MIB)
    reserve = Reserve(disk, MIB)
    world = World(files=disk.files, reserve=reserve)
    reserve.open()
    async with world.storage(seal_interval_s=0.001) as storage:
        big, small = await open_topic(storage), await open_topic(storage, 2)
        if is_pinned:
            # It is in the same file of the journal, and in no segment.
            await publish(small, b"before")
        while not reserve.is_released:
            with suppress(DiskFull):
                await publish(big, b"x" * 100_000)
        for log in (big, small):
            with pytest.raises(DiskFull, match="delete topics"):
                await publish(log, b"refused")
        told = []
        for offset in range(20):
            storage.save(CursorSaved(2, "s", CursorState(offset)), told.append)
            await storage.journal.sync()
        assert told == [None] * 20
        await storage.delete_topic(1)
        await until(lambda: not reserve.is_released)
        assert disk.occupied == MIB
        await publish(small, b"after")
        kept = [b"before", b"after"] if is_pinned else [b"after"]
        assert payloads_of(await read_all(small)) == kept
    async with world.storage() as storage:
        assert [topic for topic, _ in storage.recovered] == [2]
