"""The values of the metrics of the listener for Kafka clients."""

from __future__ import annotations

from collections.abc import Iterable

from pydanube.model.metrics import Sample
from pydanube_kafka import metrics
from pydanube_kafka.server import KafkaServer


async def of_kafka(server: KafkaServer) -> Iterable[Sample]:
    """Return the current values."""
    transactions = server.transactions
    groups = server.groups.counts()
    return [
        *(
            (metric, (protocol,), value)
            for protocol, counts in groups.items()
            for metric, value in (
                (metrics.GROUPS, counts.groups),
                (metrics.GROUP_MEMBERS, counts.members),
                (metrics.GROUP_REBALANCES, counts.rebalances),
            )
        ),
        (metrics.TRANSACTIONS_OPEN, (), transactions.open_count),
        (metrics.TRANSACTIONS_OLDEST, (), transactions.oldest_s),
        (metrics.TRANSACTIONS_TIMED_OUT, (), transactions.timed_out_count),
    ]
