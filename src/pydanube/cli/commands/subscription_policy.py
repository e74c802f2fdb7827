"""`danube subscriptions policy, set-policy`: the failure policy and limits."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from pydanube.cli import parameters
from pydanube.cli.declaration import Connect
from pydanube.cli.output import Fields, Result
from pydanube.cli.quantities import format_duration, parse_duration
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionSettings,
)
from pydanube.model.positions import parse_choice

if TYPE_CHECKING:
    from collections.abc import Mapping

NEVER = "never"

T = TypeVar("T", FailurePolicy, DispatchLimits)


class Expired(Enum):
    """The choice for expired messages."""

    DROP = "drop"
    DEAD_LETTER = "dead-letter"


def policy(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
) -> Result:
    """
    Show the failure policy of a subscription, and its limits for unacknowledged
    messages.

    It shows what "set-policy" has set, and defaults for the rest.
    """
    with connect() as client:
        settings = client.subscription_settings(topic, subscription)
    return Result(settings, _fields(settings))


def set_policy(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
    redeliveries: Annotated[int | None, typer.Option(min=0)] = None,
    ack_timeout: str | None = None,
    delay: str | None = None,
    delay_max: str | None = None,
    backoff: Backoff | None = None,
    poison: str | None = None,
    dead_letter_topic: str | None = None,
    expired: Expired | None = None,
    unacked_max: Annotated[int | None, typer.Option(min=0)] = None,
    unacked_each: Annotated[int | None, typer.Option(min=0)] = None,
    reset: bool = False,
) -> Result:
    """
    Set the failure policy of a subscription, and its limits for unacknowledged
    messages.

    Options that are not given do not change. Changes take effect at once, also for
    messages that have already failed, and can be made before the subscription exists.
    For a partitioned topic, they apply to all partitions.

    Args:
        redeliveries (COUNT): The maximum number of redeliveries of a message; after
            that its failure is final.
        ack_timeout (DURATION|never): A message that was not acknowledged within this
            time has failed; never turns it off.
        delay (DURATION): The delay between a failure and the redelivery.
        delay_max (DURATION): The maximum delay with --backoff exponential.
        backoff (fixed|exponential): Whether the delay is fixed, or doubles with each
            failure.
        poison (dead-letter|block|drop): The choice for a message whose failure is
            final: dead-letter moves it to the dead-letter topic; block stops delivery
            until it is handled; drop counts it as acknowledged.
        dead_letter_topic (TOPIC): The dead-letter topic, created if it does not exist;
            implies --poison dead-letter.
        expired (drop|dead-letter): The choice for expired messages.
        unacked_max (COUNT): The maximum number of unacknowledged messages of all
            consumers together; 0 is no limit.
        unacked_each (COUNT): The maximum number of unacknowledged messages of each
            consumer; 0 is no limit.
        reset: First reset everything to the defaults.
    """
    if dead_letter_topic is not None and poison is None:
        poison = PoisonPolicy.DEAD_LETTER.value
    failures = _given(
        redeliveries_max=redeliveries,
        redelivery_delay_s=None if delay is None else parse_duration(delay),
        redelivery_delay_s_max=None if delay_max is None else parse_duration(delay_max),
        backoff=backoff,
        poison=None if poison is None else parse_choice("poison", poison, PoisonPolicy),
        dead_letter_topic=dead_letter_topic,
        dead_letter_expired=expired and expired is Expired.DEAD_LETTER,
    )
    if ack_timeout is not None:
        is_never = ack_timeout.strip() == NEVER
        failures["ack_timeout_s"] = None if is_never else parse_duration(ack_timeout)
    limits = _given(
        unacked_messages_max=unacked_max,
        unacked_messages_max_per_consumer=unacked_each,
    )
    # 0 means no limit.
    limits = {name: number or None for name, number in limits.items()}
    if not (failures or limits or reset):
        raise InvalidRequest("nothing to set; use an option such as --redeliveries 3")
    with connect() as client:
        known = SubscriptionSettings()
        if not reset:
            known = client.subscription_settings(topic, subscription)
        if failures or reset:
            client.set_failure_policy(
                topic,
                subscription,
                _changed(known.failure_policy or FailurePolicy(), failures),
            )
        if limits or reset:
            client.set_dispatch_limits(
                topic, subscription, _changed(known.limits or DispatchLimits(), limits)
            )
        settings = client.subscription_settings(topic, subscription)
    return Result(settings, _fields(settings))


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _changed(known: T, given: Mapping[str, Any]) -> T | None:
    return replace(known, **given) if given else None


def _fields(settings: SubscriptionSettings) -> Fields:
    failures = settings.failure_policy or FailurePolicy()
    limits = settings.limits or DispatchLimits()
    timeout_s = failures.ack_timeout_s
    return Fields(
        [
            (
                "Ack timeout",
                NEVER if timeout_s is None else f"after {format_duration(timeout_s)}",
            ),
            ("Redelivered", _delay(failures)),
            ("Redeliveries", str(failures.redeliveries_max)),
            ("Final failures", _poison(failures)),
            ("Unacknowledged at most", _limit(limits.unacked_messages_max)),
            ("By each consumer", _limit(limits.unacked_messages_max_per_consumer)),
            ("Paused", settings.is_paused),
        ]
    )


def _delay(policy: FailurePolicy) -> str:
    first = f"after {format_duration(policy.redelivery_delay_s)}"
    match policy.backoff:
        case Backoff.FIXED:
            return f"{first} each time"
        case Backoff.EXPONENTIAL:
            most = format_duration(policy.redelivery_delay_s_max)
            return f"{first}, then twice as long each time, up to {most}"


def _poison(policy: FailurePolicy) -> str:
    match policy.poison:
        case PoisonPolicy.DEAD_LETTER:
            expired = (
                ", and so do expired messages" if policy.dead_letter_expired else ""
            )
            return f"go to {policy.dead_letter_topic}{expired}"
        case PoisonPolicy.BLOCK:
            return "block the subscription"
        case PoisonPolicy.DROP:
            return "are dropped"


def _limit(count: int | None) -> str:
    return "no limit" if count is None else str(count)
