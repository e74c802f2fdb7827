"""The home of Spark whose Python processes import packages, not archives."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest

from pydanube_spark.spark_home import find_spark_home

REAL = Path(pyspark.__file__).parent


@pytest.fixture
def home(tmp_path):
    return find_spark_home(tmp_path)


def test_home_has_everything_of_the_real_home(home):
    assert {each.name for each in home.iterdir()} == {
        each.name for each in REAL.iterdir()
    }
    assert (home / "bin" / "spark-submit").samefile(REAL / "bin" / "spark-submit")


def test_archives_are_directories_from_which_python_imports(home):
    paths = sorted((home / "python" / "lib").iterdir(), reverse=True)
    archives = sorted((REAL / "python" / "lib").glob("*.zip"), reverse=True)
    assert [each.name for each in paths] == [each.name for each in archives]
    code = "import pyspark, py4j; print(pyspark.__file__); print(py4j.__file__)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": ":".join(map(str, paths))},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert [Path(each).parent.parent for each in found] == paths
    assert all(Path(each).is_file() for each in found)


def test_home_is_made_once_also_by_several_processes(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        homes = set(threads.map(find_spark_home, [tmp_path] * 16))
    assert homes == {*tmp_path.iterdir()}
    assert len(homes) == 1


def test_without_a_writable_cache_there_is_no_home(tmp_path):
    cache = tmp_path / "file"
    cache.touch()
    assert find_spark_home(cache) is None
