"""Waits double up to a limit, and there is an end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.pipelines.retrying import RetryPolicy
from pydanube.pipelines.spec import Retries


def test_without_a_word_a_query_fails_at_once():
    assert RetryPolicy.of(Retries()).delay_s(1) is None


@pytest.mark.parametrize(
    ("failures", "delay_s"), [(1, 1), (2, 2), (3, 4), (4, 5), (5, 5), (6, None)]
)
def test_waits_double_up_to_a_limit(failures, delay_s):
    policy = RetryPolicy.of(Retries(count=5, backoff="1s", backoff_max="5s"))
    assert policy.delay_s(failures) == delay_s


@given(st.integers(1, 10**9))
def test_no_wait_is_longer_than_the_limit(failures):
    policy = RetryPolicy(10**9, 0.5, 60.0)
    assert 0.5 <= policy.delay_s(failures) <= 60.0
