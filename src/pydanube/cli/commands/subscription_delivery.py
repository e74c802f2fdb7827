"""`danube subscriptions pause, resume, seek, skip`: control of delivery."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import run_with_client
from pydanube.cli.output import OutputFormat, print_json, print_line, print_result
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
    Pause delivery; messages that are published wait.

    Consumers stay connected and can acknowledge messages that they have. The pause
    lasts until "resume", also across restarts of the broker. For a partitioned topic,
    all partitions are paused.
    """

    async def call(client: Client) -> None:
        await client.pause_subscription(topic, subscription)

    run_with_client(url, call)
    print_result(
        {"topic": topic, "subscription": subscription, "is_paused": True},
        f"{subscription} of {topic} is paused.",
        output_format,
    )


def resume(
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Resume delivery after a pause."""

    async def call(client: Client) -> None:
        await client.resume_subscription(topic, subscription)

    run_with_client(url, call)
    print_result(
        {"topic": topic, "subscription": subscription, "is_paused": False},
        f"{subscription} of {topic} is resumed.",
        output_format,
    )


def seek(
    topic: parameters.Topic,
    *,
    subscription: parameters.Subscription,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar=METAVAR,
            help=f"The position to move to: {POSITION_HELP}.",
            show_default=False,
        ),
    ],
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Move the cursor of a subscription, backwards or forwards.

    Messages before the position count as acknowledged; messages after it are delivered,
    if necessary again. Consumers stay connected. For a partitioned topic, the
    subscription moves in all partitions; an offset requires the name of one partition.
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
        print_line(f"{subscription} of {name} continues at offset {cursor}.")


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
            help="The number of messages.",
            show_default=False,
        ),
    ],
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Skip the next unacknowledged messages.

    They count as acknowledged. This helps if a message blocks its subscription or
    cannot be processed. For a partitioned topic, name the partition.
    """

    async def call(client: Client) -> int:
        await client.skip(topic, subscription, count)
        (name,) = await client.partitions(topic)
        return (await client.describe_subscription(name, subscription)).cursor

    cursor = run_with_client(url, call)
    print_result(
        {"topic": topic, "subscription": subscription, "cursor": cursor},
        f"{subscription} of {topic} has acknowledged everything before "
        f"offset {cursor}.",
        output_format,
    )
