"""Retries of requests, with delays that the server may request."""

import pytest

from pydanube.model.errors import Unavailable
from pydanube.model.retry import RetryPolicy
from pydanube.sinks.retrying import (
    REQUESTED_DELAY_MAX_S,
    Failed,
    parse_retry_after,
    persist,
)

DATE = "Sat, 21 Nov 2026 12:00:00 GMT"


def failed(retry_after_s):
    return Failed(Unavailable("busy"), retry_after_s)


def test_delays_are_never_shorter_than_the_server_requests():
    pauses = []
    outcomes = iter([failed(after_s) for after_s in (7.0, 0.0, None)] + ["done"])
    assert persist(lambda: next(outcomes), RetryPolicy(0.5, 30.0), pauses.append)
    assert pauses == [7.0, 1.0, 2.0]


def test_delays_that_are_too_long_end_the_retries():
    with pytest.raises(Unavailable):
        persist(lambda: failed(REQUESTED_DELAY_MAX_S + 1), RetryPolicy(0.5, 30.0), None)


def test_persist_retries_until_the_attempt_succeeds():
    pauses = []
    outcomes = iter([Failed(Unavailable("a")), Failed(Unavailable("b"), 9.0), "done"])
    found = persist(lambda: next(outcomes), RetryPolicy(1.0, 30.0), pauses.append)
    assert found == "done"
    assert pauses == [1.0, 9.0]


def test_persist_raises_the_last_failure():
    failures = iter(Failed(Unavailable(str(at))) for at in range(9))
    with pytest.raises(Unavailable, match=r"^2$"):
        persist(
            lambda: next(failures),
            RetryPolicy(0.5, 30.0, retries_max=2),
            lambda _: None,
        )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("120", 120.0),
        ("Sat, 21 Nov 2026 12:00:30 GMT", 30.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        (None, None),
    ],
)
def test_retry_after_is_a_number_or_a_time_of_the_servers_clock(text, wanted):
    assert parse_retry_after(text, DATE) == wanted


def test_retry_after_time_needs_a_date_header():
    assert parse_retry_after(DATE, None) is None
