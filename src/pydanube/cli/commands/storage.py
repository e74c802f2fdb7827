"""`danube storage`: shows, verifies and manages where segments are stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.commands.subscriptions import partitions_of
from pydanube.cli.commands.topics import copies_of
from pydanube.cli.declaration import Connect, command, confirm
from pydanube.cli.interruption import Interrupted
from pydanube.cli.output import (
    Columns,
    Fields,
    Result,
    Table,
    print_note,
    to_json_value,
)
from pydanube.cli.parameters import command_group
from pydanube.cli.progress_line import progress_line
from pydanube.cli.quantities import format_bytes, format_duration, parse_bytes
from pydanube.model.descriptions import (
    CopyState,
    DamagedSegment,
    SegmentsVerified,
    StorageDescription,
)
from pydanube.model.errors import BrokerError, CorruptSegment
from pydanube.servers.errors import exit_code_of

app = command_group(
    "Show, verify, upload and evict the segments of a broker.",
    "danube storage status",
    "danube storage upload /default/orders",
    "danube storage evict /default/orders --yes",
    "danube storage locate /default/orders",
    "danube storage verify --repair",
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


@command(
    app,
    "danube storage verify",
    "danube storage verify /default/orders --repair",
    "danube storage verify --rate 200MiB --format json",
)
def verify(
    connect: Connect,
    topic: OptionalTopic = None,
    *,
    after: str = "",
    rate: str = "64MiB",
    repair: bool = False,
) -> Result:
    """
    Compare all copies of segments with their checksums, while the broker goes on.

    The broker reads every local and every remote copy. If the command is interrupted or
    fails, it prints the option --after with which it continues where it was.

    Args:
        after (POSITION): Continue after this position.
        rate (SIZE): How much the broker reads per second; 0 means as much as possible.
        repair: Replace a damaged or missing copy by the other copy of the segment, if
            that is intact.
    """
    bytes_per_s = parse_bytes(rate)
    total = SegmentsVerified(after=after)
    with (
        connect() as client,
        progress_line("verifying", is_shown=sys.stderr.isatty()) as show_progress,
    ):
        expected: SegmentsVerified | None = None
        while expected is None or total.after:
            with _resumable(topic, total.after):
                page = client.verify_segments(
                    topic,
                    after=total.after,
                    bytes_per_s=bytes_per_s,
                    repair=repair,
                    count=expected is None,
                )
            expected = expected or page
            total = sum_of(total, page)
            for segment in page.damaged:
                print_note(f"{segment.object_name}: {segment.problem}")
            show_progress(_progress(total, expected), total.segment_count)
    return Result(
        {
            "topic": topic,
            "segments": total.segment_count,
            "bytes_read": total.byte_count,
            "without_checksum": total.without_checksum,
            "damaged": total.damaged,
        },
        *_verified(total),
        exit_code=exit_code_of_damage(total.damaged),
    )


@contextmanager
def _resumable(topic: str | None, after: str) -> Iterator[None]:
    """If the body fails or is interrupted, print how to continue."""
    try:
        yield
    except (BrokerError, Interrupted, KeyboardInterrupt):
        if after:
            which = f" {topic}" if topic else ""
            print_note(f"continue with: danube storage verify{which} --after {after}")
        raise


def sum_of(total: SegmentsVerified, page: SegmentsVerified) -> SegmentsVerified:
    """Return *total* with one more page."""
    return SegmentsVerified(
        segment_count=total.segment_count + page.segment_count,
        byte_count=total.byte_count + page.byte_count,
        without_checksum=total.without_checksum + page.without_checksum,
        damaged=total.damaged + page.damaged,
        after=page.after,
    )


def exit_code_of_damage(damaged: Sequence[DamagedSegment]) -> int:
    """Return the exit code of a verification that has found *damaged* segments."""
    is_repaired = all(segment.is_repaired for segment in damaged)
    return 0 if is_repaired else exit_code_of(CorruptSegment)


def advice_on(damaged: Sequence[DamagedSegment]) -> list[str]:
    """Return what to do about *damaged* segments."""
    left = [segment for segment in damaged if not segment.is_repaired]
    advice = []
    if any(segment.has_intact_copy for segment in left):
        advice.append(
            "Segments with an intact copy: 'danube storage verify --repair' replaces "
            "the other copy. Nothing is lost."
        )
    if any(CopyState.UNKNOWN in (each.local, each.remote) for each in left):
        advice.append(
            "Segments that are only in a remote object store: set storage.remote.url "
            "to that store, and start the broker again."
        )
    elif not all(segment.has_intact_copy for segment in left):
        advice.append(
            "Segments without an intact copy: copy the object from a backup, where its "
            "name begins with segments/, to the directory objects in the broker's data "
            "directory, and verify again with --repair. Until then, their messages "
            "cannot be read."
        )
    return advice


def _progress(total: SegmentsVerified, expected: SegmentsVerified) -> str:
    return (
        f"{total.segment_count:,} of {expected.segments_left:,} segments, "
        f"{format_bytes(total.byte_count)} read, "
        f"{len(total.damaged)} damaged"
    )


def _verified(total: SegmentsVerified) -> Iterator[str | Table]:
    counted = _counted(total.segment_count, total.byte_count)
    if total.without_checksum:
        yield (
            f"{total.without_checksum:,} segments of old versions have no checksum; "
            "only their length was compared."
        )
    if not total.damaged:
        yield f"All copies are intact: {counted} read."
        return
    yield Table.of(total.damaged, DAMAGED)
    yield f"Damaged: {len(total.damaged):,} of {counted} read."
    yield from advice_on(total.damaged)


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


DAMAGED: Columns = {
    "Segment": "object_name",
    "Size": lambda segment: format_bytes(segment.byte_count),
    "Local": "local",
    "Remote": "remote",
    "Problem": "problem",
}

LOCATED: Columns = {
    "Topic": "topic",
    "Base": lambda segment: str(segment["base"]),
    "End": lambda segment: str(segment["end"]),
    "Size": lambda segment: format_bytes(segment["byte_count"]),
    "Copies": "copies",
    "URL": "url",
    "Remote URL": "remote_url",
}
