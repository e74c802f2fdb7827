"""Charts show numbers."""

import re

import pytest

from pydanube_console.pure.charts import Line, chart, short_age, short_number, sparkline
from pydanube_console.pure.history import POINTS_MAX


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.2"),
        (9.4, "9.4"),
        (47.3, "47"),
        (999.4, "999"),
        (1500, "1.5 k"),
        (561_000, "561 k"),
        (2_000_000, "2 M"),
        (3.2e15, "3200 T"),
    ],
)
def test_numbers_are_short(value, text):
    assert short_number(value) == text


def test_last_value_is_at_the_right():
    shown = chart("Rates", [Line("published", [0.0, 5.0, 10.0])], interval_s=2.0)
    points = re.findall(r'points="([^"]*)"', shown)[0].split()
    assert len(points) == 3
    assert points[-1] == "640.0,12.0"
    assert "Rates: published 10" in shown
    assert f"{int(2 * POINTS_MAX / 60)}m" in shown


def test_unknown_values_are_gaps():
    shown = chart("Lag", [Line("messages", [1, 2, None, 3])], interval_s=300, count=7)
    first, last = re.findall(r'points="([^"]*)"', shown)
    # A point alone is drawn, too.
    assert (len(first.split()), len(last.split())) == (2, 2)
    assert last.endswith("640.0,69.6")
    assert ">35m ago<" in shown


def test_chart_without_values_says_so():
    shown = chart("Lag", [Line("messages", [])], interval_s=2.0)
    assert "no values yet" in shown


def test_chart_of_ages_has_units():
    shown = chart("Age", [Line("waits", [0, 7200])], interval_s=2.0, show=short_age)
    assert "Age: waits 2h" in shown
    assert ">2h 46m<" in shown
    assert short_age(1.25) == "1.2s"
    assert short_age(0) == "0s"


def test_sparkline_has_a_label():
    assert 'aria-label="now 3"' in sparkline([1, 2, 3], label="now 3")
