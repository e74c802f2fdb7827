"""The limiter keeps the average rate, however often it is called."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube.cli.rate_limiter import CATCH_UP_S, RateLimiter


def sent_at(limiter, times):
    """Return how many messages were released by each of *times*."""
    sent, counts = 0, []
    for now in times:
        available = limiter.available(now)
        limiter.take(available)
        sent += available
        counts.append(sent)
    return counts


def test_first_message_is_released_at_once_and_the_next_on_time():
    limiter = RateLimiter(2, now=100.0)
    assert sent_at(limiter, [100.0, 100.4, 100.5, 100.9, 101.0]) == [1, 1, 2, 2, 3]


def test_next_time_is_when_a_message_is_available():
    limiter = RateLimiter(2, now=0.0)
    limiter.take(limiter.available(0.0))
    assert limiter.next_time(0.0) == 0.5
    assert limiter.available(limiter.next_time(0.0)) == 1


@given(
    st.floats(0.1, 1e6),
    st.lists(st.floats(0, CATCH_UP_S), min_size=1, max_size=50),
)
def test_rate_is_never_exceeded(rate, waits):
    limiter, now, sent = RateLimiter(rate, 0.0), 0.0, 0
    for wait in waits:
        now += wait
        available = limiter.available(now)
        assert available >= 0
        limiter.take(available)
        sent += available
        assert sent <= now * rate * (1 + 1e-6) + 1 + 1e-3


def test_limiter_does_not_catch_up_after_a_long_pause():
    limiter = RateLimiter(10, now=0.0)
    assert limiter.available(1000.0) <= 10 * CATCH_UP_S + 1
