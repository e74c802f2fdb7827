"""Tests of percentiles and spreads."""

import pytest

from bench.figures import Spread, latency_figures


def test_percentiles_are_measured_values():
    figures = latency_figures([n * 1000 for n in range(1000, 0, -1)])

    assert figures == {"p50": 501, "p90": 901, "p99": 991, "p99.9": 1000, "max": 1000}


def test_one_latency_is_every_percentile():
    assert set(latency_figures([2500]).values()) == {2.5}


def test_no_latencies_have_no_percentiles():
    assert latency_figures([]) == {}


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([3.0, 1.0, 2.0], Spread(2.0, 1.0, 3.0)),
        ([4.0, 1.0, 3.0, 2.0], Spread(2.5, 1.0, 4.0)),
        ([5.0], Spread(5.0, 5.0, 5.0)),
    ],
)
def test_spread_is_median_minimum_and_maximum(values, spread):
    assert Spread.of(values) == spread


def test_no_values_have_no_spread():
    assert Spread.of([]) is None
