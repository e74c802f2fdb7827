"""
The files of backups in an object store; ``docs/format/backup.md`` is normative.

A backup has a record, which is written last, and copies of the broker's small files.
Segments never change, so all backups of a cluster share one copy of each.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from pydanube.model.errors import CorruptBackup, InvalidRequest, NotFound
from pydanube.objects.store import Objects

FORMAT_VERSION = 1
OWNER_NAME = ".cluster.json"
"""The object with the id of the cluster whose backups these are."""
METADATA = "metadata.sqlite"
JOURNAL = "journal/"
STAGING = "staging/"

_BACKUPS = "backups/"
_RECORD = "/backup.json"
_ID = re.compile(r"[0-9]{8}T[0-9]{9}Z")


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup."""

    name: str
    """Its path below the data directory, or the name of a segment's object."""
    byte_count: int
    checksum: int
    """The CRC-32C of its bytes."""


class BackupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that a backup consists of; times are microseconds since 1970, UTC."""

    format: int = FORMAT_VERSION
    id: str
    cluster_id: str
    version: str
    """The version of pydanube that made it."""
    created_at: int
    """The moment whose state the backup has."""
    finished_at: int
    files: list[BackupFile]
    """Metadata, journal and staged parts."""
    segments: list[BackupFile]
    damaged: list[str] = []
    """Segments that could not be read, so the backup lacks them."""

    @property
    def byte_count(self) -> int:
        """The size of the restored data directory."""
        return sum(each.byte_count for each in (*self.files, *self.segments))


def id_of_time(time_us: int) -> str:
    """Return the id of a backup that begins now: the time with milliseconds."""
    seconds, rest = divmod(time_us, 1_000_000)
    time = datetime.fromtimestamp(seconds, UTC)
    return f"{time:%Y%m%dT%H%M%S}{rest // 1000:03d}Z"


def object_of_file(backup_id: str, name: str) -> str:
    """Return the name of the object with the file *name* of a backup."""
    return f"{_BACKUPS}{backup_id}/files/{name}"


def object_of_segment(name: str) -> str:
    """Return the name of the object with a copy of the segment *name*."""
    return f"segments/{name}"


def object_of_record(backup_id: str) -> str:
    """Return the name of the object with the record of a backup."""
    return f"{_BACKUPS}{backup_id}{_RECORD}"


async def backup_ids(objects: Objects) -> list[str]:
    """Return the ids of all complete backups, the oldest first."""
    names = await objects.names(_BACKUPS)
    ids = (
        each[len(_BACKUPS) : -len(_RECORD)] for each in names if each.endswith(_RECORD)
    )
    return [each for each in ids if _ID.fullmatch(each)]


async def read_record(objects: Objects, backup_id: str) -> BackupRecord:
    """
    Return the record of a backup.

    Raises:
        InvalidRequest: *backup_id* is not the id of a backup.
        NotFound: There is no complete backup with this id.
        CorruptBackup: Its record is damaged, or has a newer format.
    """
    if not _ID.fullmatch(backup_id):
        raise InvalidRequest(
            f"{backup_id!r} is not the id of a backup, such as 20260131T120000000Z"
        )
    data = await objects.read(object_of_record(backup_id))
    if data is None:
        raise NotFound(f"there is no complete backup {backup_id}")
    try:
        record = msgspec.json.decode(data, type=BackupRecord)
    except msgspec.MsgspecError as error:
        raise CorruptBackup(
            f"the record of the backup {backup_id} is damaged: {error}"
        ) from error
    if record.format != FORMAT_VERSION:
        raise CorruptBackup(
            f"the backup {backup_id} has format {record.format}; this version of "
            f"pydanube reads format {FORMAT_VERSION}"
        )
    return record
