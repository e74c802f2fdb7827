"""`danube topics partitions, add-partitions, limits`: about all of a name's topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import limits, options
from pydanube.cli.answers import Format, plain, print_facts, print_json, print_line
from pydanube.cli.session import ask
from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import InvalidRequest, TopicNotFound
from pydanube.model.policy import CorruptionPolicy

if TYPE_CHECKING:
    from pydanube.client.client import Client
    from pydanube.model.descriptions import TopicDescription


def list_partitions(
    topic: options.Topic,
    *,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    List the topics that a name stands for, one a line.

    These are its partitions by number; a topic without partitions is the only one.
    """

    async def question(client: Client) -> list[str]:
        return await _partitions_of(client, topic)

    _print_names(topic, ask(url, question), answer_format)


def add_partitions(
    topic: options.Topic,
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
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Give a partitioned topic more partitions.

    What was published stays where it is. A key may be in another partition from now
    on, so its newer messages are no longer ordered behind its older ones. Producers and
    consumers that are running find the new partitions by themselves.
    """

    async def question(client: Client) -> list[str]:
        await client.add_partitions(topic, total)
        return await client.partitions(topic)

    _print_names(topic, ask(url, question), answer_format)


def topic_limits(
    topic: options.Topic,
    *,
    settings: limits.Set = None,
    clear: Annotated[
        bool,
        typer.Option("--clear", help="Those of its namespace are to hold again."),
    ] = False,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Show or change what a topic may take at most.

    With --set, the topic gets limits of its own, which hold at once instead of all
    those of its namespace; what is not named stays as it is. The name of a partitioned
    topic means each of its partitions.
    """
    if clear and settings:
        raise InvalidRequest("either --clear or --set")

    async def question(client: Client) -> TopicDescription:
        first = (await _partitions_of(client, topic))[0]
        if clear:
            await client.set_topic_limits(topic, None)
        elif settings:
            known = (await client.describe_topic(first)).limits
            await client.set_topic_limits(topic, limits.changed(known, settings))
        return await client.describe_topic(first)

    answer = ask(url, question)
    if answer_format is Format.JSON:
        print_json({"limits": plain(answer.limits), "own": plain(answer.own_limits)})
        return
    where = "its namespace" if answer.own_limits is None else "the topic itself"
    print_facts([("Limits of", where), *limits.facts_of(answer.limits)])


def set_on_corruption(
    topic: options.Topic,
    on_corruption: Annotated[
        CorruptionPolicy,
        typer.Argument(
            metavar="stop|skip",
            help="Stop with an error, or skip the messages that cannot be read.",
            show_default=False,
        ),
    ],
    *,
    url: options.Url = DEFAULT_URL,
) -> None:
    """
    Change what subscriptions do when a segment of the topic cannot be read.

    It holds at once. The name of a partitioned topic means each of its partitions.
    """
    ask(url, lambda client: client.set_on_corruption(topic, on_corruption.value))
    print_line(f"Subscriptions of {topic} {on_corruption.value} at corrupt segments.")


async def _partitions_of(client: Client, topic: str) -> list[str]:
    names = await client.partitions(topic)
    if not names:
        raise TopicNotFound(f"Unable to find the topic: {topic}")
    return names


def _print_names(topic: str, names: list[str], answer_format: Format) -> None:
    if answer_format is Format.JSON:
        print_json({"topic": topic, "partitions": names})
        return
    for name in names:
        print_line(name)
