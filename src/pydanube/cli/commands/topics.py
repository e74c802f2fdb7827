"""`danube topics`: creates, lists, describes and deletes topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import confirm, run_with_client
from pydanube.cli.commands import topic_holds, topic_partitions
from pydanube.cli.commands.schemas import describe_binding
from pydanube.cli.commands.subscriptions import print_subscriptions
from pydanube.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_line,
    print_result,
    print_table,
    to_json_value,
)
from pydanube.cli.parameters import command_group, examples
from pydanube.cli.quantities import (
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
)
from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import TopicNotFound
from pydanube.model.names import TopicName
from pydanube.model.policy import CorruptionPolicy, Durability

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydanube.client.client import Client
    from pydanube.model.descriptions import Hold, Segments, TopicDescription
    from pydanube.model.policy import Retention

app = command_group(
    "Create, list, describe and delete topics.",
    "danube topics create /default/orders --retention-age 7d",
    "danube topics list",
    "danube topics describe /default/orders --format json",
    "danube topics delete /default/orders",
)


@app.command(
    epilog=examples(
        "danube topics create /default/orders",
        "danube topics create /default/orders --retention-age 7d "
        "--retention-bytes 50GiB",
        "danube topics create /default/ticks --non-reliable --if-not-exists",
        "danube topics create /default/clicks --partitions 8",
    )
)
def create(
    topic: parameters.Topic,
    *,
    reliable: Annotated[
        bool,
        typer.Option(
            "--reliable/--non-reliable",
            help="A reliable topic stores messages on disk, and they can be read "
            "again; a non-reliable topic delivers them from memory, at most once.",
        ),
    ] = True,
    durability: Annotated[
        Durability,
        typer.Option(
            metavar="durable|written",
            help="The meaning of an acknowledgement: durable is on disk; written is "
            "passed to the operating system, which is faster, but does not survive a "
            "power failure.",
        ),
    ] = Durability.DURABLE,
    retention_age: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Remove messages older than this, such as 12h or 7d; by default "
            "never.",
        ),
    ] = None,
    retention_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Remove the oldest messages beyond this size, such as 500MB or "
            "10GiB; by default never.",
        ),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl",
            metavar="DURATION",
            help="Messages expire after this time, such as 10m; by default never.",
        ),
    ] = None,
    on_corruption: Annotated[
        CorruptionPolicy,
        typer.Option(
            metavar="stop|skip",
            help="The reaction of subscriptions to a segment that cannot be read: stop "
            "with an error, or skip its messages.",
        ),
    ] = CorruptionPolicy.STOP,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            metavar="COUNT",
            help="Create a partitioned topic with this number of partitions.",
        ),
    ] = None,
    if_not_exists: Annotated[
        bool,
        typer.Option(
            "--if-not-exists",
            help="Succeed if the topic exists with the same settings.",
        ),
    ] = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Create a topic.

    Producers also create topics, with default settings. The settings of a topic given
    here are permanent.
    """
    age_s = None if retention_age is None else parse_duration(retention_age)
    ttl_s = None if ttl is None else parse_duration(ttl)
    bytes_max = None if retention_bytes is None else parse_bytes(retention_bytes)

    async def call(client: Client) -> list[TopicDescription]:
        await client.create_topic(
            topic,
            partitions=partitions,
            reliable=reliable,
            durability=durability.value,
            retention_age_s=age_s,
            retention_bytes_max=bytes_max,
            ttl_s=ttl_s,
            on_corruption=on_corruption.value,
            exist_ok=if_not_exists,
        )
        return await _describe(client, topic)

    described = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        _print_json(topic, described)
    elif partitions is None:
        print_line(f"Topic {topic} exists.")
    else:
        print_line(f"Topic {topic} exists, with {_partitions(len(described))}.")


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
        bool, typer.Option("--names", help="Print only names, one per line.")
    ] = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    List topics, with their sizes and backlogs.

    The partitions of a topic are summed up in one row; --names and --format json list
    each partition.
    """

    async def name_all(client: Client) -> list[str]:
        return sorted(await client.topics(namespace))

    async def describe_all(client: Client) -> list[TopicDescription]:
        found = [await _find(client, name) for name in await name_all(client)]
        return [description for description in found if description is not None]

    if names:
        listed = run_with_client(url, name_all)
        if output_format is OutputFormat.JSON:
            print_json(listed)
        else:
            for name in listed:
                print_line(name)
        return
    described = run_with_client(url, describe_all)
    if output_format is OutputFormat.JSON:
        print_json(described)
    else:
        print_table(
            ("Topic", "Kind", "Messages", "Size", "Subscriptions", "Backlog"),
            map(_row, _by_topic(described)),
        )


@app.command(
    epilog=examples(
        "danube topics describe /default/orders",
        "danube topics describe /default/orders --segments",
    )
)
def describe(
    topic: parameters.Topic,
    *,
    segments: Annotated[
        bool,
        typer.Option("--segments", help="Also list the topic's segments."),
    ] = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Describe a topic: its settings, contents, producers and subscriptions."""

    async def call(
        client: Client,
    ) -> tuple[list[TopicDescription], list[Segments]]:
        described = await _describe(client, topic)
        names = [each.topic for each in described] if segments else []
        return described, [await client.segments(name) for name in names]

    described, listed = run_with_client(url, call)
    if output_format is OutputFormat.JSON:
        _print_json(topic, described, listed)
        return
    if [each.topic for each in described] == [topic]:
        _print_description(described[0])
        if described[0].subscriptions:
            print_line()
            print_subscriptions(described[0].subscriptions)
    else:
        _print_partitions(topic, described)
    for each in listed:
        print_line()
        _print_segments(each)


