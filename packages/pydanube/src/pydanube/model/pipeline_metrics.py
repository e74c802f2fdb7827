"""
The metrics of a run of a pipeline, which serves them itself.

They are declared as those of the broker in ``metrics``.
"""

from __future__ import annotations

from pydanube.model.metrics import Declarations, Metric

PIPELINE_METRICS: list[Metric] = []
"""Every metric, in the order of declaration."""

_declare = Declarations(PIPELINE_METRICS, "pipeline")
_counter, _gauge = _declare.counter, _declare.gauge

# The run.

UP = _gauge(
    "danube_pipeline_up",
    "",
    "1 while the pipeline runs; 0 while it starts.",
)
RESTARTS = _counter(
    "danube_pipeline_restarts_total",
    "restarts",
    "Runs that followed one that had failed or was killed.",
)
FAILED = _gauge(
    "danube_pipeline_last_run_failed",
    "",
    "1 if the last run that has ended failed or was killed, otherwise 0.",
)
LAST_SUCCESS = _gauge(
    "danube_pipeline_last_success_timestamp_seconds",
    "seconds",
    "When a run last ended successfully, since 1970.",
)
NOT_MIRRORED = _gauge(
    "danube_pipeline_tables_not_mirrored",
    "tables",
    "Tables of mirrors that an earlier run had, and this one has not.",
)
TABLES_WAIT = _gauge(
    "danube_pipeline_tables_waiting",
    "",
    "1 while mirrors have other tables with which the run cannot go on, otherwise 0.",
)

# The queries of the run.

RUNNING = _gauge(
    "danube_pipeline_query_running", "", "1 while the query runs, otherwise 0.", "query"
)
ROWS = _counter(
    "danube_pipeline_rows_total", "rows", "Rows that the query has read.", "query"
)
BATCHES = _counter(
    "danube_pipeline_batches_total",
    "batches",
    "Micro-batches that the query has completed.",
    "query",
)
BATCH_SECONDS = _counter(
    "danube_pipeline_batch_seconds_total",
    "seconds",
    "Time that these micro-batches took.",
    "query",
)
LAST_BATCH_SECONDS = _gauge(
    "danube_pipeline_last_batch_seconds",
    "seconds",
    "Time that the last micro-batch took.",
    "query",
)
LAST_BATCH = _gauge(
    "danube_pipeline_last_batch_timestamp_seconds",
    "seconds",
    "When the query last completed a micro-batch, since 1970.",
    "query",
)
LAG = _gauge(
    "danube_pipeline_lag_messages",
    "messages",
    "Messages of a topic or partition that the query had not read when its last "
    "micro-batch began.",
    "query",
    "topic",
)
BROKEN = _counter(
    "danube_pipeline_broken_rows_total",
    "rows",
    "Rows that broke an expectation of a step, as `step.expectation`.",
    "query",
    "expectation",
)
STATE_ROWS = _gauge(
    "danube_pipeline_state_rows",
    "rows",
    "Rows that aggregates, joins and other steps with a state keep.",
    "query",
)
STATE_MEMORY = _gauge(
    "danube_pipeline_state_memory_bytes", "bytes", "Memory of this state.", "query"
)
FAILURES = _counter(
    "danube_pipeline_query_failures_total",
    "failures",
    "Failures of the query, after which it is retried or the run ends.",
    "query",
)
LAST_ERROR = _gauge(
    "danube_pipeline_last_error_timestamp_seconds",
    "seconds",
    "When the query last failed, since 1970.",
    "query",
)
