"""Tests of the status of a connector."""

from pydanube.connectors.status import ConnectorStatus, State


def test_line_has_the_counts_that_matter():
    status = ConnectorStatus(connector="hook", kind="webhook", topic="/default/a")
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
