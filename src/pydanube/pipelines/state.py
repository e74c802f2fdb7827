"""
The state directory of a pipeline.

    lock                 held by the process of the run
    status.json          the status of the current or last run
    stop                 requests that the run stops
    spark.log            the output of Spark and its workers
    checkpoints/         Spark's checkpoint of each query
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pydanube.model.errors import Conflict
from pydanube.pipelines.progress import RunStatus

LOCK_WAIT_S = 1.0
"""How long to wait for the lock, which ``status`` holds for a moment."""


class StateDirectory:
    """The state directory of one pipeline."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def log_file(self) -> Path:
        return self.path / "spark.log"

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """
        Hold the exclusive lock of this pipeline while the body runs.

        The operating system releases the lock when the process ends.

        Raises:
            Conflict: Another process holds the lock; *what* begins the message.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self._lock_file.open("a+b") as file:
            give_up_at = time.monotonic() + LOCK_WAIT_S
            while not _try_lock(file.fileno(), fcntl.LOCK_EX):
                if time.monotonic() >= give_up_at:
                    raise Conflict(f"{what}: {self._holder()}")
                time.sleep(0.05)
            yield

    def is_locked(self) -> bool:
        """Return whether a process holds the lock."""
        try:
            with self._lock_file.open("rb") as file:
                return not _try_lock(file.fileno(), fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    def write_status(self, status: RunStatus) -> None:
        """Replace the stored status atomically."""
        replace_file(self.path / "status.json", msgspec.json.encode(status))

    def read_status(self) -> RunStatus | None:
        """Return the status of the current or last run; None if there was none."""
        try:
            return msgspec.json.decode(
                (self.path / "status.json").read_bytes(), type=RunStatus
            )
        except (FileNotFoundError, ValueError):
            return None

    def request_stop(self) -> None:
        """Request that the current run stops."""
        replace_file(self.path / "stop", b"")

    def is_stop_requested(self) -> bool:
        return (self.path / "stop").exists()

    def clear_stop_request(self) -> None:
        """Remove a stop request for an earlier run."""
        (self.path / "stop").unlink(missing_ok=True)

    @property
    def _lock_file(self) -> Path:
        return self.path / "lock"

    def _holder(self) -> str:
        status = self.read_status()
        if status is None or status.state.is_over:
            return f"another process uses {self.path}"
        return (
            f"{status.pipeline} is already running, as process {status.pid} on "
            f"{status.host} since {status.since}; 'danube pipeline stop' stops it"
        )


def replace_file(path: Path, content: bytes, *, is_durable: bool = False) -> None:
    """Write *content* to *path* atomically; on disk on return if *is_durable*."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(content)
    if is_durable:
        _sync(new)
    new.replace(path)
    if is_durable:
        _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def process_start_time(pid: int) -> str | None:
    """
    Return the start time of the process *pid*, which distinguishes reused pids.

    None if there is no such process, or if the system has no ``/proc``.
    """
    try:
        words = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    # The fields after the name, which may contain anything; 22 is the start time.
    state, *rest = words.rpartition(")")[2].split()
    return None if state == "Z" else rest[18]


def is_alive(process: tuple[int, str] | None) -> bool:
    """Return whether the process with this pid and start time is still running."""
    return process is not None and process_start_time(process[0]) == process[1]


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
