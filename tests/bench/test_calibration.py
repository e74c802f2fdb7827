"""Tests of the calibration of message counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.calibration import RUNS_MAX, Calibration


def calibrated(rate, *, overhead_s=0.0, **options):
    """The counts that are tried with a system of this rate, and the one found."""
    calibration = Calibration(5.0, **options)
    tried = []
    while (count := calibration.next_count()) is not None:
        tried.append(count)
        calibration.add(count, count / rate + overhead_s)
    return tried, calibration.count()


@pytest.mark.parametrize("rate", [50, 5_000, 4_000_000])
def test_run_takes_about_the_requested_time(rate):
    _, count = calibrated(rate)

    assert count / rate == pytest.approx(5.0, rel=0.01)


def test_slow_start_does_not_determine_the_rate():
    tried, count = calibrated(1_000_000, overhead_s=0.05)

    assert len(tried) > 1
    assert count / 1_000_000 == pytest.approx(5.0, rel=0.1)


def test_calibration_allows_warm_up():
    tried, _ = calibrated(100_000, warm_s=4.0)

    assert sum(tried) / 100_000 >= 4.0


def test_calibration_stops_at_the_maximum():
    tried, count = calibrated(1_000_000, most=50_000)

    assert max(tried) == count == 50_000


def test_calibration_respects_the_minimum():
    _, count = calibrated(10, first=1000, least=1000)

    assert count == 1000


@given(
    st.floats(1, 1e8), st.floats(0, 2), st.integers(1, 10_000), st.integers(1, 10**9)
)
def test_calibration_ends_within_its_bounds(rate, overhead_s, first, most):
    tried, count = calibrated(rate, overhead_s=overhead_s, first=first, most=most)

    assert len(tried) <= RUNS_MAX
    assert all(1 <= each <= most for each in [*tried, count])
