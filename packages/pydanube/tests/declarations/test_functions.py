"""Tests of functions and classes in files and modules of users."""

import pytest

from pydanube.declarations.functions import (
    NoSuchFunction,
    check_function,
    load_function,
)


def test_malformed_name_of_a_function_is_refused():
    for text in ("f.py", ":g", "f.py:", "f.py:1", ""):
        with pytest.raises(NoSuchFunction, match=r"FILE\.py:FUNCTION"):
            check_function(text, None)


def test_function_of_module_is_imported():
    assert load_function("os.path:join", None)("a", "b") == "a/b"
    with pytest.raises(NoSuchFunction, match="cannot be imported"):
        load_function("no.such.module:f", None)
    with pytest.raises(NoSuchFunction, match="did you mean 'join'"):
        load_function("os.path:joyn", None)


def test_failing_file_is_named(tmp_path):
    (tmp_path / "f.py").write_text("raise ValueError('no')\n")
    with pytest.raises(NoSuchFunction, match="cannot be imported: ValueError: no"):
        load_function("f.py:g", tmp_path)
    with pytest.raises(NoSuchFunction, match="has no function g"):
        check_function("f.py:g", tmp_path)
