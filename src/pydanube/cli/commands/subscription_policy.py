"""`danube subscriptions policy, set-policy`: what becomes of messages that fail."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import run_with_client
from pydanube.cli.output import OutputFormat, print_fields, print_json
from pydanube.cli.quantities import format_duration, parse_duration
from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
)
from pydanube.model.positions import parse_choice

if TYPE_CHECKING:
    from pydanube.client.client import Client
    from pydanube.model.policy import SubscriptionSettings

NEVER = "never"


class Expired(Enum):
    """What becomes of a message whose time to live is over."""

    DROP = "drop"
    DEAD_LETTER = "dead-letter"


def policy(
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Show what becomes of messages that fail, and how many may be on their way.

    It is what "set-policy" has decided, or what holds where nothing was decided.
    """

    async def call(client: Client) -> SubscriptionSettings:
        return await client.subscription_settings(topic, subscription)

    _print(run_with_client(url, call), output_format)


def set_policy(
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
    redeliveries: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="COUNT",
            help="How often a message comes again before its failure is final.",
        ),
    ] = None,
    ack_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION|never",
            help="Who has not acknowledged a message after so long has failed.",
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long after a failure a message comes again."
        ),
    ] = None,
    delay_max: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="The longest that this delay may become."
        ),
    ] = None,
    backoff: Annotated[
        Backoff | None,
        typer.Option(
            metavar="fixed|exponential",
            help="Whether the delay stays, or doubles with each failure.",
        ),
    ] = None,
    poison: Annotated[
        str | None,
        typer.Option(
            metavar="dead-letter|block|drop",
            help="What becomes of a message whose failure is final: it goes to the "
            "dead-letter topic; nothing new is delivered until somebody deals with it; "
            "or it counts as done.",
        ),
    ] = None,
    dead_letter_topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="Where it goes with dead-letter, which this option implies; created "
            "if it does not exist.",
        ),
    ] = None,
    expired: Annotated[
        Expired | None,
        typer.Option(
            metavar="drop|dead-letter",
            help="What becomes of a message whose time to live is over.",
        ),
    ] = None,
    unacked_max: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="COUNT",
            help="How many messages may be unacknowledged at a time, by all consumers "
            "together; 0: as many as they take.",
        ),
    ] = None,
    unacked_each: Annotated[
        int | None,
        typer.Option(min=0, metavar="COUNT", help="The same for each consumer."),
    ] = None,
    reset: Annotated[
        bool,
        typer.Option("--reset", help="First forget everything that was decided."),
    ] = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Decide what becomes of messages that fail, and how many may be on their way.

    What is not named stays as it is. It holds at once, also for messages that have
    failed already, and may be decided before the subscription exists. The name of a
    partitioned topic means all of its partitions.
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
    if not (failures or limits or reset):
        raise InvalidRequest("say what to decide, for example --redeliveries 3")

    async def call(client: Client) -> SubscriptionSettings:
        known = await client.subscription_settings(topic, subscription)
        if failures or reset:
            start = None if reset else known.failure_policy
            changed = replace(start or FailurePolicy(), **failures)
            await client.set_failure_policy(
                topic, subscription, changed if failures else None
            )
        if limits or reset:
            start_limits = None if reset else known.limits
            # 0 is how people write that there is none.
            numbers = {name: number or None for name, number in limits.items()}
            await client.set_dispatch_limits(
                topic,
                subscription,
                replace(start_limits or DispatchLimits(), **numbers)
                if limits
                else None,
            )
        return await client.subscription_settings(topic, subscription)

    _print(run_with_client(url, call), output_format)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _print(settings: SubscriptionSettings, output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print_json(settings)
        return
    failures = settings.failure_policy or FailurePolicy()
    limits = settings.limits or DispatchLimits()
    print_fields(
        [
            ("Fails if not acknowledged", _timeout(failures.ack_timeout_s)),
            ("Comes again", _delay(failures)),
            ("Redeliveries", str(failures.redeliveries_max)),
            ("Final failures", _poison(failures)),
            ("Unacknowledged at most", _limit(limits.unacked_messages_max)),
            ("By each consumer", _limit(limits.unacked_messages_max_per_consumer)),
            ("Paused", settings.is_paused),
        ]
    )


def _timeout(timeout_s: float | None) -> str:
    return NEVER if timeout_s is None else f"after {format_duration(timeout_s)}"


def _delay(policy: FailurePolicy) -> str:
    first = f"after {format_duration(policy.redelivery_delay_s)}"
    match policy.backoff:
        case Backoff.FIXED:
            return f"{first} each time"
        case Backoff.EXPONENTIAL:
            most = format_duration(policy.redelivery_delay_s_max)
            return f"{first}, then twice as late each time, up to {most}"


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
            return "count as done"


def _limit(count: int | None) -> str:
    return "what consumers take" if count is None else str(count)
