"""The commands of pipelines, without Spark."""

import json

import pytest
from typer.testing import CliRunner

from pydanube_cli.main import app
from pydanube_spark.pipelines.state import StateDirectory

FILE = """\
name: p
sources: {a: {topic: /default/a}}
sinks: {o: {input: a, format: noop, options: {x: "${env:NO_SUCH_SECRET}"}}}
"""


def run(*arguments):
    return CliRunner().invoke(app, ["pipeline", *map(str, arguments)])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(FILE)
    return path


def test_template_is_valid(tmp_path):
    done = run("init", tmp_path / "new")
    assert done.exit_code == 0
    path = tmp_path / "new" / "pipeline.yaml"
    assert done.stdout.splitlines() == [str(path)]
    checked = run("validate", path, "--no-spark")
    assert checked.exit_code == 0
    assert "valid; not checked with Spark and the servers" in checked.stdout
    again = run("init", tmp_path / "new")
    assert again.exit_code == 5
    assert "nothing was written" in again.stderr


def test_templates_are_listed():
    assert "topic-to-delta" in run("init", "--list").stdout.splitlines()


def test_problems_are_printed_one_per_line_with_exit_code_2(file):
    file.write_text(f"{FILE}sink: 1\ntrigger: soon\n")
    for command in ("validate", "run"):
        done = run(command, file)
        assert done.exit_code == 2
        first, second, third = done.stderr.splitlines()
        assert first.startswith(f"error: {file}: line 3: sinks.o.options.x: the env")
        assert second == f"error: {file}: line 4: sink: unknown; did you mean 'sinks'?"
        assert "line 5: trigger:" in third


def test_problems_are_printed_as_json(file):
    done = run("validate", file, "--format", "json", "--set", "x=1")
    assert done.exit_code == 2
    answer = json.loads(done.stdout)
    assert [each["path"] for each in answer["problems"]] == [
        "parameters",
        "sinks.o.options.x",
    ]


@pytest.mark.parametrize("text", ["soon", "10"])
def test_trigger_option_is_parsed(file, text):
    file.write_text(FILE.replace("${env:NO_SUCH_SECRET}", "x"))
    done = run("run", file, "--trigger", text)
    assert done.exit_code == 2
    assert "is not a duration" in done.stderr


def test_a_setting_without_a_value_is_refused(file):
    assert "NAME=VALUE" in run("validate", file, "--set", "x").stderr


def test_master_and_remote_exclude_each_other(file):
    done = run("validate", file, "--master", "local", "--remote", "sc://x")
    assert done.exit_code == 2
    assert "--master and --remote exclude each other" in done.stderr


def test_pipeline_that_never_ran_has_no_status(file):
    for command in ("status", "stop"):
        done = run(command, file)
        assert done.exit_code == 3
        assert "p " in done.stderr


def test_stop_reports_a_run_that_does_not_end_in_time(file):
    state = StateDirectory(file.parent / ".danube/pipelines/p")
    with state.locked("a test"):
        done = run("stop", file, "--timeout", "1ms")
        assert state.is_stop_requested()
    assert done.exit_code == 9
    assert "still running" in done.stderr


def test_brokers_are_asked_before_spark_starts(file):
    file.write_text(
        "name: p\nbroker: danube://127.0.0.1:1\nsources: {a: {topic: /default/a}}\n"
        "sinks: {o: {input: a, format: noop}}\n"
    )
    state = StateDirectory(file.parent / ".danube/pipelines/p")
    # The exit code of a run lets a service manager start it again.
    for command, code in (("validate", 2), ("run", 1)):
        done = run(command, file)
        assert done.exit_code == code
        assert "no broker answers at danube://127.0.0.1:1" in done.stderr
        assert not state.log_file.exists()
    assert "no broker answers" in state.read_status().error
