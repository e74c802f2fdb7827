"""Percentiles, and medians with their spread."""

import pytest

from bench.figures import Spread, latency_figures


def test_percentiles_are_values_that_were_measured():
    figures = latency_figures([n * 1000 for n in range(1000, 0, -1)])

    assert figures == {"p50": 501, "p90": 901, "p99": 991, "p99.9": 1000, "max": 1000}


def test_one_latency_is_all_of_them():
    assert set(latency_figures([2500]).values()) == {2.5}


def test_of_no_latencies_there_are_no_figures():
    assert latency_figures([]) == {}


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([3.0, 1.0, 2.0], Spread(2.0, 1.0, 3.0)),
        ([4.0, 1.0, 3.0, 2.0], Spread(2.5, 1.0, 4.0)),
        ([5.0], Spread(5.0, 5.0, 5.0)),
    ],
)
def test_a_spread_is_the_median_with_lowest_and_highest(values, spread):
    assert Spread.of(values) == spread


def test_nothing_has_no_spread():
    assert Spread.of([]) is None
