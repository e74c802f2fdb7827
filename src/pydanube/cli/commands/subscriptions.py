"""`danube subscriptions`: creates, lists, describes and deletes subscriptions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import confirm, run_with_client
from pydanube.cli.commands import subscription_delivery, subscription_policy
from pydanube.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_line,
    print_result,
    print_table,
    to_json_value,
)
from pydanube.cli.parameters import Subscription, command_group, examples
from pydanube.cli.position_option import parse_position
from pydanube.cli.quantities import format_bytes, format_count
from pydanube.client.client import DEFAULT_URL
from pydanube.model.positions import to_datetime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.client.client import Client
    from pydanube.model.descriptions import SubscriptionDescription, TopicDescription
    from pydanube.model.ranges import Range

app = command_group(
    "Create, list, describe and delete subscriptions.",
    "danube subscriptions list /default/orders",
    "danube subscriptions describe /default/orders -s billing",
)


@app.command(
    epilog=examples(
        "danube subscriptions create /default/orders -s billing --from earliest",
        "danube subscriptions create /default/orders -s workers --type shared",
    )
)
def create(
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    type: parameters.Type = "exclusive",  # noqa: A002  # The option's name.
    start: parameters.From = "latest",
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Create a subscription without a consumer.

    Messages that are published from then on wait for its first consumer. Consumers also
    create the subscription that they name.
    """

    where = parse_position(start, to_datetime(time.time_ns() // 1000))

    async def call(client: Client) -> dict[str, SubscriptionDescription]:
        await client.create_subscription(topic, subscription, type=type, start=where)
        return await _describe(client, topic, subscription)

    described = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        _print_json(topic, described)
        return
    for name, description in described.items():
        print_line(f"{subscription} of {name} starts at offset {description.cursor}.")


@app.command("list", epilog=examples("danube subscriptions list /default/orders"))
def list_(
    topic: parameters.Topic,
    *,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """List the subscriptions of a topic, with their backlogs."""

    async def call(client: Client) -> dict[str, TopicDescription]:
        names = await client.existing_partitions(topic)
        return {name: await client.describe_topic(name) for name in names}

    described = run_with_client(url, call)
    if list(described) == [topic]:
        subscriptions = described[topic].subscriptions
        if output_format is OutputFormat.JSON:
            print_json(subscriptions)
        else:
            print_subscriptions(subscriptions)
        return
    rows = [
        (name, each)
        for name, facts in described.items()
        for each in facts.subscriptions
    ]
    if output_format is OutputFormat.JSON:
        print_json([{"topic": name, **to_json_value(each)} for name, each in rows])
    else:
        _print_by_partition(rows)


@app.command(
    epilog=examples("danube subscriptions describe /default/orders -s billing")
)
def describe(
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Describe a subscription: its progress and its consumers."""

    async def call(client: Client) -> dict[str, SubscriptionDescription]:
        return await _describe(client, topic, subscription)

    described = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        _print_json(topic, described)
    elif list(described) == [topic]:
        _print_description(described[topic])
    else:
        _print_by_partition(described.items())
        for name, description in described.items():
            print_line()
            print_line(f"{name}:")
            _print_description(description)


def _print_description(description: SubscriptionDescription) -> None:
    counts = description.counts
    oldest = description.oldest_publish_time
    done_above = sum(end - base for base, end in description.done)
    print_fields(
        [
            ("Subscription", description.subscription),
            ("Type", description.type),
            ("Acked up to offset", str(description.cursor)),
            ("Acked above it", done_above),
            ("Backlog", _backlog(description)),
            ("Oldest of it", None if oldest is None else _when(oldest)),
            ("In flight", description.in_flight),
            ("Delayed", description.delayed),
            ("Blocked by offset", ", ".join(map(_shown, description.blocked))),
            ("Being dead-lettered", _parked(description)),
            ("Stopped by", description.stopped_by),
            ("Skipped offsets", ", ".join(map(_shown, description.skipped))),
            ("Paused", description.is_paused),
            ("Consumers", ", ".join(description.consumers)),
            ("Delivered", counts.delivered),
            ("Delivered again", counts.redelivered),
            ("Nacked", counts.nacked),
            ("Ack timeouts", counts.timed_out),
            ("Expired", counts.expired),
            ("Dead-lettered", counts.dead_lettered),
            ("Given up", counts.given_up),
            ("Skipped as unreadable", counts.skipped),
        ]
    )


@app.command(
    epilog=examples("danube subscriptions delete /default/orders -s billing --yes")
)
def delete(
    topic: parameters.Topic,
    *,
    subscription: Subscription,
    yes: parameters.Yes = False,
    force: Annotated[
        bool, typer.Option("--force", help="Delete it even if it has consumers.")
    ] = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Delete a subscription and its progress."""
    confirm(f"Delete the subscription {subscription} of {topic}?", is_sure=yes)

    async def call(client: Client) -> None:
        await client.delete_subscription(topic, subscription, force=force)

    run_with_client(url, call)
    print_result(
        {"topic": topic, "subscription": subscription, "deleted": True},
        f"{subscription} of {topic} is deleted.",
        output_format,
    )


app.command(
    "policy", epilog=examples("danube subscriptions policy /default/orders -s billing")
)(subscription_policy.policy)

app.command(
    "set-policy",
    epilog=examples(
        "danube subscriptions set-policy /default/orders -s billing --redeliveries 3 "
        "--dead-letter-topic /default/orders-dead",
        "danube subscriptions set-policy /default/orders -s billing --ack-timeout 2m "
        "--unacked-max 1000",
        "danube subscriptions set-policy /default/orders -s billing --reset",
    ),
)(subscription_policy.set_policy)

app.command(
    "pause", epilog=examples("danube subscriptions pause /default/orders -s billing")
)(subscription_delivery.pause)

app.command(
    "resume", epilog=examples("danube subscriptions resume /default/orders -s billing")
)(subscription_delivery.resume)

app.command(
    "seek",
    epilog=examples(
        "danube subscriptions seek /default/orders -s billing --to earliest",
        "danube subscriptions seek /default/orders -s billing --to 15m",
        "danube subscriptions seek /default/orders -s billing "
        "--to 2025-03-01T09:30:00Z",
    ),
)(subscription_delivery.seek)

app.command(
    "skip", epilog=examples("danube subscriptions skip /default/orders -s billing -n 1")
)(subscription_delivery.skip)


def print_subscriptions(subscriptions: Iterable[SubscriptionDescription]) -> None:
    """Print a table of *subscriptions*."""
    print_table(
        ("Subscription", "Type", "Acked up to", "Backlog", "In flight", "Consumers"),
        (
            (
                each.subscription,
                each.type,
                str(each.cursor),
                each.backlog,
                each.in_flight,
                len(each.consumers),
            )
            for each in subscriptions
        ),
    )


async def _describe(
    client: Client, topic: str, subscription: str
) -> dict[str, SubscriptionDescription]:
    """Return the subscription in each partition of *topic*, or in *topic* itself."""
    names = await client.existing_partitions(topic)
    return {
        name: await client.describe_subscription(name, subscription) for name in names
    }


def _print_json(topic: str, described: dict[str, SubscriptionDescription]) -> None:
    if list(described) == [topic]:
        print_json(described[topic])
    else:
        print_json(
            [{"topic": name, **to_json_value(d)} for name, d in described.items()]
        )


def _print_by_partition(
    rows: Iterable[tuple[str, SubscriptionDescription]],
) -> None:
    columns = ("Partition", "Subscription", "Type", "Acked up to", "Backlog")
    print_table(
        (*columns, "In flight", "Consumers"),
        (
            (
                name,
                each.subscription,
                each.type,
                str(each.cursor),
                each.backlog,
                each.in_flight,
                len(each.consumers),
            )
            for name, each in rows
        ),
    )


def _backlog(description: SubscriptionDescription) -> str:
    count = format_count(description.backlog)
    if not description.backlog_bytes:
        return count
    return f"{count} (about {format_bytes(description.backlog_bytes)})"


def _parked(description: SubscriptionDescription) -> object:
    if description.dead_letter_error is None:
        return description.parked
    return f"{description.parked}, not yet: {description.dead_letter_error}"


def _shown(offsets: Range) -> str:
    base, end = offsets
    return str(base) if end == base + 1 else f"{base} \u2026 {end}"


def _when(publish_time: int) -> str:
    return (
        to_datetime(publish_time).isoformat(timespec="seconds").replace("+00:00", "Z")
    )
