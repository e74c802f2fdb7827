"""Tests of the progress of queries."""

import json

from pydanube_spark.pipelines.pure.progress import (
    QueryProgress,
    QueryState,
    RunState,
    key_of,
    unseen,
)
from pydanube_spark.reader.pure.query_positions import Position, to_json


def positions(**by_topic):
    return json.dumps(
        to_json(
            {f"/default/{name}": Position(1, end) for name, end in by_topic.items()}
        )
    )


def report(batch, rows, *, is_idle=False, latest=None, end=None, **more):
    return {
        "runId": "r",
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:0{batch}.000Z",
        "numInputRows": rows,
        "inputRowsPerSecond": 10.0,
        "processedRowsPerSecond": float("nan") if not rows else 20.0,
        "durationMs": {"triggerExecution": 500}
        | ({} if is_idle else {"addBatch": 400}),
        "sources": [{"latestOffset": latest, "endOffset": end}],
        **more,
    }


def query():
    return QueryProgress(name="q", writes_to="w")


def test_rows_of_batches_add_up():
    found = query()
    behind = {"latest": positions(a=7, b=3), "end": positions(a=5, b=3)}
    assert found.on_reports([report(0, 5), report(1, 2, **behind)])
    assert (found.batch, found.rows, found.lag) == (1, 7, 2)
    assert (found.input_rate, found.processing_rate) == (10.0, 20.0)
    assert found.duration_s == 0.5
    assert (found.batches, found.batch_seconds) == (2, 1.0)
    assert found.last_batch_time == 1_767_225_601_500_000
    assert found.lag_by_topic == {"/default/a": 2, "/default/b": 0}
    assert found.positions == {"/default/a": 5, "/default/b": 3}


def test_state_of_all_operators_adds_up():
    operator = {"numRowsTotal": 5, "memoryUsedBytes": 100}
    found = query()
    found.on_reports([report(0, 5)])
    assert (found.state_rows, found.state_memory_bytes) == (None, None)
    found.on_reports([report(1, 5, stateOperators=[operator, operator])])
    assert (found.state_rows, found.state_memory_bytes) == (10, 200)


def test_idle_report_is_not_a_batch():
    found = query()
    found.on_reports([report(0, 5)])
    assert not found.on_reports([report(1, 0, is_idle=True)])
    assert (found.batch, found.rows, found.processing_rate) == (0, 5, 20.0)


def test_lag_sums_all_topics_and_sources():
    sources = [
        {"latestOffset": positions(a=7, new=4), "endOffset": positions(a=5)},
        {"latestOffset": positions(c=2), "endOffset": positions(c=1)},
        {"latestOffset": "7", "endOffset": "5"},
    ]
    found = query()
    found.on_reports([report(0, 1) | {"sources": sources}])
    assert found.lag == 7


def test_lag_of_other_sources_is_unknown():
    found = query()
    found.on_reports([report(0, 1)])
    assert found.lag is None


def test_reports_are_counted_once():
    reports = [report(each, 1) for each in range(4)]
    assert unseen(reports, None) == reports
    assert unseen(reports, key_of(reports[1])) == reports[2:]
    assert unseen(reports, ("another run", 1, "2026-01-01T00:00:01.000Z")) == reports


def test_final_states_are_over():
    assert QueryState.STOPPED.is_over
    assert not QueryState.RETRYING.is_over
    assert RunState.FAILED.is_over
    assert not RunState.STOPPING.is_over


class Counts(dict):
    """A row of Spark, as far as progress reports use it."""

    def asDict(self):  # noqa: N802
        return dict(self)


def test_broken_expectations_add_up_over_completed_batches():
    found = query()
    observed = {"expect.parsed": Counts(a=1, b=None), "other": Counts(c=1)}
    first = report(0, 5, observedMetrics=observed)
    idle = report(1, 0, is_idle=True, observedMetrics=observed)
    found.on_reports([first, idle, report(1, 5, observedMetrics=observed)])
    assert found.broken == {"parsed.a": 2, "parsed.b": 0}
