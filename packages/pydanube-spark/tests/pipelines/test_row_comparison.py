"""Tests of the comparison of rows."""

import pytest

from pydanube_spark.pipelines.row_comparison import compare, is_same


def test_rows_are_the_same_in_any_order_and_as_often():
    rows = [{"a": 1}, {"a": 2}, {"a": 1}]
    assert not compare(rows, [{"a": 2}, {"a": 1}, {"a": 1}], ["a"])
    found = compare(rows, [{"a": 2}, {"a": 2}, {"a": 1}], ["a"])
    assert (found.missing, found.unexpected) == ([{"a": 1}], [{"a": 2}])


def test_only_columns_that_expected_rows_name_are_compared():
    found = compare([{"a": 1}, {"b": 2}], [{"a": 1, "b": None, "c": 3}], "abc")
    assert found.columns == ["a", "b"]
    assert (found.missing, found.unexpected) == ([{"a": None, "b": 2}], [])


def test_all_columns_are_shown_if_no_row_is_expected():
    found = compare([], [{"a": 1, "b": 2}], ["a", "b"])
    assert found.unexpected == [{"a": 1, "b": 2}]
    assert not compare([], [], ["a"])


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (3, 3.0),
        ({"a": 1}, '{"a": 1}'),
        ({"a": 1}, {"a": 1, "b": None}),
        ([1, {"a": None}], [1, {}]),
        ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00.000+01:00"),
    ],
)
def test_values_that_mean_the_same_are_the_same(expected, actual):
    assert is_same(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (1, True),
        (1, "1"),
        (None, 0),
        ([1], [1, 2]),
        ({"a": 1}, "text"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00"),
        ("2026-01-01", "2026-01-01T00:00:00"),
    ],
)
def test_other_values_differ(expected, actual):
    assert not is_same(expected, actual)
