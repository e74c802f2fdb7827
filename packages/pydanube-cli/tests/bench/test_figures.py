"""Tests of percentiles and rates."""

from pydanube_cli.bench.figures import FIGURES, headline, latency_figures, rate_figures


def test_percentiles_are_measured_values():
    figures = latency_figures([n * 1000 for n in range(1, 1001)])

    assert figures == {
        "p50_us": 501,
        "p90_us": 901,
        "p99_us": 991,
        "p999_us": 1000,
        "max_us": 1000,
    }


def test_one_latency_is_every_percentile():
    assert set(latency_figures([2500]).values()) == {2.5}


def test_no_latencies_have_no_percentiles():
    assert latency_figures([]) == {}


def test_every_figure_has_a_title():
    assert FIGURES.keys() >= rate_figures(1, 1, 1.0).keys() | latency_figures([1])


def test_rates_are_messages_and_megabytes_in_a_second():
    assert rate_figures(3_000_000, 100, 2.0) == {
        "per_second": 1_500_000,
        "mb_per_second": 150,
    }


def test_headline_is_a_rate_or_two_percentiles():
    figures = {"per_second": 2_345_678.0, "p50_us": 412.0, "p99_us": 1610.0}

    assert headline(figures, shows_latency=False) == "2,345,678 messages/s"
    assert headline(figures, shows_latency=True) == "p50 412 µs, p99 1,610 µs"
