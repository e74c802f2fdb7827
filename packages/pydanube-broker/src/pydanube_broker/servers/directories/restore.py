"""Restoring a data directory from a backup."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crc32c import crc32c

from pydanube.aio.tasks import gather
from pydanube.model.errors import CorruptBackup, InvalidConfig, NotFound
from pydanube.objects.directory import DirectoryObjects, sync_directory
from pydanube.objects.store import Objects
from pydanube.wire.buffer import Buffer
from pydanube_broker.servers.directories.directory import DataDirectory, hold_directory
from pydanube_broker.servers.directories.identity import write_marker
from pydanube_broker.storage.backup_format import (
    METADATA,
    BackupFile,
    BackupRecord,
    backup_ids,
    object_of_file,
    object_of_segment,
    read_record,
)

COPIES_MAX = 4
"""The number of objects that are read at the same time."""

_FILE_NAME = re.compile(r"metadata\.sqlite|(journal|staging)/[0-9A-Za-z._-]+")


async def choose_backup(objects: Objects, backup_id: str | None) -> BackupRecord:
    """
    Return the record of a backup; without *backup_id*, of the newest one.

    Raises:
        NotFound: There is no such backup.
        CorruptBackup: Its record is damaged.
    """
    if backup_id is None:
        ids = await backup_ids(objects)
        if not ids:
            raise NotFound("the object store has no complete backup")
        backup_id = ids[-1]
    return await read_record(objects, backup_id)


async def restore_backup(
    objects: Objects,
    record: BackupRecord,
    path: Path,
    on_progress: Callable[[int], None] = lambda _: None,
) -> None:
    """
    Restore the backup *record* to the new data directory *path*.

    *on_progress* is called with the number of bytes written so far.

    Durability: On return everything is on disk.  After an error or a cancellation,
        nothing is left.  After a crash, a broker refuses to start in the directory.

    Raises:
        InvalidConfig: There are files at *path*.
        CorruptBackup: An object of the backup is missing or damaged.
        ObjectsUnavailable: The object store does not answer.
        OSError: The files cannot be written.
    """
    with _new_directory(path) as directory:
        await _Restoring(objects, record, directory, on_progress).run()


@contextmanager
def _new_directory(path: Path) -> Iterator[DataDirectory]:
    """Hold the new data directory *path*; if the body fails, empty it again."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InvalidConfig(
            f"{path} exists and is not empty; restore to a new directory"
        )
    with hold_directory(path) as directory:
        try:
            yield directory
        except BaseException:
            for each in path.iterdir():
                if each.is_dir():
                    shutil.rmtree(each)
                else:
                    each.unlink()
            raise


class _Restoring:
    def __init__(
        self,
        objects: Objects,
        record: BackupRecord,
        directory: DataDirectory,
        on_progress: Callable[[int], None],
    ) -> None:
        self._objects = objects
        self._record = record
        self._directory = directory
        self._segments = DirectoryObjects(directory.objects)
        self._on_progress = on_progress
        self._bytes_done = 0

    async def run(self) -> None:
        record = self._record
        for name in (each.name for each in record.files):
            if not _FILE_NAME.fullmatch(name):
                raise CorruptBackup(f"{name!r} is not a file of a data directory")
        left = iter(record.segments)

        async def restore_next() -> None:
            for segment in left:
                data = await self._read(object_of_segment(segment.name), segment)
                await self._segments.put(segment.name, data)

        await gather(restore_next() for _ in range(COPIES_MAX))
        await write_marker(self._segments, record.cluster_id)
        # The metadata comes last: without it, no broker starts in the directory.
        files = sorted(record.files, key=lambda each: each.name == METADATA)
        for each in files:
            data = await self._read(object_of_file(record.id, each.name), each)
            await asyncio.to_thread(_write, self._directory.path / each.name, data)

    async def _read(self, name: str, file: BackupFile) -> Buffer:
        found = await self._objects.stat(name)
        if found is None or found.byte_count != file.byte_count:
            size = "is missing" if found is None else f"has {found.byte_count} bytes"
            raise CorruptBackup(
                f"the object {name} {size}; the backup {self._record.id} has "
                f"{file.byte_count} bytes of it"
            )
        data = await self._objects.read(name)
        checksum = None if data is None else await asyncio.to_thread(crc32c, data)
        if data is None or checksum != file.checksum:
            raise CorruptBackup(
                f"the object {name} is not as the backup {self._record.id} stored it; "
                "restore another backup"
            )
        self._bytes_done += file.byte_count
        self._on_progress(self._bytes_done)
        return data


def _write(path: Path, data: Buffer) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with open(path, "xb", opener=_open_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)
    sync_directory(path.parent.parent)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
