import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from pydanube.model.errors import Closed, CorruptJournal, DiskFull, JournalFailed
from pydanube.model.ranges import RangeSet
from pydanube.wire.files.journal_format import (
    Batch,
    CursorSaved,
    CursorState,
    FileHeader,
    SubscriptionDeleted,
    TopicOpened,
    TopicSealed,
)
from pydanube_broker.storage.config import JournalConfig
from pydanube_broker.storage.files import DirectoryFiles, MemoryFiles
from pydanube_broker.storage.journal.journal import open_journal
from pydanube_broker.storage.journal.recovery import file_name
from pydanube_broker.storage.journal.reserve import Reserve
from support.fakes.batches import frame_of
from support.fakes.recording_files import RecordingFiles
from support.fakes.small_disk import SmallDisk
from support.fakes.storages import until

CONFIG = JournalConfig(file_bytes_max=1024)
OPENED = TopicOpened(topic_id=1, name="t", epoch=1, end_offset=0, sealed_offset=0)


@pytest.fixture(params=["memory", "directory", "reserving", "recording"])
def files(request, tmp_path):
    match request.param:
        case "memory":
            return MemoryFiles()
        case "directory":
            return DirectoryFiles(tmp_path)
        case "reserving":
            return DirectoryFiles(tmp_path, reserve_bytes=4096)
        case _:
            return RecordingFiles()


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as executor:
        yield executor


class Batches:
    def __init__(self, base=0):
        self.base = base

    def next(self, count=1, size=100):
        frame = frame_of([b"x" * size] * count)
        frame.stamp(self.base, 1)
        self.base += count
        return Batch(1, frame)


async def test_callbacks_run_in_order_after_entries_are_in_the_state(files):
    told = []
    async with open_journal(files, CONFIG) as journal:
        batches = Batches()
        journal.append(OPENED, lambda error: told.append(("opened", error)))
        for at in range(50):

            def done(error, at=at):
                assert journal.state.topics[1].end_offset > at
                told.append((at, error))

            journal.append(batches.next(), done)
            if at % 7 == 0:
                await asyncio.sleep(0)
        await journal.sync()
    assert told == [("opened", None), *((at, None) for at in range(50))]


class HeldThread:
    """A commit thread whose jobs wait until the test lets them run."""

    def __init__(self) -> None:
        self.jobs = []
        self.is_free = False

    @contextmanager
    def start(self):
        yield self.submit

    def submit(self, job) -> None:
        self.jobs.append(job)
        if self.is_free:
            self.release()

    def release(self) -> None:
        """Run the jobs, and all later ones at once."""
        self.is_free = True
        while self.jobs:
            self.jobs.pop(0)()


async def test_group_that_the_loop_commits_is_reported_after_that_of_the_thread(
    tmp_path,
):
    told, thread = [], HeldThread()
    files = DirectoryFiles(tmp_path)
    async with open_journal(files, JournalConfig(), new_thread=thread.start) as journal:
        journal.append(OPENED, lambda _: told.append("synced"))
        await asyncio.sleep(0)
        assert thread.jobs
        written = asyncio.Event()
        journal.append(Batches().next(), lambda _: told.append("written"), sync=False)
        journal.append(None, lambda _: written.set(), sync=False)
        thread.release()
        await written.wait()
    assert told == ["synced", "written"]


async def test_what_is_appended_when_the_journal_is_free_is_in_the_next_group(tmp_path):
    told, thread = [], HeldThread()
    files = DirectoryFiles(tmp_path)
    async with open_journal(files, JournalConfig(), new_thread=thread.start) as journal:
        journal.append(OPENED, None)
        await asyncio.sleep(0)
        batches = Batches()

        def append() -> None:
            told.append(journal.commit_count)
            journal.append(batches.next(), None)

        journal.when_free(append)
        journal.when_free(append)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not told
        thread.release()
        await journal.sync()
        assert told == [1, 1]
        assert journal.commit_count == 2
        journal.when_free(append)
        await asyncio.sleep(0)
        assert told == [1, 1, 2]


