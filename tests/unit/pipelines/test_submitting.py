"""Tests of the files for spark-submit."""

from pathlib import Path

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube.pipelines.submitting import Submission, parse_settings


@pytest.fixture
def submission(tmp_path):
    return Submission(
        name="p",
        directory=tmp_path / "state",
        master="spark://head:7077",
        spark_home=Path("/spark"),
        python="/bin/python",
        settings={"spark.a": "a = b\\c\nd", "spark.b": " é𝄞"},
    )


def test_the_command_names_the_files(submission):
    state = submission.directory
    assert submission.command == [
        "/spark/bin/spark-submit",
        *("--master", "spark://head:7077", "--name", "danube pipeline p"),
        *("--properties-file", f"{state}/spark.properties", f"{state}/application.py"),
    ]


def test_only_the_user_reads_the_files(submission):
    for request in (b"{}", b'{"new": 1}'):
        submission.write(request)
    found = {path.name: path for path in submission.directory.iterdir()}
    assert found.keys() == {"application.py", "spark.properties", "request.json"}
    assert {path.stat().st_mode & 0o777 for path in found.values()} == {0o600}
    assert found["request.json"].read_bytes() == b'{"new": 1}'
    assert f"run_file({str(found['request.json'])!r})" in submission.application


def test_settings_are_escaped_as_java_reads_them(submission):
    assert submission.properties.splitlines() == [
        "spark.pyspark.driver.python=/bin/python",
        r"spark.a=a = b\\c\nd",
        r"spark.b=\ \u00e9\ud834\udd1e",
    ]


def test_settings_have_a_name_and_a_value():
    assert parse_settings(["spark.a=b=c", "spark.d="]) == {
        "spark.a": "b=c",
        "spark.d": "",
    }
    for text in ("spark.a", "a=b", "=b"):
        with pytest.raises(InvalidRequest, match=r"spark\.NAME=VALUE"):
            parse_settings([text])
