"""Tests of parameters and secrets."""

import pytest

from pydanube.declarations.pure.parameters import Substitution, option_text, parse_set
from pydanube.declarations.pure.problems import Problems
from pydanube.model.errors import InvalidRequest


def substitute(tree, given=None, environment=None):
    problems = Problems(lambda _: None)
    substitution = Substitution(tree, given or {}, environment or {}, problems)
    return substitution.substitute(tree), substitution.redact, problems.found


def test_given_value_overrides_default():
    tree = {"parameters": {"table": "orders"}, "path": "/data/${table}"}
    assert substitute(tree)[0] == {"path": "/data/orders"}
    assert substitute(tree, {"table": "o2"})[0] == {"path": "/data/o2"}


def test_placeholder_alone_keeps_its_type():
    tree = {
        "parameters": {"n": 3, "is": True},
        "a": "${n}",
        "b": "n=${ n }",
        "c": ["${is}", "${is}!"],
    }
    assert substitute(tree)[0] == {"a": 3, "b": "n=3", "c": [True, "true!"]}


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [(3, "5", 5), (1.5, "2", 2.0), (True, "False", False), (None, "5", "5")],
)
def test_given_value_has_the_type_of_the_default(default, text, value):
    tree = {"parameters": {"p": default}, "a": "${p}"}
    found = substitute(tree, {"p": text})[0]["a"]
    assert found == value
    assert type(found) is type(value)


def test_double_dollar_is_an_escape():
    assert substitute({"sql": "$${x} ${"})[0] == {"sql": "${x} ${"}


@pytest.mark.parametrize(
    ("tree", "given", "path", "words"),
    [
        ({"a": "${tabel}", "parameters": {"table": "x"}}, {}, "a", "'table'"),
        ({"parameters": {"t": None}}, {}, "parameters.t", "--set t=VALUE"),
        ({"parameters": {"n": 1}}, {"n": "x"}, "parameters.n", "a whole number"),
        ({"parameters": {"b": True}}, {"b": "x"}, "parameters.b", "true or false"),
        ({"parameters": {"n": 1}}, {"m": "x"}, "parameters", "no parameter m"),
        ({"parameters": {"n": []}}, {}, "parameters.n", "a string, a number"),
        ({"parameters": {"a b": 1}}, {}, "parameters.a b", "letters, digits"),
        ({"parameters": {"a": "${b}", "b": 1}}, {}, "parameters.a", "cannot refer"),
        ({"parameters": [1]}, {}, "parameters", "names with their defaults"),
        ({"a": ["x", "${env:NOPE}"]}, {}, "a[1]", "variable NOPE is not set"),
    ],
)
def test_failed_substitution_is_a_problem(tree, given, path, words):
    _, _, [problem] = substitute(tree, given)
    assert problem.path == path
    assert words in problem.message


def test_secrets_are_redacted_in_every_encoding():
    tree = {
        "parameters": {"uri": "pg://u:${env:PW}@h"},
        "a": "${uri}",
        "b": "${env:TOKEN}",
    }
    found, redact, problems = substitute(tree, {}, {"PW": 'p/"w', "TOKEN": "t"})
    assert not problems
    assert found == {"a": 'pg://u:p/"w@h', "b": "t"}
    assert redact('it was p/"w, p%2F%22w or p/\\"w') == "i*** was ***, *** or ***"


def test_empty_variable_counts_as_missing():
    assert substitute({"a": "${env:PW}"}, {}, {"PW": ""})[2]


def test_without_secrets_nothing_is_redacted():
    assert substitute({})[1]("text") == "text"


def test_set_options_are_parsed():
    assert parse_set(["a=1", "b=x=y", " c ="]) == {"a": "1", "b": "x=y", "c": ""}
    for text in ("a", "=1"):
        with pytest.raises(InvalidRequest, match="NAME=VALUE"):
            parse_set([text])


def test_values_become_text():
    assert [option_text(each) for each in (True, 5, 1.5, "X")] == [
        "true",
        "5",
        "1.5",
        "X",
    ]
