"""An object store in a local directory."""

from __future__ import annotations

import asyncio
import errno
import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pydanube.model.errors import NotFound, ObjectsUnavailable
from pydanube.objects.store import NewObject, ObjectInfo, Objects, wall_clock_us
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.segment_format import PARTS

SHARED_PART_AGE_S = 24 * 3600.0
"""An incomplete object in a shared directory is removed after this time."""


class NewFile(NewObject):
    """An object that is written to a file in a directory of incomplete objects."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_discarded = False
        self.path = directory / uuid4().hex

    @contextmanager
    def writing(self) -> Iterator[Any]:
        try:
            # Open all the time: it is told of a write that failed later, on its disk.
            with open(self.path, "xb", opener=_open_private) as created:
                with pa.OSFile(str(self.path), "wb") as file:
                    yield file
                # Before it is read again: what is read then is what the disk has.
                if not self._is_discarded:
                    os.fsync(created.fileno())
        except OSError as error:
            self.discard()
            raise unavailable(self._directory, error) from error
        finally:
            if self._is_discarded:
                # The file was perhaps not there yet.
                self.discard()

    @contextmanager
    def reading(self) -> Iterator[Any]:
        try:
            with pa.OSFile(str(self.path)) as file:
                yield file
        except OSError as error:
            raise unavailable(self._directory, error) from error

    def discard(self) -> None:
        self._is_discarded = True
        # On a disk that fails, the next start removes it.
        with suppress(OSError):
            self.path.unlink()


def unavailable(directory: Path, error: OSError) -> ObjectsUnavailable:
    """Return the exception for *error* of a file in *directory*."""
    return ObjectsUnavailable(f"the directory {directory}: {error}")


class DirectoryObjects(Objects):
    """
    Objects as files below a directory, which is created if it does not exist.

    Only their owner can access directories and files that are created here.
    """

    def __init__(self, path: Path, *, is_shared: bool = False) -> None:
        """
        *is_shared* says that other processes may be storing objects.

        Without it, all incomplete objects are removed; with it, only old ones.
        """
        self._path = Path(path).absolute()
        # Incomplete objects are in a directory of their own, so that those that a crash
        # left are found quickly.
        self._parts = self._path / PARTS
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._parts.mkdir(mode=0o700, exist_ok=True)
        newest = math.inf
        if is_shared:
            newest = wall_clock_us() / 1e6 - SHARED_PART_AGE_S
        for part in self._parts.iterdir():
            # Another process may be completing or removing it.
            with suppress(FileNotFoundError):
                if part.stat().st_mtime <= newest:
                    part.unlink()

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        await self._in_thread(self._put, name, data, _replace)

    def new_object(self) -> NewFile:
        return NewFile(self._parts)

    async def put_new(self, name: str, new: NewObject) -> None:
        assert isinstance(new, NewFile)
        await self._in_thread(self._put_file, name, new.path)

    async def put_if_absent(self, name: str, data: Buffer | pa.Buffer) -> bool:
        stored: bool = await self._in_thread(self._put, name, data, _add)
        return stored

    async def read(
        self, name: str, begin: int = 0, end: int | None = None
    ) -> Buffer | None:
        found: Buffer | None = await self._in_thread(self._read, name, begin, end)
        return found

    def open(self, name: str) -> Any:
        # Not mapped: a disk error would be a signal that ends the process.
        return pa.OSFile(str(self._path_of(name)))

    async def delete(self, name: str) -> None:
        await self._in_thread(self._delete, name)

    async def names(
        self, prefix: str, *, after: str = "", count_max: int | None = None
    ) -> list[str]:
        found: list[str] = await self._in_thread(self._names, prefix)
        return found[bisect_right(found, after) :][:count_max]

    async def stat(self, name: str) -> ObjectInfo | None:
        found: ObjectInfo | None = await self._in_thread(self._stat, name)
        return found

    def url(self, name: str) -> str:
        return self._path_of(name).as_uri()

    async def _in_thread(self, call: Any, *args: Any) -> Any:
        try:
            return await asyncio.to_thread(call, *args)
        except OSError as error:
            raise unavailable(self._path, error) from error

    def _put(
        self,
        name: str,
        data: Buffer | pa.Buffer,
        publish: Callable[[Path, Path], bool],
    ) -> bool:
        path = self._path_of(name)
        self._make_directory(path.parent)
        part = self._parts / uuid4().hex
        try:
            with open(part, "wb", opener=_open_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            is_stored = publish(part, path)
        finally:
            # The incomplete file must not take the last space of a full disk.
            part.unlink(missing_ok=True)
        # Also if there is an object already: its writer may not have come here yet.
        sync_directory(path.parent)
        return is_stored

    def _put_file(self, name: str, part: Path) -> None:
        path = self._path_of(name)
        self._make_directory(path.parent)
        part.replace(path)
        sync_directory(path.parent)

    def _make_directory(self, path: Path) -> None:
        """Create *path*, so that it survives a crash."""
        if path.is_dir():
            return
        self._make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_directory(path.parent)

    def _delete(self, name: str) -> None:
        self._path_of(name).unlink(missing_ok=True)

    def _names(self, prefix: str) -> list[str]:
        # Search only the directory that the prefix names.
        begin = self._path / prefix.rpartition("/")[0]
        try:
            found = list(begin.rglob("*"))
        except OSError as error:
            # A directory whose name is too long does not exist.
            if error.errno == errno.ENAMETOOLONG:
                return []
            raise
        names = (
            path.relative_to(self._path).as_posix()
            for path in found
            if path.is_file() and path.parent != self._parts
        )
        return sorted(name for name in names if name.startswith(prefix))

    def _read(self, name: str, begin: int, end: int | None) -> bytes | None:
        try:
            with self._path_of(name).open("rb") as file:
                file.seek(begin)
                return file.read(-1 if end is None else end - begin)
        except FileNotFoundError:
            return None

    def _stat(self, name: str) -> ObjectInfo | None:
        try:
            found = self._path_of(name).stat()
        except FileNotFoundError:
            return None
        return ObjectInfo(found.st_size, found.st_mtime_ns // 1000)

    def _path_of(self, name: str) -> Path:
        path = self._path / name
        if ".." in path.parts or not path.is_relative_to(self._path):
            raise NotFound(f"{name!r} is not a valid name of an object")
        return path


def _open_private(path: str, flags: int) -> int:
    """Open *path*; if it is created, only its owner may access it."""
    return os.open(path, flags, 0o600)


def _replace(part: Path, path: Path) -> bool:
    part.replace(path)
    return True


def _add(part: Path, path: Path) -> bool:
    try:
        path.hardlink_to(part)
    except FileExistsError:
        return False
    return True


def sync_directory(path: Path) -> None:
    """Return when the list of files in the directory *path* is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
