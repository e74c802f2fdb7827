"""The commands for runs of pipelines, over recorded runs, without Spark."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest
from typer.testing import CliRunner

from pydanube_cli.main import app
from pydanube_spark.pipelines.pure.progress import (
    QueryProgress,
    QueryState,
    RunState,
    RunStatus,
)
from pydanube_spark.pipelines.pure.run_records import RunRecord
from pydanube_spark.pipelines.run_directory import Entry, run_directory
from pydanube_spark.pipelines.state import StateDirectory, process_start_time

FILE = "name: p\n"


def run(*arguments):
    return CliRunner().invoke(app, ["pipeline", *map(str, arguments)])


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("DANUBE_STATE", str(tmp_path / "runs"))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def state(file):
    found = StateDirectory(file.parent / ".danube/pipelines/p")
    found.path.mkdir(parents=True)
    return found


def record(state, *, pid=None, mark=None, **more):
    found = RunRecord(
        pipeline="p",
        file="/somewhere/p.yaml",
        pid=pid or os.getpid(),
        mark=mark,
        host=socket.gethostname(),
        since="2026-01-01T00:00:00+00:00",
        **more,
    )
    state.write_record(found)
    run_directory().add(
        Entry(pipeline="p", file=found.file, state_directory=str(state.path))
    )


def status(state, last=RunState.RUNNING, rows=70, **more):
    query = QueryProgress(
        name="o",
        writes_to="noop",
        state=QueryState.RUNNING,
        rows=rows,
        lag=7,
        last_batch_time=1_767_225_600_000_000,
        error="it broke",
    )
    state.write_status(
        RunStatus(
            pipeline="p",
            file="p.yaml",
            pid=os.getpid(),
            host=socket.gethostname(),
            since="2026-01-01T00:00:00+00:00",
            updated="2026-01-01T00:00:05+00:00",
            state=last,
            queries=[query],
            **more,
        )
    )


def test_runs_are_listed_with_their_progress(state):
    assert json.loads(run("list", "--format", "json").stdout) == []
    record(state, restarts=2)
    status(state)
    with state.locked("a test"):
        [found] = json.loads(run("list", "--running", "--format", "json").stdout)
        assert "running" in run("list").stdout
    assert (found["pipeline"], found["state"], found["rows"]) == ("p", "running", 70)
    assert (found["lag"], found["restarts"]) == (7, 2)
    assert found["core_seconds_per_million_rows"] is None
    assert found["last_batch"] == "2026-01-01T00:00:00+00:00"
    assert found["last_error"] == "it broke"
    assert found["log_file"] == str(state.log_file)


def test_the_status_has_the_cost_of_a_million_rows(state):
    record(state)
    status(state, core_seconds=12.5)
    # It would mostly be the start of Spark.
    shown = run("status", "p").stdout
    assert "12.5" in shown
    assert re.search(r"million rows +\W\n", shown)
    status(state, core_seconds=250.0, rows=50_000)
    shown = run("status", "p").stdout
    assert "Core seconds for a million rows" in shown
    assert "5,000.0" in shown
    [found] = json.loads(run("list", "--format", "json").stdout)
    assert found["core_seconds"] == 250
    assert found["core_seconds_per_million_rows"] == 5_000


def test_a_run_that_did_not_record_its_end_has_died(state):
    record(state)
    status(state)
    assert json.loads(run("list", "--running", "--format", "json").stdout) == []
    [found] = json.loads(run("list", "--format", "json").stdout)
    assert found["state"] == "died"
    assert "Its process no longer exists" in run("status", "p").stdout


def test_a_pipeline_is_named_by_its_file_or_its_name(state, file):
    record(state)
    status(state)
    assert run("status", file).stdout == run("status", "p").stdout
    missing = run("status", "nope")
    assert missing.exit_code == 3
    assert "no pipeline of this name was run" in missing.stderr


def test_the_end_of_a_log_is_printed(state):
    record(state)
    state.log_file.write_text("one\ntwo\nthree\x1b\nfour")
    assert run("logs", "p", "--lines", "2").stdout == "two\nthree\\x1b\nfour\n"
    assert run("logs", "p", "--follow", "-n", "0").stdout == "four\n"


HOLDER = """
import sys
from contextlib import ExitStack
from pathlib import Path
from pydanube_spark.pipelines.state import StateDirectory
state = StateDirectory(Path(sys.argv[1]))
with state.locked("a test"):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_run_that_does_not_stop_is_killed(state):
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", HOLDER, str(state.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        stack.callback(process.kill)
        assert process.stdout.readline() == b"locked\n"
        mark = process_start_time(process.pid)
        if mark is None:
            pytest.skip("this system has no start times of processes")
        record(state, pid=process.pid, mark=mark)
        status(state)
        done = run("stop", "p", "--timeout", "1ms")
        assert done.exit_code == 0, done.stderr
        assert "p was killed" in done.stdout
        assert process.wait() == -signal.SIGKILL
    assert state.is_stop_requested()
    facts = json.loads(run("status", "p", "--format", "json").stdout)
    assert facts["state"] == "stopped"
    assert facts["run"]["exit_code"] == -signal.SIGKILL


def test_a_reused_pid_is_not_killed(state):
    # This process has the pid, but started at another time.
    record(state, mark="another")
    status(state)
    with state.locked("a test"):
        done = run("stop", "p", "--timeout", "1ms")
    assert done.exit_code == 9
    assert "still running" in done.stderr


def test_a_stop_without_waiting_only_requests_it(state):
    record(state)
    with state.locked("a test"):
        assert run("stop", "p", "--timeout", "0s").stdout == "asked to stop\n"
        assert state.is_stop_requested()
    assert run("stop", "p").exit_code == 3