@app.command(
    epilog=examples(
        "danube topics delete /default/orders",
        "danube topics delete /default/orders --yes --force",
    )
)
def delete(
    topic: parameters.Topic,
    *,
    yes: parameters.Yes = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Delete it even if it has producers, consumers or holds.",
        ),
    ] = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Delete a topic with all its messages and subscriptions."""
    confirm(f"Delete {topic} with all its messages?", is_sure=yes)

    async def call(client: Client) -> None:
        await client.delete_topic(topic, force=force)

    run_with_client(url, call)
    print_result(
        {"topic": topic, "deleted": True}, f"{topic} is deleted.", output_format
    )


app.command(
    "hold",
    epilog=examples(
        "danube topics hold /default/orders --name lake.orders "
        "--reason 'its files are registered in the table'",
    ),
)(topic_holds.hold)

app.command(
    "release",
    epilog=examples("danube topics release /default/orders --name lake.orders"),
)(topic_holds.release)

app.command("partitions", epilog=examples("danube topics partitions /default/orders"))(
    topic_partitions.list_partitions
)

app.command(
    "add-partitions",
    epilog=examples("danube topics add-partitions /default/orders --total 8"),
)(topic_partitions.add_partitions)

app.command(
    "limits",
    epilog=examples(
        "danube topics limits /default/orders",
        "danube topics limits /default/orders --set max_publish_rate=1000",
        "danube topics limits /default/orders --clear",
    ),
)(topic_partitions.topic_limits)

app.command(
    "set-on-corruption",
    epilog=examples(
        "danube topics set-on-corruption /default/orders skip",
        "danube topics set-on-corruption /default/orders stop",
    ),
)(topic_partitions.set_on_corruption)


async def _describe(client: Client, topic: str) -> list[TopicDescription]:
    """Return the descriptions of the partitions of *topic*, or of *topic* itself."""
    names = await client.existing_partitions(topic)
    return [await client.describe_topic(name) for name in names]


async def _find(client: Client, topic: str) -> TopicDescription | None:
    try:
        return await client.describe_topic(topic)
    except TopicNotFound:
        # It was deleted after it was listed.
        return None


def _by_topic(
    described: Iterable[TopicDescription],
) -> Iterable[tuple[str, list[TopicDescription]]]:
    """Return topics by name, with the partitions of a partitioned topic grouped."""
    groups: dict[str, list[TopicDescription]] = {}
    for each in described:
        partition = TopicName.parse(each.topic).split_partition()
        name = each.topic if partition is None else str(partition[0])
        groups.setdefault(name, []).append(each)
    return groups.items()


def _row(group: tuple[str, list[TopicDescription]]) -> tuple[object, ...]:
    name, topics = group
    backlogs: Counter[str] = Counter()
    for topic in topics:
        backlogs.update(
            {each.subscription: each.backlog for each in topic.subscriptions}
        )
    is_whole = topics[0].topic == name
    return (
        name,
        _kind(topics[0]) + ("" if is_whole else f", {_partitions(len(topics))}"),
        sum(each.message_count for each in topics),
        format_bytes(sum(each.tail_bytes + each.segment_bytes for each in topics)),
        len(backlogs),
        max(backlogs.values(), default=0),
    )


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _print_json(
    topic: str, described: list[TopicDescription], listed: Sequence[Segments] = ()
) -> None:
    facts = [to_json_value(each) for each in described]
    for each, segments in zip(facts, listed, strict=False):
        each["segments"] = to_json_value(segments.segments)
    if [each.topic for each in described] == [topic]:
        print_json(facts[0])
    else:
        print_json({"topic": topic, "partitions": facts})


def _print_partitions(topic: str, described: list[TopicDescription]) -> None:
    messages = sum(each.message_count for each in described)
    print_fields(
        [
            ("Topic", topic),
            ("Kind", _kind(described[0])),
            ("Partitions", len(described)),
            ("Messages", messages),
        ]
    )
    print_line()
    print_table(
        ("Partition", "Messages", "Offsets", "Size", "Producers", "Subscriptions"),
        (
            (
                each.topic,
                each.message_count,
                f"{each.base_offset} \u2026 {each.end_offset}",
                format_bytes(each.tail_bytes + each.segment_bytes),
                len(each.producers),
                len(each.subscriptions),
            )
            for each in described
        ),
    )


def _print_segments(listed: Segments) -> None:
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


def _kind(topic: TopicDescription) -> str:
    return "reliable" if topic.policy.is_reliable else "non-reliable"


def _print_description(topic: TopicDescription) -> None:
    facts: list[tuple[str, object]] = [("Topic", topic.topic), ("Kind", _kind(topic))]
    if topic.policy.is_reliable:
        facts += [
            ("Ack means", _durability(topic.policy.durability)),
            ("Retention", _retention(topic.policy.retention)),
            ("Time to live", _ttl(topic.policy.ttl_s)),
            ("On corruption", topic.policy.on_corruption.value),
            ("Messages", topic.message_count),
            ("Offsets", f"{topic.base_offset} \u2026 {topic.end_offset}"),
            ("In segments", _segments(topic)),
            ("In memory", format_bytes(topic.tail_bytes)),
            ("Epoch", str(topic.epoch)),
        ]
        facts += [("Held by", _hold(each)) for each in topic.holds]
    else:
        facts += [("Published", topic.end_offset), ("Dropped", topic.dropped)]
    facts += [
        ("Schema", None if topic.schema is None else describe_binding(topic.schema)),
        ("Producers", ", ".join(topic.producers)),
    ]
    print_fields(facts)


def _segments(topic: TopicDescription) -> str:
    if not topic.segment_count:
        return "nothing yet"
    size = format_bytes(topic.segment_bytes)
    files = "1 file" if topic.segment_count == 1 else f"{topic.segment_count} files"
    return f"{size} in {files}, up to offset {topic.sealed_offset}"


def _hold(hold: Hold) -> str:
    return f"{hold.name}: {hold.reason}" if hold.reason else hold.name


def _durability(durability: Durability) -> str:
    match durability:
        case Durability.DURABLE:
            return "on disk"
        case Durability.WRITTEN:
            return "written to the operating system"


def _ttl(ttl_s: float | None) -> str:
    return "no limit" if ttl_s is None else format_duration(ttl_s)


def _retention(retention: Retention) -> str:
    limits = []
    if retention.age_s is not None:
        limits.append(f"up to {format_duration(retention.age_s)} old")
    if retention.bytes_max is not None:
        limits.append(f"up to {format_bytes(retention.bytes_max)}")
    return " and ".join(limits) or "everything"
