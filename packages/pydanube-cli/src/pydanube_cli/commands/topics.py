"""`danube topics`: manages topics, their partitions, limits and retention holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from pydanube.client.operations.changes import changes_of
from pydanube.model.descriptions import Segment, TopicDescription
from pydanube.model.errors import TopicNotFound
from pydanube.model.json_values import to_json_value
from pydanube.model.names import TopicName
from pydanube.model.policy import (
    KEEP_ALL,
    CorruptionPolicy,
    Deduplication,
    Durability,
    Retention,
    TopicPolicy,
)
from pydanube.model.positions import POSITION_HELP
from pydanube.model.quantity_formats import (
    format_bytes,
    format_count,
    format_counted,
    format_duration,
    format_offset_range,
    format_offsets,
)
from pydanube.model.setting_documents import (
    document_of,
    document_of_pairs,
    with_document,
)
from pydanube.sync import Client
from pydanube_cli.administration.retention_drops import describe_retention, drops_shown
from pydanube_cli.administration.schema_bindings import describe_binding
from pydanube_cli.administration.setting_changes import Set, changed, shown
from pydanube_cli.commands import brokers, subscriptions
from pydanube_cli.commands.subscriptions import partitions_of
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.completion import complete_namespaces
from pydanube_cli.invocation.declaration import Connect, command, confirm
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Fields, Result, Table, cells_of
from pydanube_cli.presentation.quantities import (
    POSITION_METAVAR,
    optional,
    parse_bytes,
    parse_duration,
    parse_position,
)

app = command_group(
    "Create, list, describe and delete topics.",
    "danube topics create /default/orders --retention-age 7d",
    "danube topics list",
    "danube topics describe /default/orders --format json",
    "danube topics delete /default/orders",
)


@command(
    app,
    "danube topics create /default/orders",
    "danube topics create /default/orders --retention-age 7d --retention-bytes 50GiB",
    "danube topics create /default/jobs --retention-acknowledged",
    "danube topics create /default/ticks --non-reliable --if-not-exists",
    "danube topics create /default/clicks --partitions 8",
)
def create(
    connect: Connect,
    topic: parameters.Topic,
    *,
    reliable: bool = True,
    durability: Durability = Durability.DURABLE,
    retention_age: str | None = None,
    retention_bytes: str | None = None,
    retention_acknowledged: bool = False,
    ttl: str | None = None,
    on_corruption: CorruptionPolicy = CorruptionPolicy.STOP,
    deduplication_age: str | None = None,
    partitions: Annotated[int | None, typer.Option(min=1)] = None,
    if_not_exists: bool = False,
) -> Result:
    """
    Create a topic.

    Producers also create topics, with default settings. Retention, deduplication and
    the reaction to unreadable segments can be changed later; the other settings are
    permanent.

    Args:
        reliable (--reliable/--non-reliable): A reliable topic stores messages on disk,
            and they can be read again; a non-reliable topic delivers them from memory,
            at most once.
        durability (durable|written): The meaning of an acknowledgement: durable is on
            disk; written is passed to the operating system, which is faster, but does
            not survive a power failure.
        retention_age (DURATION): Remove messages older than this, such as 12h or 7d; by
            default never.
        retention_bytes (SIZE): Remove the oldest messages beyond this size, such as
            500MB or 10GiB; by default never.
        retention_acknowledged: Remove messages that all subscriptions have
            acknowledged. Without any of the three, the retention of the namespace
            applies.
        ttl (DURATION): Messages expire after this time, such as 10m; by default never.
        on_corruption (stop|skip): The reaction of subscriptions to a segment that
            cannot be read: stop with an error, or skip its messages.
        deduplication_age (DURATION): Store no message whose id is that of a message
            published this long ago or later, such as 10m; by default messages have no
            ids.
        partitions (COUNT): Create a partitioned topic with this number of partitions.
        if_not_exists: Succeed if the topic exists with the settings that are given.
    """
    retention = Retention(
        age_s=optional(parse_duration, retention_age),
        bytes_max=optional(parse_bytes, retention_bytes),
        drops_acknowledged=retention_acknowledged,
    )
    ttl_s = optional(parse_duration, ttl)
    window = None
    if deduplication_age is not None:
        window = Deduplication(age_s=parse_duration(deduplication_age))
    with connect() as client:
        client.topics.create(
            topic,
            partitions=partitions,
            reliable=reliable,
            durability=durability.value,
            ttl_s=ttl_s,
            retention=None if retention == KEEP_ALL else retention,
            on_corruption=on_corruption.value,
            deduplication=window,
            exist_ok=if_not_exists,
        )
        described = _describe(client, topic)
    with_partitions = partitions and f", with {_partitions(len(described))}"
    return Result(
        _json_of(topic, described, {}), f"Topic {topic} exists{with_partitions or ''}."
    )


@command(app, "danube topics list", "danube topics list --names", name="list")
def list_(
    connect: Connect,
    *,
    namespace: Annotated[
        str | None, typer.Option(autocompletion=complete_namespaces)
    ] = None,
    names: bool = False,
) -> Result:
    """
    List topics, with their sizes and backlogs.

    The partitions of a topic are summed up in one row; --names and --format json list
    each partition.

    Args:
        namespace (NAME): Only topics of this namespace, for example default.
        names: Print only names, one per line.
    """
    with connect() as client:
        listed = sorted(client.topics.list(namespace))
        if names:
            return Result(listed, *listed)
        described = []
        for name in listed:
            # A topic may be deleted after it was listed.
            with suppress(TopicNotFound):
                described.append(client.topics.describe(name))
    columns: tuple[str, ...] = LISTED
    rows = [_row(each) for each in _by_topic(described)]
    if any(each.shard is not None for each in described):
        columns = (*LISTED, "Broker")
    return Result(described, Table(columns, (row[: len(columns)] for row in rows)))


@command(
    app,
    "danube topics describe /default/orders",
    "danube topics describe /default/orders --segments",
)
def describe(
    connect: Connect,
    topic: parameters.Topic,
    *,
    segments: bool = False,
) -> Result:
    """
    Describe a topic: its settings, contents, producers and subscriptions.

    Args:
        segments: Also list the topic's segments.
    """
    with connect() as client:
        described = _describe(client, topic)
        listed = {
            each.topic: client.storage.segments(each.topic).segments
            for each in described
            if segments
        }
    parts = _partitions_shown(topic, described)
    if _is_whole(topic, described):
        parts = [_fields(described[0])]
        if described[0].subscriptions:
            parts += ["", Table.of(described[0].subscriptions, subscriptions.COLUMNS)]
    for each in listed.values():
        parts += ["", Table.of(each, SEGMENT)]
    return Result(_json_of(topic, described, listed), *parts)


@command(
    app,
    "danube topics delete /default/orders",
    "danube topics delete /default/orders --yes --force",
)
def delete(
    connect: Connect,
    topic: parameters.Topic,
    *,
    yes: parameters.Yes = False,
    force: bool = False,
) -> Result:
    """
    Delete a topic with all its messages and subscriptions.

    Args:
        force: Delete it even if it has producers, consumers or holds.
    """
    confirm(f"Delete {topic} with all its messages?", is_sure=yes)
    with connect() as client:
        client.topics.delete(topic, force=force)
    return Result({"topic": topic, "deleted": True}, f"{topic} is deleted.")


@command(
    app,
    "danube topics hold /default/orders --name lake.orders "
    "--reason 'its files are registered in the table'",
)
def hold(
    connect: Connect,
    topic: parameters.Topic,
    *,
    name: str,
    reason: str = "",
) -> Result:
    """
    Hold a topic's segments, because an external reader needs them.

    Until the hold is released, retention and maintenance keep the segments as they are,
    and deleting the topic requires --force.

    Args:
        name (NAME): The name of the hold, for example that of the table that needs the
            segments.
        reason (TEXT): The reason, for people.
    """
    with connect() as client:
        client.topics.hold(topic, name, reason)
    return Result(
        {"topic": topic, "hold": name, "held": True}, f"{topic} is held by {name}."
    )


@command(app, "danube topics release /default/orders --name lake.orders")
def release(connect: Connect, topic: parameters.Topic, *, name: str) -> Result:
    """
    Release a hold.

    Args:
        name (NAME): The name of the hold, for example that of the table that needs the
            segments.
    """
    with connect() as client:
        client.topics.release(topic, name)
    return Result(
        {"topic": topic, "hold": name, "held": False},
        f"{topic} is no longer held by {name}.",
    )


@command(app, "danube topics partitions /default/orders")
def partitions(connect: Connect, topic: parameters.Topic) -> Result:
    """
    List the partitions of a topic, one per line.

    A topic that is not partitioned is listed itself.
    """
    with connect() as client:
        names = partitions_of(client, topic)
    return Result({"topic": topic, "partitions": names}, *names)


@command(app, "danube topics add-partitions /default/orders --total 8")
def add_partitions(
    connect: Connect,
    topic: parameters.Topic,
    *,
    total: Annotated[int, typer.Option(min=1)],
) -> Result:
    """
    Add partitions to a partitioned topic.

    Stored messages stay in their partitions. Keys may move to other partitions, so
    newer messages of a key are no longer ordered after older ones. Connected producers
    and consumers find the new partitions automatically.

    Args:
        total (COUNT): The new number of partitions.
    """
    with connect() as client:
        client.topics.add_partitions(topic, total)
        names = client.topics.partitions(topic)
    return Result({"topic": topic, "partitions": names}, *names)


@command(
    app,
    "danube topics configure /default/orders",
    "danube topics configure /default/orders --set retention.age=7d",
    "danube topics configure /default/orders --set limits.max_publish_rate=1000 "
    "--set schema.policy=enforce --dry-run",
    "danube topics configure /default/orders --set retention=inherit",
)
def configure(
    connect: Connect,
    topic: parameters.Topic,
    *,
    settings: Set = None,
    dry_run: bool = False,
) -> Result:
    """
    Show the settings of a topic, or change them and show the old and the new values.

    The settings are on_corruption, retention.age, retention.size,
    retention.acknowledged, sealing.size, sealing.age, deduplication.age,
    deduplication.messages, the names of limits as in limits.max_publish_rate, and
    schema.subject, schema.policy, schema.validate_payload, schema.version and
    schema.min_version. retention=inherit and limits=inherit let those of the namespace
    apply, deduplication=none ends it, and schema=none removes the binding; a topic that
    gets a retention or limits of its own begins with those of its namespace. Settings
    that are not named do not change. All changes are made together, or none of them.
    For a partitioned topic, they apply to each partition.

    Args:
        dry_run: Only show what would change, and what a changed retention would remove
            now.
    """
    document = document_of_pairs(settings or [])
    with connect() as client:
        described = client.topics.describe(partitions_of(client, topic)[0])
        old, is_reliable = described.settings, described.policy.is_reliable
        before = document_of(old, is_reliable=is_reliable)
        if not settings:
            return shown(before)
        new = with_document(described, document)
        drops = None
        if dry_run and new.retention != old.retention:
            drops = client.topics.plan_retention(
                topic, new.retention, inherits=new.retention is None
            )
        return changed(
            topic,
            before,
            document_of(new, is_reliable=is_reliable),
            lambda: client.topics.configure(topic, **changes_of(old, new)),
            dry_run=dry_run,
            drops=drops,
        )


@command(
    app,
    "danube topics apply-retention /default/orders --dry-run",
    "danube topics apply-retention /default/orders",
)
def apply_retention(
    connect: Connect, topic: parameters.Topic, *, dry_run: bool = False
) -> Result:
    """
    Remove what the retention of a topic does not keep, now, and list it.

    The broker does the same within storage.retention_interval_s. Whole segments are
    removed, the oldest first; the newest segment stays.

    Args:
        dry_run: Remove nothing; list what would be removed now. "danube topics
            configure --dry-run" does the same for another retention.
    """
    with connect() as client:
        work = (
            client.topics.plan_retention if dry_run else client.topics.apply_retention
        )
        drops = work(topic)
    return Result(drops, *drops_shown(drops, are_planned=dry_run))


@command(
    app,
    "danube topics trim /default/orders --before 30d",
    "danube topics trim /default/orders --before 2025-03-01T09:30:00Z --yes",
    "danube topics trim /default/clicks-part-3 --before 1500000",
    "danube topics trim /default/orders --before latest",
)
def trim(
    connect: Connect,
    topic: parameters.Topic,
    *,
    before: Annotated[
        str,
        typer.Option(
            metavar=POSITION_METAVAR,
            help=f"The position before which messages go: {POSITION_HELP}.",
            show_default=False,
        ),
    ],
    yes: parameters.Yes = False,
) -> Result:
    """
    Remove the messages of a topic before a position, for all readers at once.

    Subscriptions that were behind continue at the position. Files go when all of their
    messages are removed; the newest file stays, and so do all while the topic is held.
    For a partitioned topic, all partitions are trimmed; an offset requires the name of
    one partition.
    """
    where = parse_position(before)
    confirm(f"Remove the messages of {topic} before {before}?", is_sure=yes)
    with connect() as client:
        drops = client.topics.trim(topic, where)
    starts = (f"{each.topic} begins at offset {each.base_offset}." for each in drops)
    return Result(drops, *starts, "", *drops_shown(drops, are_planned=False))


command(app, "danube topics move /default/orders --to broker-2")(brokers.move)


def _describe(client: Client, topic: str) -> list[TopicDescription]:
    """Return the descriptions of the partitions of *topic*, or of *topic* itself."""
    return [client.topics.describe(name) for name in partitions_of(client, topic)]


def _is_whole(topic: str, described: list[TopicDescription]) -> bool:
    """Return whether *topic* itself is described, not its partitions."""
    return [each.topic for each in described] == [topic]


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


LISTED = ("Topic", "Kind", "Messages", "Size", "Subscriptions", "Backlog", "Blocked")


def _row(group: tuple[str, list[TopicDescription]]) -> tuple[object, ...]:
    """Return the cells of a topic, or of its partitions, under LISTED and Broker."""
    name, topics = group
    backlogs: Counter[str] = Counter()
    for topic in topics:
        backlogs.update(
            {each.subscription: each.backlog for each in topic.subscriptions}
        )
    blocked = {
        each.subscription
        for topic in topics
        for each in topic.subscriptions
        if each.blocked
    }
    parts = "" if _is_whole(name, topics) else f", {_partitions(len(topics))}"
    return (
        name,
        _kind(topics[0]) + parts,
        sum(each.message_count for each in topics),
        format_bytes(sum(each.tail_bytes + each.segment_bytes for each in topics)),
        len(backlogs),
        max(backlogs.values(), default=0),
        ", ".join(sorted(blocked)),
        format_counted(each.broker_id for each in topics),
    )


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _json_of(
    topic: str,
    described: list[TopicDescription],
    segments: Mapping[str, Sequence[Segment]],
) -> object:
    facts: list[dict[str, Any]] = [to_json_value(each) for each in described]
    for each in facts:
        if each["topic"] in segments:
            each["segments"] = segments[each["topic"]]
    if _is_whole(topic, described):
        return facts[0]
    return {"topic": topic, "partitions": facts}


def _partitions_shown(topic: str, described: list[TopicDescription]) -> list[Any]:
    facts = {
        "Topic": topic,
        "Kind": _kind(described[0]),
        "Partitions": len(described),
        "Messages": sum(each.message_count for each in described),
    }
    columns = PARTITION
    if described[0].shard is not None:
        columns = {**PARTITION, **PLACE}
    return [Fields(facts.items()), "", Table.of(described, columns)]


def _kind(topic: TopicDescription) -> str:
    return "reliable" if topic.policy.is_reliable else "non-reliable"


def _offsets(topic: TopicDescription) -> str:
    return format_offsets(topic.base_offset, topic.end_offset, topic.message_count)


def _segments(topic: TopicDescription) -> str:
    if not topic.segment_count:
        return "nothing yet"
    size = format_bytes(topic.segment_bytes)
    files = "1 file" if topic.segment_count == 1 else f"{topic.segment_count} files"
    return f"{size} in {files}, up to offset {topic.sealed_offset - 1}"


def _retention(topic: TopicDescription) -> str:
    kept = describe_retention(
        topic.retention, has_subscriptions=bool(topic.subscriptions)
    )
    return kept if topic.policy.retention is not None else f"{kept} (of its namespace)"


def _sealing(policy: TopicPolicy) -> str:
    size, age_s = policy.seal_bytes, policy.seal_age_s
    given = [] if size is None else [f"at {format_bytes(size)}"]
    if age_s is not None:
        given.append(f"after {format_duration(age_s)}")
    return " or ".join(given) or "as the broker's settings say"


def _deduplication(window: Deduplication | None) -> str:
    if window is None:
        return "none"
    age, count = format_duration(window.age_s), format_count(window.messages_max)
    return f"ids of the last {age}, in the last {count} messages"


def _ttl(topic: TopicDescription) -> str:
    ttl_s = topic.policy.ttl_s
    return "no limit" if ttl_s is None else format_duration(ttl_s)


def copies_of(segment: Segment) -> str:
    """Return which copies of a segment exist: the local one, the remote one, or both"""
    if not segment.remote_url:
        return "local"
    return "remote" if segment.url == segment.remote_url else "local, remote"


def _fields(topic: TopicDescription) -> Fields:
    columns = FIELDS if topic.policy.is_reliable else FIELDS_OF_NON_RELIABLE
    if topic.shard is not None:
        columns = {**columns, **PLACE}
    holds = [
        ("Held by", f"{each.name}: {each.reason}" if each.reason else each.name)
        for each in topic.holds
    ]
    return Fields(
        [
            *zip(columns, cells_of(topic, columns), strict=True),
            *holds,
            ("Schema", topic.schema and describe_binding(topic.schema)),
            ("Producers", ", ".join(topic.producers)),
        ]
    )


ACK_MEANS = {
    Durability.DURABLE: "on disk",
    Durability.WRITTEN: "written to the operating system",
}

FIELDS: Columns = {
    "Topic": "topic",
    "Kind": _kind,
    "Ack means": lambda topic: ACK_MEANS[topic.policy.durability],
    "Retention": _retention,
    "Sealed": lambda topic: _sealing(topic.policy),
    "Deduplication": lambda topic: _deduplication(topic.policy.deduplication),
    "Time to live": _ttl,
    "On corruption": "policy.on_corruption",
    "Messages": "message_count",
    "Offsets": _offsets,
    "In segments": _segments,
    "In memory": lambda topic: format_bytes(topic.tail_bytes),
    "Epoch": lambda topic: str(topic.epoch),
}

FIELDS_OF_NON_RELIABLE: Columns = {
    "Topic": "topic",
    "Kind": _kind,
    "Published": "end_offset",
    "Dropped": "dropped",
}

PARTITION: Columns = {
    "Partition": "topic",
    "Messages": "message_count",
    "Offsets": _offsets,
    "Size": lambda topic: format_bytes(topic.tail_bytes + topic.segment_bytes),
    "Producers": lambda topic: len(topic.producers),
    "Subscriptions": lambda topic: len(topic.subscriptions),
}

PLACE: Columns = {"Broker": "broker_id", "Shard": "shard"}

SEGMENT: Columns = {
    "Offsets": lambda segment: format_offset_range(segment.base, segment.end),
    "Messages": "count",
    "Size": lambda segment: format_bytes(segment.byte_count),
    "Copies": copies_of,
    "File": "url",
}
