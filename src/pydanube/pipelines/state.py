"""
The directory where a run keeps what it needs to go on.

    lock                 held by the run as long as it is there
    status.json          how the run is getting on, or how it ended
    stop                 asks the run to end
    spark.log            what Spark and its workers print
    checkpoints/         where each query stands, as Spark writes it
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pydanube.model.errors import Conflict
from pydanube.pipelines.progress import RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_WAIT_S = 1.0
"""How long a lock is waited for: ``status`` holds it for a moment when it looks."""


class StateDirectory:
    """What is kept of one pipeline."""

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
        Be the only one that runs or changes this pipeline while the body does.

        The lock ends with the process, however that ends.

        Raises:
            Conflict: It is running already; *what*, which cannot be done, is named.
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
        """Whether a run, or something that excludes one, is there."""
        try:
            with self._lock_file.open("rb") as file:
                return not _try_lock(file.fileno(), fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    def write_status(self, status: RunStatus) -> None:
        """Replace what ``read_status`` finds, all at once."""
        self._replace("status.json", msgspec.json.encode(status))

    def read_status(self) -> RunStatus | None:
        """How the last run is getting on or has ended; None if there was none."""
        try:
            return msgspec.json.decode(
                (self.path / "status.json").read_bytes(), type=RunStatus
            )
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def request_stop(self) -> None:
        """Ask the run that is there to end."""
        self._replace("stop", b"")

    def is_stop_requested(self) -> bool:
        return (self.path / "stop").exists()

    def clear_stop_request(self) -> None:
        """A run begins: whatever was asked of an earlier one does not count."""
        (self.path / "stop").unlink(missing_ok=True)

    @property
    def _lock_file(self) -> Path:
        return self.path / "lock"

    def _holder(self) -> str:
        status = self.read_status()
        if status is None or status.state.is_over:
            return f"another process works in {self.path}"
        return (
            f"{status.pipeline} is running already, as process {status.pid} on "
            f"{status.host} since {status.since}; 'danube pipeline stop' ends it"
        )

    def _replace(self, name: str, content: bytes) -> None:
        new = self.path / f".{name}.{os.getpid()}"
        new.write_bytes(content)
        new.replace(self.path / name)


def process_start_time(pid: int) -> str | None:
    """
    What tells the process *pid* from a later one of the same number.

    None if there is no such process, or if this system does not tell.
    """
    try:
        words = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    # Behind the name, which may have anything in it; 22 is when it was started.
    state, *rest = words.rpartition(")")[2].split()
    return None if state == "Z" else rest[18]


def is_alive(process: tuple[int, str] | None) -> bool:
    """Whether the process that was marked so is still there."""
    return process is not None and process_start_time(process[0]) == process[1]


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