async def test_journal_is_free_after_a_failure():
    thread, told, free = HeldThread(), [], asyncio.Event()

    def fail(operation) -> None:
        if thread.is_free and operation.kind == "write":
            raise OSError(errno.EIO, "the disk is broken")

    files = RecordingFiles(fail=fail)
    files.is_blocking = True
    async with open_journal(files, JournalConfig(), new_thread=thread.start) as journal:
        journal.append(OPENED, told.append)
        await asyncio.sleep(0)
        journal.when_free(free.set)
        thread.release()
        await free.wait()
        assert isinstance(told[0], JournalFailed)


async def test_what_was_committed_is_recovered(files):
    async with open_journal(files, CONFIG) as journal:
        batches = Batches()
        journal.append(OPENED, None)
        for _ in range(30):
            journal.append(batches.next(), None)
            await journal.sync()
        state = journal.state
        assert journal.file_count > 3
    async with open_journal(files, CONFIG) as journal:
        assert journal.state == state
        assert [f.base for f in journal.recovered[1]] == list(range(30))
        journal.append(batches.next(), None)
        await journal.sync()
    async with open_journal(files, CONFIG) as journal:
        assert journal.state.topics[1].end_offset == 31


async def test_leaving_commits_what_was_appended(files):
    told = []
    async with open_journal(files, CONFIG) as journal:
        journal.append(OPENED, told.append)
    assert told == [None]
    with pytest.raises(Closed):
        journal.append(OPENED, None)


async def test_what_is_appended_together_is_synced_once():
    files = RecordingFiles()
    async with open_journal(files, CONFIG) as journal:
        begun = len(files.operations)
        journal.append(OPENED, None)
        batches = Batches()
        for _ in range(5):
            journal.append(batches.next(), None)
        await journal.sync()
        kinds = [each.kind for each in files.operations[begun:]]
        assert kinds == ["write", "sync"]


async def test_entries_without_sync_are_not_synced():
    files = RecordingFiles()
    async with open_journal(files, CONFIG) as journal:
        begun = len(files.operations)
        written = asyncio.Event()
        journal.append(OPENED, lambda error: written.set(), sync=False)
        await written.wait()
        assert [each.kind for each in files.operations[begun:]] == ["write"]


async def test_new_file_begins_after_the_last_is_synced():
    files = RecordingFiles()
    async with open_journal(files, CONFIG) as journal:
        journal.append(OPENED, None)
        batches = Batches()
        for _ in range(20):
            written = asyncio.Event()
            journal.append(batches.next(), lambda error, w=written: w.set(), sync=False)
            await written.wait()
    kinds = [each.kind for each in files.operations]
    for at, kind in enumerate(kinds[4:], 4):
        if kind == "create":
            assert kinds[at - 1] == "sync"
            assert kinds[at + 1 : at + 4] == ["write", "sync", "sync_directory"]
    assert kinds.count("create") > 2


async def test_a_snapshot_larger_than_a_file_does_not_roll_for_ever(files):
    async with open_journal(files, CONFIG) as journal:
        for topic in range(100):
            opened = TopicOpened(
                topic_id=topic,
                name="t" * 50,
                epoch=1,
                end_offset=0,
                sealed_offset=0,
            )
            journal.append(opened, None)
        await journal.sync()
        before = journal.file_count
        for _ in range(10):
            journal.append(TopicSealed(1, 0), None)
            await journal.sync()
        assert journal.file_count <= before + 1


async def test_old_files_are_removed_when_all_in_them_is_sealed(files, executor):
    async with open_journal(files, CONFIG) as journal:
        batches = Batches()
        journal.append(OPENED, None)
        for _ in range(30):
            journal.append(batches.next(), None)
            await journal.sync()
        first, count = journal.first_name, journal.file_count
        await journal.trim(lambda topic: 0, executor)
        end = journal.oldest_ends()[1]
        await journal.trim(lambda topic: end - 1, executor)
        assert journal.first_name == first == file_name(1)
        await journal.trim(lambda topic: end, executor)
        assert journal.first_name == file_name(2)
        assert journal.file_count == count - 1
        assert file_name(1) not in files.names()
        await journal.trim(lambda topic: None, executor)
        assert len(files.names()) == 1
        assert journal.file_count == 1
    async with open_journal(files, CONFIG) as journal:
        assert journal.state.topics[1].end_offset == 30


