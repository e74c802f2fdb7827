"""Tests of the state of a run that people see."""

import pytest

from pydanube.pipelines.progress import RunState, RunStatus
from pydanube.pipelines.run_records import Phase, RunRecord, state_shown


def record(phase=Phase.RUNNING, ended=None):
    return RunRecord(
        pipeline="p",
        file="p.yaml",
        pid=7,
        mark="x",
        host="h",
        since="s",
        log_file="l",
        phase=phase,
        ended=ended,
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
OVER = record(Phase.ENDED, "2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("found", "last", "is_running", "shown"),
    [
        (record(), RUNNING, True, "running"),
        (record(), None, True, "starting"),
        # The status is that of the process before.
        (record(), FAILED, True, "starting"),
        (record(Phase.RESTARTING), FAILED, True, "restarting"),
        (record(Phase.SCHEDULED), DONE, True, "scheduled"),
        (OVER, FAILED, False, "failed"),
        (OVER, DONE, False, "done"),
        # The process with Spark was killed, and the run has recorded that it is over.
        (OVER, RUNNING, False, "died"),
        # The run was killed, or the machine was restarted.
        (record(), RUNNING, False, "died"),
        (record(Phase.SCHEDULED), DONE, False, "died"),
        (record(), None, False, "died"),
        # Its record is missing.
        (None, RUNNING, True, "running"),
        (None, RUNNING, False, "died"),
        (None, DONE, False, "done"),
    ],
)
def test_state_is_that_of_the_record_the_status_and_the_lock(
    found, last, is_running, shown
):
    assert state_shown(found, last, is_running=is_running) == shown
