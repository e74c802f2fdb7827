"""Conditions decide as Python does, and refuse all other texts with an error."""

import json
import operator
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidRequest
from pydanube_cli.messages.pure.conditions import parse_condition

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters='"'),
    min_size=1,
    max_size=6,
)

OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def literal_of(value):
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return json.dumps(value)


def is_alike(one, other):
    kinds = [
        "number"
        if isinstance(each, int | float) and not isinstance(each, bool)
        else type(each)
        for each in (one, other)
    ]
    return kinds[0] == kinds[1]


def comparable(value):
    """Numbers are compared as they are written, not as floats are stored."""
    return value if isinstance(value, str) else Decimal(repr(value))


@given(LEAVES, st.sampled_from(sorted(OPERATORS)), NUMBERS | TEXTS)
def test_comparisons_are_those_of_python(value, sign, literal):
    condition = parse_condition(f"value.x {sign} {literal_of(literal)}")
    expected = sign == "!="
    if is_alike(value, literal):
        expected = OPERATORS[sign](comparable(value), comparable(literal))
    assert condition.accepts({"x": value}) is expected


@given(LEAVES)
def test_every_leaf_equals_its_own_literal(value):
    assert parse_condition(f"value = {literal_of(value)}").accepts(value)
    assert not parse_condition(f"value != {literal_of(value)}").accepts(value)


@given(st.lists(NAMES, min_size=1, max_size=4), TEXTS)
def test_path_finds_a_field_of_any_name(names, text):
    value = text
    for name in reversed(names):
        value = {name: value}
    path = ".".join(f'"{name}"' for name in names)
    condition = parse_condition(f"value.{path} = {literal_of(text)}")
    assert condition.path == tuple(names)
    assert condition.accepts(value)


@given(VALUES, st.sampled_from(["value.a = 1", "value[0] ~ '*'", "value <= 'x'"]))
def test_every_value_is_decided(value, text):
    assert parse_condition(text).accepts(value) in {True, False}


PIECES = st.sampled_from(
    [
        *("value", "key", "attributes", "true", "null", "a", "e9", "1", "-", " "),
        *(".", "[0]", "[", '"', "'", "=", "<", "~", "!", "\\", "\n"),
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=30))
def test_every_other_text_is_refused_with_a_position(text):
    try:
        condition = parse_condition(text)
    except InvalidRequest as refused:
        at = str(refused).rpartition(": character ")[2].split()[0]
        assert 1 <= int(at) <= len(text) + 1
    else:
        assert condition.accepts(None) in {True, False}
