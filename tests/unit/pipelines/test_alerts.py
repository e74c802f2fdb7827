"""Alerts begin when a condition has held for long enough, and are over once."""

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cronsim")

from pydanube.pipelines.alerts import Alerts, AlertState
from pydanube.pipelines.progress import QueryProgress, QueryState, RunState, RunStatus
from pydanube.pipelines.run_records import Phase, RunRecord
from pydanube.pipelines.spec import AlertRule, Condition

START = datetime(2026, 1, 1, tzinfo=UTC)


def record(**more):
    return RunRecord(
        pipeline="p",
        file="f",
        pid=1,
        mark="m",
        host="h",
        since="s",
        log_file="l",
        **more,
    )


def status(state=RunState.RUNNING, error=None, **query):
    found = QueryProgress(name="q", writes_to="w", state=QueryState.RUNNING, **query)
    return RunStatus(
        pipeline="p",
        file="f",
        pid=1,
        host="h",
        since="s",
        updated="u",
        state=state,
        error=error,
        queries=[found],
    )


class Run:
    """The alerts of one rule."""

    def __init__(self, **rule):
        self._alerts = Alerts({"rule": AlertRule(**rule)})

    def at(self, second, status_now=None, **record_now):
        now = START + timedelta(seconds=second)
        return [
            (each.state.value, each.text.partition("alert rule: ")[2])
            for each in self._alerts.update(record(**record_now), status_now, now)
        ]


def test_a_condition_must_hold_for_a_time_and_is_reported_once():
    run = Run(when=Condition.LAG, above=100, for_="1m")
    assert run.at(0, status(lag=101)) == []
    assert run.at(30, status(lag=100)) == []
    assert run.at(40, status(lag=5000)) == []
    assert run.at(99, status(lag=5000)) == []
    assert run.at(100, status(lag=6000)) == [
        ("firing", "the query q has 6,000 unread messages")
    ]
    assert run.at(105, status(lag=6000)) == []
    assert run.at(110, status(lag=3)) == [
        ("resolved", "over: the query q has 3 unread messages")
    ]
    assert run.at(115, status(lag=3)) == []


def test_a_failure_is_over_when_the_next_process_runs():
    run = Run(when=Condition.FAILED)
    failed = status(RunState.FAILED, "no disk")
    restarting = {"phase": Phase.RESTARTING, "exit_code": 1, "next_start": "12:00"}
    assert run.at(0, status()) == []
    assert run.at(5, failed, **restarting) == [
        (
            "firing",
            "it failed with exit code 1: no disk; it starts again at 12:00",
        )
    ]
    assert run.at(10, status(), exit_code=1) == [("resolved", "over: it runs again")]


@pytest.mark.parametrize("code", [None, 0, 130, 143])
def test_an_end_that_somebody_wanted_is_no_failure(code):
    run = Run(when=Condition.FAILED)
    assert run.at(0, status(RunState.STOPPED), phase=Phase.ENDED, exit_code=code) == []


@pytest.mark.parametrize(
    ("rule", "query", "text"),
    [
        (
            {"when": Condition.BATCH_DURATION, "above": "1m"},
            {"duration_s": 61.0},
            "a micro-batch of the query q took 61 s",
        ),
        (
            {"when": Condition.BATCH_AGE, "above": "1m"},
            {"last_batch_time": round((START.timestamp() - 100) * 1e6)},
            "the query q has had no micro-batch for 100 s",
        ),
        (
            {"when": Condition.BROKEN_ROWS, "above": 0},
            {"broken": {"step.positive": 2}},
            "2 rows of the query q broke expectations",
        ),
    ],
)
def test_each_condition_has_its_value_and_text(rule, query, text):
    assert Run(**rule).at(0, status(**query)) == [("firing", text)]
    assert Run(**rule).at(0, None) == []


def test_a_notice_has_fields_for_programs():
    alerts = Alerts({"behind": AlertRule(when=Condition.LAG, above=1)})
    [notice] = alerts.update(record(), status(lag=7), START)
    assert (notice.pipeline, notice.alert, notice.state, notice.value) == (
        *("p", "behind", AlertState.FIRING, 7),
    )
    assert notice.text.startswith("pipeline p, alert behind: the query q")
