"""Retries of requests, with delays that the server may request."""

import pytest

from pydanube.model.errors import Unavailable
from pydanube.model.retry import RetryPolicy
from pydanube_spark.sinks.retrying import REQUESTED_DELAY_MAX_S, RetryLater, persist


def attempts(*errors):
    """An attempt that raises *errors*, one after the other, and then succeeds."""
    left = list(errors)

    def attempt():
        if left:
            raise left.pop(0)
        return "done"

    return attempt


def test_delays_are_never_shorter_than_the_server_requests():
    pauses = []
    failing = attempts(RetryLater("a", 7.0), RetryLater("b", 0.0), Unavailable("c"))
    assert persist(failing, RetryPolicy(0.5, 30.0), pauses.append) == "done"
    assert pauses == [7.0, 1.0, 2.0]


def test_delays_that_are_too_long_end_the_retries():
    failing = attempts(RetryLater("busy", REQUESTED_DELAY_MAX_S + 1))
    with pytest.raises(Unavailable):
        persist(failing, RetryPolicy(0.5, 30.0), None)


def test_persist_raises_the_last_failure():
    failing = attempts(*(Unavailable(str(at)) for at in range(9)))
    with pytest.raises(Unavailable, match=r"^2$"):
        persist(failing, RetryPolicy(0.5, 30.0, retries_max=2), lambda _: None)


def test_other_errors_are_not_retried():
    with pytest.raises(ValueError, match="no"):
        persist(attempts(ValueError("no")), RetryPolicy(0.5, 30.0), None)
