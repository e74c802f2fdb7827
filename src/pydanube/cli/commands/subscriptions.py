"""`danube subscriptions`: manages subscriptions and their delivery."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any, cast

import typer

from pydanube.cli import parameters
from pydanube.cli.declaration import Connect, command, confirm
from pydanube.cli.output import Columns, Fields, Result, Table, cells_of
from pydanube.cli.parameters import Subscription, command_group
from pydanube.cli.quantities import POSITION_METAVAR, parse_duration, parse_position
from pydanube.cli.seek_planning import plan_seeks
from pydanube.client.changes import SubscriptionChanges
from pydanube.model.choices import SubscriptionTypeName
from pydanube.model.descriptions import SubscriptionDescription
from pydanube.model.errors import InvalidRequest, TopicNotFound
from pydanube.model.json_values import to_json_value
from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionSettings,
)
from pydanube.model.positions import POSITION_HELP, parse_choice, to_datetime
from pydanube.model.quantity_formats import (
    format_bytes,
    format_count,
    format_duration,
    format_offset_range,
    format_time,
)
from pydanube.model.ranges import Range
from pydanube.model.topic_settings import Change
from pydanube.sync import Client

NEVER = "never"

app = command_group(
    "Create, list, describe and delete subscriptions.",
    "danube subscriptions list /default/orders",
    "danube subscriptions describe /default/orders -s billing",
)


class Expired(Enum):
    """The choice for expired messages."""

    DROP = "drop"
    DEAD_LETTER = "dead-letter"


@command(
    app,
    "danube subscriptions create /default/orders -s billing --from earliest",
    "danube subscriptions create /default/orders -s workers --type shared",
)
def create(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    type: parameters.Type = "exclusive",  # noqa: A002  # The option's name.
    start: parameters.From = "latest",
) -> Result:
    """
    Create a subscription without a consumer.

    Messages that are published from then on wait for its first consumer. Consumers also
    create the subscription that they name.
    """
    where = parse_position(start)
    with connect() as client:
        client.create_subscription(
            topic, subscription, type=cast("SubscriptionTypeName", type), start=where
        )
        described = _describe(client, topic, subscription)
    return Result(
        _json_of(topic, described),
        *(
            f"{subscription} of {name} starts at offset {description.cursor}."
            for name, description in described.items()
        ),
    )


@command(app, "danube subscriptions list /default/orders", name="list")
def list_(connect: Connect, topic: parameters.Topic) -> Result:
    """List the subscriptions of a topic, with their backlogs."""
    with connect() as client:
        described = {
            name: client.describe_topic(name).subscriptions
            for name in partitions_of(client, topic)
        }
    if list(described) == [topic]:
        return Result(described[topic], Table.of(described[topic], COLUMNS))
    rows = [(name, each) for name, found in described.items() for each in found]
    return Result(_json_by_partition(rows), _table_by_partition(rows))


@command(app, "danube subscriptions describe /default/orders -s billing")
def describe(
    connect: Connect, topic: parameters.Topic, *, subscription: Subscription
) -> Result:
    """Describe a subscription: its progress and its consumers."""
    with connect() as client:
        described = _describe(client, topic, subscription)
    parts: list[Any] = [Fields.of(each, FIELDS) for each in described.values()]
    if list(described) != [topic]:
        parts = [_table_by_partition(described.items())]
        for name, each in described.items():
            parts += ["", f"{name}:", Fields.of(each, FIELDS)]
    return Result(_json_of(topic, described), *parts)


@command(app, "danube subscriptions delete /default/orders -s billing --yes")
def delete(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    yes: parameters.Yes = False,
    force: bool = False,
) -> Result:
    """
    Delete a subscription and its progress.

    Args:
        force: Delete it even if it has consumers.
    """
    confirm(f"Delete the subscription {subscription} of {topic}?", is_sure=yes)
    with connect() as client:
        client.delete_subscription(topic, subscription, force=force)
    return Result(
        {"topic": topic, "subscription": subscription, "deleted": True},
        f"{subscription} of {topic} is deleted.",
    )


@command(app, "danube subscriptions policy /default/orders -s billing")
def policy(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: Subscription,
) -> Result:
    """
    Show the failure policy of a subscription, and its limits for unacknowledged
    messages.

    It shows what "set-policy" has set, and defaults for the rest.
    """
    with connect() as client:
        settings = client.subscription_settings(topic, subscription)
    return Result(settings, _policy_fields(settings))


@command(
    app,
    "danube subscriptions set-policy /default/orders -s billing --redeliveries 3 "
    "--dead-letter-topic /default/orders-dead",
    "danube subscriptions set-policy /default/orders -s billing --ack-timeout 2m "
    "--unacked-max 1000",
    "danube subscriptions set-policy /default/orders -s billing --reset --dry-run",
)
def set_policy(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: Subscription,
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
    dry_run: bool = False,
) -> Result:
    """
    Set the failure policy of a subscription, and its limits for unacknowledged
    messages.

    Options that are not given do not change. All changes are made together, or none of
    them. They take effect at once, also for messages that have already failed, and can
    be made before the subscription exists. For a partitioned topic, they apply to all
    partitions, one after the other.

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
        dry_run: Only show what would change.
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
        known = client.subscription_settings(topic, subscription)
        base = SubscriptionSettings() if reset else known
        changes = SubscriptionChanges()
        if failures or reset:
            chosen = replace(base.failure_policy or FailurePolicy(), **failures)
            changes["failure_policy"] = chosen if failures else None
        if limits or reset:
            changed = replace(base.limits or DispatchLimits(), **limits)
            changes["limits"] = changed if limits else None
        if dry_run:
            return _planned(topic, subscription, known, replace(known, **changes))
        client.subscriptions.configure(topic, subscription, **changes)
        settings = client.subscription_settings(topic, subscription)
    return Result(settings, _policy_fields(settings))


