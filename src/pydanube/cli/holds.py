"""`danube topics hold` and `release`: let a topic's segments stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import options
from pydanube.cli.answers import Format, print_json, print_line
from pydanube.cli.session import ask
from pydanube.client.client import DEFAULT_URL

if TYPE_CHECKING:
    from pydanube.client.client import Client

Name = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Who relies on the segments, for example a table.",
        show_default=False,
    ),
]


def hold(
    topic: options.Topic,
    *,
    name: Name,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for people.")
    ] = "",
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Keep a topic's segments as they are, because somebody relies on them.

    Until it is released, retention and maintenance leave them, and the topic is not
    deleted without --force.
    """

    async def question(client: Client) -> None:
        await client.hold_topic(topic, name, reason)

    ask(url, question)
    if answer_format is Format.JSON:
        print_json({"topic": topic, "hold": name, "held": True})
    else:
        print_line(f"{topic} is held by {name}.")


def release(
    topic: options.Topic,
    *,
    name: Name,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """End a hold."""

    async def question(client: Client) -> None:
        await client.release_topic(topic, name)

    ask(url, question)
    if answer_format is Format.JSON:
        print_json({"topic": topic, "hold": name, "held": False})
    else:
        print_line(f"{topic} is not held by {name} any more.")
