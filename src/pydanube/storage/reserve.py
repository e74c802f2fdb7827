"""
The reserve: disk space that is set aside for the work that makes room again.

On a disk without any room not even a topic can be deleted, because the deletion
has to be written down first.  So a file occupies some space as long as there is
room.  When a write finds the disk full, the file is removed.  From then on nothing
is published or staged, and what is left of the space serves deletions, retention,
cursors and metadata, until there is room for the reserve again.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

START_BYTES_MIN = 1024 * 1024
"""A broker that starts with less free space than this releases its reserve."""


class DiskSpace(Protocol):
    """What the reserve needs of a disk."""

    @property
    def is_blocking(self) -> bool:
        """Whether calls may wait for a disk, so that a thread must make them."""

    def free_bytes(self) -> int:
        """How much room the disk has, besides what is occupied here."""

    def allocate(self, byte_count: int) -> None:
        """
        Occupy *byte_count* bytes, instead of what was occupied before.

        Raises:
            OSError: There is not so much room; nothing is occupied.
        """

    def free(self) -> None:
        """Occupy nothing any more."""


class Reserve:
    """
    Disk space that can be released once and is set aside again later.

    Threads: ``release`` and ``refill`` may be called by any thread.
    """

    def __init__(self, space: DiskSpace | None = None, byte_count: int = 0) -> None:
        """Nothing is ever reserved without a *space*, or if *byte_count* is 0."""
        self.is_released = False
        """Whether the disk is full, so that nothing is published or staged."""
        self.sealing_bytes_left = 0
        """How much may be sealed before the reserve is set aside again."""
        self._space = space
        self._byte_count = byte_count if space is not None else 0
        self._lock = threading.Lock()

    def open(self) -> None:
        """Set the space aside, as far as there is room."""
        with self._lock:
            if self._space is None:
                return
            if not self._byte_count:
                self._space.free()
                return
            try:
                self._space.allocate(self._byte_count)
            except OSError as error:
                self._release(f"no room for it: {error.strerror}")
                return
            if self._space.free_bytes() < START_BYTES_MIN:
                self._release("too little room to start")

    def release(self) -> bool:
        """
        Make the space usable, because a write found the disk full.

        Returns:
            Whether it makes sense to try that write once more.
        """
        with self._lock:
            if self._byte_count and not self.is_released:
                self._release("the disk is full")
            return self._byte_count > 0

    def refill(self) -> bool:
        """
        Set the space aside again, if there is twice as much room.

        Returns:
            Whether that succeeded.
        """
        with self._lock:
            if self._space is None or not self.is_released:
                return False
            try:
                # With just enough room, the disk would be full again at once.
                if self._space.free_bytes() < 2 * self._byte_count:
                    return False
                self._space.allocate(self._byte_count)
            except OSError:
                return False
            self.is_released = False
            log.warning("the disk has room again: publishing goes on")
            return True

    @property
    def is_blocking(self) -> bool:
        """Whether ``refill`` may wait for a disk."""
        return self._space is not None and self._space.is_blocking

    @property
    def refusal(self) -> str:
        """What whoever publishes is told while the reserve is released."""
        return (
            "the disk is full, so nothing is published: delete topics or shorten their "
            f"retention until {2 * self._byte_count} bytes are free, or add space"
        )

    def _release(self, reason: str) -> None:
        assert self._space is not None
        with suppress(OSError):
            self._space.free()
        self.is_released = True
        self.sealing_bytes_left = self._byte_count // 2
        log.warning(
            "releasing the disk reserve of %d bytes (%s): nothing is published until "
            "twice as much is free",
            self._byte_count,
            reason,
        )


class ReserveFile:
    """A file that occupies space of the disk that it is on."""

    is_blocking = True

    def __init__(self, path: Path) -> None:
        self._path = path

    def free_bytes(self) -> int:
        """See DiskSpace."""
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize

    def allocate(self, byte_count: int) -> None:
        """See DiskSpace."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, byte_count)
            os.ftruncate(descriptor, byte_count)
        except OSError:
            self.free()
            raise
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """See DiskSpace."""
        self._path.unlink(missing_ok=True)
