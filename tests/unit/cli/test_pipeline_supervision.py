"""Runs in the background, without Spark: no broker answers them."""

import json
import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from pydanube.cli.pipeline_process import RunRequest
from pydanube.cli.pipeline_supervision import rules_of
from pydanube.pipelines.run_directory import run_directory
from pydanube.pipelines.state import process_start_time
from support.commands import environment

FILE = """\
name: {name}
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
            [sys.executable, "-m", "pydanube.cli.main", "pipeline", *arguments],
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
        path.write_text(FILE.format(name="p", more=more))
        return path

    return write


def test_rules_are_those_of_the_file_unless_it_runs_once(file):
    assert rules_of(RunRequest(file=str(file())).load()).policy is None
    path = file("restart: {count: 3}\nschedule: {cron: '0 3 * * *'}")
    pipeline = RunRequest(file=str(path)).load()
    found = rules_of(pipeline)
    assert found.policy.retries_max == 3
    assert found.reset_after_s == 600
    assert found.schedule.cron == "0 3 * * *"
    assert rules_of(pipeline, is_once=True).schedule is None


@pytest.mark.slow
@pytest.mark.e2e
def test_a_run_in_the_background_waits_is_found_and_stopped(pipeline, file):
    path = str(file("restart: {backoff: 1h, backoff_max: 1h}"))
    started = pipeline("run", path, "--detach")
    assert started.returncode == 0, started.stderr
    try:
        assert "p: runs as process" in started.stdout
        again = pipeline("run", path, "--detach")
        assert again.returncode == 4
        assert "p cannot be run: p is" in again.stderr
        while (shown := _status(pipeline))["state"] != "restarting":
            assert shown["is_running"]
        assert shown["run"]["exit_code"] == 1
        assert "no broker answers" in shown["error"]
        log = pipeline("logs", "p").stdout
        assert "no broker answers" in log
        assert "p: restarts at " in log
    finally:
        stopped = pipeline("stop", "p")
    assert stopped.stdout == "p has stopped\n"
    assert _status(pipeline)["run"]["ended"] is not None
    [found] = json.loads(pipeline("list", "--format", "json").stdout)
    assert (found["starts"], found["state"]) == (1, "failed")


@pytest.mark.slow
@pytest.mark.e2e
def test_an_invalid_file_is_not_started(pipeline, file):
    done = pipeline("run", str(file("nonsense: 1")), "--detach")
    assert done.returncode == 2
    assert "nonsense: unknown" in done.stderr
    assert json.loads(pipeline("list", "--format", "json").stdout) == []


@pytest.mark.slow
@pytest.mark.e2e
def test_a_killed_supervisor_is_shown_as_died(pipeline, file, tmp_path):
    path = str(file("schedule: {cron: '0 0 1 1 *'}"))
    assert pipeline("run", path, "--detach").returncode == 0
    shown = _status(pipeline)
    assert (shown["state"], shown["run"]["starts"]) == ("scheduled", 0)
    entry = run_directory({"DANUBE_STATE": str(tmp_path / "runs")}).find("p")
    record = entry.state.read_record()
    assert process_start_time(record.pid) in (record.mark, None)
    os.kill(record.pid, signal.SIGKILL)
    while entry.state.is_locked():
        pass
    assert _status(pipeline)["state"] == "died"


def _status(pipeline):
    return json.loads(pipeline("status", "p", "--format", "json").stdout)
