"""The valid settings of subscriptions."""

from __future__ import annotations

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.policy import (
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionSettings,
)
from pydanube_broker.broker.pure.limits import LIMIT_MAX

DURATION_S_MAX = 10 * 366 * 24 * 3600.0
"""The longest timeout or delay."""


def check_settings(settings: SubscriptionSettings, topic: TopicName) -> None:
    """
    Raise if settings of a subscription of *topic* are invalid.

    Raises:
        InvalidRequest: A number is out of range, a required dead-letter topic is
            missing, or it is *topic* itself.
        InvalidName: The dead-letter topic's name is malformed.
    """
    if settings.failure_policy is not None:
        _check_failure_policy(settings.failure_policy, topic)
    if settings.limits is not None:
        _check_limits(settings.limits)


def check_ack_timeout(ack_timeout_s: float) -> None:
    """
    Raise if an ack timeout is out of range.

    Raises:
        InvalidRequest: It is not more than 0 and at most ``DURATION_S_MAX``.
    """
    if not 0 < ack_timeout_s <= DURATION_S_MAX:
        raise InvalidRequest(
            f"ack_timeout_s is {ack_timeout_s}; it must be more than 0 and at most "
            f"{DURATION_S_MAX:.0f}"
        )


def dead_letter_topic_of(settings: SubscriptionSettings) -> TopicName | None:
    """Return the dead-letter topic, if there is one."""
    policy = settings.failure_policy
    if policy is None or policy.dead_letter_topic is None:
        return None
    return TopicName.parse(policy.dead_letter_topic)


def _check_range(
    name: str, value: float, lowest: int, highest: float, also: str = ""
) -> None:
    if not lowest <= value <= highest:
        raise InvalidRequest(
            f"{name} is {value}; it must be from {lowest} to {highest:.0f}{also}"
        )


def _check_failure_policy(policy: FailurePolicy, topic: TopicName) -> None:
    _check_range("redeliveries_max", policy.redeliveries_max, 0, LIMIT_MAX)
    if policy.ack_timeout_s is not None:
        check_ack_timeout(policy.ack_timeout_s)
    for name in ("redelivery_delay_s", "redelivery_delay_s_max"):
        _check_range(name, getattr(policy, name), 0, DURATION_S_MAX)
    if policy.dead_letter_topic is not None:
        target = TopicName.parse(policy.dead_letter_topic)
        if target == topic:
            raise InvalidRequest(f"{topic} cannot be its own dead-letter topic")
    elif policy.poison is PoisonPolicy.DEAD_LETTER:
        raise InvalidRequest(
            "dead_letter_topic must be configured when poison_policy is DeadLetter"
        )
    elif policy.dead_letter_expired:
        raise InvalidRequest(
            "dead_letter_topic must be configured when dead_letter_expired is set"
        )


def _check_limits(limits: DispatchLimits) -> None:
    for name in ("unacked_messages_max", "unacked_messages_max_per_consumer"):
        value = getattr(limits, name)
        if value is not None:
            _check_range(name, value, 1, LIMIT_MAX, ", or None")
