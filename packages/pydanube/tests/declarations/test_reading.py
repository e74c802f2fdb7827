"""Tests of the YAML reader."""

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube.declarations.pure.reading import read_document


def problem(text):
    with pytest.raises(InvalidDeclaration) as caught:
        read_document(text, "p.yaml")
    [found] = caught.value.problems
    return found


def test_values_keep_their_type_and_dates_stay_text():
    found = read_document(
        "a: 1\nb: 1.5\nc: true\nd: null\ne: 2024-01-02\nf: ['1', x]\n", "p.yaml"
    )
    assert found.tree == {
        "a": 1,
        "b": 1.5,
        "c": True,
        "d": None,
        "e": "2024-01-02",
        "f": ["1", "x"],
    }


def test_path_has_the_line_of_its_key():
    found = read_document("a:\n  b:\n    - 1\n    - c: 2\n", "p.yaml")
    assert found.line_of(("a",)) == 1
    assert found.line_of(("a", "b")) == 2
    assert found.line_of(("a", "b", 1, "c")) == 4


def test_missing_path_has_the_line_of_its_parent():
    found = read_document("a:\n  b: 1\n", "p.yaml")
    assert found.line_of(("a", "missing", "deep")) == 1
    assert found.line_of(("nowhere",)) is None


def test_empty_file_is_an_empty_mapping():
    assert read_document("", "p.yaml").tree == {}


def test_own_keys_override_merged_keys():
    text = "base: &base {x: 1, y: 2}\nown:\n  <<: *base\n  y: 3\n"
    assert read_document(text, "p.yaml").tree["own"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [1, 2\nb: 3\n", 2, "not YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate key"),
        ("- 1\n", 1, "must be a mapping"),
        ("? [1]\n: 2\n", 1, "a key must be a string"),
        ("a: !!python/name:os.system x\n", None, ""),
    ],
)
def test_invalid_documents_are_refused(text, line, words):
    if words:
        found = problem(text)
        assert words in found.message
        assert found.line == line
    else:
        assert read_document(text, "p.yaml").tree == {"a": "x"}


def test_alias_expansion_is_bounded():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "too large" in problem("\n".join(lines)).message


def test_recursive_list_is_refused():
    assert "too deep" in problem("a: &a [*a]\n").message