@command(app, "danube subscriptions pause /default/orders -s billing")
def pause(
    connect: Connect, topic: parameters.Topic, *, subscription: Subscription
) -> Result:
    """
    Pause delivery; messages that are published wait.

    Consumers stay connected and can acknowledge messages that they have. The pause
    lasts until "resume", also across restarts of the broker. For a partitioned topic,
    all partitions are paused.
    """
    with connect() as client:
        client.subscriptions.configure(topic, subscription, is_paused=True)
    return Result(
        {"topic": topic, "subscription": subscription, "is_paused": True},
        f"{subscription} of {topic} is paused.",
    )


@command(app, "danube subscriptions resume /default/orders -s billing")
def resume(
    connect: Connect, topic: parameters.Topic, *, subscription: Subscription
) -> Result:
    """Resume delivery after a pause."""
    with connect() as client:
        client.subscriptions.configure(topic, subscription, is_paused=False)
    return Result(
        {"topic": topic, "subscription": subscription, "is_paused": False},
        f"{subscription} of {topic} is resumed.",
    )


@command(
    app,
    "danube subscriptions seek /default/orders -s billing --to earliest",
    "danube subscriptions seek /default/orders -s billing --to 15m",
    "danube subscriptions seek /default/orders -s billing --to 2025-03-01T09:30:00Z",
    "danube subscriptions seek /default/orders -s billing --to 2h --dry-run",
)
@command(
    app,
    "danube subscriptions reset /default/orders -s billing --to earliest",
    "danube subscriptions reset /default/orders -s billing --to 2h --dry-run",
    name="reset",
)
def seek(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    to: Annotated[
        str,
        typer.Option(
            metavar=POSITION_METAVAR,
            help=f"The position to move to: {POSITION_HELP}.",
            show_default=False,
        ),
    ],
    dry_run: bool = False,
) -> Result:
    """
    Move the cursor of a subscription, backwards or forwards.

    "seek" and "reset" are two names of this command.

    Messages before the position count as acknowledged; messages after it are delivered,
    if necessary again. Consumers stay connected. For a partitioned topic, the
    subscription moves in all partitions; an offset requires the name of one partition.

    Args:
        dry_run: Move nothing; show the position, and about how many messages would be
            delivered again or skipped.
    """
    where = parse_position(to)
    with connect() as client:
        if dry_run:
            plans = plan_seeks(client, topic, subscription, where)
            return Result(plans, Table.of(plans, PLAN), "", "Nothing was moved.")
        client.seek_subscription(topic, subscription, where)
        cursors = {
            name: client.describe_subscription(name, subscription).cursor
            for name in client.partitions(topic)
        }
    return Result(
        [
            {"topic": name, "subscription": subscription, "cursor": cursor}
            for name, cursor in cursors.items()
        ],
        *(
            f"{subscription} of {name} continues at offset {cursor}."
            for name, cursor in cursors.items()
        ),
    )


@command(app, "danube subscriptions skip /default/orders -s billing -n 1")
def skip(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    count: Annotated[int, typer.Option(min=1)],
) -> Result:
    """
    Skip the next unacknowledged messages.

    They count as acknowledged. This helps if a message blocks its subscription or
    cannot be processed. For a partitioned topic, name the partition.

    Args:
        count (-n COUNT): The number of messages.
    """
    with connect() as client:
        client.skip(topic, subscription, count)
        (name,) = client.partitions(topic)
        cursor = client.describe_subscription(name, subscription).cursor
    return Result(
        {"topic": topic, "subscription": subscription, "cursor": cursor},
        f"{subscription} of {topic} has acknowledged everything before offset "
        f"{cursor}.",
    )


