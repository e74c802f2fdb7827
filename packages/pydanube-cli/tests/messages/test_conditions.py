"""Conditions accept messages, and point at their mistakes."""

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_cli.messages.pure.conditions import (
    CONDITION_CHARACTERS_MAX,
    CONDITIONS_MAX,
    parse_condition,
    parse_conditions,
)

VALUE = {
    "n": 7,
    "price": 1.1,
    "cost": Decimal("1.10"),
    "text": "it's",
    "on": True,
    "none": None,
    "nan": float("nan"),
    "at": datetime(2025, 3, 1, tzinfo=UTC),
    "id": UUID(int=1),
    "list": [{"a b": 2}],
    "object": {},
}

TRUE = [
    "value.n = 7",
    "value.n == 7.0",
    "value.n<8",
    "  value.n >= 7  ",
    "value.n != 8",
    "value.n != '7'",
    "value.n != null",
    "value.price = 1.1",
    "value.cost = 1.1",
    "value.cost > 1.0999",
    r"value.text = 'it\'s'",
    'value.text = "it\'s"',
    "value.text ~ 'i?*s'",
    "value.text < 'j'",
    "value.on = true",
    "value.on != 1",
    "value.none = null",
    "value.missing = null",
    "value.missing.deeper = null",
    "value.nan != 0",
    "value.at >= '2025-03-01'",
    "value.id ~ '*-000000000001'",
    'value.list[0]."a b" = 2',
    "value.list[1] = null",
    "value.object != null",
    "value.n > -1e3",
]

FALSE = [
    "value.n = 8",
    "value.n = '7'",
    "value.n < '8'",
    "value.n ~ '7'",
    "value.text > 1",
    "value.on = 1",
    "value.on < 2",
    "value.none < 1",
    "value.missing != null",
    "value.missing ~ '*'",
    "value.nan < 1",
    "value.nan = 0",
    "value.list = 2",
    "value = 1",
]


@pytest.mark.parametrize("text", TRUE)
def test_condition_accepts(text):
    assert parse_condition(text).accepts(VALUE)


@pytest.mark.parametrize("text", FALSE)
def test_condition_refuses(text):
    assert not parse_condition(text).accepts(VALUE)


def test_paths_begin_with_a_part_of_a_message():
    assert parse_condition("key = 'k'").accepts("k")
    assert parse_condition("key = null").accepts(None)
    assert parse_condition('attributes."x-a" = "1"').accepts({"x-a": "1"})
    roots = [parse_condition(f"{path} != 1").root for path in ("value", "key")]
    assert roots == ["value", "key"]


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("", 1, "the name of a field"),
        ("amount > 1", 1, "key, attributes.NAME, value or value.FIELD, not 'amount"),
        ("key.x = 1", 1, "key, attributes.NAME"),
        ("attributes = 1", 1, "key, attributes.NAME"),
        ("attributes.a.b = 1", 1, "key, attributes.NAME"),
        ("value.n", 8, "one of = != < <= > >= ~, and it ends there"),
        ("value.n >", 10, "a number, true, false, null, or a text"),
        ("value.n > > 1", 11, "a number, true, false, null, or a text"),
        ("value.n > word", 11, "a number, true, false, null, or a text"),
        ("value.n = 'open", 11, "a number, true, false, null, or a text"),
        ("value.n > null", 11, "a number, or a text in quotation marks"),
        ("value.n ~ 7", 11, "a text in quotation marks"),
        ("value.n = 1 2", 13, "the end, not '2'"),
        ("value.n = 1x", 12, "the end"),
        ("value. = 1", 7, "the name of a field"),
        ("value[1 = 1", 6, "one of = != "),
    ],
)
def test_mistake_is_refused_with_its_position(text, at, expected):
    with pytest.raises(InvalidRequest) as refused:
        parse_condition(text)
    assert f"character {at} should be {expected}" in str(refused.value)


def test_conditions_are_bounded():
    with pytest.raises(InvalidRequest, match="at most 1000"):
        parse_condition("key = '" + "x" * CONDITION_CHARACTERS_MAX + "'")
    assert len(parse_conditions(["key = 1"] * CONDITIONS_MAX)) == CONDITIONS_MAX
    with pytest.raises(InvalidRequest, match="21 conditions; at most 20"):
        parse_conditions(["key = 1"] * (CONDITIONS_MAX + 1))
