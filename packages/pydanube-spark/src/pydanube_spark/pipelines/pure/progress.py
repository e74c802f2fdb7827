"""
The progress of a run's queries, from Spark's progress reports.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from math import isfinite
from typing import Any

import msgspec

from pydanube_spark.pipelines.expectations import METRICS
from pydanube_spark.pure.query_lag import lag, reached

COST_ROWS_MIN = 10_000
"""How many rows a run must have for the cost of a million."""


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
    lag_by_topic: dict[str, int] = {}
    has_reported: bool = False
    """Whether Spark has reported anything in this run."""
    positions: dict[str, int] = {}
    """The offsets that it has reached, by topic or partition."""
    duration_s: float | None = None
    """The duration of the last micro-batch."""
    broken: dict[str, int] = {}
    """The number of rows that broke each expectation in this run, by step and name."""
    batches: int = 0
    """The number of micro-batches of this run."""
    batch_seconds: float = 0.0
    """The time that they took together."""
    last_batch_time: int | None = None
    """When the last one was completed, in microseconds since 1970."""
    state_rows: int | None = None
    """The rows that aggregates, joins and other steps with a state keep."""
    state_memory_bytes: int | None = None
    failures: int = 0
    error: str | None = None
    """The last error."""
    last_error_time: int | None = None
    """When it occurred, in microseconds since 1970."""

    def on_reports(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """
        Update from Spark's reports; return whether a micro-batch was completed.

        Spark also reports when it was idle.
        """
        is_done = False
        for report in reports:
            self.has_reported = True
            self.rows += int(report.get("numInputRows") or 0)
            durations = report.get("durationMs") or {}
            unread = lag(report)
            if unread:
                self.lag = sum(unread.values())
                self.lag_by_topic = unread
            self.positions |= reached(report)
            self.input_rate = _rate(report.get("inputRowsPerSecond"))
            if "addBatch" in durations:
                self.batch = int(report["batchId"])
                self.processing_rate = _rate(report.get("processedRowsPerSecond"))
                self.duration_s = durations.get("triggerExecution", 0) / 1000
                self.batches += 1
                self.batch_seconds += self.duration_s
                self.last_batch_time = round((_time(report) + self.duration_s) * 1e6)
                self._take_state(report.get("stateOperators") or ())
                is_done = True
                for name, counts in (report.get("observedMetrics") or {}).items():
                    if name.startswith(METRICS):
                        self.add_broken(name.removeprefix(METRICS), counts.asDict())
        return is_done

    def add_broken(self, step: str, counts: Mapping[str, int | None]) -> None:
        """Add the numbers of rows that broke the expectations of *step*, by name."""
        for name, count in counts.items():
            key = f"{step}.{name}"
            self.broken[key] = self.broken.get(key, 0) + (count or 0)

    def _take_state(self, operators: Iterable[Mapping[str, Any]]) -> None:
        found = list(operators)
        if found:
            self.state_rows = sum(int(each["numRowsTotal"]) for each in found)
            self.state_memory_bytes = sum(
                int(each["memoryUsedBytes"]) for each in found
            )


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
    mark: str | None = None
    """The start time of the process, which distinguishes reused pids."""
    jvm: tuple[int, str] | None = None
    """The pid and the start time of Spark's process."""
    queries: list[QueryProgress] = []
    not_mirrored: list[str] = []
    """The sinks of tables of mirrors that an earlier run had, and this one has not."""
    tables_problem: str | None = None
    """Why the run goes on without other tables that its mirrors have now."""
    core_seconds: float | None = None
    """The time that Spark's tasks have taken in this run; None if unknown."""

    @property
    def rows(self) -> int:
        """The number of rows that its queries have read."""
        return sum(each.rows for each in self.queries)

    @property
    def core_seconds_per_million_rows(self) -> float | None:
        """
        The core seconds that a million rows took; None if unknown.

        For fewer than COST_ROWS_MIN rows it would mostly be the start of Spark.
        """
        if self.core_seconds is None or self.rows < COST_ROWS_MIN:
            return None
        return self.core_seconds * 1e6 / self.rows


def _time(report: Mapping[str, Any]) -> float:
    """Return when the micro-batch of *report* began, in seconds since 1970."""
    return datetime.fromisoformat(str(report["timestamp"])).timestamp()


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