def failing(kind, code):
    failures = []

    def fail(operation):
        if failures and operation.kind == kind:
            return OSError(code, "on purpose")
        return None

    return failures, RecordingFiles(fail=fail)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
async def test_full_disk_fails_all_pending_entries_and_the_journal_continues(code):
    failures, files = failing("write", code)
    async with open_journal(files, CONFIG) as journal:
        batches = Batches()
        journal.append(OPENED, None)
        journal.append(batches.next(), None)
        await journal.sync()
        length = len(files.contents[file_name(1)])
        failures.append(True)
        told, watched = [], []
        unwatch = journal.watch_failures(lambda: watched.append(len(told)))
        for _ in range(3):
            journal.append(batches.next(), told.append)
        with pytest.raises(DiskFull):
            await journal.sync()
        assert [type(error) for error in told] == [DiskFull] * 3
        assert watched == [0]
        assert journal.pending_bytes == 0
        assert len(files.contents[file_name(1)]) == length
        unwatch()
        failures.clear()
        journal.append(Batches(1).next(), told.append)
        await journal.sync()
        assert told[-1] is None
    async with open_journal(RecordingFiles(files.contents), CONFIG) as journal:
        assert journal.state.topics[1].end_offset == 2


async def test_on_a_full_disk_the_reserve_serves_cursors_and_deletions():
    disk = SmallDisk(4096)
    reserve = Reserve(disk, 2048)
    disk.allocate(2048)
    config = JournalConfig()
    told = {}

    def note(name):
        return lambda error: told.update({name: error})

    saved = CursorSaved(1, "s", CursorState(1, RangeSet()))
    async with open_journal(disk.files, config, reserve=reserve) as journal:
        batches = Batches()
        journal.append(OPENED, None)
        journal.append(batches.next(), None)
        await journal.sync()
        # A group with a batch that does not fit, and one after it.
        journal.append(batches.next(size=2048), note("batch"))
        journal.append(saved, note("cursor"))
        journal.append(TopicSealed(1, 1), note("seal"))
        await asyncio.sleep(0)
        journal.append(Batches(1).next(), note("next batch"))
        journal.append(SubscriptionDeleted(1, "t"), note("deletion"))
        await until(lambda: len(told) == 5)
        assert [type(told[name]) for name in ("batch", "next batch")] == [
            DiskFull,
            DiskFull,
        ]
        kept = ("cursor", "seal", "deletion")
        assert [told[name] for name in kept] == [None, None, None]
        assert (reserve.is_released, disk.occupied) == (True, 0)
        # Batches would fit now, but are still refused.
        journal.append(Batches(1).next(), note("small batch"))
        await until(lambda: "small batch" in told)
        assert isinstance(told["small batch"], DiskFull)
        assert "delete topics" in str(told["small batch"])
        journal.append(saved, note("cursor again"))
        await journal.sync()
        assert told["cursor again"] is None
        assert journal.pending_bytes == 0
        disk.byte_count *= 2
        assert reserve.refill()
        journal.append(Batches(1).next(), None)
        await journal.sync()
    async with open_journal(RecordingFiles(disk.files.contents), config) as journal:
        topic = journal.state.topics[1]
        assert topic.end_offset == 2
        assert topic.cursors["s"].offset == 1
        assert topic.sealed_offset == 1


async def test_an_exhausted_reserve_refuses_cursors_too():
    disk = SmallDisk(2048)
    reserve = Reserve(disk, 1024)
    disk.allocate(1024)
    saved = CursorSaved(1, "s", CursorState(1, RangeSet()))
    async with open_journal(disk.files, JournalConfig(), reserve=reserve) as journal:
        journal.append(OPENED, None)
        await journal.sync()
        outcomes = []
        while not any(outcomes):
            journal.append(saved, outcomes.append)
            await until(lambda: journal.pending_bytes == 0)
        assert isinstance(outcomes[-1], DiskFull)
        assert len(outcomes) > 10
        disk.byte_count *= 2
        journal.append(saved, outcomes.append)
        await journal.sync()
        assert outcomes[-1] is None


