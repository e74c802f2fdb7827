"""The interface to the object store: named, immutable objects."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from pydanube.model.errors import NotFound, ObjectsUnavailable
from pydanube.storage.files import sync_directory
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.segment_format import PARTS, part_name


class Objects(Protocol):
    """Objects by name; names have slashes like paths."""

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        """
        Store an object; replace an existing one of the same name.

        Durability: On return the object is durable.  Until then, and after a crash or a
            cancellation, either all of it is stored or nothing.

        Raises:
            ObjectsUnavailable: The object could not be stored.
        """

    def open(self, name: str) -> Any:
        """
        Open an object as a pyarrow file for random access; call this in a thread.

        Raises:
            OSError: The object does not exist or cannot be read.
        """

    async def delete(self, name: str) -> None:
        """
        Remove an object, if it exists.

        Raises:
            ObjectsUnavailable: The object could not be removed.
        """

    async def names(self, prefix: str) -> list[str]:
        """
        Return the names that begin with *prefix*, sorted.

        Raises:
            ObjectsUnavailable: The store did not answer.
        """

    async def modified_at(self, name: str) -> int:
        """
        Return when the object was stored: microseconds since 1970, UTC.

        Raises:
            ObjectsUnavailable: The object does not exist, or the store did not answer.
        """

    def url(self, name: str) -> str:
        """Return the URL at which other programs can read the object."""


class DirectoryObjects(Objects):
    """
    Objects as files below a directory, which is created if it does not exist.

    Only their owner can access directories and files that are created here.
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(path).absolute()
        # Incomplete objects are in a directory of their own, so that those that a crash
        # left are found quickly.
        self._parts = self._path / PARTS
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._parts.mkdir(mode=0o700, exist_ok=True)
        for part in self._parts.iterdir():
            part.unlink(missing_ok=True)

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        await self._in_thread(self._put, name, data)

    def open(self, name: str) -> Any:
        # Not mapped: a disk error would be a signal that ends the process.
        return pa.OSFile(str(self._path_of(name)))

    async def delete(self, name: str) -> None:
        await self._in_thread(self._delete, name)

    async def names(self, prefix: str) -> list[str]:
        found: list[str] = await self._in_thread(self._names, prefix)
        return found

    async def modified_at(self, name: str) -> int:
        found: int = await self._in_thread(self._modified_at, name)
        return found

    def url(self, name: str) -> str:
        return self._path_of(name).as_uri()

    async def _in_thread(self, call: Any, *args: Any) -> Any:
        try:
            return await asyncio.to_thread(call, *args)
        except OSError as error:
            raise ObjectsUnavailable(f"the directory {self._path}: {error}") from error

    def _put(self, name: str, data: Buffer | pa.Buffer) -> None:
        path = self._path_of(name)
        self._make_directory(path.parent)
        part = self._parts / part_name(name)
        try:
            with open(part, "wb", opener=_open_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError:
            # The incomplete file must not take the last space of a full disk.
            part.unlink(missing_ok=True)
            raise
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

    def _modified_at(self, name: str) -> int:
        return self._path_of(name).stat().st_mtime_ns // 1000

    def _path_of(self, name: str) -> Path:
        path = self._path / name
        if ".." in path.parts or not path.is_relative_to(self._path):
            raise NotFound(f"{name!r} is not a valid name of an object")
        return path


def _open_private(path: str, flags: int) -> int:
    """Open *path*; if it is created, only its owner may access it."""
    return os.open(path, flags, 0o600)


def wall_clock_us() -> int:
    """Return the time: microseconds since 1970, UTC."""
    return time.time_ns() // 1000


class MemoryObjects(Objects):
    """Objects in the memory of the process."""

    def __init__(self, wall_clock_us: Callable[[], int] = wall_clock_us) -> None:
        self._objects: dict[str, pa.Buffer] = {}
        self._modified_at: dict[str, int] = {}
        self._wall_clock_us = wall_clock_us

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        self._objects[name] = pa.py_buffer(bytes(data))
        self._modified_at[name] = self._wall_clock_us()

    def open(self, name: str) -> Any:
        found = self._objects.get(name)
        if found is None:
            raise FileNotFoundError(name)
        return pa.BufferReader(found)

    async def delete(self, name: str) -> None:
        self._objects.pop(name, None)

    async def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._objects if name.startswith(prefix))

    async def modified_at(self, name: str) -> int:
        if name not in self._objects:
            raise ObjectsUnavailable(f"there is no object {name}")
        return self._modified_at[name]

    def url(self, name: str) -> str:
        return f"memory:///{name}"
