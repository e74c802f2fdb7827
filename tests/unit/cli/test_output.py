"""Answers are readable for people and parsable for machines."""

import json
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from pydanube.cli.output import (
    print_fields,
    print_json,
    print_table,
    printable,
    to_json_value,
)
from pydanube.model.descriptions import SubscriptionDescription
from pydanube.model.policy import SubscriptionType

DESCRIPTION = SubscriptionDescription(
    subscription="billing",
    type=SubscriptionType.SHARED,
    cursor=7,
    done=((9, 12), (20, 21)),
    backlog=3,
    in_flight=1,
    consumers=("one", "two"),
)


def test_a_description_in_json_has_its_fields(capsys):
    print_json(DESCRIPTION)
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {each.name for each in fields(DESCRIPTION)}
    assert said["type"] == "shared"
    assert said["done"] == [[9, 12], [20, 21]]
    assert said["consumers"] == ["one", "two"]
    assert said["settings"]["failure_policy"] is None


def test_a_value_inside_a_mapping_becomes_plain_too():
    assert to_json_value({1: SubscriptionType.SHARED}) == {"1": "shared"}


def test_json_keeps_what_people_write(capsys):
    print_json({"name": "Bestellungen für Łódź"})
    assert "für Łódź" in capsys.readouterr().out


def test_a_table_is_not_cut_where_nobody_looks(capsys):
    print_table(("Topic", "Messages"), [("/default/" + "x" * 250, 1_000_000)])
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["Topic", "Messages"]
    assert row.split() == ["/default/" + "x" * 250, "1,000,000"]


def test_numbers_stand_at_the_right_and_words_at_the_left(capsys):
    print_table(("Name", "Count"), [("a", 1), ("bcdef", 1000)])
    *_, one, other = capsys.readouterr().out.splitlines()
    assert len(one) == len(other)
    assert one.endswith("    1")


def test_an_offset_is_a_number_without_commas(capsys):
    print_table(("Offset", "Count"), [("1000", "1,000.5"), ("7", 7)])
    *_, one, other = capsys.readouterr().out.splitlines()
    assert one.split() == ["1000", "1,000.5"]
    assert other.split() == ["7", "7"]
    assert other.startswith(" ")


def test_a_table_without_rows_has_its_head(capsys):
    print_table(("Topic", "Messages"), [])
    assert "Topic" in capsys.readouterr().out


def test_facts_are_one_a_line(capsys):
    print_fields([("Topic", "/default/a"), ("Producers", ""), ("Sealed", True)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["Topic", "/default/a"],
        ["Producers", "\u2013"],
        ["Sealed", "yes"],
    ]


def test_markup_in_a_name_is_text(capsys):
    print_fields([("Reason", "[red]no[/red] :smile:")])
    assert "[red]no[/red] :smile:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Łódź 北京", "Łódź 北京"),
        ("a\tb", "a\tb"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb", r"a\nb"),
        ("\udcff", r"\udcff"),
        ("\u202e", r"\u202e"),
    ],
)
def test_nothing_that_is_shown_can_do_things_to_a_terminal(text, shown):
    assert printable(text) == shown


def test_other_values_are_shown_as_text(capsys):
    print_fields([("At", datetime(2024, 1, 2, tzinfo=UTC))])
    assert "2024-01-02" in capsys.readouterr().out
