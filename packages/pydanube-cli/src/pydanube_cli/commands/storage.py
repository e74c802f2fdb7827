"""`danube storage`: shows, verifies and manages where segments are stored."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from pydanube.model.descriptions import (
    CopyState,
    DamagedSegment,
    SegmentsVerified,
    StorageDescription,
)
from pydanube.model.errors import BrokerError, CorruptSegment
from pydanube.model.json_values import to_json_value
from pydanube.model.quantity_formats import format_bytes, format_duration
from pydanube_cli.administration.object_stores import NamedStore
from pydanube_cli.commands.subscriptions import partitions_of
from pydanube_cli.commands.topics import copies_of
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import Connect, command, confirm
from pydanube_cli.invocation.exit_codes import exit_code_of
from pydanube_cli.invocation.interruption import Interrupted
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Fields, Result, Table, print_note
from pydanube_cli.presentation.progress_line import progress_line
from pydanube_cli.presentation.quantities import parse_bytes

app = command_group(
    "Show, verify, upload, evict and copy the segments of a broker.",
    "danube storage status",
    "danube storage upload /default/orders",
    "danube storage evict /default/orders --yes",
    "danube storage locate /default/orders",
    "danube storage verify --repair",
    "danube storage copy history",
)

OptionalTopic = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC]",
        help="The topic, as /NAMESPACE/TOPIC; by default all topics.",
        show_default=False,
    ),
]


SOURCE = typer.Option(
    "--from",
    metavar="NAME",
    help="With --repair: the name of a further store with intact copies, in the "
    "setting stores of the broker; for backups, its URL ends in /segments.",
    show_default=False,
)


@command(app, "danube storage status", "danube storage status --format json")
def status(connect: Connect) -> Result:
    """
    Show the local segments, the uploads to the remote object store, and problems.

    In a cluster, all brokers are shown.
    """
    with connect() as client:
        by_broker = client.storage.describe_all()
    if "" in by_broker:
        described = by_broker[""]
        return Result(described, *_shown(described))
    shown: list[str | Fields] = []
    for broker_id, described in by_broker.items():
        shown += [f"Broker {broker_id}:", *_shown(described)]
    values = [
        {"broker_id": broker_id, **to_json_value(described)}
        for broker_id, described in by_broker.items()
    ]
    return Result(values, *shown)


@command(app, "danube storage upload", "danube storage upload /default/orders")
def upload(
    connect: Connect, topic: OptionalTopic = None, *, seal: bool = True
) -> Result:
    """
    Upload all messages that there are now, and wait until they are uploaded.

    The broker seals and uploads by itself; this command does not wait for the size or
    the age at which messages are sealed, or for the next attempt after a failure.

    Args:
        seal (--seal/--no-seal): Whether to seal messages first. Without it, only
            segments are uploaded that there are already, and no small ones arise.
    """
    with connect() as client:
        client.storage.upload(topic, seal=seal)
    what = "messages" if seal else "segments"
    return Result(
        {"topic": topic, "uploaded": True},
        f"All {what} of {topic or 'all topics'} are uploaded.",
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
        count, byte_count = client.storage.evict(topic)
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
            for segment in client.storage.segments(name).segments
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
    source: Annotated[str | None, SOURCE] = None,
) -> Result:
    """
    Compare all copies of segments with their checksums, while the broker goes on.

    The broker reads every local and every remote copy. If the command is interrupted or
    fails, it prints the option --after with which it continues where it was.

    Args:
        after (POSITION): Continue after this position.
        rate (SIZE): How much the broker reads per second; 0 means as much as possible.
        repair: Replace a damaged or missing copy by the other copy of the segment, if
            that is intact, or by the one in the store of --from.
    """
    bytes_per_s = parse_bytes(rate)
    with connect() as client:
        total = _all_pages(
            lambda after, is_first: client.storage.verify(
                topic,
                after=after,
                bytes_per_s=bytes_per_s,
                repair=repair,
                source=source or "",
                count=is_first,
            ),
            after,
            "verifying",
        )
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


@command(
    app,
    "danube storage copy history",
    "danube storage copy history --rate 200MiB",
)
def copy(
    connect: Connect,
    name: NamedStore,
    *,
    after: str = "",
    rate: str = "64MiB",
) -> Result:
    """
    Copy the history to another object store, to read it from there later.

    The broker copies all uploaded segments to the store, whose URL and options are in
    its settings (stores.NAME.url and stores.NAME.options), reads them back and compares
    them. It goes on serving meanwhile. What is in the store already is only compared.
    If the command is interrupted or fails, it prints the option --after with which it
    continues where it was.

    Args:
        after (POSITION): Continue after this position.
        rate (SIZE): How much the broker reads per second; 0 means as much as possible.
    """
    bytes_per_s = parse_bytes(rate)
    with connect() as client:
        total = _all_pages(
            lambda after, is_first: client.storage.copy(
                name, after=after, bytes_per_s=bytes_per_s, count=is_first
            ),
            after,
            "copying",
        )
        if not total.damaged:
            total = sum_of(total, client.storage.copy(name, finish=True))
    value = {
        "store": name,
        "segments": total.segment_count,
        "copied": total.copied_count,
        "damaged": total.damaged,
    }
    if total.damaged:
        return Result(
            value,
            Table.of(total.damaged, NOT_COPIED),
            f"Not copied: {len(total.damaged):,} segments. 'danube storage verify' "
            "shows what is wrong with them. Repair them, and copy again.",
            exit_code=exit_code_of(CorruptSegment),
        )
    return Result(
        value,
        f"{total.copied_count:,} segments are copied, the others were there.",
        "To read them from there: set storage.remote.url to the new store, name the "
        "old store in the setting stores, start the broker again, and run 'danube "
        "storage verify --repair --from OLD_STORE', which copies what was uploaded in "
        "the meantime.",
    )


def _all_pages(
    request: Callable[[str, bool], SegmentsVerified],
    after: str,
    title: str,
) -> SegmentsVerified:
    """
    Request page after page, and return their sum.

    *request* gets the position of the page, and whether it is the first.  If it fails
    or is interrupted, the option with which to continue is printed.
    """
    total = SegmentsVerified(after=after)
    expected: SegmentsVerified | None = None
    with progress_line(title, is_shown=sys.stderr.isatty()) as show_progress:
        while expected is None or total.after:
            try:
                page = request(total.after, expected is None)
            except (BrokerError, Interrupted, KeyboardInterrupt):
                if total.after:
                    print_note(
                        f"To continue, repeat the command with --after {total.after}"
                    )
                raise
            expected = expected or page
            total = sum_of(total, page)
            for segment in page.damaged:
                print_note(f"{segment.object_name}: {segment.problem}")
            show_progress(_progress(total, expected), total.segment_count)
    return total


def sum_of(total: SegmentsVerified, page: SegmentsVerified) -> SegmentsVerified:
    """Return *total* with one more page."""
    return SegmentsVerified(
        segment_count=total.segment_count + page.segment_count,
        byte_count=total.byte_count + page.byte_count,
        without_checksum=total.without_checksum + page.without_checksum,
        copied_count=total.copied_count + page.copied_count,
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
            "Segments without an intact copy: 'danube storage verify --repair --from "
            "NAME' copies them from backups, if the setting stores.NAME.url is the URL "
            "of the backups with /segments. Until then, their messages cannot be read."
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
            f"{total.without_checksum:,} recovered segments have no checksum; only "
            "their length was compared."
        )
    if not total.damaged:
        yield f"All copies are intact: {counted} read."
        return
    yield Table.of(total.damaged, DAMAGED)
    yield f"Damaged: {len(total.damaged):,} of {counted} read."
    yield from advice_on(total.damaged)


def _shown(storage: StorageDescription) -> Iterator[str | Fields]:
    yield Fields(_fields(storage))
    for each in storage.problems:
        yield f"Problem: {each}"


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


NOT_COPIED: Columns = {
    "Segment": "object_name",
    "Size": lambda segment: format_bytes(segment.byte_count),
    "Problem": "problem",
}

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
