"""
The interface to the file system: a directory of append-only files.

The journal accesses the disk only through it, so that a test can replace the disk and
simulate a crash at any point.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pydanube.objects.directory import sync_directory
from pydanube.wire.buffer import Buffer

_IOV_MAX = 1024
_POPULATE: int = getattr(mmap, "MAP_POPULATE", 0)


class AppendFile(Protocol):
    """An open file that grows at its end."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        """
        Append all of *buffers*, without syncing them to disk.

        Raises:
            OSError: Some of the bytes may have been appended, or none.
        """

    def sync(self) -> None:
        """
        Return when everything that was appended is on disk.

        Raises:
            OSError: It is unknown whether it is, even if a later call succeeds.
        """

    def truncate(self, byte_count: int) -> None:
        """Cut the file off after its first *byte_count* bytes."""

    def close(self) -> None:
        """Close the file, without syncing it."""


class Files(Protocol):
    """A directory of append-only files."""

    @property
    def is_blocking(self) -> bool:
        """Whether calls may wait for a disk and must be made in a thread."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def create(self, name: str) -> AppendFile:
        """Create an empty file; only sync_directory() makes it survive a crash."""

    def append(self, name: str) -> AppendFile:
        """Open an existing file for writing at its end."""

    def map(self, name: str) -> memoryview:
        """
        Return the present content of the file, read-only and without a copy.

        It stays readable after the file was removed or has grown.
        """

    def remove(self, name: str) -> None:
        """Remove the file from the directory."""

    def sync_directory(self) -> None:
        """Return when the list of files is on disk."""


class DirectoryFiles(Files):
    """
    The files of a real directory, which is created if it does not exist.

    Only their owner can access directories and files that are created here.
    """

    is_blocking = True

    def __init__(self, path: Path, *, reserve_bytes: int = 0) -> None:
        """
        Open the directory; allocate *reserve_bytes* ahead of each file's end.

        A sync takes a quarter less time if the file does not grow.  Until it is closed,
        and after a crash, such a file ends with unwritten zeros.
        """
        self._path = Path(path)
        self._reserve_bytes = reserve_bytes
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def names(self) -> list[str]:
        return sorted(each.name for each in self._path.iterdir() if each.is_file())

    def create(self, name: str) -> AppendFile:
        flags = os.O_CREAT | os.O_EXCL
        return _DescriptorFile(self._path / name, flags, self._reserve_bytes)

    def append(self, name: str) -> AppendFile:
        return _DescriptorFile(self._path / name, 0, self._reserve_bytes)

    def map(self, name: str) -> memoryview:
        with (self._path / name).open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return memoryview(b"")
            return memoryview(
                mmap.mmap(
                    file.fileno(),
                    0,
                    flags=mmap.MAP_SHARED | _POPULATE,
                    prot=mmap.PROT_READ,
                )
            )

    def remove(self, name: str) -> None:
        (self._path / name).unlink()

    def sync_directory(self) -> None:
        sync_directory(self._path)


class _DescriptorFile:
    def __init__(self, path: Path, flags: int, reserve_bytes: int) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
        self._position = self._end = os.fstat(self._descriptor).st_size
        self._reserve_bytes = reserve_bytes
        # Sync the beginning of a new file before allocating space after it, so that a
        # crash never leaves a long file without a beginning.
        self._may_reserve = self._position > 0
        self._was_cut = False

    def write(self, buffers: Sequence[Buffer]) -> None:
        if self._may_reserve and self._reserve_bytes:
            self._reserve(sum(map(len, buffers)))
        at = 0
        while at < len(buffers):
            at = self._write_some(buffers, at, min(len(buffers), at + _IOV_MAX))

    def _write_some(self, buffers: Sequence[Buffer], at: int, end: int) -> int:
        """Write buffers from index *at* on; return the index of the next one."""
        written = os.pwritev(self._descriptor, buffers[at:end], self._position)
        self._position += written
        while at < end and written >= len(buffers[at]):
            written -= len(buffers[at])
            at += 1
        if at < end and written:
            # A buffer was written in part.  Write the rest of it separately, so that
            # the caller's sequence is not changed.
            rest = memoryview(buffers[at])[written:]
            while rest:
                written = os.pwrite(self._descriptor, rest, self._position)
                self._position += written
                rest = rest[written:]
            at += 1
        return at

    def _reserve(self, byte_count: int) -> None:
        """Allocate space for at least *byte_count* bytes, if the disk has it."""
        if self._position + byte_count <= self._end:
            return
        end = self._position + max(byte_count, self._reserve_bytes)
        # If there is no space for the bytes themselves, their write fails.
        with suppress(OSError):
            os.posix_fallocate(self._descriptor, self._end, end - self._end)
            self._end = end

    def sync(self) -> None:
        # fdatasync does not sync that a file became shorter.
        (os.fsync if self._was_cut else _fdatasync)(self._descriptor)
        self._was_cut = False
        self._may_reserve = True

    def truncate(self, byte_count: int) -> None:
        os.ftruncate(self._descriptor, byte_count)
        self._position = self._end = byte_count
        self._was_cut = True

    def close(self) -> None:
        if self._end > self._position:
            # Recovery ignores the zeros if this fails.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._position)
        os.close(self._descriptor)


# macOS has no fdatasync.
_fdatasync = getattr(os, "fdatasync", os.fsync)


class MemoryFiles(Files):
    """Files in the memory of the process, for tests and brokers inside them."""

    is_blocking = False

    def __init__(self) -> None:
        self._contents: dict[str, bytearray] = {}

    def names(self) -> list[str]:
        return sorted(self._contents)

    def create(self, name: str) -> AppendFile:
        if name in self._contents:
            raise FileExistsError(name)
        self._contents[name] = bytearray()
        return _MemoryFile(self._contents[name])

    def append(self, name: str) -> AppendFile:
        return _MemoryFile(self._find(name))

    def map(self, name: str) -> memoryview:
        # A copy, because a growing bytearray cannot be shared.
        return memoryview(bytes(self._find(name)))

    def remove(self, name: str) -> None:
        self._find(name)
        del self._contents[name]

    def sync_directory(self) -> None:
        pass

    def _find(self, name: str) -> bytearray:
        with suppress(KeyError):
            return self._contents[name]
        raise FileNotFoundError(name)


class _MemoryFile:
    def __init__(self, content: bytearray) -> None:
        self._content = content

    def write(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            self._content += buffer

    def sync(self) -> None:
        pass

    def truncate(self, byte_count: int) -> None:
        del self._content[byte_count:]

    def close(self) -> None:
        pass
