"""Tests of the classification of errors."""

import pytest

from pydanube.model.errors import ConnectionLost, InvalidRequest
from pydanube_connect.pure.failures import (
    ConnectorFailed,
    TakenOver,
    Transient,
    error_line,
    is_transient,
)


@pytest.mark.parametrize(
    "error",
    [Transient("x"), TakenOver("x"), ConnectionLost("x"), OSError(), TimeoutError()],
)
def test_errors_that_may_pass_are_transient(error):
    assert is_transient(error)


@pytest.mark.parametrize(
    "error", [ConnectorFailed("x"), InvalidRequest("x"), KeyError("x"), ValueError()]
)
def test_errors_that_stay_are_not(error):
    assert not is_transient(error)


def test_errors_fit_on_a_line():
    assert error_line(Transient("no\n answer")) == "no answer"
    assert error_line(KeyError("x")) == "KeyError: 'x'"
    assert error_line(TimeoutError()) == "TimeoutError"
