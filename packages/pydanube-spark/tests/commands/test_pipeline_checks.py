"""The commands that check pipelines, without Spark."""

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from pydanube_cli.main import app
from pydanube_spark.commands.pipeline_checks import lines_of, shown
from pydanube_spark.pipelines.row_comparison import Difference
from pydanube_spark.pipelines.sample_runs import Outcome
from pydanube_spark.pipelines.verifying import Verification

FILE = """\
name: p
sources: {a: {topic: /default/a}}
steps: {b: {sql: SELECT payload FROM a}}
sinks: {o: {input: b, format: noop}}
"""


def run(*arguments):
    return CliRunner().invoke(app, ["pipeline", *map(str, arguments)])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(FILE)
    return path


def test_plan_shows_the_graph(file):
    done = run("plan", file, "--no-spark")
    assert done.stdout.splitlines() == [
        "source a: topic /default/a, read as a stream",
        "step b: sql",
        "  <- source a",
        "sink o: noop, append",
        "  <- step b",
    ]
    drawn = run("plan", file, "--no-spark", "--mermaid").stdout
    assert drawn.startswith("flowchart LR\n")
    facts = json.loads(run("plan", file, "--no-spark", "--format", "json").stdout)
    assert [each["id"] for each in facts["nodes"]] == ["source.a", "step.b", "sink.o"]
    assert facts["edges"][1] == {
        "source": "step.b",
        "target": "sink.o",
        "schema": None,
    }


def test_missing_tests_are_named(file):
    done = run("test", file)
    assert done.exit_code == 2
    name = file.with_name("p.test.yaml")
    assert done.stderr.startswith(f"error: {name}: the tests cannot be read")


def test_unknown_sources_of_tests_are_reported_before_spark_starts(file):
    tests = file.with_name("p.test.yaml")
    tests.write_text("tests: {t: {given: {aa: []}, expect: {b: []}}}\n")
    done = run("test", file)
    assert done.exit_code == 2
    assert "no source aa; did you mean 'a'?" in done.stderr


def test_differences_are_a_table():
    found = Difference(["n", "o"], [{"n": 1, "o": None}], [{"n": 2, "o": {"x": "é"}}])
    [head, table] = shown(Outcome("t", {"b": found}))
    assert head == "FAILED: t"
    assert [line.split(maxsplit=2) for line in table.lines(None)][2:] == [
        ["missing", "1", "null"],
        ["unexpected", "2", '{"x": "é"}'],
    ]
    assert shown(Outcome("t", {})) == ["passed: t"]
    assert shown(Outcome("t", {}, "why")) == ["FAILED: t", "  why"]


def test_rows_that_differ_are_below_the_table():
    found = Verification(
        sink="table",
        writes_to="danube-delta",
        missing_rows=['{"a":1}'],
        dropped={"/default/a": 4},
    )
    assert lines_of(found) == [
        "table: /default/a no longer has the messages before offset 4",
        'table: missing: {"a":1}',
    ]
    found = Verification(sink="o", writes_to="noop", problem="why")
    assert lines_of(found) == ["o: cannot be verified: why"]


def test_unknown_sinks_are_refused(file):
    done = run("verify", file, "--sink", "oo")
    assert done.exit_code == 3
    assert "no sink oo; did you mean 'o'?" in done.stderr


def test_backfill_needs_targets_of_its_own(file):
    done = run("run", file, "--from", "24h")
    assert done.exit_code == 2
    assert "--from and --to need --into NAME" in done.stderr
    done = run("run", file, "--into", "again")
    assert "no sink of p can have another target" in done.stderr
