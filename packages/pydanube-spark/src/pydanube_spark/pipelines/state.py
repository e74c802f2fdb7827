"""
The state directory of a pipeline.

    lock                 held by the process of a run
    run.json             the record of the current or last run
    status.json          the status of its queries
    graph.json           the graph of the pipeline that it runs
    mirrored.json        the tables that the patterns of each mirror stand for
    columns.json         the new columns that change feeds got in runs
    stop                 requests that the run stops
    spark.log            the output of Spark and its workers
    run.log              the output of a run that a connector has started
    checkpoints/         Spark's checkpoint of each query
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

from pydanube.model.errors import Conflict
from pydanube_spark.pipelines.graph import Graph
from pydanube_spark.pipelines.pure.progress import RunStatus
from pydanube_spark.pipelines.pure.run_records import RunRecord

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

    @property
    def run_log_file(self) -> Path:
        return self.path / "run.log"

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """
        Hold the exclusive lock of a run while the body runs.

        The operating system releases the lock when the process ends.

        Raises:
            Conflict: Another process holds the lock; *what* begins the message.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a+b") as file:
            give_up_at = time.monotonic() + LOCK_WAIT_S
            while not _try_lock(file.fileno(), fcntl.LOCK_EX):
                if time.monotonic() >= give_up_at:
                    raise Conflict(f"{what}: {self._holder()}")
                time.sleep(0.05)
            yield

    def is_locked(self) -> bool:
        """Return whether a run holds its lock."""
        try:
            with (self.path / "lock").open("rb") as file:
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

    def write_graph(self, graph: Graph) -> None:
        """Replace the stored graph atomically."""
        replace_file(self.path / "graph.json", msgspec.json.encode(graph))

    def read_graph(self) -> Graph | None:
        """Return the graph of the current or last run; None if it is unknown."""
        try:
            return msgspec.json.decode(
                (self.path / "graph.json").read_bytes(), type=Graph
            )
        except (FileNotFoundError, ValueError):
            return None

    def write_mirrored_tables(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Replace the stored tables of mirrors atomically."""
        replace_file(self.path / "mirrored.json", msgspec.json.encode(tables))

    def read_mirrored_tables(self) -> dict[str, list[str]]:
        """Return the tables that the patterns of each mirror stood for in a run."""
        try:
            return msgspec.json.decode(
                (self.path / "mirrored.json").read_bytes(), type=dict[str, list[str]]
            )
        except (FileNotFoundError, ValueError):
            return {}

    def write_new_columns(self, columns: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the stored columns of sources atomically; on disk on return."""
        # Tables have them from now on, with these types.
        content = msgspec.json.encode(columns)
        replace_file(self.path / "columns.json", content, is_durable=True)

    def read_new_columns(self) -> dict[str, dict[str, str]]:
        """Return the columns that each source got in runs, and their types."""
        try:
            return msgspec.json.decode(
                (self.path / "columns.json").read_bytes(),
                type=dict[str, dict[str, str]],
            )
        except (FileNotFoundError, ValueError):
            return {}

    def request_stop(self) -> None:
        """Request that the current run stops."""
        replace_file(self.path / "stop", b"")

    def is_stop_requested(self) -> bool:
        return (self.path / "stop").exists()

    def clear_stop_request(self) -> None:
        """Remove a stop request for an earlier run."""
        (self.path / "stop").unlink(missing_ok=True)

    def write_record(self, record: RunRecord) -> None:
        """Replace the stored record of the run atomically."""
        replace_file(self.path / "run.json", msgspec.json.encode(record))

    def read_record(self) -> RunRecord | None:
        """Return the record of the current or last run; None if there was none."""
        try:
            return msgspec.json.decode(
                (self.path / "run.json").read_bytes(), type=RunRecord
            )
        except (FileNotFoundError, ValueError):
            return None

    def _holder(self) -> str:
        record = self.read_record()
        if record is None or record.ended is not None:
            return f"another process uses {self.path}"
        return (
            f"{record.pipeline} is already running, as process {record.pid} on "
            f"{record.host} since {record.since}; 'danube pipeline stop' stops it"
        )


def replace_file(
    path: Path, content: bytes, *, is_durable: bool = False, is_secret: bool = False
) -> None:
    """
    Write *content* to *path* atomically; on disk on return if *is_durable*.

    With *is_secret* only the user can read the file.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    if is_secret:
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
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


def utc_text() -> str:
    """Return the current time in UTC, to the second."""
    return datetime.fromtimestamp(time.time_ns() // 10**9, UTC).isoformat()


def process_start_time(pid: int) -> str | None:
    """
    Return the start time of the process *pid*, which distinguishes reused pids.

    It counts from the start of the system, which is part of it.  None if there is no
    such process, or if the system has no ``/proc``.
    """
    try:
        words = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    # The fields after the name, which may contain anything; 22 is the start time.
    state, *rest = words.rpartition(")")[2].split()
    return None if state == "Z" else f"{rest[18]} {_boot_id()}"


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def is_alive(process: tuple[int, str] | None) -> bool:
    """Return whether the process with this pid and start time is still running."""
    return process is not None and process_start_time(process[0]) == process[1]


def kill(process: tuple[int, str] | None) -> bool:
    """Kill the process with this pid and start time; return whether it was running."""
    if process is None or not is_alive(process):
        return False
    # A descriptor refers to one process, also if its pid is used again meanwhile.
    descriptor = os.pidfd_open(process[0])
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return True


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
