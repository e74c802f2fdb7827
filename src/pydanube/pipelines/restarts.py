"""
The next start of a pipeline after its process has ended.  Pure.

A restart helps if the process crashed, was killed, or if a query failed and had no
retries left.  It does not help if the file is invalid, and must not happen if the run
was stopped or has processed all its data.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from pydanube.model.retry import RetryPolicy
from pydanube.pipelines.schedules import Schedule

EXIT_DONE = 0
FINAL_EXITS = frozenset({EXIT_DONE, 2, 3, 4, 5, 6, 130, 143})
"""
The exit codes that no restart follows: success; failures that it would repeat, which
are an invalid file or option, a missing or conflicting resource, and a missing
permission; and SIGINT or SIGTERM, with which somebody stopped the process.
"""


class Cause(Enum):
    """Why a process is started."""

    FIRST = "first"
    SCHEDULE = "schedule"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class NextStart:
    """The next start of a pipeline's process."""

    at: datetime
    cause: Cause


@dataclass(frozen=True, slots=True)
class RestartRules:
    """Restarts after failures, and runs on a schedule; both are optional."""

    policy: RetryPolicy | None = None
    reset_after_s: float = 0.0
    """A process that ran for so long resets the number of failures in a row."""
    schedule: Schedule | None = None

    def first(self, now: datetime) -> NextStart:
        """Return the first start of a run that begins *now*."""
        if self.schedule is None:
            return NextStart(now, Cause.FIRST)
        return NextStart(self.schedule.next_after(now), Cause.SCHEDULE)

    def after(
        self, exit_code: int, failures_in_a_row: int, now: datetime
    ) -> NextStart | None:
        """
        Return the next start after a process has ended; None if the run is over.

        Args:
            exit_code: That of the process; negative if a signal killed it.
            failures_in_a_row: The number of failures up to this one.
        """
        policy = self.policy
        may_help = exit_code not in FINAL_EXITS
        if may_help and policy is not None and policy.allows(failures_in_a_row):
            delay_s = policy.delay_s(failures_in_a_row)
            return NextStart(now + timedelta(seconds=delay_s), Cause.FAILURE)
        if self.schedule is not None:
            return NextStart(self.schedule.next_after(now), Cause.SCHEDULE)
        return None

    def failures_after(
        self, exit_code: int, failures_in_a_row: int, ran_s: float
    ) -> int:
        """Return the number of failures in a row, after a process that ran *ran_s*."""
        if exit_code == EXIT_DONE:
            return 0
        was_long = self.reset_after_s > 0 and ran_s >= self.reset_after_s
        return 1 if was_long else failures_in_a_row + 1

    def skipped(self, started: datetime, ended: datetime) -> int:
        """Return how many scheduled times a process has missed while it ran."""
        if self.schedule is None:
            return 0
        return self.schedule.count_between(started, ended)
