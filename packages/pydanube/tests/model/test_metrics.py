"""Conventions of metrics, and the bound on their series."""

from __future__ import annotations

import re

import pytest

from pydanube.model.histograms import Histogram
from pydanube.model.metrics import (
    BACKLOG,
    LAG_SECONDS,
    METRICS,
    OTHER,
    PUBLISH_SECONDS,
    TOPIC_MESSAGES_IN,
    Metric,
    MetricKind,
    bound_series,
)


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_declaration_follows_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"danube_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.help.endswith(".")
    if metric.unit in {"bytes", "seconds"}:
        assert metric.name.removesuffix("_total").endswith(f"_{metric.unit}")


def test_few_series_stay_as_they_are() -> None:
    samples = [(TOPIC_MESSAGES_IN, (name,), 1.0) for name in "abc"]
    assert bound_series(samples) == {
        TOPIC_MESSAGES_IN: {("a",): 1.0, ("b",): 1.0, ("c",): 1.0}
    }


def test_series_beyond_the_bound_are_added_up() -> None:
    samples = [(BACKLOG, (f"t{at}", "s"), at) for at in range(5)]
    assert bound_series(samples, series_max=2) == {
        BACKLOG: {("t0", "s"): 0, ("t1", "s"): 1, (OTHER, OTHER): 2 + 3 + 4}
    }


def test_lags_beyond_the_bound_are_represented_by_their_maximum() -> None:
    samples = [(LAG_SECONDS, (f"t{at}", "s"), at) for at in (7.0, 5.0, 9.0, 2.0)]
    assert bound_series(samples, series_max=1) == {
        LAG_SECONDS: {("t7.0", "s"): 7.0, (OTHER, OTHER): 9.0}
    }


def test_histograms_of_equal_labels_are_added_up() -> None:
    one, other = Histogram(), Histogram()
    one.observe(1.0)
    other.observe(2.0, 3)
    samples = [(PUBLISH_SECONDS, (), one), (PUBLISH_SECONDS, (), other)]
    both = bound_series(samples)[PUBLISH_SECONDS][()]
    assert isinstance(both, Histogram)
    assert (both.count, both.total_s) == (4, 7.0)


def test_each_metric_has_its_own_bound() -> None:
    samples = [(TOPIC_MESSAGES_IN, ("a",), 1), (BACKLOG, ("a", "s"), 1)]
    assert len(bound_series(samples, series_max=1)) == 2


def test_equal_labels_are_added_up() -> None:
    samples = [(TOPIC_MESSAGES_IN, ("a",), 1), (TOPIC_MESSAGES_IN, ("a",), 2)]
    assert bound_series(samples) == {TOPIC_MESSAGES_IN: {("a",): 3}}
