"""
The end of the journal on disk: groups of entries go in, one write and sync each.

What fails.  If the disk is full, the writer cuts the file back to its end before the
write and releases the reserve (reserve.py).  It writes a group without batches again;
a group with batches fails with DiskFull.  After any other failed write, and after every
failed sync, nobody knows what the disk holds: the journal has failed.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import NamedTuple

from pydanube.aio.futures import Done
from pydanube.model.errors import BrokerError, DiskFull, JournalFailed
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.journal_format import (
    Batch,
    CursorSaved,
    Entry,
    FileHeader,
    SnapshotEnd,
    SubscriptionDeleted,
    TopicDeleted,
    TopicSealed,
    encode_entry,
)
from pydanube_broker.storage.files import AppendFile, Files
from pydanube_broker.storage.journal.recovery import (
    FIRST_NUMBER,
    JournalFile,
    Recovery,
    file_name,
    number_of,
    recover,
)
from pydanube_broker.storage.journal.reserve import Reserve
from pydanube_broker.storage.journal.slow_syncs import SlowSyncs
from pydanube_broker.storage.journal.state import JournalState

log = logging.getLogger(__name__)

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk or an exhausted quota."""
# These entries depend on no uncommitted batch, so they may be written without it.
_INDEPENDENT = (CursorSaved, SubscriptionDeleted, TopicDeleted, TopicSealed)

_INLINE_SYNC_ENTRIES_MAX = 2
_INLINE_SYNC_BYTES_MAX = 16 * 1024
# The page cache takes this much in a few microseconds.
_INLINE_WRITE_BYTES_MAX = 64 * 1024
INLINE_SYNC_S_MAX = 0.0003
"""The loop waits for a sync only if the mean sync takes at most this time."""
# The weight of the newest sync in the moving average.
_MEAN_WEIGHT = 0.125


@dataclass(slots=True)
class Group:
    """Entries that are written together."""

    entries: list[tuple[Entry | None, Done | None]] = field(default_factory=list)
    byte_count: int = 0
    sync: bool = False
    snapshot: list[Entry] | None = None
    """The committed state, if the group begins a new file."""

    @property
    def has_batches(self) -> bool:
        """Whether there are batches among the entries."""
        return any(type(entry) is Batch for entry, _ in self.entries)

    def take_independent(self) -> list[tuple[Entry | None, Done | None]]:
        """Remove and return the entries that do not depend on the others."""
        independent = [
            each for each in self.entries if isinstance(each[0], _INDEPENDENT)
        ]
        self.entries = [e for e in self.entries if not isinstance(e[0], _INDEPENDENT)]
        return independent


class Outcome(NamedTuple):
    """The outcome of a commit."""

    error: BrokerError | None
    rolled: JournalFile | None
    """The new file, if the journal rolled to one."""
    position: int
    """The end of the last file."""


