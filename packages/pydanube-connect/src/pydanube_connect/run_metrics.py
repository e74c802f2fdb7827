"""The metrics of connectors, from their status.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydanube.model import connector_metrics as metrics
from pydanube.model.metrics import Metric, Sample
from pydanube_connect.status import ConnectorStatus, State


def samples_of(statuses: Iterable[ConnectorStatus], now: int) -> Iterator[Sample]:
    """Yield the samples of connectors at *now*, in microseconds since 1970."""
    for status in statuses:
        labels = (status.connector, status.kind, status.topic)
        values: list[tuple[Metric, float | None]] = [
            (metrics.RUNNING, float(status.state is State.RUNNING)),
            (metrics.FAILED, float(status.state is State.FAILED)),
            (metrics.MESSAGES, status.messages),
            (metrics.BYTES, status.bytes),
            (metrics.BATCHES, status.batches),
            (metrics.DROPPED, status.dropped),
            (metrics.DEAD_LETTERS, status.dead_letters),
            (metrics.REFUSED, status.refused),
            (metrics.RETRIES, status.retries),
            (metrics.RETRYING, status.retrying_s(now)),
            (metrics.DEGRADED, float(status.is_degraded(now))),
            (metrics.LAG, status.lag),
            (
                metrics.LAST_BATCH,
                None
                if status.last_batch_time is None
                else status.last_batch_time / 1e6,
            ),
        ]
        for metric, value in values:
            if value is not None:
                yield metric, labels, value
