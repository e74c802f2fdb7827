"""Settings of a request, and runs as processes; no broker answers them."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from pydanube.model.errors import InvalidRequest
from pydanube_spark.commands.pipeline_process import parse_settings
from support.drivers.commands import environment

FILE = """\
name: p
broker: danube://127.0.0.1:1
sources: {{a: {{topic: /default/a}}}}
sinks: {{o: {{input: a, format: noop}}}}
{more}
"""


@pytest.fixture
def pipeline(tmp_path):
    """Commands for a pipeline whose runs are recorded in a directory of the test."""

    def command(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "pydanube_cli.main", "pipeline", *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=environment(DANUBE_STATE=str(tmp_path / "runs")),
        )

    return command


@pytest.fixture
def file(tmp_path):
    def write(more=""):
        path = tmp_path / "p.yaml"
        path.write_text(FILE.format(more=more))
        return path

    return write


def test_settings_have_a_name_and_a_value():
    assert parse_settings(["spark.a=b=c", "spark.d="]) == {
        "spark.a": "b=c",
        "spark.d": "",
    }
    for text in ("spark.a", "a=b", "=b"):
        with pytest.raises(InvalidRequest, match=r"spark\.NAME=VALUE"):
            parse_settings([text])


@pytest.mark.slow
@pytest.mark.e2e
def test_a_run_without_a_broker_ends_so_that_systemd_restarts_it(pipeline, file):
    """Its exit code is not one of those that the unit in the guide excludes."""
    path = str(file())
    for restarts in range(2):
        done = pipeline("run", path)
        assert done.returncode == 1
        assert "no broker answers" in done.stderr
        [found] = json.loads(pipeline("list", "--format", "json").stdout)
        assert (found["state"], found["exit_code"]) == ("failed", 1)
        assert found["restarts"] == restarts
        assert "no broker answers" in found["last_error"]


@pytest.mark.slow
@pytest.mark.e2e
def test_an_invalid_file_is_not_run(pipeline, file):
    done = pipeline("run", str(file("nonsense: 1")))
    assert done.returncode == 2
    assert "nonsense: unknown" in done.stderr
    assert json.loads(pipeline("list", "--format", "json").stdout) == []
