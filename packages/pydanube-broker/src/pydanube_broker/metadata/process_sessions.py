"""
Sessions of processes on one machine: a session lives as long as its file is locked.

A directory has two named pipes for each process:

``{session}.session``
    The process holds the pipe open, and locked.  The operating system gives up the lock
    when the process ends, however it ends, and then tells those who have the pipe open.
    A session needs no TTL, and others notice its end at once.

``{process}.inbox``
    A process that has changed something writes a byte into the pipes of the others.

The lock is the truth, and everything else only says when to look.  A process that is
suspended keeps its sessions: the supervisor must kill processes that hang.

The name of a session appears after its lock was taken, and disappears after its keys
were deleted.  So a session without a file is over.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydanube.model.errors import DiskFull, MetadataUnavailable

SESSION = ".session"
INBOX = ".inbox"

_HELD = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}

_DRAIN_BYTES = 4096


def is_over(directory: Path, session_id: str) -> bool:
    """
    Return whether the process of a session has ended, or has closed the session.

    Raises:
        MetadataUnavailable: The file cannot be opened.
    """
    with _translated(directory):
        pipe = _find(directory, session_id)
        if pipe is None:
            return True
        try:
            return _is_free(pipe)
        finally:
            os.close(pipe)


class ProcessSessions:
    """
    The sessions of this process, and of the other processes at the same directory.

    Threads: One thread calls ``open``, ``begin``, ``end``, ``holds``, ``look`` and
        ``forget``, and another one ``drain`` and ``close_gone``, which must not run
        beside ``look``.  When they have ended, ``close`` is called.
    """

    def __init__(self, directory: Path, identity: str) -> None:
        """*identity* is unique among all processes, also earlier ones."""
        assert "/" not in identity, identity
        assert not identity.startswith("."), identity
        self.directory = directory
        self.identity = identity
        self.inbox = -1
        """It can be read when another process has rung."""
        self._inbox_name = identity + INBOX
        self._own: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._gone: list[int] = []

    def open(self) -> None:
        """
        Make the inbox of this process.

        Raises:
            DiskFull: There is no room for it.
            MetadataUnavailable: The directory cannot be used.
        """
        if self.inbox < 0:
            with _translated(self.directory):
                self.directory.mkdir(mode=0o700, exist_ok=True)
                self.inbox = self._make(self._inbox_name)

    def close(self) -> None:
        """Give up all sessions; others delete their keys."""
        self.close_gone()
        for pipes in (self._own, self._others):
            for pipe in pipes.values():
                os.close(pipe)
            pipes.clear()
        if self.inbox >= 0:
            with suppress(OSError):
                (self.directory / self._inbox_name).unlink()
            os.close(self.inbox)
            self.inbox = -1

    # The sessions of this process.

    def begin(self, session_id: str) -> None:
        """
        Lock the file of a new session.

        Raises: As ``open``.
        """
        with _translated(self.directory):
            self._own[session_id] = self._make(session_id + SESSION)

    def end(self, session_id: str, *, is_deleted: bool) -> None:
        """
        Unlock the file of a session of this process.

        *is_deleted*: Its keys are deleted already.  Otherwise others delete them.
        """
        if is_deleted and session_id in self._own:
            self.forget(session_id)
        if (pipe := self._own.pop(session_id, None)) is not None:
            os.close(pipe)

    def holds(self, session_id: str) -> bool:
        """Return whether a session is one of this process, and still has its file."""
        pipe = self._own.get(session_id)
        return pipe is not None and os.fstat(pipe).st_nlink > 0

    # The others.

    def look(self) -> tuple[list[str], list[int]]:
        """
        Return the sessions that are over, and the pipes of the others.

        Each pipe can be read, and is at its end, when its session is over.

        Raises:
            MetadataUnavailable: The directory cannot be read.
        """
        with _translated(self.directory):
            present = {
                name.removesuffix(SESSION)
                for name in self._names()
                if name.endswith(SESSION)
            }
            for session_id in self._others.keys() - present:
                self._gone.append(self._others.pop(session_id))
            for session_id in present - self._others.keys() - self._own.keys():
                if (pipe := _find(self.directory, session_id)) is not None:
                    self._others[session_id] = pipe
            # After they were opened: a pipe does not tell of an end before that.
            over = [name for name, pipe in self._others.items() if _is_free(pipe)]
        return over, list(self._others.values())

    def close_gone(self) -> None:
        """Close the pipes that ``look`` does not return any more."""
        while self._gone:
            os.close(self._gone.pop())

    def forget(self, session_id: str) -> None:
        """Remove the file of a session whose keys are deleted."""
        with _translated(self.directory):
            _session_file(self.directory, session_id).unlink(missing_ok=True)

    def ring(self) -> None:
        """Wake all other processes."""
        with suppress(OSError):
            for name in self._names():
                if name.endswith(INBOX) and name != self._inbox_name:
                    self._wake(self.directory / name)

    def drain(self) -> None:
        """Empty the inbox."""
        with suppress(BlockingIOError):
            while len(os.read(self.inbox, _DRAIN_BYTES)) == _DRAIN_BYTES:
                pass

    def _names(self) -> list[str]:
        """Return the names of what is complete."""
        names = (each.name for each in self.directory.iterdir())
        return [name for name in names if not name.startswith(".")]

    def _wake(self, inbox: Path) -> None:
        try:
            pipe = os.open(inbox, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:
                # Its process has ended: a pipe gets its name after it was opened.
                inbox.unlink(missing_ok=True)
            return
        try:
            # A full pipe wakes its process just as well.
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(pipe, b"\0")
        finally:
            os.close(pipe)

    def _make(self, name: str) -> int:
        """Make a pipe that is open, and locked, before others see it."""
        hidden = self.directory / f".{name}"
        os.mkfifo(hidden, 0o600)
        pipe = -1
        try:
            # For both, so that the pipe of a process that lives is never at its end.
            pipe = os.open(hidden, os.O_RDWR | os.O_NONBLOCK)
            fcntl.flock(pipe, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.rename(self.directory / name)
        except BaseException:
            if pipe >= 0:
                os.close(pipe)
            hidden.unlink(missing_ok=True)
            raise
        return pipe


_READ = os.O_RDONLY | os.O_NONBLOCK


def _session_file(directory: Path, session_id: str) -> Path:
    return directory / (session_id + SESSION)


def _find(directory: Path, session_id: str) -> int | None:
    with suppress(FileNotFoundError):
        return os.open(_session_file(directory, session_id), _READ)
    return None


def _is_free(pipe: int) -> bool:
    """Return whether no process holds a file."""
    try:
        # Shared, because several processes may look at the same time.
        fcntl.flock(pipe, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD:
            raise
        return False
    fcntl.flock(pipe, fcntl.LOCK_UN)
    return True


@contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(f"no room for the sessions in {directory}") from error
        raise MetadataUnavailable(
            f"the sessions in {directory} cannot be used: {error.strerror}"
        ) from error
