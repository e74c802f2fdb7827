"""
Conversions between Danube's admin messages and types of the model.

The original's policy documents are JSON with the fields of ``NamespacePolicy``, its
times are milliseconds, and its enums are numbers.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace

from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    DispatchMode,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.wire.pb import danube_admin_pb2 as pb
from pydanube.wire.pb.danube_api_pb2 import ConsumerRequest
from pydanube_broker.wire.grpc.danube_api import member_of, number_of

UNACKED_MESSAGES_MAX = 10_000


# Topics.


def topic_policy(strategy: int) -> TopicPolicy:
    """
    Return the policy of a new topic with this dispatch strategy.

    Raises:
        InvalidRequest: There is no such strategy.
    """
    problem = "there is no dispatch strategy"
    mode = member_of(DispatchMode, pb.DispatchStrategy, strategy, problem)
    return TopicPolicy(dispatch=mode)


# Namespaces.


def policy_document(policy: NamespacePolicy) -> str:
    """Return *policy* as the JSON that the original's tools print."""
    return json.dumps(asdict(policy))


def parse_policy_document(text: str) -> NamespacePolicy:
    """
    Return the limits in a JSON object; a missing field means no limit.

    Raises:
        InvalidRequest: *text* is not such an object.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the policies are not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequest("the policies must be a JSON object of limits by name")
    known = {field.name for field in fields(NamespacePolicy)}
    if unknown := sorted(document.keys() - known):
        raise InvalidRequest(
            f"there is no policy {unknown[0]!r}; there are {', '.join(sorted(known))}"
        )
    for name, limit in document.items():
        if type(limit) is not int:
            raise InvalidRequest(
                f"{name} must be a number, not {limit!r}; 0 means no limit"
            )
    return NamespacePolicy(**document)


# Subscriptions.


def failure_policy_from_wire(
    policy: pb.SubscriptionFailurePolicy, known: FailurePolicy | None
) -> FailurePolicy:
    """
    Return the policy; settings without a field in the message are those of *known*.

    Raises:
        InvalidRequest: A number is unknown, or the dead-letter topic is missing.
    """
    backoff = member_of(
        Backoff,
        pb.SubscriptionBackoffStrategy,
        policy.backoff_strategy,
        "there is no backoff strategy",
    )
    poison = member_of(
        PoisonPolicy,
        pb.SubscriptionPoisonPolicy,
        policy.poison_policy,
        "there is no poison policy",
    )
    if poison is PoisonPolicy.DEAD_LETTER and not policy.dead_letter_topic:
        raise InvalidRequest(
            "dead_letter_topic must be configured when poison_policy is DeadLetter"
        )
    return replace(
        known or FailurePolicy(),
        redeliveries_max=policy.max_redelivery_count,
        ack_timeout_s=policy.ack_timeout_ms / 1000 or None,
        redelivery_delay_s=policy.base_redelivery_delay_ms / 1000,
        redelivery_delay_s_max=policy.max_redelivery_delay_ms / 1000,
        backoff=backoff,
        poison=poison,
        dead_letter_topic=policy.dead_letter_topic or None,
    )


def failure_policy_to_wire(policy: FailurePolicy) -> pb.SubscriptionFailurePolicy:
    return pb.SubscriptionFailurePolicy(
        max_redelivery_count=policy.redeliveries_max,
        ack_timeout_ms=(
            0 if policy.ack_timeout_s is None else max(1, _ms(policy.ack_timeout_s))
        ),
        base_redelivery_delay_ms=_ms(policy.redelivery_delay_s),
        max_redelivery_delay_ms=_ms(policy.redelivery_delay_s_max),
        backoff_strategy=number_of(policy.backoff, pb.SubscriptionBackoffStrategy),
        dead_letter_topic=policy.dead_letter_topic,
        poison_policy=number_of(policy.poison, pb.SubscriptionPoisonPolicy),
    )


def dispatch_limits_from_wire(
    config: pb.SubscriptionDispatchConfig, known: DispatchLimits | None
) -> DispatchLimits:
    """
    Return the limits; those without a field in the message are those of *known*.

    Raises:
        InvalidRequest: The number is out of range.
    """
    if not 1 <= config.max_unacked_messages <= UNACKED_MESSAGES_MAX:
        raise InvalidRequest(
            f"max_unacked_messages must be from 1 to {UNACKED_MESSAGES_MAX}, not "
            f"{config.max_unacked_messages}"
        )
    return replace(
        known or DispatchLimits(), unacked_messages_max=config.max_unacked_messages
    )


def dispatch_limits_to_wire(
    limits: DispatchLimits | None,
) -> pb.SubscriptionDispatchConfig | None:
    """Return the limit of a subscription, or None if it has none."""
    if limits is None or limits.unacked_messages_max is None:
        return None
    return pb.SubscriptionDispatchConfig(
        max_unacked_messages=limits.unacked_messages_max
    )


def subscription_type_number(type_: SubscriptionType | None) -> int:
    """Return the number of *type_* in ``danube.ConsumerRequest``; 0 for None."""
    if type_ is None:
        return 0
    return int(number_of(type_, ConsumerRequest.SubscriptionType))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
