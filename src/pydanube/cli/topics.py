"""`danube topics`: create, list, describe and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import options
from pydanube.cli.answers import (
    Format,
    plain,
    print_facts,
    print_json,
    print_line,
    print_table,
)
from pydanube.cli.options import examples
from pydanube.cli.quantities import (
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
)
from pydanube.cli.session import ask, confirm
from pydanube.cli.subscriptions import print_subscriptions
from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import TopicNotFound
from pydanube.model.policy import Durability

if TYPE_CHECKING:
    from pydanube.client.client import Client
    from pydanube.model.descriptions import Segments, TopicDescription
    from pydanube.model.policy import Retention

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Create, list, describe and delete topics.",
    epilog=examples(
        "danube topics create /default/orders --retention-age 7d",
        "danube topics list",
        "danube topics describe /default/orders --format json",
        "danube topics delete /default/orders",
    ),
)


@app.command(
    epilog=examples(
        "danube topics create /default/orders",
        "danube topics create /default/orders --retention-age 7d "
        "--retention-bytes 50GiB",
        "danube topics create /default/ticks --non-reliable --if-not-exists",
    )
)
def create(
    topic: options.Topic,
    *,
    reliable: Annotated[
        bool,
        typer.Option(
            "--reliable/--non-reliable",
            help="On disk and replayable; or in memory only, delivered at most once.",
        ),
    ] = True,
    durability: Annotated[
        Durability,
        typer.Option(
            metavar="durable|written",
            help="What an acknowledgement means: on disk, or with the operating "
            "system, which is faster and does not survive the loss of power.",
        ),
    ] = Durability.DURABLE,
    retention_age: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Drop history that is older, such as 12h or 7d; by default never.",
        ),
    ] = None,
    retention_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Drop the oldest history beyond this size, such as 500MB or 10GiB; by "
            "default never.",
        ),
    ] = None,
    if_not_exists: Annotated[
        bool,
        typer.Option(
            "--if-not-exists",
            help="It is no error if the topic exists with the same settings.",
        ),
    ] = False,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Create a topic.

    Topics are created by producers as well; this is for those with settings of their
    own, which stay as they are.
    """
    age_s = None if retention_age is None else parse_duration(retention_age)
    bytes_max = None if retention_bytes is None else parse_bytes(retention_bytes)

    async def question(client: Client) -> TopicDescription:
        await client.create_topic(
            topic,
            reliable=reliable,
            durability=durability.value,
            retention_age_s=age_s,
            retention_bytes_max=bytes_max,
            exist_ok=if_not_exists,
        )
        return await client.describe_topic(topic)

    description = ask(url, question)
    if answer_format is Format.JSON:
        print_json(description)
    else:
        print_line(f"{description.topic} is there.")


@app.command(
    "list", epilog=examples("danube topics list", "danube topics list --names")
)
def list_(
    *,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            metavar="NAME",
            help="Only topics of this namespace, for example default.",
        ),
    ] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Only names, one a line.")
    ] = False,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """List topics, with what is in them."""

    async def name_all(client: Client) -> list[str]:
        return sorted(await client.topics(namespace))

    async def describe_all(client: Client) -> list[TopicDescription]:
        found = [await _find(client, name) for name in await name_all(client)]
        return [description for description in found if description is not None]

    if names:
        listed = ask(url, name_all)
        if answer_format is Format.JSON:
            print_json(listed)
        else:
            for name in listed:
                print_line(name)
        return
    described = ask(url, describe_all)
    if answer_format is Format.JSON:
        print_json(described)
    else:
        print_table(
            ("Topic", "Kind", "Messages", "Size", "Subscriptions", "Backlog"),
            map(_row, described),
        )


