"""Records are transformed by an expression and a function of the user."""

import pytest

pytest.importorskip("jmespath")

from pydanube.connectors.mapping import InvalidRecord
from pydanube.connectors.records import Record
from pydanube.connectors.spec import Transform
from pydanube.connectors.transforming import Transformation, check_expression
from pydanube.model.errors import InvalidConfig

FUNCTIONS = """
from dataclasses import replace

def twice(record):
    return [record, replace(record, key="second")]

def drop(record):
    return None

def fail(record):
    return record.value["missing"]

def wrong(record):
    return ["text"]
"""


@pytest.fixture
def transformed(tmp_path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)

    def transform(value, **declared):
        transformation = Transformation(Transform(**declared), tmp_path)
        return transformation.apply(Record(value=value, key="k"))

    return transform


def test_without_a_transformation_records_stay(transformed):
    assert transformed(b"bytes") == [Record(value=b"bytes", key="k")]


@pytest.mark.parametrize(
    ("value", "expression", "result"),
    [
        (b'{"id": 1, "a": {"city": "Paris"}}', "{id: id, city: a.city}", "Paris"),
        ({"a": {"city": "Rome"}}, "{city: a.city}", "Rome"),
        ('{"city": "Bonn"}', "city == 'Bonn' && @ || null", "Bonn"),
    ],
)
def test_the_result_of_an_expression_is_the_new_value(
    transformed, value, expression, result
):
    [record] = transformed(value, jmespath=expression)
    assert record.value["city"] == result
    assert record.key == "k"


def test_a_record_without_result_is_dropped(transformed):
    assert transformed({"a": 1}, jmespath="b") == []
    assert transformed({"a": 1}, function="functions.py:drop") == []


def test_a_function_follows_the_expression_and_may_make_several(transformed):
    found = transformed({"a": {"b": 1}}, jmespath="a", function="functions.py:twice")
    assert [(each.value, each.key) for each in found] == [
        ({"b": 1}, "k"),
        ({"b": 1}, "second"),
    ]


@pytest.mark.parametrize(
    ("value", "declared", "reason"),
    [
        (b"no JSON", {"jmespath": "a"}, "the value is not JSON"),
        ({"a": 1}, {"jmespath": "abs('x')"}, "transform: "),
        ({}, {"function": "functions.py:fail"}, "functions.py:fail: KeyError"),
        ({}, {"function": "functions.py:wrong"}, "returns a Record, None, or"),
    ],
)
def test_what_cannot_be_transformed_is_invalid(transformed, value, declared, reason):
    with pytest.raises(InvalidRecord, match=reason):
        transformed(value, **declared)


def test_an_expression_is_checked():
    check_expression("a.b[0]")
    with pytest.raises(InvalidConfig, match="is no JMESPath expression"):
        check_expression("a.[")
