"""Tests of the functions of pipelines."""

import pytest

from pydanube_spark.pipelines.functions import load_function


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
