"""A token bucket passes the messages of one second at once, the rest at its rate."""

from __future__ import annotations

import pytest

from pydanube.model.token_bucket import TokenBucket


def test_bucket_is_full_at_first_and_holds_one_second():
    bucket = TokenBucket(10.0, now=100.0)
    assert bucket.capacity == 10
    assert bucket.available(100.0) == 10
    assert bucket.available(1000.0) == 10


def test_bucket_is_refilled_continuously():
    bucket = TokenBucket(10.0, now=0.0)
    bucket.spend(10)
    assert [bucket.available(now) for now in (0.0, 0.09, 0.1, 0.35)] == [0, 0, 1, 3]


def test_rate_below_one_yields_whole_messages():
    bucket = TokenBucket(0.1, now=0.0)
    assert bucket.capacity == 1
    bucket.spend(bucket.available(0.0))
    assert bucket.next_time(5, 0.0) == pytest.approx(10.0)
    assert bucket.available(9.9) == 0
    assert bucket.available(10.0) == 1


def test_rate_is_exact_over_a_long_time():
    bucket = TokenBucket(7.0, now=0.0)
    bucket.spend(bucket.available(0.0))
    went, now = 0, 0.0
    while now < 1000.0:
        now = bucket.next_time(1, now)
        count = bucket.available(now)
        assert count > 0, "the returned time was too early"
        bucket.spend(count)
        went += count
    assert went == pytest.approx(7000, abs=2)


def test_fast_bucket_does_not_wake_callers_for_every_token():
    bucket = TokenBucket(10_000.0, now=0.0)
    bucket.spend(bucket.available(0.0))
    assert bucket.next_time(5000, 0.0) == pytest.approx(0.01)
    assert bucket.next_time(3, 0.0) == pytest.approx(0.0003)


def test_new_rate_keeps_tokens_up_to_the_new_capacity():
    bucket = TokenBucket(10.0, now=0.0)
    bucket.set_rate(4.0, 0.0)
    assert bucket.available(0.0) == 4
    bucket.set_rate(100.0, 0.0)
    assert bucket.available(0.0) == 4
    assert bucket.available(0.5) == 54


def test_clock_that_goes_back_is_ignored():
    bucket = TokenBucket(10.0, now=5.0)
    bucket.spend(10)
    assert bucket.available(4.0) == 0
    assert bucket.available(5.1) == 1


def test_tokens_of_one_second_may_be_taken_without_a_delay():
    rate = TokenBucket(100, now=5.0)
    rate.take(100, now=5.0)
    assert rate.delay_s(5.0) == 0.0
    rate.take(1, now=5.0)
    assert rate.delay_s(5.0) == pytest.approx(0.01)


def test_delay_covers_the_whole_debt():
    rate = TokenBucket(100, now=0.0)
    rate.take(1_100, now=0.0)
    assert rate.delay_s(0.0) == pytest.approx(10.0)
    assert rate.delay_s(4.0) == pytest.approx(6.0)
    assert rate.delay_s(10.5) == 0.0


def test_idle_time_does_not_accumulate():
    rate = TokenBucket(10, now=0.0)
    rate.take(10, now=1_000.0)
    rate.take(10, now=1_000.0)
    assert rate.delay_s(1_000.0) == pytest.approx(1.0)


def test_rate_is_met_by_waiting_for_the_debt():
    rate, now, taken = TokenBucket(50, now=0.0), 0.0, 0
    while now < 100.0:
        if rate.delay_s(now) > 0:
            now += rate.delay_s(now)
            continue
        rate.take(7, now)
        taken += 7
    assert 50 * 100 <= taken <= 50 * 102


def test_new_rate_applies_to_the_current_debt():
    rate = TokenBucket(10, now=0.0)
    rate.take(110, now=0.0)
    rate.set_rate(100, 0.0)
    assert rate.delay_s(0.0) == pytest.approx(1.0)
    rate.set_rate(1, 0.0)
    assert rate.delay_s(0.0) == pytest.approx(100.0)
