"""What is pickled by value works where the package is not installed."""

import pickle
import subprocess
import tempfile

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from pydanube_spark import pickled_source
from pydanube_spark.package_archive import archive
from pydanube_spark.pickled_source import (
    PickledDataSource,
    attach_archive,
    own_temporary_directory,
)
from support.servers.spark_processes import python_without_us

MESSAGES = StructType([StructField("payload", BinaryType())])

# What Spark does, in three processes: plan, read or write in a task, commit.
PLAN = """
import importlib.util, sys
from pyspark import cloudpickle
assert importlib.util.find_spec("pydanube_spark") is None
made, columns = cloudpickle.load(sys.stdin.buffer)
if sys.argv[1] == "read":
    thing = made({"subscribe": "/default/a"}).reader(columns)
else:
    thing = made({"topic": "/default/a"}).streamWriter(schema=columns, overwrite=False)
sys.stdout.buffer.write(cloudpickle.dumps(thing))
"""
RUN = """
import importlib.util, sys
from pyspark import cloudpickle
assert importlib.util.find_spec("pydanube_spark") is None
thing = cloudpickle.load(sys.stdin.buffer)
import pydanube_spark
assert pydanube_spark.__file__.split("/")[-4].startswith("pydanube-")
print(type(thing).__module__, type(thing).__name__)
cloudpickle.loads(cloudpickle.dumps(thing))
"""


def run(python, program, given, *words):
    done = subprocess.run(
        [python, "-c", program, *words], input=given, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "is_made"),
    [
        ("read", b"pydanube_spark.source BatchReader\n"),
        ("write", b"pydanube_spark.sink_data_source StreamWriter\n"),
    ],
)
def test_readers_and_writers_are_unpickled_without_the_package(tmp_path, what, is_made):
    python = python_without_us(tmp_path / "python")
    cloudpickle.register_pickle_by_value(pickled_source)
    named = {"archive": archive(), "format": "danube", "module": "pyspark_danube"}
    shipped = cloudpickle.dumps(
        (type("PickledDanube", (PickledDataSource,), named), MESSAGES)
    )
    planned = run(python, PLAN, shipped, what)
    assert run(python, RUN, planned) == is_made


def test_installed_package_is_preferred():
    source = type("S", (PickledDataSource,), {"module": "pyspark_danube"})(
        {"topic": "/default/a"}
    )
    made = source.streamWriter(schema=MESSAGES, overwrite=False)
    assert type(made).__module__ == "pydanube_spark.sink_data_source"


def test_value_with_archive_is_the_same_after_pickling():
    made = PickledDataSource.__new__(PickledDataSource)
    made.options = {"a": "b"}
    assert pickle.loads(pickle.dumps(attach_archive(b"", made))).options == {"a": "b"}


def test_archive_directory_belongs_to_the_user(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    directory = own_temporary_directory("archive")
    assert directory.stat().st_mode & 0o777 == 0o700
    assert own_temporary_directory("archive") == directory
    assert own_temporary_directory("another") != directory
