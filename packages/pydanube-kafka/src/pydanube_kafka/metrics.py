"""The metrics of the listener for Kafka clients."""

from __future__ import annotations

from pydanube.model.metrics import Declarations, Metric

KAFKA_METRICS: list[Metric] = []
"""Every metric, in the order of declaration."""

_declare = Declarations(KAFKA_METRICS)
_counter, _gauge = _declare.counter, _declare.gauge

TRANSACTIONS_OPEN = _gauge(
    "danube_kafka_transactions_open",
    "transactions",
    "Open transactions of Kafka clients that this broker coordinates.",
)
TRANSACTIONS_OLDEST = _gauge(
    "danube_kafka_transactions_oldest_seconds",
    "seconds",
    "The age of the oldest of them.",
)
TRANSACTIONS_TIMED_OUT = _counter(
    "danube_kafka_transactions_timed_out_total",
    "transactions",
    "Transactions that were aborted because they took longer than their timeout.",
)
