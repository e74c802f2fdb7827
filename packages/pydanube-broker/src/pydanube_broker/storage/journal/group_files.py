"""
The journals of several processes of one machine, as files in one directory.

They are object journals (``object_journal.py``) whose groups are not objects of their
own: a process appends its groups to a file, with one ``fdatasync`` for each, and the
other processes read that file.

Theory.  Each session has a directory:

``lock``
    The process of the session holds a lock of the operating system on this file until
    it ends, however it ends.
``{number}.groups``
    The groups from this number to the next file.  A group with a snapshot begins a
    file, so a file is a section of the journal.
``fence``
    The fence, which another process puts behind the last group.

The lock is what fences: only a process that holds the lock of a session looks for the
end of its journal.  From then on nobody appends to it, because a session has one
process, and that has ended.  So the end of the journal is the last group that is
complete: at most the one after it was being written.

A file has records: a header with the length and the checksum of a group, and the group.
The files may end with zeros, which were allocated for groups.  Only the last record of
a session can be incomplete after a crash, because the next group is written when the
last one is durable.

Reading does not wait for a sync.  A group that is read before it is durable can only be
lost by a crash of the machine, which ends its readers too.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import struct
import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from pydanube.model.errors import (
    Corrupt,
    CorruptJournal,
    JournalFailed,
    NewerJournal,
    ObjectsUnavailable,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.objects.directory import sync_directory
from pydanube.objects.store import ObjectInfo, Objects
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.group_format import (
    HEADER_BYTES,
    GroupKind,
    decode_group_header,
)
from pydanube_broker.storage.files import AppendFile, DirectoryFiles

T = TypeVar("T")

log = logging.getLogger(__name__)

SUFFIX = ".groups"
LOCK = "lock"
FENCE = "fence"

LOCK_WAIT_S = 1.0
"""How long a fence waits for the lock; the caller tries again."""
_LOCK_INTERVAL_S = 0.01
_RESERVE_BYTES = 4 * 1024 * 1024
_RECORD = struct.Struct("<QII")
"""The length of a group, its checksum, and zeros."""
_INLINE_S = 0.001
"""A disk that syncs faster is waited for in the event loop, which is faster than a
thread."""
_INLINE_BYTES_MAX = 64 * 1024
"""Larger groups are written in a thread."""


@dataclass(slots=True)
class _File:
    """A file of groups with consecutive numbers."""

    first: int
    begins: list[int] = field(default_factory=list)
    """The positions of the records of the groups."""
    end: int = 0
    """The position after the last of them."""
    deleted: set[int] = field(default_factory=set)

    @property
    def next(self) -> int:
        return self.first + len(self.begins)

    def extend(self, end: int) -> None:
        """Note that the next record ends there."""
        self.begins.append(self.end)
        self.end = end


class _Session:
    """
    The files of one session, as far as they were read.

    Bounds: It has a number for each group that is stored.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: list[_File] = []

    def refresh(self) -> None:
        """Find the groups that were appended since the last call."""
        firsts = sorted(
            int(each.name.removesuffix(SUFFIX)) for each in self.path.glob(f"*{SUFFIX}")
        )
        known = {file.first: file for file in self.files}
        self.files = [known.get(first) or _File(first) for first in firsts]
        for at, file in enumerate(self.files):
            is_last = at == len(self.files) - 1
            if is_last or file.next != self.files[at + 1].first:
                self._scan(file)

    def _scan(self, file: _File) -> None:
        try:
            opened = os.open(self.path_of(file), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # Its process has just removed it.
            return
        try:
            size = os.fstat(opened).st_size
            while (end := _end_of(opened, file.end, size, file.next)) is not None:
                file.extend(end)
        finally:
            os.close(opened)

    def find(self, number: int) -> _File | None:
        at = bisect_right(self.files, number, key=lambda file: file.first) - 1
        if at < 0 or number >= self.files[at].next or number in self.files[at].deleted:
            return None
        return self.files[at]

    def read(self, number: int, begin: int, end: int | None) -> bytes | None:
        file = self.find(number)
        if file is None:
            return self._read_fence(number, begin, end)
        position = file.begins[number - file.first]
        try:
            opened = os.open(self.path_of(file), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            length, _, _ = _RECORD.unpack(os.pread(opened, _RECORD.size, position))
            stop = length if end is None else min(end, length)
            return _pread(opened, stop - begin, position + _RECORD.size + begin)
        finally:
            os.close(opened)

    def _read_fence(self, number: int, begin: int, end: int | None) -> bytes | None:
        data = self.fence()
        if data is None or decode_group_header(data).number != number:
            return None
        return data[begin:end]

    def fence(self) -> bytes | None:
        """Return the fence, if there is one."""
        try:
            return (self.path / FENCE).read_bytes()
        except FileNotFoundError:
            return None

    def numbers(self) -> list[int]:
        """Return the numbers of all groups, also behind damage, and of the fence."""
        self.refresh()
        found = {
            number
            for file in self.files
            for number in range(file.first, file.next)
            if number not in file.deleted
        }
        for file in self.files:
            found.update(self._behind(file))
        if (fence := self.fence()) is not None:
            found.add(decode_group_header(fence).number)
        return sorted(found)

    def _behind(self, file: _File) -> Iterator[int]:
        """Yield the numbers of groups after the first damaged one of a file."""
        try:
            data = self.path_of(file).read_bytes()
        except FileNotFoundError:
            return
        at = data.find(b"DANUBEG\x00", file.end + _RECORD.size + 1)
        while at >= 0:
            with suppress(Corrupt):
                yield decode_group_header(data[at : at + HEADER_BYTES]).number
            at = data.find(b"DANUBEG\x00", at + 1)

    def path_of(self, file: _File) -> Path:
        return self.path / f"{file.first:020d}{SUFFIX}"


def _end_of(opened: int, begin: int, size: int, number: int) -> int | None:
    """Return where the record of a group ends; None if it is not complete."""
    head = os.pread(opened, _RECORD.size + HEADER_BYTES, begin)
    if len(head) < _RECORD.size + HEADER_BYTES:
        return None
    length, checksum, _ = _RECORD.unpack_from(head)
    end: int = begin + _RECORD.size + length
    is_there = HEADER_BYTES <= length <= size - begin - _RECORD.size
    if not is_there or not _is_group(head[_RECORD.size :], number):
        return None
    # Only the last record of a file can be incomplete.
    if not any(os.pread(opened, _RECORD.size, end)):
        data = _pread(opened, length, begin + _RECORD.size)
        return end if zlib.crc32(data) == checksum else None
    return end


def _is_group(head: bytes, number: int) -> bool:
    try:
        return decode_group_header(head).number == number
    except NewerJournal:
        # The reader of the group says so.
        return True
    except CorruptJournal:
        return False


def _pread(opened: int, byte_count: int, position: int) -> bytes:
    parts = []
    while byte_count > 0 and (part := os.pread(opened, byte_count, position)):
        parts.append(part)
        byte_count -= len(part)
        position += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _Writer:
    """The journal of the session of this process."""

    def __init__(
        self, directory: Path, session: _Session, make_room: Callable[[], bool]
    ) -> None:
        self._directory = DirectoryFiles(session.path, reserve_bytes=_RESERVE_BYTES)
        self._session = session
        self._make_room = make_room
        self._opened: AppendFile | None = None
        self._lock = _locked(session.path)
        if self._lock is None:
            raise JournalFailed(
                f"another process holds {session.path / LOCK}, although this process "
                "has just chosen the name"
            )
        sync_directory(session.path)
        sync_directory(directory)
        self.sync_s = _INLINE_S
        """The mean time that a sync takes."""
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="journal")

    def append(self, number: int, data: bytes) -> None:
        """
        Write the next group.

        Raises:
            OSError: Nothing was written.
            JournalFailed: It is unknown what was written.
        """
        header = decode_group_header(data)
        files = self._session.files
        if self._opened is None or header.kind is GroupKind.SNAPSHOT:
            file = _File(number)
            opened = self._directory.create(self._session.path_of(file).name)
            try:
                self._write(opened, 0, data)
            except OSError:
                opened.close()
                self._directory.remove(self._session.path_of(file).name)
                raise
            if self._opened is not None:
                self._opened.close()
            self._opened = opened
            self._sync(opened)
            self._directory.sync_directory()
            files.append(file)
        else:
            file = files[-1]
            self._write(self._opened, file.end, data)
            self._sync(self._opened)
        assert number == file.next, f"group {number} is not the next one"
        file.extend(file.end + _RECORD.size + len(data))

    def _write(self, opened: AppendFile, end: int, data: bytes) -> None:
        record = _RECORD.pack(len(data), zlib.crc32(data), 0)
        try:
            opened.write([record, data])
        except OSError:
            opened.truncate(end)
            if not self._make_room():
                raise
            try:
                opened.write([record, data])
            except OSError:
                opened.truncate(end)
                raise

    def _sync(self, opened: AppendFile) -> None:
        begun_at = time.perf_counter()
        try:
            opened.sync()
        except OSError as error:
            raise JournalFailed(
                f"the disk does not say whether {self._session.path} is stored: {error}"
            ) from error
        self.sync_s += (time.perf_counter() - begun_at - self.sync_s) / 8

    def close(self) -> None:
        self.thread.shutdown()
        if self._opened is not None:
            self._opened.close()
        if self._lock is not None:
            os.close(self._lock)


class GroupFiles(Objects):
    """
    The journals in a directory, as ``object_journal`` and takeovers use them.

    The names are those of ``JournalSession.object_name``.  Only the process that calls
    ``open_session`` may put groups of that session; others put its fence.

    Threads: One thread at a time writes; others read meanwhile.
    """

    def __init__(
        self,
        path: Path,
        *,
        make_room: Callable[[], bool] = lambda: False,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        """*make_room* is called if the disk is full; if it returns True, try again."""
        self._path = Path(path)
        self._lock_wait_s = lock_wait_s
        self._make_room = make_room
        self._sessions: dict[str, _Session] = {}
        self._lock = threading.Lock()
        self._own: dict[str, _Writer] = {}

    @contextmanager
    def open_session(self, prefix: str) -> Iterator[None]:
        """
        Hold the lock of a new session of this process during the body.

        Raises:
            OSError: The directory cannot be written.
        """
        path = self._path / prefix
        path.mkdir(mode=0o700, parents=True)
        session = _Session(path)
        writer = _Writer(self._path, session, self._make_room)
        self._sessions[prefix], self._own[prefix] = session, writer
        try:
            yield
        finally:
            del self._own[prefix]
            writer.close()

    def remove_empty(self) -> None:
        """
        Remove the directories of sessions that have ended and have no group.

        No process may be opening a session.
        """
        for path in self._path.glob(f"*/*/{LOCK}"):
            lock = _locked(path.parent)
            if lock is not None:
                if not any(path.parent.glob(f"*{SUFFIX}")):
                    shutil.rmtree(path.parent, ignore_errors=True)
                os.close(lock)

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        """Raise, because groups are never replaced."""
        raise ObjectsUnavailable(f"{name}: a group of a journal is put once only")

    async def put_if_absent(self, name: str, data: Buffer | pa.Buffer) -> bool:
        prefix, number = _parts_of(name)
        writer = self._own.get(prefix)
        if writer is None:
            return await self._in_thread(self._put_fence, prefix, number, bytes(data))
        group = data if isinstance(data, bytes) else bytes(data)
        if writer.sync_s < _INLINE_S and len(group) <= _INLINE_BYTES_MAX:
            return self._append(writer, number, group)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            writer.thread, self._append, writer, number, group
        )

    async def read(
        self, name: str, begin: int = 0, end: int | None = None
    ) -> Buffer | None:
        return await self._in_thread(self._read, *_parts_of(name), begin, end)

    def open(self, name: str) -> Any:
        data = self._read(*_parts_of(name), 0, None)
        if data is None:
            raise FileNotFoundError(name)
        return pa.BufferReader(data)

    async def delete(self, name: str) -> None:
        await self._in_thread(self._delete, *_parts_of(name))

    async def names(
        self, prefix: str, *, after: str = "", count_max: int | None = None
    ) -> list[str]:
        numbers = await self._in_thread(self._numbers, prefix)
        names = [f"{prefix}{number:020d}" for number in numbers]
        return names[bisect_right(names, after) :][:count_max]

    async def stat(self, name: str) -> ObjectInfo | None:
        data = await self.read(name)
        return None if data is None else ObjectInfo(len(data), None)

    def url(self, name: str) -> str:
        return (self._path / name).as_uri()

    async def _in_thread(self, call: Callable[..., T], *args: Any) -> T:
        try:
            return await asyncio.to_thread(call, *args)
        except OSError as error:
            raise ObjectsUnavailable(f"the directory {self._path}: {error}") from error

    def _append(self, writer: _Writer, number: int, data: bytes) -> bool:
        try:
            writer.append(number, data)
        except OSError as error:
            raise ObjectsUnavailable(
                f"the journal in {self._path} cannot be written: {error}"
            ) from error
        return True

    def _put_fence(self, prefix: str, number: int, data: bytes) -> bool:
        """
        Put the fence of a session whose process has ended.

        Raises:
            ObjectsUnavailable: Its process has the lock.
        """
        path = self._path / prefix
        give_up_at = time.monotonic() + self._lock_wait_s
        while (lock := _locked(path)) is None:
            if time.monotonic() > give_up_at:
                raise ObjectsUnavailable(
                    f"the process of the journal {path} has not ended: it has the lock"
                )
            time.sleep(_LOCK_INTERVAL_S)
        try:
            session = self._session(prefix)
            with self._lock:
                # Nobody appends any more, so this is what there is.
                session.refresh()
                if session.find(number) is not None or session.fence() is not None:
                    return False
                part = path / f".{FENCE}"
                part.write_bytes(data)
                part.rename(path / FENCE)
            sync_directory(path)
            return True
        finally:
            os.close(lock)

    def _read(
        self, prefix: str, number: int, begin: int, end: int | None
    ) -> bytes | None:
        session = self._session(prefix)
        if prefix not in self._own:
            with self._lock:
                if session.find(number) is None:
                    session.refresh()
        return session.read(number, begin, end)

    def _numbers(self, prefix: str) -> list[int]:
        session = self._session(prefix)
        with self._lock:
            if prefix in self._own:
                # It knows its groups, and has deleted some of a file.
                return [
                    number
                    for file in session.files
                    for number in range(file.first, file.next)
                    if number not in file.deleted
                ]
            return session.numbers()

    def _delete(self, prefix: str, number: int) -> None:
        """Note that a group is not needed; remove a file that has no other ones."""
        session = self._session(prefix)
        with self._lock:
            file = session.find(number)
            if file is None:
                return
            file.deleted.add(number)
            is_open = prefix in self._own and file is session.files[-1]
            if is_open or len(file.deleted) < len(file.begins):
                return
            session.path_of(file).unlink(missing_ok=True)
            session.files.remove(file)
            if not session.files and prefix not in self._own:
                # Its process has ended, so nothing is put there any more.
                shutil.rmtree(session.path, ignore_errors=True)
                del self._sessions[prefix]

    def _session(self, prefix: str) -> _Session:
        with self._lock:
            found = self._sessions.get(prefix)
            if found is None:
                for other in [*self._sessions]:
                    if not (self._path / other).is_dir():
                        del self._sessions[other]
                found = self._sessions[prefix] = _Session(self._path / prefix)
            return found


def _parts_of(name: str) -> tuple[str, int]:
    """Return the prefix of a session and the number of a group."""
    directory, _, number = name.rpartition("/")
    return f"{directory}/", int(number)


def _locked(directory: Path) -> int | None:
    """
    Take the lock of a session; return None if its process has it.

    Raises:
        OSError: The file cannot be opened.
    """
    try:
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as error:
        raise CorruptJournal(
            f"the directory {directory} of a journal is missing; put it back"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock
