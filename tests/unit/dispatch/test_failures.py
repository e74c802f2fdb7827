"""The consequences of failures under a failure policy."""

from __future__ import annotations

import pytest

from pydanube.dispatch.failures import (
    effective_poison_policy,
    is_final,
    parks_expired,
    redelivery_delay_s,
)
from pydanube.model.policy import Backoff, FailurePolicy, PoisonPolicy


def delays(policy, count, requested_s=0.0):
    return [redelivery_delay_s(policy, n, requested_s) for n in range(1, count + 1)]


def test_exponential_delay_doubles_up_to_the_longest():
    assert delays(FailurePolicy(), 8) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_fixed_delay_does_not_grow():
    policy = FailurePolicy(redelivery_delay_s=3.0, backoff=Backoff.FIXED)
    assert delays(policy, 3) == [3, 3, 3]


def test_delay_is_limited_to_the_longest():
    policy = FailurePolicy(
        redelivery_delay_s=90.0, redelivery_delay_s_max=60.0, backoff=Backoff.FIXED
    )
    assert delays(policy, 1) == [60]


def test_longer_requested_delay_is_used_up_to_the_longest():
    assert delays(FailurePolicy(), 4, requested_s=3.0) == [3, 3, 4, 8]
    assert delays(FailurePolicy(), 1, requested_s=1e9) == [60]


def test_delay_is_finite_for_any_number_of_failures():
    assert redelivery_delay_s(FailurePolicy(), 1_000_000) == 60
    assert redelivery_delay_s(FailurePolicy(redelivery_delay_s=0.0), 1_000_000) == 0


@pytest.mark.parametrize("redeliveries_max", [0, 1, 5])
def test_failure_after_the_last_redelivery_is_final(redeliveries_max):
    policy = FailurePolicy(redeliveries_max=redeliveries_max)
    assert not is_final(policy, redeliveries_max)
    assert is_final(policy, redeliveries_max + 1)


def test_dead_letter_policy_without_a_topic_blocks():
    dead_letter = FailurePolicy(poison=PoisonPolicy.DEAD_LETTER)
    assert effective_poison_policy(dead_letter) is PoisonPolicy.BLOCK
    with_topic = FailurePolicy(
        poison=PoisonPolicy.DEAD_LETTER, dead_letter_topic="/default/dead"
    )
    assert effective_poison_policy(with_topic) is PoisonPolicy.DEAD_LETTER
    assert (
        effective_poison_policy(FailurePolicy(poison=PoisonPolicy.DROP))
        is PoisonPolicy.DROP
    )


def test_expired_messages_are_parked_if_the_policy_says_so_and_has_a_topic():
    topic = "/default/dead"
    assert parks_expired(
        FailurePolicy(dead_letter_expired=True, dead_letter_topic=topic)
    )
    assert not parks_expired(FailurePolicy(dead_letter_expired=True))
    assert not parks_expired(FailurePolicy(dead_letter_topic=topic))
