"""`danube topics hold` and `release`: retention holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import run_with_client
from pydanube.cli.output import OutputFormat, print_result
from pydanube.client.client import DEFAULT_URL

if TYPE_CHECKING:
    from pydanube.client.client import Client

Name = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The name of the hold, for example that of the table that needs the "
        "segments.",
        show_default=False,
    ),
]


def hold(
    topic: parameters.Topic,
    *,
    name: Name,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason, for people.")
    ] = "",
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Hold a topic's segments, because an external reader needs them.

    Until the hold is released, retention and maintenance keep the segments as they are,
    and deleting the topic requires --force.
    """

    async def call(client: Client) -> None:
        await client.hold_topic(topic, name, reason)

    run_with_client(url, call)
    print_result(
        {"topic": topic, "hold": name, "held": True},
        f"{topic} is held by {name}.",
        output_format,
    )


def release(
    topic: parameters.Topic,
    *,
    name: Name,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Release a hold."""

    async def call(client: Client) -> None:
        await client.release_topic(topic, name)

    run_with_client(url, call)
    print_result(
        {"topic": topic, "hold": name, "held": False},
        f"{topic} is no longer held by {name}.",
        output_format,
    )
