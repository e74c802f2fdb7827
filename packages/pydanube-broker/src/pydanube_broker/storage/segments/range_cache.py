"""A cache of remote objects' ranges on the local disk."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from hashlib import blake2b
from pathlib import Path

from pydanube.model.segments import SegmentEntry
from pydanube.wire.buffer import Buffer

PENDING_BYTES_MAX = 32 * 1024 * 1024
"""How many bytes may wait to be written; more are not cached."""

FREE_BYTES_MIN = 1024 * 1024 * 1024
"""The cache leaves this much of the disk free, because the journal needs it more."""

_RETRY_S = 60.0
"""How long nothing is cached after the disk was full or failed."""

log = logging.getLogger(__name__)


class RangeCache:
    """
    Ranges of objects as files in a directory; the least recently used are removed.

    The files outlive the process.  They are not synced, so after a crash their contents
    may be wrong: callers verify what they get, and ``discard`` what is wrong.

    A disk that is full or fails only means that less is cached.

    Bounds: The files take at most *bytes_max* on disk; at most ``PENDING_BYTES_MAX``
        wait in memory to be written.

    Threads: It belongs to one event loop, and uses the disk in *executor*.
    """

    def __init__(
        self,
        path: Path,
        executor: Executor,
        *,
        bytes_max: int,
        free_bytes_min: int = FREE_BYTES_MIN,
    ) -> None:
        self.byte_count = 0
        """The size of all files."""
        self.hit_count = 0
        self.miss_count = 0
        self._path = path
        self._executor = executor
        self._bytes_max = bytes_max
        self._free_bytes_min = free_bytes_min
        # The sizes of the files by name; the least recently used first.
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._pending: set[str] = set()
        self._pending_bytes = 0
        self._paused_until = 0.0

    @property
    def is_writing(self) -> bool:
        """Whether ranges wait for the disk."""
        return bool(self._pending)

    async def open(self) -> None:
        """Find the files of an earlier process, and remove those that do not fit."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._executor, _list, self._path)
        except OSError as error:
            self._on_failed(error)
            return
        self._sizes.update(found)
        self.byte_count = sum(self._sizes.values())
        self._remove(self._take_oldest(0))

    async def get(self, name: str) -> bytes | None:
        """Return the range *name*, if it is cached."""
        if name not in self._sizes:
            self.miss_count += 1
            return None
        self._sizes.move_to_end(name)
        loop = asyncio.get_running_loop()
        try:
            data = await loop.run_in_executor(
                self._executor, (self._path / name).read_bytes
            )
        except OSError as error:
            self.discard(name)
            if not isinstance(error, FileNotFoundError):
                self._on_failed(error)
            self.miss_count += 1
            return None
        self.hit_count += 1
        return data

    def put(self, name: str, data: Buffer) -> None:
        """
        Cache *data* under *name*, as soon as the disk has written it.

        Does nothing if the data are too large, or too many wait for the disk already.
        """
        size = len(memoryview(data))
        if (
            name in self._sizes
            or name in self._pending
            or size > self._bytes_max
            or self._pending_bytes + size > PENDING_BYTES_MAX
        ):
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until:
            return
        oldest = self._take_oldest(size)
        self._pending.add(name)
        self._pending_bytes += size
        self.byte_count += size
        write = partial(_replace, self._path, oldest, name, data, self._free_bytes_min)
        writing = loop.run_in_executor(self._executor, write)
        writing.add_done_callback(partial(self._on_put, name, size))

    def discard(self, name: str) -> None:
        """Remove the range *name*, because its contents are wrong or not needed."""
        size = self._sizes.pop(name, None)
        if size is not None:
            self.byte_count -= size
            self._remove([name])

    def _on_put(self, name: str, size: int, writing: asyncio.Future[bool]) -> None:
        self._pending.discard(name)
        self._pending_bytes -= size
        if not writing.cancelled():
            error = writing.exception()
            if error is None and writing.result():
                self._sizes[name] = size
                return
            if isinstance(error, OSError):
                self._on_failed(error)
            elif error is None:
                self._pause()
        self.byte_count -= size

    def _take_oldest(self, size: int) -> list[str]:
        """Forget files until *size* more bytes fit; return the names to remove."""
        names = []
        while self._sizes and self.byte_count + size > self._bytes_max:
            name, freed = self._sizes.popitem(last=False)
            self.byte_count -= freed
            names.append(name)
        return names

    def _remove(self, names: Sequence[str]) -> None:
        if names:
            loop = asyncio.get_running_loop()
            removing = loop.run_in_executor(self._executor, _unlink, self._path, names)
            removing.add_done_callback(_ignore)

    def _on_failed(self, error: OSError) -> None:
        if asyncio.get_running_loop().time() >= self._paused_until:
            log.warning(
                "the cache of remote segments in %s does not work: %s; reading "
                "continues without it, and it is tried again every %d seconds",
                self._path,
                error,
                _RETRY_S,
            )
        self._pause()

    def _pause(self) -> None:
        self._paused_until = asyncio.get_running_loop().time() + _RETRY_S


def range_name(entry: SegmentEntry, begin: int, end: int) -> str:
    """
    Return the name of the bytes ``begin … end`` of a segment in the cache.

    A later segment whose object has the same name has other names in the cache.
    """
    identity = (entry.object_name, entry.byte_count, entry.checksum, entry.sealed_at)
    text = "\0".join(map(str, (*identity, begin, end)))
    return blake2b(text.encode(), digest_size=16).hexdigest()


_NAME_LENGTH = 32


def _list(path: Path) -> list[tuple[str, int]]:
    """Return the names and sizes of the files, the least recently used first."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            if len(entry.name) == _NAME_LENGTH and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, entry.name, status.st_size))
    return [(name, size) for _, name, size in sorted(found)]


def _replace(
    path: Path, oldest: Sequence[str], name: str, data: Buffer, free_bytes_min: int
) -> bool:
    """Remove *oldest* and write *name*; return False if the disk is too full."""
    _unlink(path, oldest)
    view = memoryview(data)
    disk = os.statvfs(path)
    if disk.f_bavail * disk.f_frsize < free_bytes_min + len(view):
        return False
    target = path / name
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            while view:
                view = view[file.write(view) :]
    except OSError:
        target.unlink(missing_ok=True)
        raise
    return True


def _unlink(path: Path, names: Sequence[str]) -> None:
    for name in names:
        (path / name).unlink(missing_ok=True)


def _ignore(done: asyncio.Future[None]) -> None:
    """Read the outcome: a file that could not be removed is found at the next start."""
    if not done.cancelled():
        done.exception()
