"""`danube storage`: shows and manages where segments are stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.commands.subscriptions import partitions_of
from pydanube.cli.commands.topics import copies_of
from pydanube.cli.declaration import Connect, command, confirm
from pydanube.cli.output import Columns, Fields, Result, Table, to_json_value
from pydanube.cli.parameters import command_group
from pydanube.cli.quantities import format_bytes, format_duration
from pydanube.model.descriptions import StorageDescription

app = command_group(
    "Show, upload and evict the segments of a broker.",
    "danube storage status",
    "danube storage upload /default/orders",
    "danube storage evict /default/orders --yes",
    "danube storage locate /default/orders",
)

OptionalTopic = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC]",
        help="The topic, as /NAMESPACE/TOPIC; by default all topics.",
        show_default=False,
    ),
]


@command(app, "danube storage status", "danube storage status --format json")
def status(connect: Connect) -> Result:
    """Show the local segments, the uploads to the remote object store, and problems."""
    with connect() as client:
        described = client.describe_storage()
    problems = [f"Problem: {each}" for each in described.problems]
    return Result(described, Fields(_fields(described)), *problems)


@command(app, "danube storage upload", "danube storage upload /default/orders")
def upload(connect: Connect, topic: OptionalTopic = None) -> Result:
    """
    Upload sealed segments now, and wait until they are uploaded.

    The broker uploads segments by itself; this command does not wait for the next
    attempt after a failure. Messages that are not sealed yet are not uploaded.
    """
    with connect() as client:
        client.upload_segments(topic)
    return Result(
        {"topic": topic, "uploaded": True},
        f"All segments of {topic or 'all topics'} are uploaded.",
    )


@command(app, "danube storage evict --yes", "danube storage evict /default/orders")
def evict(
    connect: Connect, topic: OptionalTopic = None, *, yes: parameters.Yes = False
) -> Result:
    """
    Remove the local copies of uploaded segments.

    Readers get these segments from the remote object store from then on. Topics with
    retention holds keep their local copies.
    """
    confirm(
        f"Remove the local copies of the uploaded segments of {topic or 'all topics'}?",
        is_sure=yes,
    )
    with connect() as client:
        count, byte_count = client.evict_segments(topic)
    return Result(
        {"topic": topic, "evicted_segments": count, "evicted_bytes": byte_count},
        f"{count} local copies are removed, {format_bytes(byte_count)}.",
    )


@command(
    app,
    "danube storage locate /default/orders",
    "danube storage locate /default/orders --format json",
)
def locate(connect: Connect, topic: parameters.Topic) -> Result:
    """List the segments of a topic, and the URLs of their copies."""
    with connect() as client:
        listed = [
            {"topic": name, "copies": copies_of(segment), **to_json_value(segment)}
            for name in partitions_of(client, topic)
            for segment in client.segments(name).segments
        ]
    if not listed:
        return Result(listed, f"{topic} has no segments.")
    return Result(listed, Table.of(listed, LOCATED))


def _fields(storage: StorageDescription) -> Iterator[tuple[str, object]]:
    where = storage.journal_url or "the data directory"
    yield "Journal", f"{format_bytes(storage.journal_bytes)} in {where}"
    yield "Remote store", storage.remote_url or "none"
    if not storage.remote_url:
        yield "Local segments", format_bytes(storage.local_bytes)
        return
    local, limit = storage.local_bytes, storage.local_bytes_max
    yield "Local segments", f"{format_bytes(local)} of {format_bytes(limit)}"
    yield "Not uploaded", _backlog(storage)
    yield "Uploads", _counted(storage.uploads, storage.uploaded_bytes)
    yield "Failed uploads", storage.upload_failures
    yield "Evictions", _counted(storage.evictions, storage.evicted_bytes)
    yield "Publishing", "refused" if storage.is_refusing else "accepted"


def _backlog(storage: StorageDescription) -> str:
    if not storage.backlog_segments:
        return "nothing"
    counted = _counted(storage.backlog_segments, storage.backlog_bytes)
    return f"{counted}, the oldest for {format_duration(storage.backlog_age_s)}"


def _counted(count: int, byte_count: int) -> str:
    return f"{count:,} segments, {format_bytes(byte_count)}"


LOCATED: Columns = {
    "Topic": "topic",
    "Base": lambda segment: str(segment["base"]),
    "End": lambda segment: str(segment["end"]),
    "Size": lambda segment: format_bytes(segment["byte_count"]),
    "Copies": "copies",
    "URL": "url",
    "Remote URL": "remote_url",
}
