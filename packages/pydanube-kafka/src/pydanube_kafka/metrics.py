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
GROUPS = _gauge(
    "danube_kafka_groups",
    "groups",
    "Groups with members that this broker coordinates, by protocol: classic, consumer.",
    "protocol",
)
GROUP_MEMBERS = _gauge(
    "danube_kafka_group_members",
    "members",
    "Members of these groups.",
    "protocol",
)
GROUP_REBALANCES = _counter(
    "danube_kafka_group_rebalances_total",
    "rebalances",
    "Times that the work of a group was divided.",
    "protocol",
)
