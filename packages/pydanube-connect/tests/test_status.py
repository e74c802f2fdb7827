"""Tests of the status of a connector."""

from pydanube_connect.status import ConnectorStatus, State


def test_line_has_the_counts_that_matter():
    status = ConnectorStatus(
        connector="hook", kind="webhook-source", topic="/default/a"
    )
    assert status.line() == "hook: starting, 0 messages"
    status.state = State.RETRYING
    status.messages, status.retries, status.lag = 1200, 2, 5
    status.dead_letters, status.refused, status.error = 3, 1, "no answer"
    assert status.line() == (
        "hook: retrying, 1,200 messages, lag 5, 3 dead letters, 1 refused, 2 retries, "
        "last error: no answer"
    )
    assert not status.state.is_over
    assert State.FAILED.is_over


def status_after(*changes):
    """The status of a connector after (time in seconds, state) pairs."""
    status = ConnectorStatus(connector="c", kind="webhook-source", topic="/default/a")
    for second, state in changes:
        status.enter(state, second * 1_000_000)
    return status


def degraded_at(status, second):
    return status.is_degraded(second * 1_000_000)


def test_connector_is_degraded_when_it_retries_for_longer_than_allowed():
    status = status_after((0, State.RUNNING), (10, State.RETRYING))
    assert not degraded_at(status, 310)
    assert degraded_at(status, 311)
    assert status.retrying_s(70_000_000) == 60.0


def test_connector_that_fails_whenever_it_is_opened_is_degraded():
    changes = []
    for second in range(0, 600, 60):
        changes += [(second, State.RETRYING), (second + 59, State.RUNNING)]
    assert degraded_at(status_after(*changes), 600)


def test_connector_that_runs_again_is_not_degraded():
    status = status_after((0, State.RETRYING), (400, State.RUNNING))
    assert degraded_at(status, 401)
    assert not degraded_at(status, 520)
    status.count_batch()
    assert not degraded_at(status, 402)
    # A failure long after it is a new one.
    status = status_after(
        (0, State.RETRYING), (400, State.RUNNING), (9000, State.RETRYING)
    )
    assert not degraded_at(status, 9200)
    for state in (State.PAUSED, State.FAILED, State.STOPPED):
        assert not degraded_at(status_after((0, State.RETRYING), (400, state)), 401)