@app.command(
    epilog=examples(
        "danube topics describe /default/orders",
        "danube topics describe /default/orders --segments",
    )
)
def describe(
    topic: options.Topic,
    *,
    segments: Annotated[
        bool,
        typer.Option("--segments", help="Also list the files that hold its history."),
    ] = False,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """Describe a topic: its settings, its messages, who uses it."""

    async def question(client: Client) -> tuple[TopicDescription, Segments | None]:
        description = await client.describe_topic(topic)
        return description, await client.segments(topic) if segments else None

    description, listed = ask(url, question)
    if answer_format is Format.JSON:
        files = {} if listed is None else {"segments": plain(listed.segments)}
        print_json(plain(description) | files)
        return
    _print_description(description)
    if description.subscriptions:
        print_line()
        print_subscriptions(description.subscriptions)
    if listed is not None:
        print_line()
        print_table(
            ("Base", "End", "Messages", "Size", "File"),
            (
                (
                    str(each.base),
                    str(each.end),
                    each.count,
                    format_bytes(each.byte_count),
                    each.url,
                )
                for each in listed.segments
            ),
        )


@app.command(
    epilog=examples(
        "danube topics delete /default/orders",
        "danube topics delete /default/orders --yes --force",
    )
)
def delete(
    topic: options.Topic,
    *,
    yes: options.Yes = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Even if somebody produces to it or consumes from it."
        ),
    ] = False,
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """Delete a topic with all its messages and subscriptions."""
    confirm(f"Delete {topic} with all its messages?", is_sure=yes)

    async def question(client: Client) -> None:
        await client.delete_topic(topic, force=force)

    ask(url, question)
    if answer_format is Format.JSON:
        print_json({"topic": topic, "deleted": True})
    else:
        print_line(f"{topic} is deleted.")


async def _find(client: Client, topic: str) -> TopicDescription | None:
    try:
        return await client.describe_topic(topic)
    except TopicNotFound:
        # Deleted since it was listed.
        return None


def _row(topic: TopicDescription) -> tuple[object, ...]:
    return (
        topic.topic,
        _kind(topic),
        topic.end_offset - topic.base_offset,
        format_bytes(topic.tail_bytes + topic.segment_bytes),
        len(topic.subscriptions),
        max((each.backlog for each in topic.subscriptions), default=0),
    )


def _kind(topic: TopicDescription) -> str:
    return "reliable" if topic.policy.is_reliable else "non-reliable"


def _print_description(topic: TopicDescription) -> None:
    facts: list[tuple[str, object]] = [("Topic", topic.topic), ("Kind", _kind(topic))]
    if topic.policy.is_reliable:
        facts += [
            ("Acknowledged when", _durability(topic.policy.durability)),
            ("Retention", _retention(topic.policy.retention)),
            ("Messages", topic.end_offset - topic.base_offset),
            ("Offsets", f"{topic.base_offset} \u2026 {topic.end_offset}"),
            ("In segments", _segments(topic)),
            ("In memory", format_bytes(topic.tail_bytes)),
            ("Epoch", str(topic.epoch)),
        ]
    else:
        facts += [("Published", topic.end_offset), ("Dropped", topic.dropped)]
    facts.append(("Producers", ", ".join(topic.producers)))
    print_facts(facts)


def _segments(topic: TopicDescription) -> str:
    if not topic.segment_count:
        return "nothing yet"
    size = format_bytes(topic.segment_bytes)
    files = "1 file" if topic.segment_count == 1 else f"{topic.segment_count} files"
    return f"{size} in {files}, up to offset {topic.sealed_offset}"


def _durability(durability: Durability) -> str:
    match durability:
        case Durability.DURABLE:
            return "on disk"
        case Durability.WRITTEN:
            return "written, with the operating system"


def _retention(retention: Retention) -> str:
    limits = []
    if retention.age_s is not None:
        limits.append(f"up to {format_duration(retention.age_s)} old")
    if retention.bytes_max is not None:
        limits.append(f"up to {format_bytes(retention.bytes_max)}")
    return " and ".join(limits) or "everything"
