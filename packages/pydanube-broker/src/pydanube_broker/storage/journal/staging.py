"""
Staged parts on disk: one file for each, separate from the journal.

If files block, they are written and read in threads, so that the event loop never waits
for the disk.  Entries that are appended to a file during a write are written together,
in one call, as in the journal.

Failures.  When a write or sync fails, all callbacks of the part get the error, and the
file is removed.  The client stages the part again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import field
from functools import partial
from typing import TypeVar

from pydanube.aio.futures import Done, complete_future
from pydanube.model.errors import (
    BrokerError,
    CorruptBatch,
    CorruptStage,
    DiskFull,
    StagingClosed,
    Unavailable,
)
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.batches import BatchFrame
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.staging_format import (
    Batch,
    FileHeader,
    PartContent,
    PartEnd,
    Topic,
    decode_file_header,
    encode_batch,
    encode_part_end,
    encode_topic,
    read_entries,
    read_part,
)
from pydanube_broker.storage.files import AppendFile, Files
from pydanube_broker.storage.journal.journal_writer import DISK_FULL_ERRNOS

log = logging.getLogger(__name__)

T = TypeVar("T")

THREADS = 4
"""The number of parts that are written, synced or read at the same time."""
SYNC_BYTES = 32 * 1024 * 1024
"""A part is synced each time it has grown by this, so that the sync at the end of a
large part is short."""
PENDING_BYTES_MAX = 64 * 1024 * 1024
"""From this size of data that waits for the disk, servers accept no more batches."""


_NAME = re.compile(r"([0-9]{20})\.part")


def file_name(number: int) -> str:
    """Return the name of a part's file."""
    return f"{number:020d}.part"


