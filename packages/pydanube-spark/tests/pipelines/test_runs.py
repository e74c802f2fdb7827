"""The current or last runs of pipelines are found in their state directories."""

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pipelines.pure.progress import QueryProgress, RunState, RunStatus
from pydanube_spark.pipelines.pure.run_records import RunRecord
from pydanube_spark.pipelines.run_directory import Entry, run_directory
from pydanube_spark.pipelines.runs import Run, runs_of
from pydanube_spark.pipelines.state import StateDirectory


def record(name, **more):
    return RunRecord(
        pipeline=name, file="f", pid=7, mark="m", host="h", since="s", **more
    )


def status(*queries, **facts):
    return RunStatus(
        pipeline="orders",
        file="orders.yaml",
        pid=7,
        host="h",
        since="s",
        updated="u",
        queries=list(queries),
        **facts,
    )


def query(name, error=None, at=None):
    return QueryProgress(name=name, writes_to="w", error=error, last_error_time=at)


def test_runs_of_the_user_and_of_directories_are_found_once(tmp_path, monkeypatch):
    monkeypatch.setenv("DANUBE_STATE", str(tmp_path / "user"))
    first, second, never = (
        StateDirectory(tmp_path / name) for name in ("first", "second", "never")
    )
    for each in (first, second, never):
        each.path.mkdir()
    first.write_record(record("mine"))
    first.write_status(status())
    second.write_record(record("orders", ended="e"))
    second.write_status(status(state=RunState.DONE))
    for each in (first, never):
        run_directory().add(
            Entry(pipeline="mine", file="f", state_directory=str(each.path))
        )
    found = runs_of(["local", str(second.path)])
    assert [(each.name, each.shown) for each in found] == [
        ("mine", "died"),
        ("orders", "done"),
    ]
    assert len(runs_of([str(second.path), str(second.path)])) == 1
    with pytest.raises(InvalidRequest, match="is not the state directory"):
        runs_of([str(tmp_path / "none")])


def test_last_error_is_that_of_the_run_or_of_the_latest_query(tmp_path):
    state = StateDirectory(tmp_path)
    assert Run("p", state, None, None, False).last_error is None
    queries = [query("a", "early", 1), query("b", "late", 2), query("c")]
    found = Run("p", state, None, status(*queries), False)
    assert found.last_error == "late"
    found = Run("p", state, None, status(*queries, error="no Spark"), False)
    assert found.last_error == "no Spark"
