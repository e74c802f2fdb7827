"""`danube subscriptions pause, resume, seek, skip`: what is delivered, and whether."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import run_with_client
from pydanube.cli.output import OutputFormat, print_json, print_line
from pydanube.cli.position_option import METAVAR, POSITION_HELP, parse_position
from pydanube.client.client import DEFAULT_URL
from pydanube.model.positions import to_datetime

if TYPE_CHECKING:
    from pydanube.client.client import Client


def pause(
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Deliver nothing for a while; what is published waits.

    Consumers stay connected and may acknowledge what they have. It survives a restart
    of the broker. The name of a partitioned topic means all of its partitions.
    """

    async def call(client: Client) -> None:
        await client.pause_subscription(topic, subscription)

    run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json({"topic": topic, "subscription": subscription, "is_paused": True})
    else:
        print_line(f"{subscription} of {topic} is paused.")


def resume(
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Go on delivering after a pause."""

    async def call(client: Client) -> None:
        await client.resume_subscription(topic, subscription)

    run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json({"topic": topic, "subscription": subscription, "is_paused": False})
    else:
        print_line(f"{subscription} of {topic} goes on.")


def seek(
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar=METAVAR,
            help=f"Where to go on: {POSITION_HELP}.",
            show_default=False,
        ),
    ],
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Have a subscription go on somewhere else, backwards or forwards.

    What is before that place is done, what is behind it is delivered (again). It is
    for all consumers of the subscription, and they stay connected. The name of a
    partitioned topic means all of its partitions, unless it is about an offset.
    """
    where = parse_position(to, to_datetime(time.time_ns() // 1000))

    async def call(client: Client) -> list[tuple[str, int]]:
        await client.seek_subscription(topic, subscription, where)
        return [
            (name, (await client.describe_subscription(name, subscription)).cursor)
            for name in await client.partitions(topic)
        ]

    cursors = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json(
            [
                {"topic": name, "subscription": subscription, "cursor": cursor}
                for name, cursor in cursors
            ]
        )
        return
    for name, cursor in cursors:
        print_line(f"{subscription} of {name} goes on at offset {cursor}.")


def skip(
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
    count: Annotated[
        int,
        typer.Option(
            "--count",
            "-n",
            min=1,
            metavar="COUNT",
            help="How many messages.",
            show_default=False,
        ),
    ],
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Have the next messages that are not done count as done.

    For one that blocks its subscription, or of which nobody can make anything. Of a
    partitioned topic, name the partition.
    """

    async def call(client: Client) -> int:
        await client.skip(topic, subscription, count)
        (name,) = await client.partitions(topic)
        return (await client.describe_subscription(name, subscription)).cursor

    cursor = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json({"topic": topic, "subscription": subscription, "cursor": cursor})
    else:
        print_line(f"{subscription} of {topic} has done everything below {cursor}.")
