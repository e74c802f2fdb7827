"""Tests of user functions in files and modules."""

import pytest

from pydanube.pipelines.functions import (
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


def test_function_of_file_may_import_siblings(tmp_path):
    pytest.importorskip("pyspark")
    (tmp_path / "neighbour_of_f.py").write_text("ONE = 1\n")
    (tmp_path / "f.py").write_text(
        "from neighbour_of_f import ONE\ndef g(n):\n    return n + ONE\n"
    )
    function = load_function("f.py:g", tmp_path)
    assert function(1) == 2
    assert load_function("f.py:g", tmp_path) is function

    import pickle
    import subprocess
    import sys

    from pyspark import cloudpickle

    # In a directory without the file.
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(41))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=cloudpickle.dumps(function),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"42\n"
    assert pickle.loads(cloudpickle.dumps(function))(1) == 2


def test_failing_file_is_named(tmp_path):
    (tmp_path / "f.py").write_text("raise ValueError('no')\n")
    with pytest.raises(NoSuchFunction, match="cannot be imported: ValueError: no"):
        load_function("f.py:g", tmp_path)
    with pytest.raises(NoSuchFunction, match="has no function g"):
        check_function("f.py:g", tmp_path)