class JournalWriter:
    """Writes groups at the end of the journal; used by one thread at a time."""

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
        # The disk's speed is not known yet, so the thread makes the first syncs.
        self._mean_sync_s = 2 * INLINE_SYNC_S_MAX
        self._slow_syncs = SlowSyncs()

    def can_commit_inline(self, group: Group) -> bool:
        """Return whether the event loop may wait while *group* is committed."""
        if not self.is_blocking or group.snapshot is not None:
            return False
        if not group.sync:
            return group.byte_count <= _INLINE_WRITE_BYTES_MAX
        return (
            self._mean_sync_s <= INLINE_SYNC_S_MAX
            and len(group.entries) <= _INLINE_SYNC_ENTRIES_MAX
            and group.byte_count <= _INLINE_SYNC_BYTES_MAX
        )

    def commit(self, group: Group) -> Outcome:
        """Write *group* and sync it if needed; return the outcome."""
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
            # The end of the file is not known after an unexpected error.
            log.exception("the journal cannot be written")
            error = JournalFailed(f"{self._header.number}: {failure!r}")
            error.__cause__ = failure
        return Outcome(error, rolled, self._position)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _roll_for(self, group: Group) -> JournalFile | None:
        return None if group.snapshot is None else self._roll(group.snapshot)

    def _write_all(self, group: Group) -> None:
        self._write([entry for entry, _ in group.entries if entry is not None])
        if group.sync:
            self._sync()

    def _write(self, entries: Sequence[Entry]) -> None:
        buffers, end = encode_entries(entries, self._position, self._synced, self._seed)
        try:
            self._file.write(buffers)
        except OSError as error:
            self._cut_back(error)
        self._position = end

    def _cut_back(self, error: OSError) -> None:
        """Undo a write that found the disk full; raise in any case."""
        if error.errno not in DISK_FULL_ERRNOS:
            raise JournalFailed(f"the journal cannot be written: {error}") from error
        self._file.truncate(self._position)
        raise DiskFull(f"no space for the journal: {error.strerror}") from error

    def _sync(self) -> None:
        if self._synced == self._position:
            return
        begin = self.clock()
        try:
            self._file.sync()
        except OSError as error:
            raise JournalFailed(
                f"the journal cannot be synced to disk: {error}"
            ) from error
        self._synced = self._position
        now = self.clock()
        taken_s = now - begin
        self._mean_sync_s += _MEAN_WEIGHT * (taken_s - self._mean_sync_s)
        if warning := self._slow_syncs.warning(taken_s, now):
            log.warning("%s", warning)

    def _roll(self, snapshot: Sequence[Entry]) -> JournalFile:
        """Sync the old file, and begin a new one with *snapshot*, also synced."""
        # Only the last file may end with reserved space.
        self._file.truncate(self._position)
        self._synced = 0
        self._sync()
        header = FileHeader(self._header.number + 1, self._header.journal_id)
        name = file_name(header.number)
        try:
            new_file, head_bytes = _begin_file(self._files, header, snapshot)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise JournalFailed(f"{name} cannot be created: {error}") from error
            # The old file stays in use, and only the last file may be damaged: remove
            # the incomplete head.
            if name in self._files.names():
                self._files.remove(name)
                self._files.sync_directory()
            raise DiskFull(f"no space for the journal: {error.strerror}") from error
        self._file.close()
        self._file = new_file
        self._header, self._seed = header, header.seed
        self._position = self._synced = head_bytes
        return JournalFile(header.number, head_bytes, head_bytes)


def write_journal(
    files: Files, number: int, journal_id: bytes, state: JournalState
) -> None:
    """Write a journal of one file with *number*, whose state is *state*."""
    header = FileHeader(number, journal_id)
    file, _ = _begin_file(files, header, list(state.snapshot()))
    file.close()


def _begin_file(
    files: Files, header: FileHeader, snapshot: Sequence[Entry]
) -> tuple[AppendFile, int]:
    """Create a file and sync its head; return it with the length of the head."""
    entries = [*snapshot, SnapshotEnd(len(snapshot))]
    head = header.encode()
    buffers, end = encode_entries(entries, len(head), 0, header.seed)
    file = files.create(file_name(header.number))
    try:
        file.write([head, *buffers])
        file.sync()
        files.sync_directory()
    except OSError:
        file.close()
        raise
    return file, end


def encode_entries(
    entries: Sequence[Entry], position: int, synced: int, seed: int
) -> tuple[list[Buffer], int]:
    """Return the buffers of *entries* from *position* on, and their end."""
    buffers: list[Buffer] = []
    for entry in entries:
        parts, size = encode_entry(entry, position=position, synced=synced, seed=seed)
        buffers += parts
        position += size
    return buffers, position


def open_files(
    files: Files,
    new_id: Callable[[], bytes],
    check: Callable[[Recovery], None],
    reserve: Reserve,
    clock: Callable[[], float],
) -> tuple[Recovery, JournalWriter]:
    """Recover, remove what a crash left, and open the last file for writing."""
    names = [name for name in files.names() if number_of(name) is not None]
    recovery = recover({name: files.map(name) for name in names})
    check(recovery)
    if recovery.headless_file is not None:
        log.warning(
            "removing %s, whose head is incomplete after a crash",
            recovery.headless_file,
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
                    "cutting the torn end of %d bytes off %s at position %d: %s",
                    recovery.torn.byte_count,
                    last.name,
                    last.byte_count,
                    recovery.torn.reason,
                )
            open_file.truncate(last.byte_count)
        # What was read may be in the page cache only.  It counts as durable from now.
        open_file.sync()
        files.sync_directory()
    assert recovery.journal_id is not None
    return recovery, JournalWriter(
        files,
        recovery.journal_id,
        last,
        open_file,
        reserve=reserve,
        clock=clock,
    )
