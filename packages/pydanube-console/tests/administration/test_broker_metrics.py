"""Metrics from the HTTP port of a broker."""

from __future__ import annotations

import pytest

from pydanube_console.administration.broker_metrics import http_url_of, select_metrics


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("danube://one:6651,two", "http://one:8080"),
        ("danubes://one?ca_file=ca.pem", "https://one:8080"),
        ("danube://[::1]:1", "http://[::1]:8080"),
    ],
)
def test_the_http_port_is_that_of_the_first_broker(url, expected):
    assert http_url_of(url) == expected


def test_samples_are_selected_by_name_and_label():
    lines = ["# HELP a_total About x", 'a_total{topic="x"} 1', "b 2"]
    assert select_metrics(lines, "x") == ['a_total{topic="x"} 1']
    assert select_metrics(lines, "") == lines[1:]
