"""`danube subscriptions`: manages subscriptions and their delivery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, cast

import typer

from pydanube.client.operations.changes import changes_of
from pydanube.model.choices import SubscriptionTypeName
from pydanube.model.descriptions import SubscriptionDescription
from pydanube.model.errors import TopicNotFound
from pydanube.model.json_values import to_json_value
from pydanube.model.positions import POSITION_HELP, to_datetime
from pydanube.model.quantity_formats import (
    format_bytes,
    format_count,
    format_offset_range,
    format_time,
)
from pydanube.model.ranges import Range
from pydanube.model.setting_documents import (
    document_of_pairs,
    subscription_document_of,
    with_subscription_document,
)
from pydanube.sync import Client
from pydanube_cli.administration.setting_changes import Set, changed, shown
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import Connect, command, confirm
from pydanube_cli.invocation.parameters import Subscription, command_group
from pydanube_cli.messages.seek_planning import plan_seeks
from pydanube_cli.presentation.output import Columns, Fields, Result, Table, cells_of
from pydanube_cli.presentation.quantities import POSITION_METAVAR, parse_position

app = command_group(
    "Create, list, describe and delete subscriptions.",
    "danube subscriptions list /default/orders",
    "danube subscriptions describe /default/orders -s billing",
)


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
        client.subscriptions.create(
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
            name: client.topics.describe(name).subscriptions
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
        client.subscriptions.delete(topic, subscription, force=force)
    return Result(
        {"topic": topic, "subscription": subscription, "deleted": True},
        f"{subscription} of {topic} is deleted.",
    )


@command(
    app,
    "danube subscriptions configure /default/orders -s billing",
    "danube subscriptions configure /default/orders -s billing "
    "--set failure_policy.redeliveries=3 "
    "--set failure_policy.dead_letter_topic=/default/orders-dead",
    "danube subscriptions configure /default/orders -s billing "
    "--set failure_policy.ack_timeout=2m --set limits.unacked=1000",
    "danube subscriptions configure /default/orders -s billing "
    "--set failure_policy=default --dry-run",
)
def configure(
    connect: Connect,
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    settings: Set = None,
    dry_run: bool = False,
) -> Result:
    """
    Show the settings of a subscription, or change them and show the old and new values.

    The settings of the failure policy are failure_policy.redeliveries, the maximum
    number of redeliveries of a message, after which its failure is final;
    failure_policy.ack_timeout, a duration or never; failure_policy.delay and delay_max,
    between a failure and the redelivery; failure_policy.backoff, fixed or exponential;
    failure_policy.poison, what happens to a message whose failure is final:
    dead_letter, block or drop; failure_policy.dead_letter_topic, which is created if it
    does not exist, and implies poison=dead_letter; and
    failure_policy.dead_letter_expired, for expired messages. limits.unacked and
    limits.unacked_per_consumer are the most unacknowledged messages, of all consumers
    and of each, or none; paused is true or false. failure_policy=default and
    limits=none reset a group.

    Settings that are not named do not change. All changes are made together, or none of
    them. They take effect at once, also for messages that have already failed, and can
    be made before the subscription exists. For a partitioned topic, they apply to all
    partitions, one after the other.

    Args:
        dry_run: Only show what would change.
    """
    document = document_of_pairs(settings or [])
    with connect() as client:
        old = client.subscriptions.settings(topic, subscription)
        before = subscription_document_of(old)
        if not settings:
            return shown(before)
        new = with_subscription_document(old, document)
        return changed(
            f"{subscription} of {topic}",
            before,
            subscription_document_of(new),
            lambda: client.subscriptions.configure(
                topic, subscription, **changes_of(old, new)
            ),
            dry_run=dry_run,
        )


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
        client.subscriptions.seek(topic, subscription, where)
        cursors = {
            name: client.subscriptions.describe(name, subscription).cursor
            for name in client.topics.partitions(topic)
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
        client.subscriptions.skip(topic, subscription, count)
        (name,) = client.topics.partitions(topic)
        cursor = client.subscriptions.describe(name, subscription).cursor
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
    names = client.topics.partitions(topic)
    if not names:
        raise TopicNotFound(f"Unable to find the topic: {topic}")
    return names


def _describe(
    client: Client, topic: str, subscription: str
) -> dict[str, SubscriptionDescription]:
    """Return the subscription in each partition of *topic*, or in *topic* itself."""
    return {
        name: client.subscriptions.describe(name, subscription)
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
