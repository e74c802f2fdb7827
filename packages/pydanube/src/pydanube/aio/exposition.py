"""Metrics in the formats of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from pydanube.aio.long_work import STEPS_MAX, LongWork
from pydanube.model.histograms import Histogram
from pydanube.model.metrics import (
    SERIES_MAX,
    BoundedSeries,
    Metric,
    MetricKind,
    Sample,
    Value,
    bound_series,
)

_FAMILIES: dict[
    MetricKind,
    type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily],
] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}

_Bucket = tuple[str, float] | tuple[str, float, Exemplar]

PART = 100
"""The number of series that are encoded before other tasks run."""

# CPU, memory and open files, under the names that every Prometheus client uses.
_PROCESS = ProcessCollector(registry=None)


async def expose(
    samples: Iterable[Sample], accept: str, series_max: int
) -> tuple[bytes, str]:
    """
    Return the body of a scrape that accepts *accept*, and its content type.

    Other tasks run in between.
    """
    work, bounded = LongWork(), BoundedSeries(series_max)
    for sample in samples:
        bounded.add(sample)
        await work.did()
    encode, content_type = choose_encoder(accept)
    encoder = _Encoder(encode)
    for family in _PROCESS.collect():
        encoder.add(family)
    for metric, series in bounded.series.items():
        await _encode(encoder, metric, series, work)
    return encoder.body(), content_type


def content_type_of(accept: str) -> str:
    """Return the type of the bodies for clients that accept *accept*."""
    return choose_encoder(accept)[1]


async def _encode(
    encoder: _Encoder,
    metric: Metric,
    series: dict[tuple[str, ...], Value],
    work: LongWork,
) -> None:
    """Add the series of *metric*, and let other tasks run in between."""
    left = iter(series.items())
    is_first = True
    while part := dict(islice(left, PART)):
        encoder.add(_family_of(metric, part), is_continued=not is_first)
        is_first = False
        # A line takes as long as some steps.
        await work.did(STEPS_MAX * len(part) // PART)


class _Encoder:
    """The body of a scrape, to which one family after the other is added."""

    def __init__(self, encode: Callable[[Collector], bytes]) -> None:
        self._encode = encode
        self._parts: list[bytes] = []
        self._end = encode(_Families([]))
        """The end of each body: nothing, or the mark of OpenMetrics."""

    def add(self, family: Family, *, is_continued: bool = False) -> None:
        """Add *family*; without its header if the family before is continued."""
        lines = self._encode(_Families([family])).removesuffix(self._end)
        while is_continued and lines.startswith(b"#"):
            lines = lines[lines.index(b"\n") + 1 :]
        self._parts.append(lines)

    def body(self) -> bytes:
        """Return the body."""
        return b"".join([*self._parts, self._end])


class _Families(Collector):
    """Families that exist already."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def registry_of(
    collect: Callable[[], Iterable[Sample]], series_max: int = SERIES_MAX
) -> CollectorRegistry:
    """Return a registry with the samples that *collect* returns for each scrape."""
    registry = CollectorRegistry()
    registry.register(_Samples(collect, series_max))
    registry.register(_PROCESS)
    return registry


class _Samples(Collector):
    """The samples that a function returns for each scrape."""

    def __init__(
        self, samples: Callable[[], Iterable[Sample]], series_max: int
    ) -> None:
        self._samples = samples
        self._series_max = series_max

    def describe(self) -> list[Family]:
        # Without this, registering would consume the samples to learn the names.
        return []

    def collect(self) -> Iterator[Family]:
        bounded = bound_series(self._samples(), series_max=self._series_max)
        for metric, series in bounded.items():
            yield _family_of(metric, series)


def _family_of(metric: Metric, series: dict[tuple[str, ...], Value]) -> Family:
    # A counter's family has no suffix, because the encoder adds it.
    name = metric.name.removesuffix("_total")
    # Prometheus accepts only a unit that is part of the name.
    unit = metric.unit if metric.unit and name.endswith(f"_{metric.unit}") else ""
    kind = _FAMILIES[metric.kind]
    family = kind(name, metric.help, labels=metric.labels, unit=unit)
    for labels, value in series.items():
        if isinstance(family, HistogramMetricFamily):
            assert isinstance(value, Histogram)
            family.add_metric(labels, _buckets_of(value), sum_value=value.total_s)
        else:
            assert not isinstance(value, Histogram)
            family.add_metric(labels, value)
    return family


def _buckets_of(histogram: Histogram) -> list[_Bucket]:
    buckets: list[_Bucket] = []
    for position, (bound, count) in enumerate(histogram.cumulative()):
        name = "+Inf" if bound == inf else f"{bound:g}"
        example = histogram.exemplars.get(position)
        if example is None:
            buckets.append((name, count))
        else:
            labels = {"trace_id": example.trace_id, "span_id": example.span_id}
            exemplar = Exemplar(labels, example.duration_s, example.time_s)
            buckets.append((name, count, exemplar))
    return buckets
