"""
The journal: the write-ahead log of all topics of a broker, and the one on a disk.

LocalJournal.  The state is a fold over entries (``state.py``).  The event loop collects
appended entries.  It submits the collected entries as one *group* to the commit thread,
which writes them with one call, and syncs the file if any entry of the group asks for
that.  Meanwhile the loop collects the next group.  The thread never has more than one
group, so when the loop submits a group, the committed state is exactly what the files
contain.  At this moment the journal can roll to a new file: the loop adds a snapshot of
the state to the group, and the thread writes it at the head of the new file.

The loop commits a small group itself if the disk is fast, because the way to the thread
and back would take as long as the disk.

Ownership.  The writer, with the open file, belongs to the thread while a group is in
flight and to the loop otherwise.  The state, the list of files and the collected
entries belong to the loop.

Failures.  See journal_writer.py about the disk.  If a group with batches fails with
DiskFull, so do all entries appended after it, except cursors and deletions, which are
appended again.  Further batches fail until the reserve is refilled.  When the journal
has failed, every entry and every further append fails with JournalFailed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from queue import SimpleQueue
from time import perf_counter

from pydanube.aio.futures import Done, completion, watch
from pydanube.aio.lock_sharing import LockSharing
from pydanube.model.errors import (
    BrokerError,
    Closed,
    DiskFull,
    JournalFailed,
)
from pydanube.model.histograms import Histogram
from pydanube.model.ids import Offset, TopicId
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.journal_format import Batch, CursorSaved, Entry
from pydanube_broker.storage.config import JournalConfig
from pydanube_broker.storage.files import Files
from pydanube_broker.storage.journal.journal_writer import (
    Group,
    JournalWriter,
    Outcome,
    open_files,
)
from pydanube_broker.storage.journal.recovery import JournalPosition, Recovery, end_of
from pydanube_broker.storage.journal.reserve import Reserve
from pydanube_broker.storage.journal.state import JournalState

Job = Callable[[], None]
SealedOffsetOf = Callable[[TopicId], int | None]
"""Returns the offset up to which a topic is sealed; None if it does not exist."""

log = logging.getLogger(__name__)

# The size at which an entry without a batch or acknowledged ranges counts.
_SMALL_ENTRY_BYTES = 256


class Journal(ABC):
    """
    The open journal of a broker.

    Ordering: Entries are committed in the order of append(), and ``done`` is
        called in that order, on the loop, after the entry is in ``state``.

    Bounds: ``pending_bytes`` counts the entries that are not committed yet.  append()
        never waits; callers that append a lot must await wait_for_room() first.
    """

    outlives_disk = False
    """
    Whether the journal survives the loss of the broker's disk.

    Then a message counts as sealed for the journal when its segment is uploaded.
    """

    def __init__(
        self,
        config: JournalConfig,
        recovery: Recovery,
        reserve: Reserve,
    ) -> None:
        self.state: JournalState = recovery.state
        """The committed state, without pending entries."""
        self.recovered: dict[TopicId, list[BatchFrame]] = recovery.frames
        """The unsealed frames of each topic, until the topic's log is opened."""
        self.failure: JournalFailed | Closed | None = None
        """The error for all further entries, if the journal accepts none."""
        self.pending_bytes = 0
        self.commit_count = 0
        """The number of groups committed since the start."""
        self.sync_count = 0
        """The number of these groups that were synced."""
        self.commit_seconds = Histogram()
        """The time of each of these commits."""
        self.failure_count = 0
        """The number of failed requests for groups, if they are in an object store."""
        self.reserve = reserve
        self.refusal = ""
        """Why batches are refused; empty if they are accepted."""
        self._config = config
        # Set when those who wait for room are to check again.
        self._room_check = asyncio.Event()
        self._failure_watchers: dict[object, Callable[[], None]] = {}

    @property
    def problem(self) -> str:
        """The reason why no entries are committed now; empty if there is none."""
        return ""

    @abstractmethod
    def append(
        self, entry: Entry | None, done: Done | None, *, sync: bool = True
    ) -> None:
        """
        Add *entry* to the journal; *done* gets the outcome later, on the loop.

        If *entry* is None, *done* is called after all entries before it.

        Durability: When *done* gets None, the entry survives the end of the process.
            With *sync*, it is durable, and so is everything before it.

        Raises:
            JournalFailed, Closed: The journal accepts no more entries.
            DiskFull: The journal accepts no batch now.
        """

    @property
    @abstractmethod
    def byte_count(self) -> int:
        """The length of all files together."""

    @property
    @abstractmethod
    def file_count(self) -> int:
        """The number of files."""

    @property
    @abstractmethod
    def first_name(self) -> str:
        """The name of the oldest file."""

    @property
    @abstractmethod
    def durable_end(self) -> JournalPosition:
        """The position before which everything is durable."""

    @property
    def has_many_groups(self) -> bool:
        """Whether it has so many small groups that recovery would take long."""
        return False

    @property
    def entry_count(self) -> int:
        """How many entries another broker would read to take over; 0: none does."""
        return 0

    @abstractmethod
    def oldest_ends(self) -> Mapping[TopicId, Offset]:
        """Return the topics with batches in the oldest file, and their ends in it."""

    @abstractmethod
    async def trim(self, sealed_offset_of: SealedOffsetOf, executor: Executor) -> None:
        """
        Remove the oldest files that are not needed any more.

        *executor* runs calls that wait for a disk.

        Cancellation: Safe at any point; other calls of trim() remove the rest.
        """

    @abstractmethod
    def roll_if_useless(self, sealed_offset_of: SealedOffsetOf) -> None:
        """
        Roll to a new file soon if nothing in the last one is needed any more.

        On a full disk, that file may hold most of the space that can be freed.
        """

    def when_free(self, callback: Callable[[], None]) -> None:
        """
        Call *callback* soon, when entries that it appends need not wait for others.

        Those who gather entries use the time in which nothing more can be committed.
        """
        asyncio.get_running_loop().call_soon(callback)

    async def sync(self) -> None:
        """
        Return when everything that was appended is durable.

        Raises:
            DiskFull, JournalFailed, Closed: It is not, or may not be.
        """
        await completion(partial(self.append, None))

    @property
    def has_room(self) -> bool:
        """Whether at most ``pending_bytes_max`` are not committed yet."""
        return self.pending_bytes <= self._config.pending_bytes_max

    async def wait_for_room(self) -> None:
        """Return when ``has_room``, or when the journal has failed."""
        while not self.has_room and self.failure is None:
            self._room_check.clear()
            await self._room_check.wait()

    def watch_failures(self, callback: Callable[[], None]) -> Callable[[], None]:
        """
        Call *callback* when entries fail, before any ``done`` gets the error.

        At this moment every entry that is not committed fails.  Returns a function that
        ends the watch.
        """
        return watch(self._failure_watchers, callback)

    def _wake_room(self) -> None:
        if not self._room_check.is_set() and (
            self.has_room or self.failure is not None
        ):
            self._room_check.set()


