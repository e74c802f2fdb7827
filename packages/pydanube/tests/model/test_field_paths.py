"""Paths find fields of JSON values."""

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.model.field_paths import ABSENT, STEPS_MAX, find_field, parse_path

VALUE = {"a": {"b c": [1, [2, None]]}, "\u00fc-1": "text"}


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        ("a", ("a",), VALUE["a"]),
        ('a."b c"[0]', ("a", "b c", 0), 1),
        ('"a"."b c"[1][1]', ("a", "b c", 1, 1), None),
        ("\u00fc-1", ("\u00fc-1",), "text"),
        ("a.b", ("a", "b"), ABSENT),
        ('a."b c"[7]', ("a", "b c", 7), ABSENT),
        ("a[0]", ("a", 0), ABSENT),
        ("\u00fc-1[0]", ("\u00fc-1", 0), ABSENT),
        ("\u00fc-1.x", ("\u00fc-1", "x"), ABSENT),
    ],
)
def test_path_finds_a_field(text, path, found):
    assert parse_path(text) == path
    assert find_field(VALUE, path) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "character 1 should be the name of a field, and it ends there"),
        ("a.", "character 3 should be the name of a field"),
        (".a", "character 1 should be the name of a field, not '.a'"),
        ("a[x]", r"character 2 should be a dot, an index such as \[0\]"),
        ("a b", "character 2"),
        ('a."b', "character 3"),
        (".".join("a" * (STEPS_MAX + 1)), "more than 32"),
    ],
)
def test_malformed_path_is_refused_with_the_position(text, said):
    with pytest.raises(InvalidRequest, match=said):
        parse_path(text)
