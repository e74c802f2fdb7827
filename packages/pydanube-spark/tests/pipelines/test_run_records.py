"""Tests of the state of a run that people see."""

import pytest

from pydanube_spark.pipelines.pure.progress import RunState, RunStatus
from pydanube_spark.pipelines.pure.run_records import RunRecord, state_shown


def record(ended=None, **more):
    return RunRecord(
        pipeline="p",
        file="p.yaml",
        pid=7,
        mark="x",
        host="h",
        since="s",
        ended=ended,
        **more,
    )


def status(state):
    return RunStatus(
        pipeline="p",
        file="p.yaml",
        pid=7,
        host="h",
        since="s",
        updated="u",
        state=state,
    )


RUNNING, FAILED, DONE = map(status, (RunState.RUNNING, RunState.FAILED, RunState.DONE))
OVER = record("2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("found", "last", "is_running", "shown"),
    [
        (record(), RUNNING, True, "running"),
        (record(), None, True, "starting"),
        # The status is that of the process before.
        (record(), FAILED, True, "starting"),
        (OVER, FAILED, False, "failed"),
        (OVER, DONE, False, "done"),
        # It ended before it could record what its queries did.
        (OVER, RUNNING, False, "died"),
        # The run was killed, or the machine was restarted.
        (record(), RUNNING, False, "died"),
        (record(), DONE, False, "died"),
        (record(), None, False, "died"),
    ],
)
def test_state_is_that_of_the_record_the_status_and_the_lock(
    found, last, is_running, shown
):
    assert state_shown(found, last, is_running=is_running) == shown


def test_a_run_counts_as_a_restart_after_one_that_failed_or_was_killed():
    first = record()
    first.follow(None)
    first.end(0, "t1")
    second = record()
    second.follow(first)
    assert (second.restarts, second.exit_code, second.last_success) == (0, 0, "t1")
    second.end(1, "t2")
    third = record()
    third.follow(second)
    assert (third.restarts, third.exit_code, third.last_success) == (1, 1, "t1")
    # It is killed, and records no end.
    fourth = record()
    fourth.follow(third)
    assert (fourth.restarts, fourth.exit_code) == (2, -9)
    fourth.end(143, "t4")
    fifth = record()
    fifth.follow(fourth)
    assert (fifth.restarts, fifth.has_failed) == (2, False)