def count_sealed(
    ends_of_files: Sequence[dict[TopicId, Offset]], sealed_offset_of: SealedOffsetOf
) -> int:
    """
    Return how many of the first files have only sealed messages.

    *ends_of_files* has the end of the last batch of each topic in each file.  Topics
    that are sealed up to this end are removed there, so that they are checked once.
    """
    for count, ends in enumerate(ends_of_files):
        while ends:
            topic_id, end = ends.popitem()
            sealed_offset = sealed_offset_of(topic_id)
            if sealed_offset is not None and sealed_offset < end:
                ends[topic_id] = end
                return count
    return len(ends_of_files)


class LocalJournal(Journal):
    """A journal in a directory of append-only files; see open_journal()."""

    def __init__(
        self,
        config: JournalConfig,
        recovery: Recovery,
        writer: JournalWriter,
        submit: Callable[[Group], None],
        *,
        reserve: Reserve,
        files: Files,
    ) -> None:
        super().__init__(config, recovery, reserve)
        self._durable_end = end_of(recovery.files[-1])
        self._directory = files
        self._removal = asyncio.Lock()
        self._files = recovery.files
        self._writer = writer
        self._submit = submit
        self._loop = asyncio.get_running_loop()
        self._collected = Group()
        self._in_flight: Group | None = None
        self._submitted_at = 0.0
        self._is_scheduled = False
        self._is_roll_wanted = False
        # Callbacks for the end of the group in flight; see when_free().
        self._waiting: list[Callable[[], None]] = []

    def append(
        self, entry: Entry | None, done: Done | None, *, sync: bool = True
    ) -> None:
        if self.failure is not None:
            # The same exception object is raised repeatedly, so drop its traceback.
            raise self.failure.with_traceback(None)
        group = self._collected
        group.entries.append((entry, done))
        size = len(entry.frame.buffer) if type(entry) is Batch else size_of(entry)
        group.byte_count += size
        self.pending_bytes += size
        if sync:
            group.sync = True
        if self._in_flight is None and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._submit_group)

    def when_free(self, callback: Callable[[], None]) -> None:
        if self._in_flight is None:
            self._loop.call_soon(callback)
        else:
            self._waiting.append(callback)

    @property
    def byte_count(self) -> int:
        return sum(file.byte_count for file in self._files)

    @property
    def file_count(self) -> int:
        return len(self._files)

    @property
    def first_name(self) -> str:
        return self._files[0].name

    @property
    def durable_end(self) -> JournalPosition:
        return self._durable_end

    def oldest_ends(self) -> Mapping[TopicId, Offset]:
        return self._files[0].ends

    async def trim(self, sealed_offset_of: SealedOffsetOf, executor: Executor) -> None:
        async with self._removal:
            names = self._plan_removal(sealed_offset_of)
            if not names:
                return
            if self._directory.is_blocking:
                removing = self._loop.run_in_executor(
                    executor, _remove_files, self._directory, names
                )
                removed = await _finish(removing)
            else:
                removed = _remove_files(self._directory, names)
            assert [file.name for file in self._files[: len(removed)]] == removed
            del self._files[: len(removed)]

    def _plan_removal(self, sealed_offset_of: SealedOffsetOf) -> list[str]:
        """
        Return the names of the oldest files that are not needed any more.

        The last file always stays.
        """
        files = self._files[:-1]
        count = count_sealed([file.ends for file in files], sealed_offset_of)
        return [file.name for file in files[:count]]

    def roll_if_useless(self, sealed_offset_of: SealedOffsetOf) -> None:
        ends = self._files[-1].ends
        if not ends or self.failure is not None:
            return
        for topic_id, end in ends.items():
            sealed_offset = sealed_offset_of(topic_id)
            if sealed_offset is not None and sealed_offset < end:
                return
        self._is_roll_wanted = True
        self.append(None, None)

    def close(self) -> None:
        """Accept no more entries; those that wait fail with Closed."""
        if self.failure is None:
            self.failure = Closed("the journal is closed")
        if self._in_flight is None:
            self._fail(self._take_collected(), self.failure)

    def _submit_group(self) -> None:
        self._is_scheduled = False
        group = self._collected
        if self._in_flight is not None or not group.entries:
            return
        self._collected = Group()
        if self._is_refusing and group.has_batches:
            self._fail(group, DiskFull(self.refusal or self.reserve.refusal))
            return
        file = self._files[-1]
        byte_count = file.byte_count - file.head_bytes
        if byte_count >= self._config.file_bytes_max or self._is_roll_wanted:
            self._is_roll_wanted = False
            group.snapshot = list(self.state.snapshot())
        self._in_flight = group
        self._submitted_at = self._writer.clock()
        if self._writer.can_commit_inline(group):
            self.on_written(group, self._writer.commit(group))
        else:
            self._submit(group)

    def on_written(self, group: Group, outcome: Outcome) -> None:
        """Take over the outcome of the group in flight."""
        assert group is self._in_flight
        waiting, self._waiting = self._waiting, []
        if outcome.rolled is not None:
            self._files.append(outcome.rolled)
        self._files[-1].byte_count = outcome.position
        if outcome.error is not None:
            self._in_flight = None
            if isinstance(outcome.error, JournalFailed):
                self.failure = outcome.error
                log.critical("the journal failed: %s", outcome.error)
            self._fail(group, outcome.error)
            for callback in waiting:
                self._loop.call_soon(callback)
            return
        if group.sync:
            self._durable_end = end_of(self._files[-1])
        self._fold(group)
        self.pending_bytes -= group.byte_count
        self.commit_count += 1
        self.sync_count += group.sync
        self.commit_seconds.observe(self._writer.clock() - self._submitted_at)
        for callback in waiting:
            # What it appends is in the next group.
            try:
                callback()
            except Exception:
                log.exception("a callback of the journal failed")
        self._in_flight = None
        # Submit the next group first, so that the disk works while the callbacks run;
        # but later if its outcome, which is reported in order, may be known at once:
        # it may be refused, or be committed by the loop.
        if self._collected.entries and not self._is_scheduled:
            if (
                self._writer.is_blocking
                and not self._is_refusing
                and not self._writer.can_commit_inline(self._collected)
            ):
                self._submit_group()
            else:
                self._is_scheduled = True
                self._loop.call_soon(self._submit_group)
        notify(group, None)
        self._wake_room()

    def _fold(self, group: Group) -> None:
        apply, ends = self.state.apply, self._files[-1].ends
        for entry, _ in group.entries:
            if entry is None:
                continue
            if apply(entry) and type(entry) is Batch:
                ends[entry.topic_id] = Offset(entry.frame.end)

    def _fail(self, group: Group, error: BrokerError) -> None:
        later = self._take_collected()
        self.pending_bytes -= group.byte_count + later.byte_count
        independent: list[tuple[Entry | None, Done | None]] = []
        if isinstance(error, DiskFull) and self._is_refusing and group.has_batches:
            independent = group.take_independent() + later.take_independent()
        for watcher in list(self._failure_watchers.values()):
            watcher()
        notify(group, error)
        notify(later, error)
        for entry, done in independent:
            self.append(entry, done)
        self._wake_room()

    @property
    def _is_refusing(self) -> bool:
        return self.reserve.is_released or bool(self.refusal)

    def _take_collected(self) -> Group:
        group, self._collected = self._collected, Group()
        return group


