"""The broker's metrics in the formats of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pydanube.model.metrics import Metric, MetricKind, Sample, bound_series

_FAMILIES: dict[MetricKind, type[CounterMetricFamily | GaugeMetricFamily]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
}

# CPU, memory and open files, under the names that every Prometheus client uses.
_PROCESS = ProcessCollector(registry=None)


def expose(samples: Iterable[Sample], accept: str) -> tuple[bytes, str]:
    """Return the body of a scrape that accepts *accept*, and its content type."""
    registry = CollectorRegistry()
    registry.register(_Samples(samples))
    registry.register(_PROCESS)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Samples(Collector):
    """The samples of one scrape, which the registry collects once."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def describe(self) -> list[Family]:
        # Without this, registering would consume the samples to learn the names.
        return []

    def collect(self) -> Iterator[Family]:
        for metric, series in bound_series(self._samples).items():
            yield _family_of(metric, series)


def _family_of(metric: Metric, series: dict[tuple[str, ...], float]) -> Family:
    # A counter's family has no suffix, because the encoder adds it.
    name = metric.name.removesuffix("_total")
    # Prometheus accepts only a unit that is part of the name.
    unit = metric.unit if metric.unit and name.endswith(f"_{metric.unit}") else ""
    kind = _FAMILIES[metric.kind]
    family = kind(name, metric.help, labels=metric.labels, unit=unit)
    for labels, value in series.items():
        family.add_metric(labels, value)
    return family
