"""
The journal: everything that must survive, in one file at a time.

Theory.  The state is a fold over entries (``state.py``).  An entry is appended
on the event loop, which only collects it.  What has been collected is handed, as
one *group*, to the commit thread, which writes it with one call and syncs the
file if any entry of the group asks for that.  Meanwhile the next group collects.
There is never more than one group with the thread, so whenever a group is handed
over, the committed state is exactly what the files say.  That is the moment at
which a new file can be begun: the loop adds a snapshot of the state to the
group, and the thread writes it at the head of the new file.

A group that is small, on a disk that is quick, is not worth the way to the thread
and back, which takes as long as such a disk: the loop commits it itself, and
stands still meanwhile.

Who may touch what.  The writer, with the open file in it, belongs to the thread
while a group is in flight and to the loop otherwise.  State, file list and
everything that is waiting belong to the loop.

What fails.  No room on the disk: the file is cut back to where it was and the
reserve (reserve.py) released.  A group without batches is written again.  A group
with batches fails with DiskFull, as does all that was appended behind it; only
cursors and deletions in it are appended again.  Further batches fail until the
reserve is refilled.  Without a reserve, every group fails that finds no room.  Any
other failed write, and every failed sync: the journal is finished, and says
JournalFailed to everybody, because nobody can tell any more what the disk holds.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from pydanube.model.errors import BrokerError, Closed, DiskFull, JournalFailed
from pydanube.model.ids import Offset, TopicId
from pydanube.storage.recovery import (
    FIRST_NUMBER,
    JournalFile,
    Recovery,
    end_of,
    file_name,
    number_of,
    recover,
)
from pydanube.storage.reserve import Reserve
from pydanube.wire.files.journal_format import (
    Batch,
    CursorSaved,
    Entry,
    FileHeader,
    SnapshotEnd,
    SubscriptionDeleted,
    TopicDeleted,
    encode_entry,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pydanube.storage.config import JournalConfig
    from pydanube.storage.files import AppendFile, Files
    from pydanube.storage.state import JournalState
    from pydanube.wire.batches import BatchFrame
    from pydanube.wire.buffer import Buffer

    Done = Callable[[BrokerError | None], None]
    Job = Callable[[], None]

log = logging.getLogger(__name__)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# They depend on no batch that is not committed, so they may be written without it.
_INDEPENDENT = (CursorSaved, SubscriptionDeleted, TopicDeleted)
# What an entry counts for while it waits, besides a batch or what is done.
_SMALL_ENTRY_BYTES = 256

_INLINE_SYNC_ENTRIES_MAX = 2
_INLINE_SYNC_BYTES_MAX = 16 * 1024
# The page cache takes so much in a few microseconds.
_INLINE_WRITE_BYTES_MAX = 64 * 1024
INLINE_SYNC_S_MAX = 0.0003
"""The loop waits for no disk that usually takes longer than this."""
# What a sync has usually taken: each one counts for an eighth.
_MEAN_WEIGHT = 0.125


class Journal:
    """
    The running journal; see open_journal().

    Ordering: Entries are committed in the order of append(), and ``done`` is
        called in that order, on the loop, after the entry is in ``state``.

    Bounds: ``pending_bytes`` is what waits for the disk.  append() never waits;
        who appends much must ask room() before.
    """

    def __init__(
        self,
        config: JournalConfig,
        recovery: Recovery,
        writer: _Writer,
        submit: Callable[[_Group], None],
        reserve: Reserve,
    ) -> None:
        self.state: JournalState = recovery.state
        """What is committed, never what is still on its way."""
        self.recovered: dict[TopicId, list[BatchFrame]] = recovery.frames
        """The frames by topic that were not sealed; the topic's log takes them out."""
        self.failure: JournalFailed | Closed | None = None
        """Why nothing can be appended any more."""
        self.pending_bytes = 0
        self.commit_count = 0
        """How many groups were committed since the start."""
        self.sync_count = 0
        """How many of them waited for the disk."""
        self.commit_s = 0.0
        """How long all of them took together."""
        self.committed_bytes = 0
        """How many bytes the committed groups had."""
        self.durable_end = end_of(recovery.files[-1])
        """Everything before it is on disk, for good."""
        self.reserve = reserve
        """What is set aside for a full disk."""
        self._config = config
        self._files = recovery.files
        self._writer = writer
        self._submit = submit
        self._loop = asyncio.get_running_loop()
        self._collected = _Group()
        self._in_flight: _Group | None = None
        self._submitted_at = 0.0
        self._is_scheduled = False
        self._is_roll_wanted = False
        self._room_waiters: list[asyncio.Future[None]] = []
        self._failure_watchers: dict[object, Callable[[], None]] = {}

    def append(
        self, entry: Entry | None, done: Done | None, *, sync: bool = True
    ) -> None:
        """
        Add *entry* to the journal; *done* is told the outcome, later, on the loop.

        Without an entry this only waits in line.

        Durability: When *done* is told None, the entry survives the end of the
            process; with *sync*, it is on disk and so is all before it.

        Raises:
            JournalFailed, Closed: Nothing is accepted any more.
        """
        if self.failure is not None:
            # One error is raised many times, and must not collect where.
            raise self.failure.with_traceback(None)
        group = self._collected
        group.entries.append((entry, done))
        size = len(entry.frame.buffer) if type(entry) is Batch else _size_of(entry)
        group.byte_count += size
        self.pending_bytes += size
        if sync:
            group.sync = True
        if self._in_flight is None and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._submit_group)

    async def sync(self) -> None:
        """
        Return when everything that was appended is on disk.

        Raises:
            DiskFull, JournalFailed, Closed: It is not, or nobody knows.
        """
        synced: asyncio.Future[None] = self._loop.create_future()
        self.append(None, partial(complete_future, synced))
        await synced

    @property
    def has_room(self) -> bool:
        """Whether little enough waits for the disk."""
        return self.pending_bytes <= self._config.pending_bytes_max

    async def room(self) -> None:
        """Return when little enough waits for the disk, or the journal failed."""
        while not self.has_room and self.failure is None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room_waiters.append(waiter)
            await waiter

    def watch_failures(self, callback: Callable[[], None]) -> Callable[[], None]:
        """
        Call *callback* when entries fail, before any of them is told so.

        At that moment everything that was appended and is not committed fails.
        Returns what ends the watching.
        """
        key = object()
        self._failure_watchers[key] = callback

        def unwatch() -> None:
            self._failure_watchers.pop(key, None)

        return unwatch

    @property
    def byte_count(self) -> int:
        """How long all files are together."""
        return sum(file.byte_count for file in self._files)

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return len(self._files)

    @property
    def first_name(self) -> str:
        """The name of the oldest file."""
        return self._files[0].name

    def oldest_ends(self) -> Mapping[TopicId, Offset]:
        """The topics with batches in the oldest file: where they end there."""
        return self._files[0].ends

    def plan_removal(
        self, sealed_offset_of: Callable[[TopicId], int | None]
    ) -> list[str]:
        """
        The oldest files, as far as nothing in them is needed any more.

        *sealed_offset_of* says up to where a topic is in segments, None where
        there is no such topic.  The last file always stays.
        """
        names: list[str] = []
        for file in self._files[:-1]:
            # What is sealed stays so: no topic is looked at twice.
            while file.ends:
                topic_id, end = file.ends.popitem()
                sealed_offset = sealed_offset_of(topic_id)
                if sealed_offset is not None and sealed_offset < end:
                    file.ends[topic_id] = end
                    return names
            names.append(file.name)
        return names

    def roll_if_useless(
        self, sealed_offset_of: Callable[[TopicId], int | None]
    ) -> None:
        """
        Begin a new file soon if nothing in the last one is needed any more.

        On a full disk, that file may hold most of what can be freed.
        """
        ends = self._files[-1].ends
        if not ends or self.failure is not None:
            return
        for topic_id, end in ends.items():
            sealed_offset = sealed_offset_of(topic_id)
            if sealed_offset is not None and sealed_offset < end:
                return
        self._is_roll_wanted = True
        self.append(None, None)

    def on_removed(self, names: Sequence[str]) -> None:
        """The files of plan_removal() are gone."""
        assert [file.name for file in self._files[: len(names)]] == list(names)
        del self._files[: len(names)]

    def close(self) -> None:
        """Accept nothing any more; what waits is told Closed."""
        if self.failure is None:
            self.failure = Closed("the journal is closed")
        if self._in_flight is None:
            self._fail(self._take_collected(), self.failure)

    def _submit_group(self) -> None:
        """Give the collected group to the commit thread."""
        self._is_scheduled = False
        group = self._collected
        if self._in_flight is not None or not group.entries:
            return
        self._collected = _Group()
        if self.reserve.is_released and group.has_batches:
            self._fail(group, DiskFull(self.reserve.refusal))
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

    def on_written(self, group: _Group, outcome: _Outcome) -> None:
        """The commit thread has done what it could."""
        assert group is self._in_flight
        self._in_flight = None
        if outcome.rolled is not None:
            self._files.append(outcome.rolled)
        self._files[-1].byte_count = outcome.position
        if outcome.error is not None:
            if isinstance(outcome.error, JournalFailed):
                self.failure = outcome.error
                log.critical("the journal failed: %s", outcome.error)
            self._fail(group, outcome.error)
            return
        if group.sync:
            self.durable_end = end_of(self._files[-1])
        self._fold(group)
        self.pending_bytes -= group.byte_count
        self.commit_count += 1
        self.sync_count += group.sync
        self.commit_s += self._writer.clock() - self._submitted_at
        self.committed_bytes += group.byte_count
        # The disk works on while the callbacks run.
        if self._collected.entries and not self._is_scheduled:
            if self._writer.is_blocking:
                self._submit_group()
            else:
                self._is_scheduled = True
                self._loop.call_soon(self._submit_group)
        _notify(group, None)
        self._wake_room()

    def _fold(self, group: _Group) -> None:
        apply, ends = self.state.apply, self._files[-1].ends
        for entry, _ in group.entries:
            if entry is None:
                continue
            apply(entry)
            if type(entry) is Batch:
                ends[entry.topic_id] = Offset(entry.frame.end)

    def _fail(self, group: _Group, error: BrokerError) -> None:
        behind = self._take_collected()
        self.pending_bytes -= group.byte_count + behind.byte_count
        independent: list[tuple[Entry | None, Done | None]] = []
        if (
            isinstance(error, DiskFull)
            and self.reserve.is_released
            and group.has_batches
        ):
            independent = group.take_independent() + behind.take_independent()
        for watcher in list(self._failure_watchers.values()):
            watcher()
        _notify(group, error)
        _notify(behind, error)
        for entry, done in independent:
            self.append(entry, done)
        self._wake_room()

    def _take_collected(self) -> _Group:
        group, self._collected = self._collected, _Group()
        return group

    def _wake_room(self) -> None:
        if self._room_waiters and (self.has_room or self.failure is not None):
            waiting, self._room_waiters = self._room_waiters, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)


