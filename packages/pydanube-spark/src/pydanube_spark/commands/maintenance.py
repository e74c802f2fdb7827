"""`danube maintenance`: merges, compacts and verifies the segments of topics."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydanube.model.errors import CorruptSegment, InvalidRequest
from pydanube.model.quantity_formats import format_bytes
from pydanube_cli.invocation.declaration import Connect, command
from pydanube_cli.invocation.exit_codes import exit_code_of
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import Columns, Result, Table, print_note
from pydanube_cli.presentation.quantities import parse_bytes, parse_duration
from pydanube_spark.commands.job_runners import NO_SPARK, Master, job_runner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.model.descriptions import Segments, TopicDescription
    from pydanube.sync import Client
    from pydanube_spark.tables.maintenance.run import TopicReport

app = command_group(
    "Merge, compact and verify the segments of topics.",
    "danube maintenance status --all",
    "danube maintenance run /default/orders --merge --verify",
    "danube maintenance run /default/profiles --compact-keys --grace 24h",
)

Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC]...",
        help="Topics, partitions, or partitioned topics.",
        show_default=False,
    ),
]

All = Annotated[bool, typer.Option("--all", help="All reliable topics.")]


@command(
    app,
    "danube maintenance run /default/orders --merge",
    "danube maintenance run /default/profiles --compact-keys --plan",
    "danube maintenance run --all --merge --verify --format json",
    "danube maintenance run --all --merge --master 'local[*]'",
)
def run(
    connect: Connect,
    topics: Topics = None,
    *,
    is_all: All = False,
    merge: bool = False,
    compact_keys: bool = False,
    verify: bool = False,
    grace: str = "24h",
    target_bytes: str = "128MiB",
    master: Master = NO_SPARK,
    plan: bool = False,
) -> Result:
    """
    Merge, compact or verify topics while they are in use.

    If it is interrupted, every topic stays correct; run it again to continue.

    Args:
        merge: Merge adjacent small segments into large ones.
        compact_keys: Keep only the newest message of each key; messages without a key
            stay.
        verify: First verify the checksums of all segments.
        grace (DURATION): How long --compact-keys keeps tombstones: messages with a key
            and an empty payload.
        target_bytes (SIZE): The target size of merged segments.
        plan: Only show what would be done.
    """
    from pydanube.client.connections.requester import READ_RETRY_S  # noqa: PLC0415
    from pydanube_spark.tables.maintenance.run import MaintenanceOptions, maintain  # noqa: PLC0415

    if not (merge or compact_keys or verify):
        raise InvalidRequest("nothing to do; use --merge, --compact-keys or --verify")
    work = MaintenanceOptions(
        is_merging=merge,
        is_compacting=compact_keys,
        is_verifying=verify,
        grace_s=parse_duration(grace),
        target_bytes=parse_bytes(target_bytes),
        is_plan_only=plan,
    )
    reports: list[TopicReport] = []
    with connect(retry_s=READ_RETRY_S) as client:
        names = _topic_names(client, topics or [], is_all=is_all)
        with job_runner("danube maintenance", master) as runner:
            for name in names:
                reports.append(maintain(client, name, work, runner, tell=print_note))
                _print_problems(reports[-1])
    return Result(
        [_json_of(each) for each in reports],
        Table.of(reports, PLANNED if plan else DONE)
        if reports
        else "There are no reliable topics.",
        exit_code=max(map(_exit_code, reports), default=0),
    )


@command(
    app, "danube maintenance status /default/orders", "danube maintenance status --all"
)
def status(
    connect: Connect,
    topics: Topics = None,
    *,
    is_all: All = False,
    target_bytes: str = "128MiB",
) -> Result:
    """
    Show how many segments maintenance could merge; segments are not read.

    Args:
        target_bytes (SIZE): Segments smaller than half of this count as small.
    """
    small_bytes = parse_bytes(target_bytes) / 2
    with connect() as client:
        found = [
            (client.topics.describe(name), client.storage.segments(name))
            for name in _topic_names(client, topics or [], is_all=is_all)
        ]
    states = [_state(topic, listed, small_bytes) for topic, listed in found]
    return Result(states, Table.of(states, STATE))


def _topic_names(client: Client, topics: Sequence[str], *, is_all: bool) -> list[str]:
    """
    Return the topics and partitions that the arguments name.

    Raises:
        InvalidRequest: No topic is named, or one is not reliable.
        TopicNotFound: A topic does not exist.
    """
    if is_all == bool(topics):
        raise InvalidRequest("name topics, or use --all")
    if is_all:
        names = sorted(client.topics.list())
        return [n for n in names if client.topics.describe(n).policy.is_reliable]
    names = []
    for topic in topics:
        for name in client.topics.partitions(topic) or [topic]:
            if not client.topics.describe(name).policy.is_reliable:
                raise InvalidRequest(
                    f"{name} is a non-reliable topic, which has no segments"
                )
            names.append(name)
    return list(dict.fromkeys(names))


def _state(
    topic: TopicDescription, listed: Segments, small_bytes: float
) -> dict[str, Any]:
    segments = listed.segments
    offsets = sum(each.end - each.base for each in segments)
    messages = sum(each.count for each in segments)
    return {
        "topic": topic.topic,
        "segments": len(segments),
        "small_segments": sum(each.byte_count < small_bytes for each in segments),
        "bytes": sum(each.byte_count for each in segments),
        "messages": messages,
        "removed": offsets - messages,
        "without_checksum": sum(each.checksum is None for each in segments),
        "holds": [hold.name for hold in topic.holds],
    }


def _print_problems(report: TopicReport) -> None:
    for problem in report.problems:
        print_note(f"{report.topic}: damaged: {problem}")
    if report.error is not None:
        print_note(f"{report.topic}: {report.error}")


def _exit_code(report: TopicReport) -> int:
    if report.problems:
        return exit_code_of(CorruptSegment)
    return 0 if report.error is None else exit_code_of(report.error)


def _result(report: TopicReport) -> str:
    if report.error is not None:
        return report.error.code
    return "damaged" if report.problems else "done"


def _json_of(report: TopicReport) -> dict[str, Any]:
    error = report.error
    facts = {each.name: getattr(report, each.name) for each in fields(report)}
    return facts | {
        "result": _result(report),
        "seconds": round(report.seconds, 3),
        "error": None if error is None else {"code": error.code, "message": str(error)},
    }


def _change(before: object, after: object) -> str:
    return f"{before} \u2192 {after}"


STATE: Columns = {
    "Topic": "topic",
    "Segments": "segments",
    "Small": "small_segments",
    "Size": lambda state: format_bytes(state["bytes"]),
    "Messages": "messages",
    "Removed": "removed",
    "No checksum": "without_checksum",
    "Held by": lambda state: ", ".join(state["holds"]),
}

DONE: Columns = {
    "Topic": "topic",
    "Segments": lambda each: _change(each.segments_before, each.segments_after),
    "Rewritten": "segments_rewritten",
    "Size": lambda each: _change(
        format_bytes(each.bytes_before), format_bytes(each.bytes_after)
    ),
    "Removed": "messages_removed",
    "Verified": "segments_verified",
    "Seconds": lambda each: f"{each.seconds:.1f}",
    "Result": _result,
}

PLANNED: Columns = {
    {"Rewritten": "Would rewrite", "Removed": "Would remove"}.get(name, name): cell
    for name, cell in DONE.items()
} | {"Result": lambda each: "planned" if _result(each) == "done" else _result(each)}
