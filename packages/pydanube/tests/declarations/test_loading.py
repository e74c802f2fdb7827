"""The loading of declared files."""

import pytest

from pydanube.declarations.loading import open_file
from pydanube.declarations.pure.problems import InvalidDeclaration


def test_parameters_and_secrets_are_substituted(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text("parameters: {size: 3}\nuser: ${env:USER_NAME}\nsize: ${size}\n")
    declared = open_file(file, {"size": "7"}, {"USER_NAME": "ada"})
    assert declared.path == file.resolve()
    tree = declared.substitution.substitute(declared.document.tree)
    assert tree == {"user": "ada", "size": 7}


def test_refusing_names_the_line_and_hides_secrets(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text("name: shop\nkey: ${env:KEY}\n")
    declared = open_file(file, {}, {"KEY": "s3cr3t"})
    key = declared.substitution.substitute(declared.document.tree)["key"]
    declared.problems.add(("key",), f"is {key}")
    with pytest.raises(InvalidDeclaration) as caught:
        declared.refuse()
    (problem,) = caught.value.problems
    assert problem.line == 2
    assert "s3cr3t" not in str(caught.value)


def test_a_file_without_problems_is_not_refused(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text("name: shop\n")
    open_file(file, {}, {}).refuse()
