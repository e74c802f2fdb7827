"""Tests of sustained runs."""

import pytest

from bench.sustained import Sample, Sustained


def sustained(*rates, short=100.0):
    run = Sustained("a/x", "as it is", 100, short_per_s=short)
    run.samples = [Sample(10.0 * n, rate, 50.0) for n, rate in enumerate(rates, 1)]
    return run


def test_last_part_is_compared_with_the_short_run():
    run = sustained(100, 100, 100, 100, 100, 100, 100, 90, 80, 70)

    assert run.last_per_s == pytest.approx(80)
    assert run.ratio == pytest.approx(0.8)
    assert run.as_dict()["ratio"] == run.ratio


def test_single_sample_is_the_last_part():
    assert sustained(70).ratio == pytest.approx(0.7)


def test_no_samples_have_no_ratio():
    assert sustained(short=0.0).ratio == 0
    assert sustained().last_per_s == 0
