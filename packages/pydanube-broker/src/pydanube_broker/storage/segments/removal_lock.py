"""
A lock against removing segments, which the processes of one broker share.

Processes hold it together while they remove segments.  The one that makes a backup
holds it alone.  It is a lock of the operating system, so it ends with its process.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from pydanube.model.errors import BackupRunning

_INTERVAL_S = 0.01


class RemovalLock:
    """The lock in the file *path*."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_held(self) -> bool:
        """Whether a process keeps all segments."""
        try:
            with self.removing():
                return False
        except BackupRunning:
            return True

    @contextmanager
    def removing(self) -> Iterator[None]:
        """
        Hold the lock together with others that remove segments.

        Raises:
            BackupRunning: A process keeps all segments.
        """
        with self._opened() as file:
            if not _locked(file, fcntl.LOCK_SH):
                raise BackupRunning(
                    "a backup is being made and keeps all segments; try again when it "
                    "is finished ('danube backup status')"
                )
            yield

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Hold the lock alone, when those that remove segments have finished."""
        with self._opened() as file:
            # There is no event for the lock of another process.
            while not _locked(file, fcntl.LOCK_EX):  # noqa: ASYNC110
                await asyncio.sleep(_INTERVAL_S)
            yield

    @contextmanager
    def _opened(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            yield file
        finally:
            os.close(file)


def _locked(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
