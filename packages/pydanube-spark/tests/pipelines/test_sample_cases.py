"""Tests of the files with the tests of pipelines."""

from pathlib import Path

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_spark.pipelines.pure.spec import Sink, Source, Spec
from pydanube_spark.pipelines.sample_cases import (
    Given,
    check_names,
    default_file,
    load_cases,
)

FILE = """\
parameters: {table: t, count: 3}
tests:
  first:
    given:
      a: [{payload: {number: 1}}]
      b: {schema: id INT, rows: [{id: 1}]}
    expect: {out: []}
  second: {error: broken}
"""


def problems(tmp_path, text):
    path = tmp_path / "p.test.yaml"
    path.write_text(text)
    with pytest.raises(InvalidDeclaration) as caught:
        load_cases(path)
    return {each.path: each.message for each in caught.value.problems}


def test_rows_are_a_list_or_have_a_schema(tmp_path):
    path = tmp_path / "p.test.yaml"
    path.write_text(FILE)
    cases = load_cases(path)
    first = cases.tests["first"]
    assert first.given_to("a") == Given([{"payload": {"number": 1}}])
    assert first.given_to("b") == Given([{"id": 1}], "id INT")
    assert first.given_to("c") == Given()
    assert cases.parameter_texts == {"table": "t", "count": "3"}


def test_problems_have_their_place(tmp_path):
    text = "tests:\n  a: {expct: {}}\n  b: {expect: {o: []}, given: {x: 1}}\n"
    found = problems(tmp_path, text)
    assert "did you mean 'expect'" in found["tests.a.expct"]
    assert "expects nothing" in found["tests.a"]
    assert "must be a list of rows" in found["tests.b.given.x"]
    assert "at least one" in problems(tmp_path, "tests: {}\n")["tests"]
    assert "'tests' is missing" in problems(tmp_path, "parameters: {}\n")[""]


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidDeclaration, match="the tests cannot be read"):
        load_cases(tmp_path / "none.yaml")


def test_unknown_sources_and_sinks_are_reported(tmp_path):
    path = tmp_path / "p.test.yaml"
    path.write_text(FILE)
    spec = Spec(
        name="p",
        sources={"a": Source(topic="/default/a")},
        sinks={"outs": Sink(input="a", format="noop")},
    )
    with pytest.raises(InvalidDeclaration) as caught:
        check_names(load_cases(path), spec, path)
    found = {each.path: each.message for each in caught.value.problems}
    assert "no source b" in found["tests.first.given.b"]
    assert "did you mean 'outs'" in found["tests.first.expect.out"]


def test_tests_are_beside_the_pipeline():
    assert default_file(Path("d/orders.yaml")) == Path("d/orders.test.yaml")
