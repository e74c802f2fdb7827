"""Delays double up to a limit, and there is an end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.retry import RetryPolicy


def test_delays_double_up_to_the_limit():
    policy = RetryPolicy(1.0, 5.0)
    assert [policy.delay_s(failures) for failures in range(1, 6)] == [1, 2, 4, 5, 5]


def test_retries_end_at_the_limit():
    assert [RetryPolicy(1, 5, 2).allows(each) for each in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert RetryPolicy(1, 5).allows(10**9)
    assert not RetryPolicy(1, 5, 0).allows(1)


@given(st.integers(1, 10**9))
def test_no_delay_exceeds_the_limit(failures):
    assert 0.5 <= RetryPolicy(0.5, 60.0).delay_s(failures) <= 60.0


@pytest.mark.parametrize(("number", "delay_s"), [(0.0, 1.0), (0.5, 1.5), (1.0, 2.0)])
def test_random_numbers_shorten_the_delay_by_up_to_half(number, delay_s):
    assert RetryPolicy(1.0, 5.0).delay_s(2, lambda: number) == delay_s
