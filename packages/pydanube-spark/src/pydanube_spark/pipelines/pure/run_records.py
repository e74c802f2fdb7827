"""
The record of a run: its process, the runs before it, and how it ended.  Pure.

``RunStatus`` is what the queries report.  The record belongs to the lock of the run, so
it also says what happened before Spark had started, and after it had ended.
"""

from __future__ import annotations

import msgspec

from pydanube_spark.pipelines.pure.progress import RunStatus

EXIT_DONE = 0
KILLED = -9
"""The exit code of a run that was killed: SIGKILL, as ``subprocess`` reports it."""
STOPPED_EXITS = frozenset({130, 143})
"""Those of runs that SIGINT and SIGTERM have stopped."""
FINAL_EXITS = frozenset({EXIT_DONE, 2, 3, 4, 5, 6, *STOPPED_EXITS})
"""
The exit codes that no restart should follow: success; failures that it would repeat,
which are an invalid file or option, a missing or conflicting resource, and a missing
permission; and signals with which somebody stopped the run.
"""


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
    restarts: int = 0
    """How many runs of this pipeline followed one that failed or was killed."""
    exit_code: int | None = None
    """The exit code of the last run that has ended; negative after a signal."""
    last_success: str | None = None
    """When a run last ended successfully, in UTC."""
    ended: str | None = None
    """When the run ended, in UTC."""

    @property
    def has_failed(self) -> bool:
        """Return whether the last run that has ended failed or was killed."""
        return self.exit_code not in {None, EXIT_DONE, *STOPPED_EXITS}

    def follow(self, last: RunRecord | None) -> None:
        """Take over what is known of *last*, the run before this one."""
        if last is None:
            return
        # A run that did not record its end was killed.
        self.exit_code = last.exit_code if last.ended else KILLED
        self.last_success = last.last_success
        self.restarts = last.restarts + self.has_failed

    def end(self, exit_code: int, now: str) -> None:
        """Record that the run has ended *now*."""
        self.exit_code, self.ended = exit_code, now
        if exit_code == EXIT_DONE:
            self.last_success = now


def state_shown(
    record: RunRecord | None, status: RunStatus | None, *, is_running: bool
) -> str:
    """
    Return the state of a run for people.

    *is_running* says whether a process holds the lock of the run.  If none does, and
    the run has not recorded its end, it was killed or the machine was restarted.
    """
    is_over = status is None or status.state.is_over
    if is_running:
        # A status that is over is that of the run before.
        return "starting" if status is None or is_over else status.state.value
    has_ended = record is not None and record.ended is not None
    return status.state.value if status and is_over and has_ended else "died"
