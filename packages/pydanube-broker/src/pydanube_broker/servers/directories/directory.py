"""The broker's data directory: its layout, lock and permissions."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import DirectoryLocked, DirectoryReplaced, InvalidConfig
from pydanube_broker.metadata.remote_config import RemoteStoreConfig

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""The interval at which a running broker checks that its directory is in place."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class DataDirectory:
    """The paths of a broker's files."""

    def __init__(
        self,
        path: Path,
        identity: tuple[int, int],
        metadata: Path | None = None,
        remote_metadata: RemoteStoreConfig | None = None,
    ) -> None:
        """
        *identity* is the device and inode of the locked directory.

        *metadata* is the file of the metadata store if it is in another directory;
        *remote_metadata* are its settings if it is not a file.
        """
        self.path = path
        self.journal = path / "journal"
        """The directory of the journal."""
        self.staging = path / "staging"
        """The directory of staged parts, which are invisible until their commit."""
        self.objects = path / "objects"
        """The object store, if it is a local directory."""
        self.cache = path / "cache"
        """Parts of remote segments that were read; may be removed at any time."""
        self.metadata = metadata or path / "metadata.sqlite"
        """The metadata store's file."""
        self.remote_metadata = remote_metadata
        """The settings of the metadata store, if it is not a file."""
        self.has_own_metadata = metadata is None
        """Whether this file is in the directory."""
        self.reserve = path / "reserve"
        """A file that reserves disk space for cleaning up a full disk."""
        self.lock = path / "LOCK"
        """A file with the process id of the broker that holds the lock."""
        self._identity = identity

    @property
    def metadata_place(self) -> str:
        """Where the metadata store is, for messages."""
        remote = self.remote_metadata
        return str(self.metadata) if remote is None else remote.location

    def check_in_place(self) -> None:
        """
        Check that the path still leads to the directory that was locked.

        Raises:
            DirectoryReplaced: The directory was moved, removed or replaced.
        """
        try:
            found = self.path.stat()
        except OSError as error:
            raise DirectoryReplaced(
                f"the data directory {self.path} is gone: {error.strerror}; the broker "
                "stops, because new files would be written elsewhere"
            ) from error
        if (found.st_dev, found.st_ino) != self._identity:
            raise DirectoryReplaced(
                f"the data directory {self.path} was replaced by another directory; "
                "the broker stops, because new files would be written there"
            )


@contextmanager
def hold_directory(
    path: Path,
    metadata: Path | None = None,
    remote_metadata: RemoteStoreConfig | None = None,
) -> Iterator[DataDirectory]:
    """
    Lock the data directory at *path*; create it if it does not exist.

    *metadata* is the file of the metadata store if it is in another directory, which
    must exist; *remote_metadata* are its settings if it is not a file.

    The lock is the operating system's, on the directory itself: removing or
    replacing a file in it does not release the lock, and a broker that was killed
    leaves no lock.  ``LOCK`` contains the process id of the owner.

    The directory and everything in it are accessible only to their owner.  Locking
    removes permissions of other users.

    Raises:
        DirectoryLocked: Another broker uses the directory.
        InvalidConfig: The path is not a directory or not writable, its ``LOCK`` is
            not a regular file, or the directory of *metadata* does not exist.
    """
    if metadata is not None and not metadata.parent.is_dir():
        raise InvalidConfig(
            f"metadata.path: the directory {metadata.parent} does not exist; mount or "
            "create it"
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        _lock(descriptor, path)
        _write_owner(descriptor, path)
        found = os.fstat(descriptor)
        directory = DataDirectory(
            path, (found.st_dev, found.st_ino), metadata, remote_metadata
        )
        # The directory may have been replaced before it was locked.
        directory.check_in_place()
        _tighten(path)
        yield directory
    finally:
        os.close(descriptor)


@contextmanager
def hold_metadata(directory: DataDirectory, *, is_shared: bool) -> Iterator[None]:
    """
    Lock a metadata store that is outside of the data directory, on this machine.

    With *is_shared*, other brokers may have a shared lock, too: a journal that fences
    lets a new broker take over from one that still runs.

    Raises:
        DirectoryLocked: Another broker uses the metadata store.
        InvalidConfig: The file of the lock cannot be used.
    """
    if directory.has_own_metadata:
        yield
        return
    path = directory.metadata.with_name(f"{directory.metadata.name}.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise InvalidConfig(
            f"metadata.path: {path} cannot be used: {error.strerror}"
        ) from error
    try:
        fcntl.flock(
            descriptor,
            (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB,
        )
    except OSError:
        os.close(descriptor)
        raise DirectoryLocked(
            f"the metadata store {directory.metadata} is in use by another broker; "
            "stop it, or choose another file (metadata.path)"
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def watching_directory(directory: DataDirectory) -> AsyncIterator[None]:
    """Cancel the body and raise DirectoryReplaced if *directory* is replaced."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            directory.check_in_place()

    async with task_scope() as tasks:
        tasks.run(watch(), "watch the data directory")
        yield


def _write_owner(directory: int, path: Path) -> None:
    """Write the process id into ``LOCK`` in the open *directory*."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open("LOCK", flags, 0o600, dir_fd=directory)
    except OSError as error:
        raise _unusable(path / "LOCK", error) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidConfig(
                f"{path / 'LOCK'} is not a regular file; remove it and start again"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DirectoryLocked(
            f"the data directory {path} is in use by another broker "
            f"(process {_owner_of(path)}); stop it, or choose another directory"
        ) from None


def _owner_of(path: Path) -> str:
    """Return the process id in ``LOCK`` for an error message."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path / "LOCK", flags)
    except OSError:
        return "unknown"
    try:
        owner = os.read(descriptor, 32).decode(errors="replace").strip()
    except OSError:
        owner = ""
    finally:
        os.close(descriptor)
    return owner if owner.isdecimal() else "unknown"


def _unusable(path: Path, error: OSError) -> InvalidConfig:
    return InvalidConfig(f"the data directory: {path} cannot be used: {error.strerror}")


def _tighten(path: Path) -> None:
    """
    Remove the permissions of other users from everything below *path*.

    Other users cannot access files in a directory without permissions.  The files
    are visited only if the directory itself has permissions for others.
    """
    if not path.stat().st_mode & _OTHERS:
        return
    count = 0
    try:
        count += sum(_remove_others(each) for each in path.rglob("*"))
        # Last, so that the next start repeats an interrupted run.
        count += _remove_others(path)
    except OSError as error:
        log.warning(
            "other users may access %s, and its permissions cannot be changed: %s",
            path,
            error,
        )
    if count:
        log.info(
            "%s was accessible to other users; removed their permissions from %d "
            "files and directories",
            path,
            count,
        )


def _remove_others(path: Path) -> bool:
    """Remove the permissions of other users from *path*; return whether it had any."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode) or not mode & _OTHERS:
        return False
    path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
    return True
