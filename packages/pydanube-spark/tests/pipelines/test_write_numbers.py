"""Tests of the numbers of batch writes."""

from pydanube_spark.pipelines.write_numbers import take_number


def test_each_number_is_taken_once(tmp_path):
    first, second = (take_number(tmp_path / "new", "orders") for _ in range(2))
    assert (first.app, first.number) == (second.app, 0)
    assert second.number == 1


def test_each_query_and_directory_has_an_application_of_its_own(tmp_path):
    found = [
        take_number(tmp_path / directory, query)
        for directory in "ab"
        for query in ("orders", "orders.dead_letters")
    ]
    assert {each.number for each in found} == {0}
    assert len({each.app for each in found}) == 4
