"""The consequences of failures under a failure policy."""

from __future__ import annotations

from pydanube.model.policy import Backoff, FailurePolicy, PoisonPolicy
from pydanube.model.retry import RetryPolicy


def is_final(policy: FailurePolicy, failures: int) -> bool:
    """Return whether failure number *failures* exceeds the redeliveries allowed."""
    return failures > policy.redeliveries_max


def redelivery_delay_s(
    policy: FailurePolicy, failures: int, requested_s: float = 0.0
) -> float:
    """
    Return the delay between failure number *failures* and the next delivery.

    The consumer may request a longer delay with *requested_s*, up to the policy's
    longest delay.
    """
    delay_s, delay_max_s = policy.redelivery_delay_s, policy.redelivery_delay_s_max
    if policy.backoff is Backoff.EXPONENTIAL:
        delay_s = RetryPolicy(delay_s, delay_max_s).delay_s(failures)
    return min(max(delay_s, requested_s), delay_max_s)


def effective_poison_policy(policy: FailurePolicy) -> PoisonPolicy:
    """Return the poison policy; without a dead-letter topic, messages block."""
    if policy.poison is PoisonPolicy.DEAD_LETTER and policy.dead_letter_topic is None:
        return PoisonPolicy.BLOCK
    return policy.poison


def parks_expired(policy: FailurePolicy) -> bool:
    """Return whether expired messages go to a dead-letter topic."""
    return policy.dead_letter_expired and policy.dead_letter_topic is not None
