"""
The metrics of connectors, which the process that runs them serves.

They are declared as those of the broker in ``metrics``.
"""

from __future__ import annotations

from pydanube.model.metrics import Declarations, Metric

CONNECTOR_METRICS: list[Metric] = []
"""Every metric, in the order of declaration."""

_declare = Declarations(CONNECTOR_METRICS, "connector", "kind", "topic")
_counter, _gauge = _declare.counter, _declare.gauge

RUNNING = _gauge(
    "danube_connector_running", "", "1 while the connector runs, otherwise 0."
)
FAILED = _gauge(
    "danube_connector_failed",
    "",
    "1 if the connector has failed for good, otherwise 0.",
)
MESSAGES = _counter(
    "danube_connector_messages_total",
    "messages",
    "Messages that a source has published, or a sink has written.",
)
BYTES = _counter("danube_connector_bytes_total", "bytes", "The size of their payloads.")
BATCHES = _counter(
    "danube_connector_batches_total",
    "batches",
    "Batches that were published or written.",
)
DROPPED = _counter(
    "danube_connector_dropped_total",
    "records",
    "Records that the transform of a source has dropped.",
)
DEAD_LETTERS = _counter(
    "danube_connector_dead_letters_total",
    "messages",
    "Messages that could not be published or written, and went to the dead letters.",
)
REFUSED = _counter(
    "danube_connector_refused_total",
    "records",
    "Records that a source has refused, such as requests.",
)
RETRIES = _counter(
    "danube_connector_retries_total",
    "retries",
    "Attempts after a failure that may pass.",
)
RETRYING = _gauge(
    "danube_connector_retrying_seconds",
    "seconds",
    "For how long the connector has failed again and again; 0 if it does not.",
)
DEGRADED = _gauge(
    "danube_connector_degraded",
    "",
    "1 if the connector has retried for longer than its unhealthy_after, otherwise 0.",
)
LAG = _gauge(
    "danube_connector_lag_messages",
    "messages",
    "Messages that wait in the source, or in the topic of a sink; absent if their "
    "number is unknown.",
)
LAST_BATCH = _gauge(
    "danube_connector_last_batch_timestamp_seconds",
    "seconds",
    "When the last batch was published or written, since 1970.",
)
