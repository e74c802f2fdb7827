"""Tests of the collector of problems."""

import pytest

from pydanube.declarations.pure.problems import (
    InvalidDeclaration,
    Problem,
    Problems,
    dotted,
    listed,
    option_path,
)
from pydanube.model.errors import InvalidConfig


def test_problem_text_has_line_path_and_message():
    assert str(Problem("sinks.a", "unknown", 3)) == "line 3: sinks.a: unknown"
    assert str(Problem("", "not YAML")) == "not YAML"


def test_paths_are_dotted():
    assert dotted(("a", "b", 0, "c")) == "a.b[0].c"


def test_each_path_keeps_its_first_problem_in_file_order():
    lines = {("b",): 2, ("a",): 5}
    problems = Problems(lines.get)
    problems.add(("a",), "first")
    problems.add(("b",), "other")
    problems.add(("a",), "second")
    assert [each.message for each in problems.found] == ["other", "first"]


@pytest.mark.parametrize(
    ("path", "is_under"),
    [(("a",), True), (("a", "b"), True), (("a", "c"), False), (("ab",), False)],
)
def test_under_finds_nested_problems(path, is_under):
    problems = Problems(lambda _: None)
    problems.add(("a", "b", 0), "wrong")
    assert problems.under(path) is is_under


def test_invalid_declaration_is_an_invalid_config():
    error = InvalidDeclaration("p.yaml", [Problem("a", "x"), Problem("b", "y")])
    assert isinstance(error, InvalidConfig)
    assert str(error) == "p.yaml: a: x; p.yaml: b: y"


def test_listed_joins_names_with_commas_and_and():
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a"]) == "a"
    assert listed([]) == "nothing"


def test_message_belongs_to_the_longest_option_that_it_names():
    options = ["table", "batchRows", "batch"]
    place = option_path(("sinks", "a"), options, "BatchRows: must be a number")
    assert place == ("sinks", "a", "options", "batchRows")
    assert option_path((), options, "there are two batches") is None
