"""Tests of the transforms of records."""

import pytest

from pydanube.declarations.functions import NoSuchFunction
from pydanube.model.errors import InvalidConfig
from pydanube_connect.pure.mapping import InvalidRecord
from pydanube_connect.pure.records import Record
from pydanube_connect.pure.transforms import (
    EXPRESSION_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    RECORDS_MAX,
    Transform,
    parse_step,
)

FUNCTIONS = """

from pydanube_connect import Record


def keep(record):
    return record


def split(record):
    return [record.replace(value=each) for each in record.value]


def drop(record):
    return None


def number(record):
    return 5


def numbers(record):
    return [record, 5]


def key(record):
    return Record(value=1, key=5)


def half(record):
    return Record(value=1, attributes={"a": "\\ud800"})


def attributes(record):
    return Record(value=1, attributes=["a"])


def fail(record):
    raise KeyError("customer" * 1000)


async def wait(record):
    return record


later = wait
"""


@pytest.fixture
def apply(tmp_path):
    (tmp_path / "own.py").write_text(FUNCTIONS)

    def apply(value, *steps, **fields):
        parsed = [
            parse_step(
                {"function": each} if each.startswith("own.py") else each, tmp_path
            )
            for each in steps
        ]
        return Transform(parsed).apply(Record(value=value, **fields))

    return apply


def values(records):
    return [each.value for each in records]


def test_result_of_an_expression_replaces_the_value(apply):
    [found] = apply(
        b'{"order": {"id": 7}, "shop": "x"}', "{id: order.id}", key="k", id="1"
    )
    assert (found.value, found.key, found.id) == ({"id": 7}, "k", "1")
    assert values(apply({"a": [3, 1]}, "sort(a)")) == [[1, 3]]


def test_null_drops_the_record(apply):
    assert apply({"a": 1}, "b") == []
    assert apply({"a": 1}, "b", "own.py:fail") == []
    assert apply({"a": 1}, "own.py:drop") == []
    assert values(apply({"a": False}, "a")) == [False]


def test_text_that_an_expression_returns_is_not_parsed_again(apply):
    assert values(apply({"a": "7"}, "a", "@")) == ["7"]
    assert values(apply('{"a": 7}', "own.py:keep", "a")) == [7]


def test_function_makes_several_records_whose_ids_differ(apply):
    found = apply([1, 2], "own.py:split", id="x")
    assert [(each.value, each.id) for each in found] == [(1, "x-0"), (2, "x-1")]
    assert [each.id for each in apply([1], "own.py:split", id="x")] == ["x"]
    assert values(apply([{"a": 1}, {}], "own.py:split", "a")) == [1]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (["length(a)"], r"transform\[0\]: JMESPathTypeError"),
        (["@", "own.py:fail"], r"transform\[1\]: KeyError"),
        (["own.py:number"], "a value of the type int instead of a Record"),
        (["own.py:numbers"], "a value of the type int in its list"),
        (["own.py:key"], "a value of the type int instead of text"),
        (["own.py:half"], "UnicodeEncodeError"),
        (["own.py:attributes"], "without attributes"),
    ],
)
def test_record_is_invalid_if_a_step_fails(apply, steps, reason):
    with pytest.raises(InvalidRecord, match=reason) as caught:
        apply({"a": 5}, *steps)
    assert len(str(caught.value)) < REASON_CHARACTERS_MAX + 20


@pytest.mark.parametrize("value", [b"{", b"\xff", b"[" * 100_000])
def test_record_that_is_not_json_is_invalid(apply, value):
    with pytest.raises(InvalidRecord, match=r"transform\[0\]: the value is not JSON"):
        apply(value, "a")


def test_number_of_records_is_bounded(apply):
    assert len(apply([0] * RECORDS_MAX, "own.py:split")) == RECORDS_MAX
    with pytest.raises(InvalidRecord, match="more than 1000 records"):
        apply([0] * (RECORDS_MAX + 1), "own.py:split")


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("a[", "is not JMESPath: Invalid jmespath expression"),
        ("", "is not JMESPath"),
        ("{a: lenght(b)}", "no function lenght in JMESPath; did you mean 'length'"),
        ("[*].join(',')", "join needs 2 arguments, and has 1"),
        ("(" * 5000, "nested too deeply"),
        ("a" * (EXPRESSION_CHARACTERS_MAX + 1), "10000 are allowed"),
        ({"a": "b"}, "in quotes"),
        (5, "in quotes"),
        ({"function": 5}, "FILE.py:NAME"),
        ({"function": "own.py:later"}, "'async def'"),
    ],
)
def test_malformed_step_is_refused(apply, tmp_path, declared, problem):
    with pytest.raises(InvalidConfig, match=problem):
        parse_step(declared, tmp_path)


def test_variadic_functions_and_literals_are_valid(apply):
    found = apply({"a": {}}, 'merge(a, `{"b": [1]}`, a) | {c: b[0:1], d: not_null(x)}')
    assert values(found) == [{"c": [1], "d": None}]


def test_function_that_does_not_exist_is_refused(apply, tmp_path):
    with pytest.raises(NoSuchFunction, match="did you mean 'keep'"):
        parse_step({"function": "own.py:kep"}, tmp_path)
