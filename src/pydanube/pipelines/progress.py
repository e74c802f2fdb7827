"""
The progress of a run's queries, from Spark's progress reports.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from math import isfinite
from typing import Any

import msgspec

from pydanube.spark.query_lag import lag


class _State(Enum):
    @property
    def is_over(self) -> bool:
        return self.value in ("done", "stopped", "failed")


class QueryState(_State):
    """The state of a query."""

    WAITING = "waiting"
    """It has not started."""
    RUNNING = "running"
    RETRYING = "retrying"
    """It failed and will be restarted."""
    DONE = "done"
    """It has processed all available data."""
    STOPPED = "stopped"
    """It ended after a micro-batch and can continue in the next run."""
    FAILED = "failed"


class QueryProgress(msgspec.Struct, kw_only=True):
    """The progress of one query of a run."""

    name: str
    writes_to: str
    state: QueryState = QueryState.WAITING
    batch: int | None = None
    """The last completed micro-batch."""
    rows: int = 0
    """The number of rows read in this run."""
    input_rate: float | None = None
    """Rows per second that arrive."""
    processing_rate: float | None = None
    """Rows per second that the query can process."""
    lag: int | None = None
    """The number of unread messages in its topics; None if unknown."""
    duration_s: float | None = None
    """The duration of the last micro-batch."""
    failures: int = 0
    error: str | None = None
    """The last error."""

    def on_reports(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """
        Update from Spark's reports; return whether a micro-batch was completed.

        Spark also reports when it was idle.
        """
        is_done = False
        for report in reports:
            self.rows += int(report.get("numInputRows") or 0)
            durations = report.get("durationMs") or {}
            unread = lag(report)
            if unread:
                self.lag = sum(unread.values())
            self.input_rate = _rate(report.get("inputRowsPerSecond"))
            if "addBatch" in durations:
                self.batch = int(report["batchId"])
                self.processing_rate = _rate(report.get("processedRowsPerSecond"))
                self.duration_s = durations.get("triggerExecution", 0) / 1000
                is_done = True
        return is_done


class RunState(_State):
    """The state of a run."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    """It finishes its micro-batches and then stops."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class RunStatus(msgspec.Struct, kw_only=True):
    """The status of a run, as ``danube pipeline status`` shows it."""

    pipeline: str
    file: str
    pid: int
    host: str
    since: str
    """The start time in UTC."""
    updated: str
    state: RunState = RunState.STARTING
    error: str | None = None
    jvm: tuple[int, str] | None = None
    """The pid and the start time of Spark's process."""
    queries: list[QueryProgress] = []


def _rate(value: object) -> float | None:
    """Return a rate of Spark's report, where NaN and infinity mean unknown."""
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


def unseen(
    reports: Iterable[Mapping[str, Any]], last: tuple[str, int, str] | None
) -> list[Mapping[str, Any]]:
    """Return those of *reports*, in order, after the one with the key *last*."""
    found = list(reports)
    for at, report in enumerate(found):
        if key_of(report) == last:
            return found[at + 1 :]
    return found


def key_of(report: Mapping[str, Any]) -> tuple[str, int, str]:
    """Return the identity of a report among those of its query."""
    return str(report["runId"]), int(report["batchId"]), str(report["timestamp"])
