"""
The metrics of a run, from its record and its status.  Pure.

Counters of queries begin at 0 with each run, as Prometheus expects it of restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pydanube.model import pipeline_metrics as metrics
from pydanube.model.metrics import Metric, Sample
from pydanube_spark.pipelines.pure.progress import (
    QueryProgress,
    QueryState,
    RunState,
    RunStatus,
)
from pydanube_spark.pipelines.pure.run_records import RunRecord


def samples_of(record: RunRecord, status: RunStatus | None) -> Iterator[Sample]:
    """Yield the samples of a run whose process is running."""
    labels = (record.pipeline,)
    yield metrics.UP, labels, float(_is_up(status))
    yield metrics.RESTARTS, labels, record.restarts
    yield metrics.FAILED, labels, float(record.has_failed)
    if record.last_success is not None:
        at = datetime.fromisoformat(record.last_success)
        yield metrics.LAST_SUCCESS, labels, at.timestamp()
    if status is None:
        return
    yield metrics.NOT_MIRRORED, labels, len(status.not_mirrored)
    yield metrics.TABLES_WAIT, labels, float(status.tables_problem is not None)
    for query in status.queries:
        yield from _samples_of_query(query, record.pipeline)


def _is_up(status: RunStatus | None) -> bool:
    return status is not None and status.state in {RunState.RUNNING, RunState.STOPPING}


def _samples_of_query(query: QueryProgress, pipeline: str) -> Iterator[Sample]:
    labels = (pipeline, query.name)
    values: list[tuple[Metric, float | None]] = [
        (metrics.RUNNING, float(query.state is QueryState.RUNNING)),
        (metrics.ROWS, query.rows),
        (metrics.BATCHES, query.batches),
        (metrics.BATCH_SECONDS, query.batch_seconds),
        (metrics.LAST_BATCH_SECONDS, query.duration_s),
        (metrics.LAST_BATCH, _seconds(query.last_batch_time)),
        (metrics.STATE_ROWS, query.state_rows),
        (metrics.STATE_MEMORY, query.state_memory_bytes),
        (metrics.FAILURES, query.failures),
        (metrics.LAST_ERROR, _seconds(query.last_error_time)),
    ]
    for metric, value in values:
        if value is not None:
            yield metric, labels, value
    for topic, lag in query.lag_by_topic.items():
        yield metrics.LAG, (*labels, topic), lag
    for expectation, count in query.broken.items():
        yield metrics.BROKEN, (*labels, expectation), count


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6
