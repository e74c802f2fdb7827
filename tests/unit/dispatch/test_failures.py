"""What a failure policy says."""

from __future__ import annotations

import pytest

from pydanube.dispatch.failures import (
    is_final,
    parks_expired,
    poison_of,
    redelivery_delay_s,
)
from pydanube.model.policy import Backoff, FailurePolicy, PoisonPolicy


def delays(policy, count, asked_s=0.0):
    return [redelivery_delay_s(policy, n, asked_s) for n in range(1, count + 1)]


def test_an_exponential_delay_doubles_up_to_the_longest():
    assert delays(FailurePolicy(), 8) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_fixed_delay_stays_the_same():
    policy = FailurePolicy(redelivery_delay_s=3.0, backoff=Backoff.FIXED)
    assert delays(policy, 3) == [3, 3, 3]


def test_a_delay_longer_than_the_longest_is_the_longest():
    policy = FailurePolicy(
        redelivery_delay_s=90.0, redelivery_delay_s_max=60.0, backoff=Backoff.FIXED
    )
    assert delays(policy, 1) == [60]


def test_the_longer_of_policy_and_wish_counts_up_to_the_longest():
    assert delays(FailurePolicy(), 4, asked_s=3.0) == [3, 3, 4, 8]
    assert delays(FailurePolicy(), 1, asked_s=1e9) == [60]


def test_any_number_of_failures_has_a_delay():
    assert redelivery_delay_s(FailurePolicy(), 1_000_000) == 60
    assert redelivery_delay_s(FailurePolicy(redelivery_delay_s=0.0), 1_000_000) == 0


@pytest.mark.parametrize("redeliveries_max", [0, 1, 5])
def test_the_failure_after_the_last_redelivery_is_final(redeliveries_max):
    policy = FailurePolicy(redeliveries_max=redeliveries_max)
    assert not is_final(policy, redeliveries_max)
    assert is_final(policy, redeliveries_max + 1)


def test_dead_letters_without_a_topic_block():
    dead_letter = FailurePolicy(poison=PoisonPolicy.DEAD_LETTER)
    assert poison_of(dead_letter) is PoisonPolicy.BLOCK
    with_topic = FailurePolicy(
        poison=PoisonPolicy.DEAD_LETTER, dead_letter_topic="/default/dead"
    )
    assert poison_of(with_topic) is PoisonPolicy.DEAD_LETTER
    assert poison_of(FailurePolicy(poison=PoisonPolicy.DROP)) is PoisonPolicy.DROP


def test_expired_messages_are_parked_only_if_that_is_wished_and_possible():
    topic = "/default/dead"
    assert parks_expired(
        FailurePolicy(dead_letter_expired=True, dead_letter_topic=topic)
    )
    assert not parks_expired(FailurePolicy(dead_letter_expired=True))
    assert not parks_expired(FailurePolicy(dead_letter_topic=topic))