def partitions_of(client: Client, topic: str) -> list[str]:
    """
    Return the partitions of *topic*, or *topic* itself.

    Raises:
        TopicNotFound: There is no such topic.
    """
    names = client.partitions(topic)
    if not names:
        raise TopicNotFound(f"Unable to find the topic: {topic}")
    return names


def _describe(
    client: Client, topic: str, subscription: str
) -> dict[str, SubscriptionDescription]:
    """Return the subscription in each partition of *topic*, or in *topic* itself."""
    return {
        name: client.describe_subscription(name, subscription)
        for name in partitions_of(client, topic)
    }


def _json_of(topic: str, described: dict[str, SubscriptionDescription]) -> object:
    if list(described) == [topic]:
        return described[topic]
    return _json_by_partition(described.items())


def _json_by_partition(
    rows: Iterable[tuple[str, SubscriptionDescription]],
) -> list[dict[str, Any]]:
    return [{"topic": name, **to_json_value(each)} for name, each in rows]


def _table_by_partition(rows: Iterable[tuple[str, SubscriptionDescription]]) -> Table:
    return Table(
        ("Partition", *COLUMNS),
        ([name, *cells_of(each, COLUMNS)] for name, each in rows),
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _planned(
    topic: str, subscription: str, old: SubscriptionSettings, new: SubscriptionSettings
) -> Result:
    """Return the result of a dry run that would change *old* to *new*."""
    before, after = _policy_fields(old).facts, _policy_fields(new).facts
    changes = [
        Change(name, value, changed)
        for (name, value), (_, changed) in zip(before, after, strict=True)
        if value != changed
    ]
    value = {"old": old, "new": new, "dry_run": True}
    if not changes:
        return Result(value, f"{subscription} of {topic} has these settings already.")
    return Result(
        value, f"{subscription} of {topic} would change:", Table.of(changes, CHANGE)
    )


def _policy_fields(settings: SubscriptionSettings) -> Fields:
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


def _backlog(description: SubscriptionDescription) -> str:
    count = format_count(description.backlog)
    if not description.backlog_bytes:
        return count
    return f"{count} (about {format_bytes(description.backlog_bytes)})"


def _oldest(description: SubscriptionDescription) -> str | None:
    publish_time = description.oldest_publish_time
    return None if publish_time is None else format_time(to_datetime(publish_time))


def _parked(description: SubscriptionDescription) -> object:
    if description.dead_letter_error is None:
        return description.parked
    return f"{description.parked}, not yet: {description.dead_letter_error}"


def _shown(ranges: Iterable[Range]) -> str:
    return ", ".join(format_offset_range(base, end) for base, end in ranges)


PLAN: Columns = {
    "Topic": "topic",
    "From": lambda each: str(each.cursor),
    "To": lambda each: str(each.position),
    "Delivered again": "delivered_again",
    "Skipped": "skipped",
}

CHANGE: Columns = {"Setting": "setting", "Old": "old", "New": "new"}

COLUMNS: Columns = {
    "Subscription": "subscription",
    "Type": "type",
    "Acked before": lambda each: str(each.cursor),
    "Backlog": "backlog",
    "In flight": "in_flight",
    "Blocked by": lambda each: _shown(each.blocked),
    "Consumers": lambda each: len(each.consumers),
}

FIELDS: Columns = {
    "Subscription": "subscription",
    "Type": "type",
    "Acked before offset": lambda each: str(each.cursor),
    "Acked after it": lambda each: sum(end - base for base, end in each.done),
    "Backlog": _backlog,
    "Oldest of it": _oldest,
    "In flight": "in_flight",
    "Delayed": "delayed",
    "Blocked by offset": lambda each: _shown(each.blocked),
    "Being dead-lettered": _parked,
    "Stopped by": "stopped_by",
    "Skipped offsets": lambda each: _shown(each.skipped),
    "Paused": "is_paused",
    "Consumers": lambda each: ", ".join(each.consumers),
    "Delivered": "counts.delivered",
    "Delivered again": "counts.redelivered",
    "Nacked": "counts.nacked",
    "Ack timeouts": "counts.timed_out",
    "Expired": "counts.expired",
    "Dead-lettered": "counts.dead_lettered",
    "Given up": "counts.given_up",
    "Skipped as unreadable": "counts.skipped",
}
