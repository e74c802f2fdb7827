"""What a failure policy says of a message that failed so many times."""

from __future__ import annotations

from pydanube.model.policy import Backoff, FailurePolicy, PoisonPolicy

# Beyond this many doublings any delay has reached any limit.
_DOUBLINGS_MAX = 100


def is_final(policy: FailurePolicy, failures: int) -> bool:
    """Whether failure number *failures* was the last one that is tolerated."""
    return failures > policy.redeliveries_max


def redelivery_delay_s(
    policy: FailurePolicy, failures: int, asked_s: float = 0.0
) -> float:
    """
    How long to wait after failure number *failures* before the next delivery.

    Who gave the message back may ask for more than the policy says, up to the
    policy's longest delay.
    """
    delay_s = policy.redelivery_delay_s
    if policy.backoff is Backoff.EXPONENTIAL:
        delay_s *= 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
    return min(max(delay_s, asked_s), policy.redelivery_delay_s_max)


def poison_of(policy: FailurePolicy) -> PoisonPolicy:
    """What becomes of a final failure; without a place for dead letters, it blocks."""
    if policy.poison is PoisonPolicy.DEAD_LETTER and policy.dead_letter_topic is None:
        return PoisonPolicy.BLOCK
    return policy.poison


def parks_expired(policy: FailurePolicy) -> bool:
    """Whether messages whose time is over go to a dead-letter topic."""
    return policy.dead_letter_expired and policy.dead_letter_topic is not None