def _random_id() -> bytes:
    return os.urandom(16)


@contextmanager
def commit_thread() -> Iterator[Callable[[Job], None]]:
    """A thread that does one job after the other; yields what gives it one."""
    jobs: SimpleQueue[Job | None] = SimpleQueue()
    thread = threading.Thread(target=_work, args=(jobs,), name="journal", daemon=True)
    thread.start()
    try:
        yield jobs.put
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
) -> AsyncIterator[Journal]:
    """
    The journal in *files*, recovered.

    A torn end is cut off the last file, which is then appended to: the cut is
    needed anyway (only the last file may end torn, and one day this one will
    not be the last), and a broker that is killed again and again leaves no
    trail of small files.

    *new_id* gives the id of a journal that does not exist yet. *check* is called with
    what was recovered, before anything is changed; if it raises, nothing is.
    *reserve* is released when the disk is full; by default there is none.  *clock*
    measures how long the disk takes, which decides whether the loop waits for it.

    On leaving, what was appended is committed, and the commit thread has ended;
    *new_thread* gives what stands for it where files block.

    Raises:
        CorruptJournal: There is damage that a crash cannot explain, or a file
            is of a newer version.  Nothing was changed.
        OSError: The files cannot be read or written.
    """
    loop = asyncio.get_running_loop()
    reserve = reserve or Reserve()
    if not files.is_blocking:
        recovery, writer = _open_files(files, new_id, check, reserve, clock)
        journal = Journal(
            config,
            recovery,
            writer,
            lambda group: journal.on_written(group, writer.commit(group)),
            reserve,
        )
        async with _closing(journal, writer):
            yield journal
        return
    with ThreadPoolExecutor(1, thread_name_prefix="journal-open") as opener:
        recovery, writer = await loop.run_in_executor(
            opener, _open_files, files, new_id, check, reserve, clock
        )

    def commit(group: _Group) -> None:
        outcome = writer.commit(group)
        # The loop is closed only if it was torn down without waiting for us.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(journal.on_written, group, outcome)

    try:
        with new_thread() as do:
            journal = Journal(
                config,
                recovery,
                writer,
                lambda group: do(partial(commit, group)),
                reserve,
            )
            async with _closing(journal, writer):
                yield journal
    finally:
        writer.close()


