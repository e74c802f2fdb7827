"""The parsing of options."""

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_spark.reader.pure.option_parsing import (
    Option,
    option_problems,
    parse_options,
)

DECLARED = (
    Option("table", "", "Where to.", is_required=True),
    Option("batchRows", "10", "How many."),
    Option("header.*", "", "A header."),
)


def given(**options):
    return parse_options({"table": "t"} | options, DECLARED)


def test_names_are_taken_in_any_case():
    assert given(BATCHROWS=" 5 ").count("batchRows", 10) == 5
    assert given().count("batchRows", 10) == 10


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(InvalidConfig, match="'batchrow'; did you mean 'batchRows'"):
        given(batchrow="5")
    with pytest.raises(InvalidConfig, match=r"unknown option 'header\.'"):
        given(**{"header.": "x"})


def test_a_required_option_must_be_there():
    for options in ({}, {"table": "  "}):
        with pytest.raises(InvalidConfig, match="'table' is required"):
            parse_options(options, DECLARED)


def test_different_values_for_one_option_are_refused_and_not_shown():
    with pytest.raises(InvalidConfig, match="given twice") as refused:
        parse_options({"table": "sesame", "TABLE": "open"}, DECLARED)
    assert "sesame" not in str(refused.value)


def test_a_family_is_taken_as_a_whole():
    found = given(**{"header.X-A": "1", "HEADER.x-b": "2"})
    assert found.family("header.") == {"x-a": "1", "x-b": "2"}


@pytest.mark.parametrize("text", ["", "-1", "0", "x", "1.5"])
def test_a_count_is_a_number_from_the_smallest_up(text):
    with pytest.raises(InvalidConfig, match="batchRows: must be a number from 1 up"):
        given(batchRows=text).count("batchRows", 10)


@pytest.mark.parametrize("text", ["", "-1", "0", "x", "nan", "inf"])
def test_a_time_is_above_zero(text):
    with pytest.raises(InvalidConfig, match="seconds above zero"):
        given(batchRows=text).seconds("batchRows", 1)


def test_a_choice_has_a_suggestion():
    assert given(batchRows="NDJSON").choice(
        "batchRows", ("json", "ndjson"), "json"
    ) == ("ndjson")
    with pytest.raises(InvalidConfig, match="did you mean 'ndjson'"):
        given(batchRows="nd-json").choice("batchRows", ("ndjson", "arrow"), "arrow")


def test_names_keep_their_order_and_are_unique():
    assert given(batchRows=" b, a ,,").names("batchRows") == ("b", "a")
    with pytest.raises(InvalidConfig, match="twice"):
        given(batchRows="a,a").names("batchRows")


def test_boolean_is_true_or_false():
    assert given(batchRows="TRUE").boolean("batchRows")
    with pytest.raises(InvalidConfig, match="must be true or false"):
        given(batchRows="yes").boolean("batchRows")


def test_each_wrong_option_is_reported_and_nothing_that_follows_from_it():
    def parse(options):
        given = parse_options(options, [Option("a", "", ""), Option("b", "", "")])
        given.count("a", 1)
        given.count("B", 1)
        if "b" not in given:
            raise InvalidConfig("something is missing")

    assert option_problems(parse, {"a": "1", "B": "2"}) == []
    assert option_problems(parse, {"A": "x", "b": "y"}) == [
        "a: must be a number from 1 up, not 'x'",
        "B: must be a number from 1 up, not 'y'",
    ]
    assert option_problems(parse, {"a": "1"}) == ["something is missing"]
