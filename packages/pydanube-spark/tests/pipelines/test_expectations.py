"""Tests of the SQL of expectations; tests/e2e runs it on Spark."""

from pydanube_spark.pipelines.expectations import (
    check_or_fail,
    counts_of,
    kept_rows,
    quarantine_expressions,
    quarantined_rows,
)
from pydanube_spark.pipelines.pure.spec import Action, Expectation

DROP = Expectation(condition="a > 0 -- positive", action=Action.DROP)
KEEP_ASIDE = Expectation(condition="b", action=Action.QUARANTINE)
FAIL = Expectation(condition="c", action=Action.FAIL)
ALL = {"drop": DROP, "aside": KEEP_ASIDE, "fail": FAIL}


def test_null_breaks_a_condition_and_comments_end_with_it():
    assert counts_of({"drop": DROP}) == {
        "drop": "count_if((NOT coalesce((a > 0 -- positive\n), false)))"
    }


def test_rows_that_must_not_occur_are_not_removed():
    assert kept_rows({"fail": FAIL}) == ""
    assert kept_rows(ALL).count("NOT coalesce") == 2
    assert quarantined_rows(ALL) == "(NOT coalesce((b\n), false))"


def test_only_rows_that_must_not_occur_fail_a_query():
    assert check_or_fail("s", {"drop": DROP}, ["a"]) is None
    found = check_or_fail("s", ALL, ["a", "o`o"])
    assert found.count("raise_error") == 1
    assert "the expectation fail of the step s is broken by the row " in found
    assert "struct(`a`, `o``o`)" in found


def test_quarantined_message_has_the_fields_of_the_row():
    value, attributes = quarantine_expressions(ALL, ["a", "b"], for_topic=True)
    assert value == "struct(`a`, `b`) AS value"
    assert attributes.startswith("map('x-broken-expectation', concat_ws(")


def test_quarantined_message_keeps_its_payload_and_attributes():
    columns = ["payload", "attributes"]
    payload, attributes = quarantine_expressions(ALL, columns, for_topic=True)
    assert payload == "`payload`"
    assert attributes.startswith("map_concat(map_filter(coalesce(attributes, map())")


def test_quarantined_row_of_a_table_has_one_more_column():
    whole, names = quarantine_expressions(ALL, ["a"], for_topic=False)
    assert (whole, names.rpartition(" ")[2]) == ("*", "_expectation")