async def test_a_full_disk_while_rolling_leaves_the_old_file_in_use():
    failures, files = failing("write", errno.ENOSPC)
    async with open_journal(files, CONFIG) as journal:
        journal.append(OPENED, None)
        journal.append(Batches().next(count=20), None)
        await journal.sync()
        failures.append(True)
        journal.append(Batches(20).next(), None)
        with pytest.raises(DiskFull):
            await journal.sync()
        assert files.names() == [file_name(1)]
        failures.clear()
        journal.append(Batches(20).next(), None)
        await journal.sync()
        assert files.names() == [file_name(1), file_name(2)]
    async with open_journal(RecordingFiles(files.contents), CONFIG) as journal:
        assert journal.state.topics[1].end_offset == 21


@pytest.mark.parametrize("kind", ["write", "sync"])
async def test_any_other_failure_ends_the_journal(kind):
    failures, files = failing(kind, errno.EIO)
    async with open_journal(files, CONFIG) as journal:
        journal.append(OPENED, None)
        await journal.sync()
        failures.append(True)
        told = []
        journal.append(Batches().next(), told.append)
        with pytest.raises(JournalFailed):
            await journal.sync()
        assert isinstance(told[0], JournalFailed)
        failures.clear()
        with pytest.raises(JournalFailed):
            journal.append(Batches().next(), None)
        assert journal.state.topics[1].end_offset == 0
        await journal.wait_for_room()


async def test_a_full_disk_that_cannot_be_cut_back_ends_the_journal():
    def fail(operation):
        if full and operation.kind in {"write", "truncate"}:
            return OSError(errno.ENOSPC, "on purpose")
        return None

    full = False
    files = RecordingFiles(fail=fail)
    async with open_journal(files, CONFIG) as journal:
        journal.append(OPENED, None)
        await journal.sync()
        full = True
        journal.append(Batches().next(), None)
        with pytest.raises(JournalFailed):
            await journal.sync()


async def test_room_waits_until_the_disk_has_caught_up(files):
    config = JournalConfig(pending_bytes_max=500)
    async with open_journal(files, config) as journal:
        journal.append(OPENED, None)
        batches = Batches()
        for _ in range(10):
            journal.append(batches.next(), None)
        assert not journal.has_room
        await journal.wait_for_room()
        assert journal.has_room
        assert journal.state.topics[1].end_offset > 0


async def test_failing_callback_does_not_affect_others(files, caplog):
    told = []

    def broken(error):
        raise RuntimeError("on purpose")

    async with open_journal(files, CONFIG) as journal:
        journal.append(OPENED, broken)
        journal.append(Batches().next(), told.append)
        await journal.sync()
    assert told == [None]
    assert "on purpose" in caplog.text


async def test_a_torn_end_is_cut_off_and_appended_to(files, caplog):
    async with open_journal(files, CONFIG) as journal:
        journal.append(OPENED, None)
        journal.append(Batches().next(), None)
    file = files.append(file_name(1))
    file.write([b"DjE1 torn"])
    file.close()
    length = len(files.map(file_name(1)))
    async with open_journal(files, CONFIG) as journal:
        assert len(files.map(file_name(1))) == length - 9
        journal.append(Batches(1).next(), None)
    async with open_journal(files, CONFIG) as journal:
        assert journal.state.topics[1].end_offset == 2
    assert "cutting the torn end of 9 bytes off" in caplog.text


async def test_a_newer_journal_is_refused_and_not_touched():
    newer = FileHeader(1, b"0123456789abcdef", version=2).encode() + b"whatever"
    files = RecordingFiles({file_name(1): newer})

    with pytest.raises(CorruptJournal, match="version 2"):
        async with open_journal(files, CONFIG):
            raise AssertionError("it opened")
    assert not files.operations
    assert files.contents == {file_name(1): newer}