@asynccontextmanager
async def _closing(journal: Journal, writer: _Writer) -> AsyncIterator[None]:
    try:
        yield
    finally:
        try:
            with suppress(BrokerError):
                await journal.sync()
        finally:
            journal.close()
            if not writer.is_blocking:
                writer.close()


def complete_future(future: asyncio.Future[None], error: BrokerError | None) -> None:
    """Give *future* the outcome that a ``done`` callback was told."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _work(jobs: SimpleQueue[Job | None]) -> None:
    """Do one job after the other, until there is a None."""
    while (job := jobs.get()) is not None:
        job()


def _notify(group: _Group, error: BrokerError | None) -> None:
    for _, done in group.entries:
        if done is None:
            continue
        # One callback's bug must not keep the news from the others.
        try:
            done(error)
        except Exception:
            log.exception("a callback of the journal failed")


@dataclass(slots=True)
class _Group:
    """Entries that are written together."""

    entries: list[tuple[Entry | None, Done | None]] = field(default_factory=list)
    byte_count: int = 0
    sync: bool = False
    snapshot: list[Entry] | None = None
    """The committed state, where the group begins a new file."""

    @property
    def has_batches(self) -> bool:
        """Whether messages are among the entries."""
        return any(type(entry) is Batch for entry, _ in self.entries)

    def take_independent(self) -> list[tuple[Entry | None, Done | None]]:
        """Take out the entries that do not depend on others of the group."""
        independent = [
            each for each in self.entries if isinstance(each[0], _INDEPENDENT)
        ]
        self.entries = [e for e in self.entries if not isinstance(e[0], _INDEPENDENT)]
        return independent


def _size_of(entry: Entry | None) -> int:
    """What an entry that is not a batch counts for while it waits."""
    if type(entry) is CursorSaved:
        return _SMALL_ENTRY_BYTES + entry.cursor.done.byte_count
    return _SMALL_ENTRY_BYTES


class _Outcome(NamedTuple):
    """What became of a group."""

    error: BrokerError | None
    rolled: JournalFile | None
    """The file that was begun for the group, if one was."""
    position: int
    """Where the last file ends now."""


class _Writer:
    """The end of the journal on disk; used by one thread at a time."""

    def __init__(
        self,
        files: Files,
        journal_id: bytes,
        file: JournalFile,
        open_file: AppendFile,
        *,
        reserve: Reserve,
        clock: Callable[[], float],
    ) -> None:
        self.is_blocking = files.is_blocking
        self.clock = clock
        self._files = files
        self._header = FileHeader(file.number, journal_id)
        self._seed = self._header.seed
        self._file = open_file
        self._reserve = reserve
        self._position = file.byte_count
        self._synced = file.byte_count
        # Nothing is known of the disk yet: the first syncs are the thread's.
        self._mean_sync_s = 2 * INLINE_SYNC_S_MAX

    def can_commit_inline(self, group: _Group) -> bool:
        """Whether the loop may wait while *group* is committed."""
        if not self.is_blocking or group.snapshot is not None:
            return False
        if not group.sync:
            return group.byte_count <= _INLINE_WRITE_BYTES_MAX
        return (
            self._mean_sync_s <= INLINE_SYNC_S_MAX
            and len(group.entries) <= _INLINE_SYNC_ENTRIES_MAX
            and group.byte_count <= _INLINE_SYNC_BYTES_MAX
        )

    def commit(self, group: _Group) -> _Outcome:
        """Write *group*; its entries are committed if there is no error."""
        rolled: JournalFile | None = None
        error: BrokerError | None = None
        try:
            try:
                rolled = self._roll_for(group)
                self._write_all(group)
            except DiskFull:
                if not self._reserve.release() or group.has_batches:
                    raise
                rolled = rolled or self._roll_for(group)
                self._write_all(group)
        except BrokerError as failure:
            error = failure
        except Exception as failure:
            # Whatever it was, the file's end is not known any more.
            log.exception("the journal cannot be written")
            error = JournalFailed(f"{self._header.number}: {failure!r}")
            error.__cause__ = failure
        return _Outcome(error, rolled, self._position)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _roll_for(self, group: _Group) -> JournalFile | None:
        return None if group.snapshot is None else self._roll(group.snapshot)

    def _write_all(self, group: _Group) -> None:
        self._write([entry for entry, _ in group.entries if entry is not None])
        if group.sync:
            self._sync()

    def _write(self, entries: Sequence[Entry]) -> None:
        buffers, end = _encode(entries, self._position, self._synced, self._seed)
        try:
            self._file.write(buffers)
        except OSError as error:
            self._cut_back(error)
        self._position = end

    def _cut_back(self, error: OSError) -> None:
        """Undo a write that failed, if that is possible; raise in any case."""
        if error.errno not in _NO_ROOM:
            raise JournalFailed(f"the journal cannot be written: {error}") from error
        self._file.truncate(self._position)
        raise DiskFull(f"no room for the journal: {error.strerror}") from error

    def _sync(self) -> None:
        if self._synced == self._position:
            return
        begin = self.clock()
        try:
            self._file.sync()
        except OSError as error:
            raise JournalFailed(f"the disk did not confirm: {error}") from error
        self._synced = self._position
        taken_s = self.clock() - begin
        self._mean_sync_s += _MEAN_WEIGHT * (taken_s - self._mean_sync_s)

    def _roll(self, snapshot: Sequence[Entry]) -> JournalFile:
        """Go on in a new file; the old one is on disk then, and so is the head."""
        # Only the last file may end in room that was reserved.
        self._file.truncate(self._position)
        self._synced = 0
        self._sync()
        header = FileHeader(self._header.number + 1, self._header.journal_id)
        name = file_name(header.number)
        try:
            new_file, head_bytes = _begin_file(self._files, header, snapshot)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise JournalFailed(f"{name} cannot be begun: {error}") from error
            # A head that is not whole must not stay: the old file goes on, and
            # only the last file may be bad.
            if name in self._files.names():
                self._files.remove(name)
                self._files.sync_directory()
            raise DiskFull(f"no room for the journal: {error.strerror}") from error
        self._file.close()
        self._file = new_file
        self._header, self._seed = header, header.seed
        self._position = self._synced = head_bytes
        return JournalFile(header.number, head_bytes, head_bytes)


def write_journal(
    files: Files, number: int, journal_id: bytes, state: JournalState
) -> None:
    """Write a journal of one file with *number*, which says *state* and no more."""
    header = FileHeader(number, journal_id)
    file, _ = _begin_file(files, header, list(state.snapshot()))
    file.close()


def _begin_file(
    files: Files, header: FileHeader, snapshot: Sequence[Entry]
) -> tuple[AppendFile, int]:
    """A new file with a head that is on disk; also the length of the head."""
    entries = [*snapshot, SnapshotEnd(len(snapshot))]
    head = header.encode()
    buffers, end = _encode(entries, len(head), 0, header.seed)
    file = files.create(file_name(header.number))
    try:
        file.write([head, *buffers])
        file.sync()
        files.sync_directory()
    except OSError:
        file.close()
        raise
    return file, end


def _encode(
    entries: Sequence[Entry], position: int, synced: int, seed: int
) -> tuple[list[Buffer], int]:
    """The buffers of *entries* from *position* on, and where they end."""
    buffers: list[Buffer] = []
    for entry in entries:
        parts, size = encode_entry(entry, position=position, synced=synced, seed=seed)
        buffers += parts
        position += size
    return buffers, position


def _open_files(
    files: Files,
    new_id: Callable[[], bytes],
    check: Callable[[Recovery], None],
    reserve: Reserve,
    clock: Callable[[], float],
) -> tuple[Recovery, _Writer]:
    """Recover, tidy up what a crash left, and open the last file for writing."""
    names = [name for name in files.names() if number_of(name) is not None]
    recovery = recover({name: files.map(name) for name in names})
    check(recovery)
    if recovery.headless_file is not None:
        log.warning(
            "removing %s, which a crash left without a head", recovery.headless_file
        )
        files.remove(recovery.headless_file)
        files.sync_directory()
    if not recovery.files:
        recovery.journal_id = new_id()
        header = FileHeader(FIRST_NUMBER, recovery.journal_id)
        open_file, head_bytes = _begin_file(files, header, [])
        last = JournalFile(FIRST_NUMBER, head_bytes, head_bytes)
        recovery.files.append(last)
    else:
        last = recovery.files[-1]
        open_file = files.append(last.name)
        if recovery.torn is not None:
            if not recovery.torn.is_reserved:
                log.warning(
                    "cutting %d bytes off %s at %d, which a crash left: %s",
                    recovery.torn.byte_count,
                    last.name,
                    last.byte_count,
                    recovery.torn.reason,
                )
            open_file.truncate(last.byte_count)
        # What was read may be in the page cache only; from now on it is history.
        open_file.sync()
        files.sync_directory()
    assert recovery.journal_id is not None
    return recovery, _Writer(
        files,
        recovery.journal_id,
        last,
        open_file,
        reserve=reserve,
        clock=clock,
    )
