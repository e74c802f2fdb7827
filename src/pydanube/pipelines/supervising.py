"""
A run that starts the process of a pipeline again: after failures, and on a schedule.

``restarts`` decides; this file starts processes, waits for them, and keeps the record.
The process of the run itself needs neither Spark nor Java.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from pydanube.pipelines.log_files import rotate
from pydanube.pipelines.restarts import EXIT_DONE, Cause, NextStart, RestartRules
from pydanube.pipelines.run_records import Phase, RunRecord
from pydanube.pipelines.state import StateDirectory
from pydanube.pipelines.stop_requests import StopRequest

POLL_INTERVAL_S = 0.2
SIGNAL_EXIT = 128
"""Added to the number of the signal that ended a run."""


class Process(Protocol):
    """A started process, such as ``subprocess.Popen``."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""

    def kill(self) -> None:
        """End it at once."""


class Supervisor:
    """A run of several processes, one after another."""

    def __init__(
        self,
        state: StateDirectory,
        record: RunRecord,
        rules: RestartRules,
        start: Callable[[], Process],
        *,
        stop_request: StopRequest,
        say: Callable[[str], None],
        clock: Callable[[], datetime] | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare the run; the caller holds the lock of the run."""
        self._state = state
        self._record = record
        self._rules = rules
        self._start = start
        self._stop_request = stop_request
        self._say = say
        self._clock = clock or utc_now
        self._wait = wait

    def run(self) -> int:
        """Start processes until none is due or the run is stopped; the exit code."""
        record, code = self._record, EXIT_DONE
        following: NextStart | None = self._rules.first(self._clock())
        while following is not None:
            if not self._wait_until(following):
                code = EXIT_DONE
                break
            code = self._run_process(following.cause)
            if self._is_stopping():
                break
            following = self._rules.after(code, record.failures_in_a_row, self._clock())
        if self._stop_request.number is not None:
            code = SIGNAL_EXIT + self._stop_request.number
        return code

    def _wait_until(self, following: NextStart) -> bool:
        """Return whether the time of *following* has come; False: the run stops."""
        record = self._record
        if following.cause is not Cause.FIRST:
            is_restart = following.cause is Cause.FAILURE
            record.phase = Phase.RESTARTING if is_restart else Phase.SCHEDULED
            record.next_start = iso(following.at)
            self._save()
            what = "restarts" if is_restart else "the next run starts"
            self._say(f"{record.pipeline}: {what} at {record.next_start}")
        while self._clock() < following.at:
            if self._is_stopping():
                return False
            self._wait(POLL_INTERVAL_S)
        return not self._is_stopping()

    def _run_process(self, cause: Cause) -> int:
        """Run a process to its end, and return its exit code."""
        record, began = self._record, self._clock()
        record.phase, record.next_start = Phase.RUNNING, None
        record.starts += 1
        record.restarts += cause is Cause.FAILURE
        self._save()
        process = self._start()
        self._say(f"{record.pipeline}: started process {process.pid}")
        try:
            code = self._wait_for(process)
        except BaseException:
            process.kill()
            raise
        ended = self._clock()
        record.exit_code = code
        if code == EXIT_DONE:
            record.last_success = iso(ended)
        record.failures_in_a_row = self._rules.failures_after(
            code, record.failures_in_a_row, (ended - began).total_seconds()
        )
        skipped = self._rules.skipped(began, ended)
        record.skipped += skipped
        self._save()
        self._say(f"{record.pipeline}: process {process.pid} {_end_of(code)}")
        if skipped:
            self._say(
                f"{record.pipeline}: skipped {skipped} times of the schedule, because "
                "the process was still running"
            )
        return code

    def _wait_for(self, process: Process) -> int:
        signals = 0
        while (code := process.poll()) is None:
            count = self._stop_request.count
            if count > signals:
                signals = count
                if self._stop_request.is_immediate:
                    process.kill()
                else:
                    self._state.request_stop()
            rotate(self._state.run_log_file)
            self._wait(POLL_INTERVAL_S)
        return code

    def _is_stopping(self) -> bool:
        return self._stop_request.count > 0 or self._state.is_stop_requested()

    def _save(self) -> None:
        self._state.write_record(self._record)


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)


def iso(at: datetime) -> str:
    """Return *at* in UTC, to the second."""
    return at.astimezone(UTC).isoformat(timespec="seconds")


def _end_of(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"
