"""`danube subscriptions pause, resume, seek, skip`: what is delivered, and whether."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import options
from pydanube.cli.answers import Format, print_json, print_line
from pydanube.cli.positions import MEANING, METAVAR, parse_where
from pydanube.cli.session import ask
from pydanube.client.client import DEFAULT_URL
from pydanube.client.positions import time_of

if TYPE_CHECKING:
    from pydanube.client.client import Client


def pause(
    topic: options.Topic,
    *,
    subscription: options.Subscription,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Deliver nothing for a while; what is published waits.

    Consumers stay connected and may acknowledge what they have. It survives a restart
    of the broker. The name of a partitioned topic means all of its partitions.
    """

    async def question(client: Client) -> None:
        await client.pause_subscription(topic, subscription)

    ask(url, question)
    if answer_format is Format.JSON:
        print_json({"topic": topic, "subscription": subscription, "is_paused": True})
    else:
        print_line(f"{subscription} of {topic} is paused.")


def resume(
    topic: options.Topic,
    *,
    subscription: options.Subscription,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """Go on delivering after a pause."""

    async def question(client: Client) -> None:
        await client.resume_subscription(topic, subscription)

    ask(url, question)
    if answer_format is Format.JSON:
        print_json({"topic": topic, "subscription": subscription, "is_paused": False})
    else:
        print_line(f"{subscription} of {topic} goes on.")


def seek(
    topic: options.Topic,
    *,
    subscription: options.Subscription,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar=METAVAR,
            help=f"Where to go on: {MEANING}.",
            show_default=False,
        ),
    ],
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Have a subscription go on somewhere else, backwards or forwards.

    What is before that place is done, what is behind it is delivered (again). It is
    for all consumers of the subscription, and they stay connected. The name of a
    partitioned topic means all of its partitions, unless it is about an offset.
    """
    where = parse_where(to, time_of(time.time_ns() // 1000))

    async def question(client: Client) -> list[tuple[str, int]]:
        await client.seek_subscription(topic, subscription, where)
        return [
            (name, (await client.describe_subscription(name, subscription)).cursor)
            for name in await client.partitions(topic)
        ]

    cursors = ask(url, question)
    if answer_format is Format.JSON:
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
    topic: options.Topic,
    *,
    subscription: options.Subscription,
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
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Have the next messages that are not done count as done.

    For one that blocks its subscription, or of which nobody can make anything. Of a
    partitioned topic, name the partition.
    """

    async def question(client: Client) -> int:
        await client.skip(topic, subscription, count)
        (name,) = await client.partitions(topic)
        return (await client.describe_subscription(name, subscription)).cursor

    cursor = ask(url, question)
    if answer_format is Format.JSON:
        print_json({"topic": topic, "subscription": subscription, "cursor": cursor})
    else:
        print_line(f"{subscription} of {topic} has done everything below {cursor}.")
