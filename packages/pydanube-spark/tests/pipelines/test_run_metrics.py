"""Tests of the metrics of a run."""

from pydanube.model import pipeline_metrics as metrics
from pydanube.model.pipeline_metrics import PIPELINE_METRICS
from pydanube_spark.pipelines.pure.progress import (
    QueryProgress,
    QueryState,
    RunState,
    RunStatus,
)
from pydanube_spark.pipelines.pure.run_metrics import samples_of
from pydanube_spark.pipelines.pure.run_records import RunRecord


def record(**more):
    return RunRecord(
        pipeline="p",
        file="f",
        pid=1,
        mark="m",
        host="h",
        since="s",
        **more,
    )


def status(state, *queries, **more):
    return RunStatus(
        pipeline="p",
        file="f",
        pid=1,
        host="h",
        since="s",
        updated="u",
        state=state,
        queries=[*queries],
        **more,
    )


QUERY = QueryProgress(
    name="q",
    writes_to="w",
    state=QueryState.RUNNING,
    rows=70,
    lag_by_topic={"/default/a": 7, "/default/b": 0},
    duration_s=0.5,
    broken={"parsed.is_positive": 4, "parsed.has_number": 0},
    batches=3,
    batch_seconds=1.5,
    last_batch_time=1_767_225_600_500_000,
    state_rows=9,
    state_memory_bytes=900,
    failures=1,
    last_error_time=1_767_225_500_000_000,
)


def found(*given):
    return {(metric, labels[1:]): value for metric, labels, value in samples_of(*given)}


def test_every_metric_has_a_value():
    run = record(
        restarts=2,
        exit_code=1,
        last_success="2026-01-01T00:00:00+00:00",
    )
    samples = found(run, status(RunState.RUNNING, QUERY))
    assert {metric for metric, _ in samples} == {*PIPELINE_METRICS}
    assert samples[metrics.LAG, ("q", "/default/a")] == 7
    assert samples[metrics.LAG, ("q", "/default/b")] == 0
    assert samples[metrics.BROKEN, ("q", "parsed.is_positive")] == 4
    assert samples[metrics.BROKEN, ("q", "parsed.has_number")] == 0
    assert samples[metrics.LAST_BATCH, ("q",)] == 1_767_225_600.5
    assert samples[metrics.LAST_SUCCESS, ()] == 1_767_225_600
    assert samples[metrics.RESTARTS, ()] == 2
    assert samples[metrics.FAILED, ()] == 1


def test_tables_without_a_mirror_are_counted():
    samples = found(
        record(),
        status(RunState.RUNNING, not_mirrored=["a", "b"], tables_problem="no key"),
    )
    assert samples[metrics.NOT_MIRRORED, ()] == 2
    assert samples[metrics.TABLES_WAIT, ()] == 1
    samples = found(record(), status(RunState.RUNNING))
    assert samples[metrics.NOT_MIRRORED, ()] == samples[metrics.TABLES_WAIT, ()] == 0


def test_unknown_values_are_left_out():
    samples = found(
        record(), status(RunState.RUNNING, QueryProgress(name="q", writes_to="w"))
    )
    assert (metrics.STATE_ROWS, ("q",)) not in samples
    assert (metrics.LAST_BATCH, ("q",)) not in samples
    assert samples[metrics.FAILED, ()] == 0


def test_a_run_is_up_while_its_queries_run():
    def is_up(*given):
        return found(*given)[metrics.UP, ()]

    assert is_up(record(), status(RunState.RUNNING))
    assert not is_up(record(), None)
    assert not is_up(record(), status(RunState.STARTING))
    assert not is_up(record(), status(RunState.FAILED))


def test_a_run_that_was_stopped_has_not_failed():
    def has_failed(code):
        run = record(exit_code=code)
        return found(run, status(RunState.RUNNING))[metrics.FAILED, ()]

    assert [has_failed(code) for code in (None, 0, 130, 143)] == [0, 0, 0, 0]
    assert [has_failed(code) for code in (1, 2, -9)] == [1, 1, 1]
