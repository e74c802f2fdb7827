"""How often, and after what pause, something is tried again."""

import pytest

from pydanube.model.errors import Unavailable
from pydanube.sinks.retrying import (
    ASKED_WAIT_MAX_S,
    WAIT_MAX_S,
    Backoff,
    Failed,
    parse_retry_after,
    persist,
)

DATE = "Sat, 21 Nov 2026 12:00:00 GMT"


def test_pauses_double_up_to_a_bound_and_end():
    backoff = Backoff(retries=9, first_s=0.5)
    assert [backoff.wait_s(tried) for tried in range(1, 11)] == [
        *(0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
        *(WAIT_MAX_S, WAIT_MAX_S, WAIT_MAX_S, None),
    ]


def test_a_server_is_given_the_time_that_it_asks_for():
    backoff = Backoff(retries=1, first_s=0.5)
    assert backoff.wait_s(1, 7.0) == 7.0
    assert backoff.wait_s(1, 0.0) == 0.5
    assert backoff.wait_s(1, ASKED_WAIT_MAX_S + 1) is None


def test_it_goes_on_until_it_does_not_fail():
    pauses = []
    outcomes = iter([Failed(Unavailable("a")), Failed(Unavailable("b"), 9.0), "done"])
    found = persist(lambda: next(outcomes), Backoff(first_s=1.0), pauses.append)
    assert found == "done"
    assert pauses == [1.0, 9.0]


def test_the_last_failure_is_raised():
    failures = iter(Failed(Unavailable(str(at))) for at in range(9))
    with pytest.raises(Unavailable, match=r"^2$"):
        persist(lambda: next(failures), Backoff(retries=2), lambda _: None)


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
def test_retry_after_is_a_number_or_a_time_by_the_clock_of_the_server(text, wanted):
    assert parse_retry_after(text, DATE) == wanted


def test_a_time_without_a_clock_is_not_understood():
    assert parse_retry_after(DATE, None) is None
