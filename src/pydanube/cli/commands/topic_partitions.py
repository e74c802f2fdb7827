"""`danube topics partitions, add-partitions, limits`: about all of a name's topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import run_with_client
from pydanube.cli.commands import limits
from pydanube.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_line,
    to_json_value,
)
from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import InvalidRequest, TopicNotFound
from pydanube.model.policy import CorruptionPolicy

if TYPE_CHECKING:
    from pydanube.client.client import Client
    from pydanube.model.descriptions import TopicDescription


def list_partitions(
    topic: parameters.Topic,
    *,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    List the topics that a name stands for, one a line.

    These are its partitions by number; a topic without partitions is the only one.
    """

    async def call(client: Client) -> list[str]:
        return await _partitions_of(client, topic)

    _print_names(topic, run_with_client(url, call), output_format)


def add_partitions(
    topic: parameters.Topic,
    *,
    total: Annotated[
        int,
        typer.Option(
            "--total",
            min=1,
            metavar="COUNT",
            help="How many there are to be then, with those of before.",
            show_default=False,
        ),
    ],
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Give a partitioned topic more partitions.

    What was published stays where it is. A key may be in another partition from now
    on, so its newer messages are no longer ordered behind its older ones. Producers and
    consumers that are running find the new partitions by themselves.
    """

    async def call(client: Client) -> list[str]:
        await client.add_partitions(topic, total)
        return await client.partitions(topic)

    _print_names(topic, run_with_client(url, call), output_format)


def topic_limits(
    topic: parameters.Topic,
    *,
    settings: limits.Set = None,
    clear: Annotated[
        bool,
        typer.Option("--clear", help="Those of its namespace are to hold again."),
    ] = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Show or change what a topic may take at most.

    With --set, the topic gets limits of its own, which hold at once instead of all
    those of its namespace; what is not named stays as it is. The name of a partitioned
    topic means each of its partitions.
    """
    if clear and settings:
        raise InvalidRequest("either --clear or --set")

    async def call(client: Client) -> TopicDescription:
        first = (await _partitions_of(client, topic))[0]
        if clear:
            await client.set_topic_limits(topic, None)
        elif settings:
            known = (await client.describe_topic(first)).limits
            await client.set_topic_limits(topic, limits.with_settings(known, settings))
        return await client.describe_topic(first)

    answer = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        print_json(
            {
                "limits": to_json_value(answer.limits),
                "own": to_json_value(answer.own_limits),
            }
        )
        return
    where = "its namespace" if answer.own_limits is None else "the topic itself"
    print_fields([("Limits of", where), *limits.limit_fields(answer.limits)])


def set_on_corruption(
    topic: parameters.Topic,
    on_corruption: Annotated[
        CorruptionPolicy,
        typer.Argument(
            metavar="stop|skip",
            help="Stop with an error, or skip the messages that cannot be read.",
            show_default=False,
        ),
    ],
    *,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Change what subscriptions do when a segment of the topic cannot be read.

    It holds at once. The name of a partitioned topic means each of its partitions.
    """
    run_with_client(
        url, lambda client: client.set_on_corruption(topic, on_corruption.value)
    )
    print_line(f"Subscriptions of {topic} {on_corruption.value} at corrupt segments.")


async def _partitions_of(client: Client, topic: str) -> list[str]:
    names = await client.partitions(topic)
    if not names:
        raise TopicNotFound(f"Unable to find the topic: {topic}")
    return names


def _print_names(topic: str, names: list[str], output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print_json({"topic": topic, "partitions": names})
        return
    for name in names:
        print_line(name)
