"""
Staged parts on disk: one file for each, away from the journal.

Files are written and read in threads where files block, so that the event loop never
waits for the disk.  What is appended to a file while the disk is busy with it is
written together, in one call, as in the journal.

What fails.  Any failed write or sync ends the file it was for: whoever staged the
part is told, and the file is removed.  Nobody was promised anything about it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pydanube.model.errors import (
    BrokerError,
    CorruptBatch,
    CorruptStage,
    DiskFull,
    StagingClosed,
    Unavailable,
)
from pydanube.storage.journal import complete_future
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from pydanube.model.ids import TopicId
    from pydanube.storage.files import AppendFile, Files
    from pydanube.storage.journal import Done
    from pydanube.wire.batches import BatchFrame
    from pydanube.wire.buffer import Buffer

log = logging.getLogger(__name__)

T = TypeVar("T")

THREADS = 4
"""So many parts are written, synced or read at the same time."""
SYNC_BYTES = 32 * 1024 * 1024
"""So much of a part is written before the disk is told to begin, so that the end of a
large part does not wait for all of it."""
PENDING_BYTES_MAX = 64 * 1024 * 1024
"""With so much waiting for the disk, servers take no more batches."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NAME = re.compile(r"([0-9]{20})\.part")


def file_name(number: int) -> str:
    """The name of a part's file."""
    return f"{number:020d}.part"


def number_of(name: str) -> int | None:
    """The number of a part's file; None if the name is of something else."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class RecoveredPart:
    """A part that was there when the broker started."""

    content: PartContent
    byte_count: int
    """How long its file is, damage included."""


class StagedFiles:
    """The files of all parts; see open_staged_files()."""

    def __init__(
        self,
        files: Files,
        executor: ThreadPoolExecutor,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.pending_bytes = 0
        """What waits for the disk."""
        self._files = files
        self._executor = executor
        self._tasks = tasks
        self._next_number = 1
        self._room_waiters = asyncio.Event()
        self._room_waiters.set()

    async def recover(self) -> list[RecoveredPart]:
        """
        The parts that there are, by number; to be called once, before all else.

        A file that a crash left without a header is removed: it was nobody's yet.
        """
        found = await self.do(self._find)
        if found:
            self._next_number = found[-1].content.header.number + 1
        return found

    def create(self, header_for: Callable[[int], FileHeader]) -> PartFile:
        """A new part; its file is made when it is first written."""
        number = self._next_number
        self._next_number += 1
        return PartFile(self, self._files, self._tasks, header_for(number))

    def reopen(self, found: RecoveredPart) -> PartFile:
        """A part that is not complete, to go on behind its last whole entry."""
        header = found.content.header
        file = PartFile(self, self._files, self._tasks, header)
        file.byte_count = file.begin = found.content.end
        return file

    async def verify(self, number: int) -> PartContent:
        """
        What a complete part holds; every byte of it is looked at.

        Raises:
            CorruptStage: It is damaged, or not there.
        """
        return await self.do(self._verify, number)

    async def reader(self, number: int) -> PartReader:
        """
        A complete part, to be read piece by piece.

        Raises:
            CorruptStage: It is damaged, or not there.
        """
        return await self.do(self._open_reader, number)

    async def remove(self, numbers: Iterable[int]) -> None:
        """Remove files; one that is not there is no reason to complain."""
        await self.do(self._remove, list(numbers))

    @property
    def has_room(self) -> bool:
        """Whether little enough waits for the disk."""
        return self.pending_bytes < PENDING_BYTES_MAX

    async def room(self) -> None:
        """Return when little enough waits for the disk."""
        await self._room_waiters.wait()

    # For the files.

    def count_pending(self, byte_count: int) -> None:
        """So much more waits for the disk, or less if it is negative."""
        self.pending_bytes += byte_count
        if self.has_room:
            self._room_waiters.set()
        else:
            self._room_waiters.clear()

    async def do(self, work: Callable[..., T], *arguments: object) -> T:
        """What *work* comes to, done where it may wait for a disk."""
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
                log.warning("removing %s, which a crash left without a header", name)
                self._files.remove(name)
            else:
                found.append(part)
        return found

    def _inspect(self, name: str) -> RecoveredPart | None:
        buffer = self._files.map(name)
        try:
            content = read_part(buffer, verifies=False)
            if not content.is_finished:
                # Nothing of it was promised to be on disk, so it may be full of holes.
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

    def _open_reader(self, number: int) -> PartReader:
        return PartReader(self._map(number), file_name(number))

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
    A complete part, from its beginning to its end.

    It is to be used by one thread at a time; so are the frames that it gives, which
    are views of the file.
    """

    def __init__(self, buffer: memoryview, name: str) -> None:
        self._name = name
        self._topics: list[Topic] = []
        self._buffer = buffer
        self.header, begin = decode_file_header(buffer)
        self._entries = read_entries(buffer, begin, self.header.seed)

    def read(self, bytes_max: int) -> list[tuple[TopicId, BatchFrame]]:
        """
        The next batches, about *bytes_max* of them; none at the end.

        Raises:
            CorruptStage: They are damaged.
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
    One part as it is written.

    Ordering: Entries are written, and *done* is called, in the order of appending.

    Bounds: None here; ask ``StagedFiles.has_room`` before appending much.
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
        """Where the next entry begins, behind all that were appended."""
        self.begin = 0
        """Where the file was cut off when it was taken over; 0 for a new one."""
        self._parts = parts
        self._files = files
        self._tasks = tasks
        self._seed = header.seed
        self._group = _Group()
        self._running: asyncio.Task[None] | None = None
        self._failure: BrokerError | None = None
        # Of the thread.
        self._file: AppendFile | None = None
        self._is_there = False
        self._unsynced_bytes = 0

    def append_topic(self, number: int, topic_id: TopicId, name: str) -> None:
        """Name a topic; it goes to disk with its first batch."""
        topic = Topic(number, topic_id, name)
        data = encode_topic(topic, self._begin(), self._seed)
        self._collect([data], len(data))

    def append_batch(self, topic: int, frame: BatchFrame, done: Done) -> None:
        """
        Append a batch; *done* is told when it is written, or what went wrong.

        The frame's bytes are not copied; they must not change any more.
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
            DiskFull, Unavailable: It is not, and will not be.
        """
        data = encode_part_end(end, self._begin(), self._seed)
        self._collect([data], len(data))
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group.callbacks.append(partial(complete_future, synced))
        self._group.sync = True
        self._start()
        await synced

    async def drop(self) -> None:
        """Write nothing any more, and remove the file."""
        self._failure = self._failure or StagingClosed("the part was dropped")
        if self._running is not None:
            await asyncio.wait([self._running])
        self._parts.count_pending(-self._group.byte_count)
        self._group = _Group()
        await self._parts.do(self._discard)

    async def close(self) -> None:
        """Let go of the file when what was appended is written; it stays there."""
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._parts.do(self._close)

    def _begin(self) -> int:
        """Where the next entry goes; the header comes before the first one."""
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
            return (DiskFull if error.errno in _NO_ROOM else Unavailable)(text)
        except Exception as error:
            # Whatever it was, it is about this part alone.
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
    """What is written together."""

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
    The staged parts in *files*.

    On leaving, what was appended is written, and the threads have ended.
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
