"""
How far the queries of a run are, from what Spark reports of them.

Everything here is a value: facts and the time go in, rows of a table come out.
"""

from __future__ import annotations

import json
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from pydanube.model.errors import BrokerError
from pydanube.reader import offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class QueryState(Enum):
    """What a query does."""

    WAITING = "waiting"
    """It has not begun."""
    RUNNING = "running"
    RETRYING = "retrying"
    """It failed, and will be started again."""
    DONE = "done"
    """It has written all that there was."""
    STOPPED = "stopped"
    """It was ended behind a micro-batch, and can go on."""
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (QueryState.DONE, QueryState.STOPPED, QueryState.FAILED)


class QueryProgress(msgspec.Struct, kw_only=True):
    """One query of a run, as it is shown and stored."""

    name: str
    writes_to: str
    state: QueryState = QueryState.WAITING
    batch: int | None = None
    """The last micro-batch that is done."""
    rows: int = 0
    """How many it has read in this run."""
    input_rate: float | None = None
    """Rows a second that arrive."""
    processing_rate: float | None = None
    """Rows a second that it could do."""
    lag: int | None = None
    """How many messages wait in its topics; None if nobody knows."""
    duration_s: float | None = None
    """How long the last micro-batch took."""
    failures: int = 0
    error: str | None = None
    """Why it failed the last time."""

    def on_reports(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """
        Take in what Spark reports of micro-batches; whether one of them was done.

        Spark also reports now and then that there was nothing to do.
        """
        is_done = False
        for report in reports:
            self.rows += int(report.get("numInputRows") or 0)
            durations = report.get("durationMs") or {}
            lag = lag_of(report)
            if lag is not None:
                self.lag = lag
            self.input_rate = _rate(report.get("inputRowsPerSecond"))
            if "addBatch" in durations:
                self.batch = int(report["batchId"])
                self.processing_rate = _rate(report.get("processedRowsPerSecond"))
                self.duration_s = durations.get("triggerExecution", 0) / 1000
                is_done = True
        return is_done


class RunState(Enum):
    """What a run does."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    """It was asked to end, and waits for micro-batches to be done."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (RunState.DONE, RunState.STOPPED, RunState.FAILED)


class RunStatus(msgspec.Struct, kw_only=True):
    """A run, as ``danube pipeline status`` shows it."""

    pipeline: str
    file: str
    pid: int
    host: str
    since: str
    """When it began, in UTC."""
    updated: str
    state: RunState = RunState.STARTING
    error: str | None = None
    jvm: tuple[int, str] | None = None
    """The process of Spark, and what tells it from a later one of this number."""
    queries: list[QueryProgress] = []


def lag_of(report: Mapping[str, Any]) -> int | None:
    """How many messages wait in the topics that a micro-batch has read."""
    lag = None
    for source in report.get("sources") or ():
        found = _lag_of_source(source)
        if found is not None:
            lag = (lag or 0) + found
    return lag


def _lag_of_source(source: Mapping[str, Any]) -> int | None:
    latest, end = (_positions(source.get(key)) for key in ("latestOffset", "endOffset"))
    if latest is None or end is None:
        return None
    lag = 0
    for topic, position in latest.items():
        done = end.get(topic)
        is_same = done is not None and done.topic_id == position.topic_id
        read = done.offset if done is not None and is_same else 0
        lag += max(position.offset - read, 0)
    return lag


def _positions(value: object) -> offsets.Positions | None:
    """*value* as positions in topics, or None if the source is another one."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
        return offsets.from_json(found) if isinstance(found, dict) else None
    except (BrokerError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _rate(value: object) -> float | None:
    """Spark says NaN or infinity where nothing can be said."""
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


def unseen(
    reports: Iterable[Mapping[str, Any]], last: tuple[str, int, str] | None
) -> list[Mapping[str, Any]]:
    """Those of *reports*, in order, behind the one with the key *last*."""
    found = list(reports)
    for at, report in enumerate(found):
        if key_of(report) == last:
            return found[at + 1 :]
    return found


def key_of(report: Mapping[str, Any]) -> tuple[str, int, str]:
    """What tells a report from the others of its query."""
    return str(report["runId"]), int(report["batchId"]), str(report["timestamp"])
