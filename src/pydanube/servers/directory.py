"""The broker's data directory: what is where in it, and who may use it."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.model.errors import DirectoryLocked, InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Where a broker keeps what."""

    path: Path

    @property
    def journal(self) -> Path:
        """The journal's files."""
        return self.path / "journal"

    @property
    def staging(self) -> Path:
        """Staged parts, which nobody sees before they are committed."""
        return self.path / "staging"

    @property
    def objects(self) -> Path:
        """The object store, where it is a local directory."""
        return self.path / "objects"

    @property
    def metadata(self) -> Path:
        """The metadata store's file."""
        return self.path / "metadata.sqlite"

    @property
    def lock(self) -> Path:
        """The file that the broker holds a lock on, with its process id in it."""
        return self.path / "LOCK"


@contextmanager
def hold_directory(path: Path) -> Iterator[DataDirectory]:
    """
    The data directory at *path*, made if needed, for nobody else as long as held.

    The lock is the operating system's: a broker that was killed leaves none.

    Raises:
        DirectoryLocked: Another broker uses it.
        InvalidConfig: It is not a directory, or we may not write there.
    """
    directory = DataDirectory(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InvalidConfig(
            f"the data directory {path} cannot be used: {error.strerror}"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(lock, 32).decode(errors="replace").strip()
            raise DirectoryLocked(
                f"the data directory {path} is in use by another broker "
                f"(process {owner or 'unknown'}); stop it, or choose another directory"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield directory
    finally:
        os.close(lock)
