"""Histograms: buckets, totals, sums."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.histograms import BOUNDS_S, Histogram

DURATIONS = st.lists(st.floats(min_value=0, max_value=1e6), max_size=20)


def test_bounds_increase() -> None:
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))


def test_a_duration_at_a_bound_is_in_the_bucket_below_it() -> None:
    histogram = Histogram()
    histogram.observe(BOUNDS_S[3])
    assert histogram.counts[3] == 1


def test_events_of_equal_duration_are_counted_together() -> None:
    histogram = Histogram()
    histogram.observe(2.0, 500)
    assert (histogram.count, histogram.total_s) == (500, 1000.0)


def test_a_clock_that_was_set_back_counts_as_no_time() -> None:
    histogram = Histogram()
    histogram.observe(-5.0, 3)
    assert (histogram.counts[0], histogram.total_s) == (3, 0.0)


@given(DURATIONS)
def test_each_bound_has_the_number_of_events_up_to_it(durations: list[float]) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.observe(duration)
    assert histogram.cumulative() == [
        (bound, sum(duration <= bound for duration in durations))
        for bound in (*BOUNDS_S, inf)
    ]


@given(DURATIONS, DURATIONS)
def test_a_sum_is_the_histogram_of_all_events(
    first: list[float], second: list[float]
) -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for duration in first:
        one.observe(duration)
        both.observe(duration)
    for duration in second:
        other.observe(duration)
        both.observe(duration)
    assert (one + other).counts == both.counts
    assert abs((one + other).total_s - both.total_s) <= 1e-9 * both.total_s