def _random_id() -> bytes:
    return os.urandom(16)


@contextmanager
def commit_thread() -> Iterator[Callable[[Job], None]]:
    """Run a thread for one job after the other; yield the function that submits one."""
    jobs: SimpleQueue[Job | None] = SimpleQueue()
    sharing = LockSharing()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()
            sharing.on_job_ended()

    def submit(job: Job) -> None:
        sharing.on_job_started()
        jobs.put(job)

    thread = threading.Thread(target=work, name="journal", daemon=True)
    thread.start()
    try:
        yield submit
    finally:
        jobs.put(None)
        thread.join()


@asynccontextmanager
async def open_journal(
    files: Files,
    config: JournalConfig,
    *,
    reserve: Reserve | None = None,
    new_id: Callable[[], bytes] = _random_id,
    check: Callable[[Recovery], None] = lambda _: None,
    clock: Callable[[], float] = perf_counter,
    new_thread: Callable[
        [], AbstractContextManager[Callable[[Job], None]]
    ] = commit_thread,
) -> AsyncIterator[LocalJournal]:
    """
    Recover the journal in *files* and open it.

    A torn end is cut off the last file, which is then appended to.  Only the last
    file can have a torn end, and a broker that is killed repeatedly does not leave many
    small files.

    *new_id* returns the id of a new journal.  *check* is called with the recovered
    state before anything is changed, and may raise.  *reserve* is released when the
    disk is full; by default there is none.  *clock* measures how long the disk takes.
    *new_thread* starts the commit thread, if the files block.

    When the context ends, everything that was appended is committed, and the commit
    thread has ended.

    Raises:
        CorruptJournal: There is damage that a crash cannot explain, or a file
            has a newer format version.  Nothing was changed.
        OSError: The files cannot be read or written.
    """
    loop = asyncio.get_running_loop()
    reserve = reserve or Reserve()
    open_all = partial(open_files, files, new_id, check, reserve, clock)
    if files.is_blocking:
        with ThreadPoolExecutor(1, thread_name_prefix="journal-open") as opener:
            recovery, writer = await loop.run_in_executor(opener, open_all)
    else:
        recovery, writer = open_all()

    def commit(group: Group) -> None:
        outcome = writer.commit(group)
        # The loop is closed only if it was stopped without waiting for this thread.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(journal.on_written, group, outcome)

    def submit(group: Group) -> None:
        if thread is None:
            journal.on_written(group, writer.commit(group))
        else:
            thread(partial(commit, group))

    try:
        with new_thread() if files.is_blocking else nullcontext() as thread:
            journal = LocalJournal(
                config, recovery, writer, submit, reserve=reserve, files=files
            )
            try:
                yield journal
            finally:
                try:
                    with suppress(BrokerError):
                        await journal.sync()
                finally:
                    journal.close()
    finally:
        writer.close()


def notify(group: Group, error: BrokerError | None) -> None:
    """Tell the callbacks of *group* the outcome."""
    for _, done in group.entries:
        if done is None:
            continue
        # A bug in one callback must not affect the others.
        try:
            done(error)
        except Exception:
            log.exception("a callback of the journal failed")


def size_of(entry: Entry | None) -> int:
    """Return the size at which an entry that is not a batch counts as pending."""
    if type(entry) is CursorSaved:
        return _SMALL_ENTRY_BYTES + entry.cursor.done.byte_count
    return _SMALL_ENTRY_BYTES


def _remove_files(files: Files, names: Sequence[str]) -> list[str]:
    """Remove *names* one by one; return those that were removed."""
    # Sync each removal before the next, so that a crash cannot leave a gap.
    removed = []
    for name in names:
        try:
            # A cancelled call may have removed the file already.
            with suppress(FileNotFoundError):
                files.remove(name)
            files.sync_directory()
        except OSError as error:
            log.warning("the journal file %s cannot be removed: %s", name, error)
            break
        removed.append(name)
    return removed


async def _finish(work: asyncio.Future[list[str]]) -> list[str]:
    """Wait for *work* even when cancelled, because it cannot be stopped."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
