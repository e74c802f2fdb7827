"""
The record of a run: its process, its starts, and how it ended.  Pure.

``RunStatus`` is what the process with Spark reports.  The record belongs to the process
that ``danube pipeline run`` has started, which may start several of those, one after
another.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from pydanube.pipelines.progress import RunStatus


class Phase(Enum):
    """The phase of a run."""

    RUNNING = "running"
    RESTARTING = "restarting"
    """It waits to start a process again after a failure."""
    SCHEDULED = "scheduled"
    """It waits for the next time of its schedule."""
    ENDED = "ended"


class RunRecord(msgspec.Struct, kw_only=True):
    """The record of a run."""

    pipeline: str
    file: str
    pid: int
    mark: str | None
    """The start time of the process, which distinguishes reused pids."""
    host: str
    since: str
    """The start time in UTC."""
    log_file: str
    is_detached: bool = False
    phase: Phase = Phase.RUNNING
    starts: int = 0
    """How many processes with Spark the run has started."""
    restarts: int = 0
    """How many of them were started because the one before had failed."""
    failures_in_a_row: int = 0
    skipped: int = 0
    """How many times of the schedule passed while a process was still running."""
    next_start: str | None = None
    """When the next process is started, in UTC; None while one is running."""
    exit_code: int | None = None
    """The exit code of the last process that has ended; negative after a signal."""
    last_success: str | None = None
    """When the last process ended successfully, in UTC."""
    ended: str | None = None
    """When the run ended, in UTC."""


def state_shown(
    record: RunRecord | None, status: RunStatus | None, *, is_running: bool
) -> str:
    """
    Return the state of a run for people.

    *is_running* says whether a process holds the lock of the run.  If none does, and
    the run has not recorded its end, it was killed or the machine was restarted.
    """
    is_waiting = record is not None and record.phase in (
        Phase.RESTARTING,
        Phase.SCHEDULED,
    )
    if is_running and record is not None and is_waiting:
        return record.phase.value
    if status is None:
        return "starting" if is_running else "died"
    if is_running:
        return "starting" if status.state.is_over else status.state.value
    is_over = record.ended is not None if record is not None else status.state.is_over
    return status.state.value if is_over and status.state.is_over else "died"
