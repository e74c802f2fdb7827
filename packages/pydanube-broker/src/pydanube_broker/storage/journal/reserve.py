"""
The reserve: disk space that is kept free for the work that frees more space.

On a full disk not even a topic can be deleted, because the journal must record the
deletion first.  A file reserves some space.  When a write finds the disk full, the
file is removed.  From then on the broker accepts no messages, and uses the space for
deletions, retention, cursors and metadata, until there is enough space for the reserve
again.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

START_BYTES_MIN = 1024 * 1024
"""A broker that starts with less free space than this releases its reserve."""


class Reserve:
    """
    Disk space that can be released once and is reserved again later.

    Threads: ``release`` and ``refill`` may be called by any thread.
    """

    def __init__(self, space: ReserveFile | None = None, byte_count: int = 0) -> None:
        """Reserve *byte_count* of *space*; nothing if it is None or 0."""
        self.is_released = False
        """Whether the disk is full, so that nothing is published or staged."""
        self.sealing_bytes_left = 0
        """How much may be sealed before the space is reserved again."""
        self._space = space
        self._byte_count = byte_count if space is not None else 0
        self._lock = threading.Lock()

    def open(self) -> None:
        """Reserve the space, or release it if the disk is too full."""
        with self._lock:
            if self._space is None:
                return
            if not self._byte_count:
                self._space.free()
                return
            try:
                self._space.allocate(self._byte_count)
            except OSError as error:
                self._release(f"it cannot be allocated: {error.strerror}")
                return
            if self._space.free_bytes() < START_BYTES_MIN:
                self._release("too little free space to start")

    def release(self) -> bool:
        """
        Free the space, because a write found the disk full.

        Returns:
            Whether the write is worth another attempt.
        """
        with self._lock:
            if self._byte_count and not self.is_released:
                self._release("the disk is full")
            return self._byte_count > 0

    def refill(self) -> bool:
        """
        Reserve the space again, if twice as much is free.

        Returns:
            Whether the space is reserved again now.
        """
        with self._lock:
            if self._space is None or not self.is_released:
                return False
            try:
                # With just enough free space, the disk would be full again at once.
                if self._space.free_bytes() < 2 * self._byte_count:
                    return False
                self._space.allocate(self._byte_count)
            except OSError:
                return False
            self.is_released = False
            log.warning("the disk has free space again: publishing resumes")
            return True

    @property
    def is_blocking(self) -> bool:
        """Whether ``refill`` may wait for a disk."""
        return self._space is not None and self._space.is_blocking

    @property
    def refusal(self) -> str:
        """The error message for publishers while the reserve is released."""
        return (
            "the disk is full; publishing is refused: delete topics or shorten their "
            f"retention until {2 * self._byte_count} bytes are free, or add space"
        )

    def _release(self, reason: str) -> None:
        assert self._space is not None
        with suppress(OSError):
            self._space.free()
        self.is_released = True
        self.sealing_bytes_left = self._byte_count // 2
        log.warning(
            "releasing the disk reserve of %d bytes (%s): publishing is refused until "
            "twice as much is free",
            self._byte_count,
            reason,
        )


class ReserveFile:
    """A file that reserves space on its disk."""

    is_blocking = True
    """Whether calls may wait for a disk and must be made in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def free_bytes(self) -> int:
        """Return the free space of the disk, without the allocated space."""
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize

    def allocate(self, byte_count: int) -> None:
        """
        Allocate *byte_count* bytes in total.

        Raises:
            OSError: The disk does not have the space; nothing is allocated now.
        """
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
        """Free the allocated space."""
        self._path.unlink(missing_ok=True)
