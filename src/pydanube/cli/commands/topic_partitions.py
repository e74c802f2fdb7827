"""`danube topics partitions, add-partitions, limits`, for all partitions of a topic."""

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
    List the partitions of a topic, one per line.

    A topic that is not partitioned is listed itself.
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
            help="The new number of partitions.",
            show_default=False,
        ),
    ],
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Add partitions to a partitioned topic.

    Stored messages stay in their partitions. Keys may move to other partitions, so
    newer messages of a key are no longer ordered after older ones. Connected producers
    and consumers find the new partitions automatically.
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
        typer.Option(
            "--clear",
            help="Remove the topic's own limits, so that those of its namespace apply.",
        ),
    ] = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Show or set the limits of a topic.

    --set gives the topic limits of its own, which replace all limits of its namespace
    at once; limits that are not named do not change. For a partitioned topic, they
    apply to each partition.
    """
    if clear and settings:
        raise InvalidRequest("--clear and --set exclude each other")

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
            help="stop with an error, or skip the messages that cannot be read.",
            show_default=False,
        ),
    ],
    *,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Set what subscriptions do at a segment of the topic that cannot be read.

    The change takes effect at once. For a partitioned topic, it applies to each
    partition.
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
