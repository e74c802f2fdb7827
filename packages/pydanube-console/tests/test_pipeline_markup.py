"""A pipeline is shown with its progress, its errors as text, and the end of its log."""

from pathlib import Path

import pytest

from pydanube_console.pipeline_markup import (
    LINE_CHARACTERS_MAX,
    LINES_MAX,
    render_log,
    render_pipelines,
    render_run,
    state_of,
)
from pydanube_console.pipeline_monitor import WatchedPipeline
from pydanube_spark.pipelines.pure.progress import QueryProgress, RunState, RunStatus
from pydanube_spark.pipelines.pure.run_records import RunRecord
from pydanube_spark.pipelines.runs import Run
from pydanube_spark.pipelines.state import StateDirectory

FACTS = {"pipeline": "orders", "file": "f.yaml", "pid": 7, "host": "h", "since": "s"}
QUERY = QueryProgress(
    name="table",
    writes_to="delta",
    rows=1200,
    batches=4,
    lag=30,
    last_batch_time=1_000_000,
    error="<b>broken",
)


def pipeline(*queries, state=RunState.RUNNING, is_running=True, **record):
    status = RunStatus(**FACTS, updated="u", state=state, queries=list(queries))
    facts = {"mark": None, "ended": None if is_running else "e"} | record
    directory = StateDirectory(Path("/state"))
    kept = RunRecord(**FACTS, **facts)
    return WatchedPipeline(Run("orders", directory, kept, status, is_running))


def test_list_has_rows_lag_and_the_last_error():
    shown = render_pipelines([pipeline(QUERY, restarts=3)], 121_000_000)
    assert "1,200" in shown
    assert "2m ago" in shown
    assert "&lt;b&gt;broken" in shown
    assert 'href="/pipeline?id=' in shown
    assert "No pipeline was run there." in render_pipelines([], 0)


def test_run_has_its_queries_and_facts():
    shown = render_run(pipeline(QUERY, last_success="yesterday"), 2.0)
    assert "yesterday" in shown
    assert "<b>" not in shown
    assert "7 on h" in render_run(pipeline(), 2.0)
    assert "The run has reported no queries." in render_run(pipeline(), 2.0)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (pipeline(), "good"),
        (pipeline(state=RunState.FAILED, is_running=False), "bad"),
        (pipeline(is_running=False, ended=None), "bad"),
        (pipeline(state=RunState.STOPPING), "warn"),
        (pipeline(state=RunState.DONE, is_running=False), "plain"),
    ],
)
def test_state_has_a_colour(found, kind):
    assert f"badge-{kind}" in state_of(found)


def test_log_is_bounded_and_text():
    lines = [f"<i>{number}" for number in range(LINES_MAX + 5)]
    shown = render_log([*lines, "x" * (LINE_CHARACTERS_MAX + 9)], "run.log")
    assert "&lt;i&gt;5<" not in shown
    assert "&lt;i&gt;6\n" in shown
    assert "x" * (LINE_CHARACTERS_MAX + 1) not in shown
    assert "run.log is empty" in render_log([], "run.log")