def number_of(name: str) -> int | None:
    """Return the number of a part's file; None for other files."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class RecoveredPart:
    """A part that existed when the broker started."""

    content: PartContent
    byte_count: int
    """The length of its file, damage included."""


class StagedFiles:
    """The files of all parts; see open_staged_files()."""

    def __init__(
        self,
        files: Files,
        executor: ThreadPoolExecutor,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.pending_bytes = 0
        """How many bytes wait for the disk."""
        self._files = files
        self._executor = executor
        self._tasks = tasks
        self._next_number = 1
        self._room_waiters = asyncio.Event()
        self._room_waiters.set()

    async def recover(self) -> list[RecoveredPart]:
        """
        Return the existing parts, by number; call this once, before all else.

        Files without a complete header, which a crash left, are removed.
        """
        found = await self.do(self._find)
        if found:
            self._next_number = found[-1].content.header.number + 1
        return found

    def create(self, header_for: Callable[[int], FileHeader]) -> PartFile:
        """Return a new part; the first write creates its file."""
        number = self._next_number
        self._next_number += 1
        return PartFile(self, self._files, self._tasks, header_for(number))

    def reopen(self, found: RecoveredPart) -> PartFile:
        """Reopen an incomplete part after its last complete entry."""
        header = found.content.header
        file = PartFile(self, self._files, self._tasks, header)
        file.byte_count = file.begin = found.content.end
        return file

    async def verify(self, number: int) -> PartContent:
        """
        Return the content of a complete part after verifying every byte.

        Raises:
            CorruptStage: The part is damaged or missing.
        """
        return await self.do(self._verify, number)

    async def reader(self, number: int) -> PartReader:
        """
        Open a complete part for reading piece by piece.

        Raises:
            CorruptStage: The part is damaged or missing.
        """
        return await self.do(lambda: PartReader(self._map(number), file_name(number)))

    async def content(self, number: int) -> memoryview:
        """
        Return the bytes of a complete part.

        Raises:
            CorruptStage: The part is missing.
        """
        return await self.do(self._map, number)

    async def remove(self, numbers: Iterable[int]) -> None:
        """Remove files; missing ones are ignored."""
        await self.do(self._remove, list(numbers))

    @property
    def has_room(self) -> bool:
        """Whether fewer than ``PENDING_BYTES_MAX`` wait for the disk."""
        return self.pending_bytes < PENDING_BYTES_MAX

    async def wait_for_room(self) -> None:
        """Return when ``has_room``."""
        await self._room_waiters.wait()

    # For the files.

    def count_pending(self, byte_count: int) -> None:
        """Add *byte_count*, which may be negative, to ``pending_bytes``."""
        self.pending_bytes += byte_count
        if self.has_room:
            self._room_waiters.set()
        else:
            self._room_waiters.clear()

    async def do(self, work: Callable[..., T], *arguments: object) -> T:
        """Return the result of *work*, run in a thread if files block."""
        if not self._files.is_blocking:
            return work(*arguments)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, work, *arguments)

    # In a thread.

    def _find(self) -> list[RecoveredPart]:
        found = []
        for name in self._files.names():
            number = number_of(name)
            if number is None:
                continue
            part = self._inspect(name)
            if part is None or part.content.header.number != number:
                log.warning(
                    "removing %s, whose header is incomplete after a crash", name
                )
                self._files.remove(name)
            else:
                found.append(part)
        return found

    def _inspect(self, name: str) -> RecoveredPart | None:
        buffer = self._files.map(name)
        try:
            content = read_part(buffer, verifies=False)
            if not content.is_finished:
                # It was not synced yet, so any part of it may be missing.
                content = read_part(buffer, verifies=True)
        except CorruptStage:
            return None
        return RecoveredPart(content, len(buffer))

    def _verify(self, number: int) -> PartContent:
        content = read_part(self._map(number), verifies=True)
        if content.damage is not None:
            raise CorruptStage(f"{file_name(number)}: {content.damage}")
        if not content.is_finished:
            raise CorruptStage(f"{file_name(number)}: the end of the part is missing")
        return content

    def _map(self, number: int) -> memoryview:
        try:
            return self._files.map(file_name(number))
        except OSError as error:
            raise CorruptStage(
                f"{file_name(number)} cannot be read: {error.strerror or error}"
            ) from error

    def _remove(self, numbers: list[int]) -> None:
        for number in numbers:
            _remove_if_there(self._files, file_name(number))


class PartReader:
    """
    Reads a complete part from beginning to end.

    Threads: Only one thread may use it, and its frames, at a time.  The frames are
        views of the file.
    """

    def __init__(self, buffer: memoryview, name: str) -> None:
        self._name = name
        self._topics: list[Topic] = []
        self.header, begin = decode_file_header(buffer)
        self._entries = read_entries(buffer, begin, self.header.seed)

    def read(self, bytes_max: int) -> list[tuple[TopicId, BatchFrame]]:
        """
        Return the next batches, of about *bytes_max*; none at the end.

        Raises:
            CorruptStage: The part is damaged.
        """
        found: list[tuple[TopicId, BatchFrame]] = []
        byte_count = 0
        try:
            for entry, _ in self._entries:
                match entry:
                    case Topic():
                        self._topics.append(entry)
                    case Batch(topic, frame):
                        frame.verify_checksum()
                        found.append((self._topics[topic].topic_id, frame))
                        byte_count += frame.byte_count
                if byte_count >= bytes_max:
                    break
        except (CorruptStage, CorruptBatch, IndexError) as error:
            raise CorruptStage(f"{self._name}: {error}") from error
        return found


class PartFile:
    """
    A part that is being written.

    Ordering: Entries are written, and *done* is called, in the order of appending.

    Bounds: None here; check ``StagedFiles.has_room`` before appending a lot.
    """

    def __init__(
        self,
        parts: StagedFiles,
        files: Files,
        tasks: asyncio.TaskGroup,
        header: FileHeader,
    ) -> None:
        self.header = header
        self.byte_count = 0
        """The position of the next entry, after all that were appended."""
        self.begin = 0
        """The length of a reopened file; 0 for a new one."""
        self._parts = parts
        self._files = files
        self._tasks = tasks
        self._seed = header.seed
        self._group = _Group()
        self._running: asyncio.Task[None] | None = None
        self._failure: BrokerError | None = None
        # These belong to the thread.
        self._file: AppendFile | None = None
        self._is_there = False
        self._unsynced_bytes = 0

    def append_topic(self, number: int, topic_id: TopicId, name: str) -> None:
        """Append a topic; its entry is written with its first batch."""
        topic = Topic(number, topic_id, name)
        data = encode_topic(topic, self._begin(), self._seed)
        self._collect([data], len(data))

    def append_batch(self, topic: int, frame: BatchFrame, done: Done) -> None:
        """
        Append a batch; *done* gets the outcome when it is written.

        The frame's bytes are not copied and must not be changed.
        """
        buffers, size = encode_batch(topic, frame, self._begin(), self._seed)
        self._collect(buffers, size)
        self._group.callbacks.append(done)
        self._start()

    async def finish(self, end: PartEnd) -> None:
        """
        Append the end of the part.

        Durability: On return the part is on disk.

        Raises:
            DiskFull, Unavailable: The part could not be written.
        """
        data = encode_part_end(end, self._begin(), self._seed)
        self._collect([data], len(data))
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group.callbacks.append(partial(complete_future, synced))
        self._group.sync = True
        self._start()
        await synced

    async def drop(self) -> None:
        """Stop writing and remove the file."""
        self._failure = self._failure or StagingClosed("the part was dropped")
        if self._running is not None:
            await asyncio.wait([self._running])
        self._parts.count_pending(-self._group.byte_count)
        self._group = _Group()
        await self._parts.do(self._discard)

    async def close(self) -> None:
        """Close the file when everything that was appended is written."""
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._parts.do(self._close)

    def _begin(self) -> int:
        """Return the position of the next entry, after adding a missing header."""
        if not self.byte_count:
            header = self.header.encode()
            self._collect([header], len(header))
        return self.byte_count

    def _collect(self, buffers: list[Buffer], size: int) -> None:
        self._group.buffers += buffers
        self._group.byte_count += size
        self.byte_count += size
        self._parts.count_pending(size)

    def _start(self) -> None:
        if self._running is None:
            self._running = self._tasks.create_task(
                self._run(), name=f"write {file_name(self.header.number)}"
            )

    async def _run(self) -> None:
        try:
            while self._group.callbacks:
                group, self._group = self._group, _Group()
                error = self._failure
                if error is None:
                    error = await self._parts.do(self._write, group)
                self._failure = self._failure or error
                self._parts.count_pending(-group.byte_count)
                for done in group.callbacks:
                    done(error)
        finally:
            self._running = None

    # In a thread.

    def _write(self, group: _Group) -> BrokerError | None:
        try:
            if self._file is None:
                self._file = self._open()
            self._file.write(group.buffers)
            self._unsynced_bytes += group.byte_count
            if group.sync or self._unsynced_bytes >= SYNC_BYTES:
                self._file.sync()
                self._unsynced_bytes = 0
            if group.sync:
                self._files.sync_directory()
                self._close()
        except OSError as error:
            text = f"a staged part cannot be written: {error.strerror or error}"
            return (DiskFull if error.errno in DISK_FULL_ERRNOS else Unavailable)(text)
        except Exception as error:
            # An unexpected error fails only this part.
            log.exception("%s cannot be written", file_name(self.header.number))
            return Unavailable(f"a staged part cannot be written: {error!r}")
        return None

    def _open(self) -> AppendFile:
        name = file_name(self.header.number)
        if not self.begin:
            file = self._files.create(name)
            self._is_there = True
            return file
        file = self._files.append(name)
        file.truncate(self.begin)
        return file

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _discard(self) -> None:
        self._close()
        if self._is_there or self.begin:
            _remove_if_there(self._files, file_name(self.header.number))


@dataclass(slots=True)
class _Group:
    buffers: list[Buffer] = field(default_factory=list)
    byte_count: int = 0
    callbacks: list[Done] = field(default_factory=list)
    sync: bool = False


def _remove_if_there(files: Files, name: str) -> None:
    try:
        files.remove(name)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning(
            "%s could not be removed; the next start tries again: %s", name, error
        )


@asynccontextmanager
async def open_staged_files(files: Files) -> AsyncIterator[StagedFiles]:
    """
    Open the staged parts in *files*.

    When the context ends, everything that was appended is written, and the threads have
    ended.
    """
    body_error: Exception | None = None
    with ThreadPoolExecutor(THREADS, thread_name_prefix="staging") as executor:
        async with asyncio.TaskGroup() as tasks:
            try:
                yield StagedFiles(files, executor, tasks)
            except Exception as error:  # noqa: BLE001 (raised again below)
                body_error = error
    if body_error is not None:
        raise body_error
