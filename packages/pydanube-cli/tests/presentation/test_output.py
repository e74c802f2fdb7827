"""Output is readable for people and parsable for programs."""

import json
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from pydanube.model.descriptions import SubscriptionDescription
from pydanube.model.json_values import to_json_value
from pydanube.model.policy import SubscriptionType
from pydanube.model.shown_text import printable
from pydanube_cli.presentation.output import Fields, Table, print_json
from support.fakes.topic_directory import segment

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


def test_times_in_json_are_iso_8601_and_numbers_of_users_stay():
    described = replace(DESCRIPTION, oldest_publish_time=1_700_000_000_125_000)
    [said] = to_json_value([described])
    assert said["oldest_publish_time"] == "2023-11-14T22:13:20.125000Z"
    assert to_json_value(DESCRIPTION)["oldest_publish_time"] is None
    assert to_json_value({"value": {"created_at": 5}}) == {"value": {"created_at": 5}}


def test_dataclass_in_a_mapping_becomes_json():
    assert to_json_value({1: SubscriptionType.SHARED}) == {"1": "shared"}


def test_bytes_in_json_are_base64(capsys):
    print_json(replace(segment(0, 1, 1, ""), part_checksums=b"a"))
    assert json.loads(capsys.readouterr().out)["part_checksums"] == "YQ=="


def test_json_keeps_non_ascii_text(capsys):
    print_json({"name": "Bestellungen für Łódź"})
    assert "für Łódź" in capsys.readouterr().out


def test_table_is_not_cut_without_a_terminal(capsys):
    Table(("Topic", "Messages"), [("/default/" + "x" * 250, 1_000_000)]).show()
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["Topic", "Messages"]
    assert row.split() == ["/default/" + "x" * 250, "1,000,000"]


def test_numbers_are_right_aligned_and_text_left_aligned(capsys):
    Table(("Name", "Count"), [("a", 1), ("bcdef", 1000)]).show()
    *_, one, other = capsys.readouterr().out.splitlines()
    assert len(one) == len(other)
    assert one.endswith("    1")


def test_an_offset_is_a_number_without_commas(capsys):
    Table(("Offset", "Count"), [("1000", "1,000.5"), ("7", 7)]).show()
    *_, one, other = capsys.readouterr().out.splitlines()
    assert one.split() == ["1000", "1,000.5"]
    assert other.split() == ["7", "7"]
    assert other.startswith(" ")


def test_table_without_rows_has_headings(capsys):
    Table(("Topic", "Messages"), []).show()
    assert "Topic" in capsys.readouterr().out


def test_fields_are_printed_one_per_line(capsys):
    Fields([("Topic", "/default/a"), ("Producers", ""), ("Sealed", True)]).show()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["Topic", "/default/a"],
        ["Producers", "\u2013"],
        ["Sealed", "yes"],
    ]


def test_markup_in_a_name_is_text(capsys):
    Fields([("Reason", "[red]no[/red] :smile:")]).show()
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
def test_control_characters_are_escaped(text, shown):
    assert printable(text) == shown


def test_other_values_are_shown_as_text(capsys):
    Fields([("At", datetime(2024, 1, 2, tzinfo=UTC))]).show()
    assert "2024-01-02" in capsys.readouterr().out
