"""Tests of the chart."""

import pytest

from examples.demo.chart import POINTS_MAX, draw, publishing_rate
from examples.demo.publishing import Sent


def test_publishing_rate_is_of_groups_with_all_messages():
    sent = [Sent(10, 0.5)] * 3 * POINTS_MAX
    rates = publishing_rate([*sent, Sent(2, 4.0)])
    assert len(rates) <= POINTS_MAX
    assert rates[0] == (2.0, 20.0)
    assert rates[-1][0] == 1.5 * POINTS_MAX + 4
    assert publishing_rate([Sent(3, 2.0)]) == [(2.0, 1.5)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batches", "lag"), [([(7, 0.5)], [(0.0, {"q": 5}), (1.0, {"q": 0})]), ([], [])]
)
def test_chart_is_a_png_even_without_queries(tmp_path, batches, lag):
    path = tmp_path / "chart.png"
    sent = {"lines": [Sent(5000, 0.004)], "counters": [Sent(90, 0.0006)]}
    draw(path, sent=sent, batches=batches, lag=lag, headline="x")
    assert path.read_bytes().startswith(b"\x89PNG")
