"""Parameters and secrets are put in, and secrets are not seen again."""

import pytest

from pydanube.pipelines.parameters import Secrets, Substitution, parse_set
from pydanube.pipelines.problems import Problems


def substitute(tree, given=None, environment=None):
    problems = Problems(lambda _: None)
    substitution = Substitution(tree, given or {}, environment or {}, problems)
    return substitution.substitute(tree), substitution.secrets, problems.found


def test_a_default_holds_until_another_value_is_given():
    tree = {"parameters": {"table": "orders"}, "path": "/data/${table}"}
    assert substitute(tree)[0] == {"path": "/data/orders"}
    assert substitute(tree, {"table": "o2"})[0] == {"path": "/data/o2"}


def test_a_number_alone_stays_a_number_and_is_text_in_text():
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
def test_a_given_value_is_of_the_kind_of_the_default(default, text, value):
    tree = {"parameters": {"p": default}, "a": "${p}"}
    found = substitute(tree, {"p": text})[0]["a"]
    assert found == value
    assert type(found) is type(value)


def test_two_dollars_are_one():
    assert substitute({"sql": "$${x} ${"})[0] == {"sql": "${x} ${"}


@pytest.mark.parametrize(
    ("tree", "given", "path", "words"),
    [
        ({"a": "${tabel}", "parameters": {"table": "x"}}, {}, "a", "'table'"),
        ({"parameters": {"t": None}}, {}, "parameters.t", "--set t=VALUE"),
        ({"parameters": {"n": 1}}, {"n": "x"}, "parameters.n", "a whole number"),
        ({"parameters": {"b": True}}, {"b": "x"}, "parameters.b", "true or false"),
        ({"parameters": {"n": 1}}, {"m": "x"}, "parameters", "no parameter m"),
        ({"parameters": {"n": []}}, {}, "parameters.n", "a text, a number"),
        ({"parameters": {"a b": 1}}, {}, "parameters.a b", "letters, digits"),
        ({"parameters": {"a": "${b}", "b": 1}}, {}, "parameters.a", "cannot have"),
        ({"parameters": [1]}, {}, "parameters", "names with their defaults"),
        ({"a": ["x", "${env:NOPE}"]}, {}, "a[1]", "no variable NOPE"),
    ],
)
def test_what_cannot_be_put_in_is_a_problem(tree, given, path, words):
    _, _, [problem] = substitute(tree, given)
    assert problem.path == path
    assert words in problem.message


def test_secrets_come_from_the_environment_and_are_hidden_in_every_form():
    tree = {
        "parameters": {"uri": "pg://u:${env:PW}@h"},
        "a": "${uri}",
        "b": "${env:TOKEN}",
    }
    found, secrets, problems = substitute(tree, {}, {"PW": 'p/"w', "TOKEN": "t"})
    assert not problems
    assert found == {"a": 'pg://u:p/"w@h', "b": "t"}
    assert secrets.redact('it was p/"w, p%2F%22w or p/\\"w') == (
        "i*** was ***, *** or ***"
    )


def test_an_empty_variable_is_a_missing_one():
    assert substitute({"a": "${env:PW}"}, {}, {"PW": ""})[2]


def test_without_secrets_nothing_is_hidden():
    assert Secrets().redact("text") == "text"


def test_settings_of_the_command_line():
    assert parse_set(["a=1", "b=x=y", " c ="]) == {"a": "1", "b": "x=y", "c": ""}
    for text in ("a", "=1"):
        with pytest.raises(ValueError, match="NAME=VALUE"):
            parse_set([text])
