"""Tests of texts with places for what belongs to a message."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from pydanube_connect.sinks.pure.message_templates import fill, template_problem


def message_of(payload=b"{}", key=b"k"):
    return SimpleNamespace(
        topic="/default/alerts",
        offset=7,
        payload=payload,
        key_bytes=key,
        publish_time=datetime(2026, 1, 2, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{topic} {key} {offset}", "/default/alerts k 7"),
        ("{value.a.b}!", "deep!"),
        ("{value.n} {value.none} {value.list[1]}", '1.5  {"x":1}'),
        ("no {} place", "no {} place"),
        ("{time} {time:%Y/%j}", "2026-01-02T00:00:00+00:00 2026/002"),
    ],
)
def test_names_stand_for_parts_of_the_message(template, text):
    payload = b'{"a": {"b": "deep"}, "n": 1.5, "list": [0, {"x": 1}]}'
    assert template_problem(template) is None
    assert fill(template, message_of(payload)) == text


def test_fields_of_a_payload_that_is_not_json_are_empty():
    assert fill("<{value.a}>", message_of(b"\xff")) == "<>"


def test_what_a_message_contains_is_not_a_template():
    assert fill("{payload}", message_of(b"{topic}")) == "{topic}"


def test_unknown_names_are_problems():
    assert "{paylod} stands for nothing" in template_problem("a {paylod}")
    assert "name of a field" in template_problem("{value.a..b}")
    assert "not a format of a time" in template_problem("{time:%Q}")


def test_values_are_escaped_and_the_template_is_not():
    found = fill("<{value.a}>", message_of(b'{"a": "<b>"}'), lambda each: each.upper())
    assert found == "<<B>>"
