"""Tests of the number of tasks that a session runs at the same time."""

import pytest

from pydanube_spark.pure.parallelism import VARIABLE, parallelism_in, parallelism_of


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("1", 1), ("0", 1), ("", 1), ("many", 1), ("-4", 1), ("9" * 5000, 1)],
)
def test_environment_has_the_parallelism(text, number):
    assert parallelism_in({VARIABLE: text}) == number


def test_unknown_parallelism_is_one():
    assert parallelism_in({}) == 1


@pytest.mark.parametrize(
    ("settings", "default", "number"),
    [
        ({}, 4, 4),
        ({}, 0, 1),
        # Executors that have not started yet.
        ({"instances": "10", "cores": "4"}, 2, 40),
        ({"instances": "1", "cores": "1"}, 4, 4),
        ({"instances": "10"}, 2, 2),
        ({"instances": "10", "cores": "x"}, 2, 2),
    ],
)
def test_parallelism_counts_requested_executors(settings, default, number):
    given = {f"spark.executor.{name}": value for name, value in settings.items()}
    assert parallelism_of(given, default) == number


def test_setting_for_the_parallelism_takes_precedence():
    settings = {
        "spark.default.parallelism": "6",
        "spark.executor.instances": "10",
        "spark.executor.cores": "4",
    }
    assert parallelism_of(settings, 6) == 6
