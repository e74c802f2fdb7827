"""`danube lakehouse`: exports topics to tables of Delta Lake and Iceberg."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import BrokerError, Remedy
from pydanube.model.json_values import to_json_value
from pydanube.model.quantity_formats import format_bytes, format_messages
from pydanube_cli.invocation import interruption, parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import (
    Columns,
    Fields,
    OutputFormat,
    Result,
    Table,
    print_json_line,
    print_note,
    print_result,
)
from pydanube_cli.presentation.quantities import optional, parse_bytes, parse_duration
from pydanube_spark.commands.job_runners import NO_SPARK, Master, job_runner
from pydanube_spark.commands.lakehouse_tables import (
    Kind,
    check_undecodable,
    refuse_with_zero_copy,
    table_of,
    zero_copy_of,
)
from pydanube_spark.tables.pure.table_options import (
    UndecodablePolicy,
    parse_partition_by,
)

if TYPE_CHECKING:
    from pydanube_spark.reader.pure.scans import TopicRange
    from pydanube_spark.tables.export.exporter import (
        ExportPlan,
        ExportReport,
        TopicExporter,
    )

app = command_group(
    "Export topics to tables of Delta Lake and Iceberg.\n\nThe progress of an "
    "export is stored in the table itself. Run it again, on any machine, and it "
    "continues without gaps or duplicates.",
    "danube lakehouse export /default/orders --to delta --table ./orders",
    "danube lakehouse compact ./orders --kind delta",
)

KindOption = Annotated[
    Kind,
    typer.Option(metavar="delta|iceberg", help="The format of the table."),
]

CatalogOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A property of the Iceberg catalog, such as uri=…; may be repeated. "
        "Properties in pyiceberg's configuration file apply too; name=… selects the "
        "catalog in it.",
    ),
]

StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A property of the object store of a Delta table, such as aws_region=…; "
        "may be repeated.",
    ),
]

PlanOption = Annotated[
    bool, typer.Option("--plan", help="Only show what would be done.")
]

TableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="The directory or URL of a Delta table, or NAMESPACE.TABLE of an Iceberg "
        "table.",
        show_default=False,
    ),
]

TableOption = Annotated[
    str,
    typer.Option(
        metavar="TABLE",
        help="The directory or URL of a Delta table, or NAMESPACE.TABLE of an Iceberg "
        "table; an export creates it if it does not exist.",
        show_default=False,
    ),
]


@command(
    app,
    "danube lakehouse export /default/orders --to delta --table ./orders",
    "danube lakehouse export /default/orders --to delta --table ./orders --every 10s",
    "danube lakehouse export /default/orders --to iceberg --table lake.orders "
    "--catalog uri=sqlite:///catalog.db --catalog warehouse=file:///srv/lake "
    "--partition-by 'day(_publish_time)'",
    "danube lakehouse export /default/orders --to delta --table ./orders "
    "--dead-letters ./broken --plan",
    "danube lakehouse export /default/orders --to iceberg --table lake.history "
    "--zero-copy",
)
def export(
    topic: parameters.Topic,
    *,
    to: Kind,
    table: TableOption,
    catalog: CatalogOption = None,
    storage: StorageOption = None,
    every: str | None = None,
    raw: bool = False,
    zero_copy: bool = False,
    partition_by: str = "",
    on_undecodable: UndecodablePolicy | None = None,
    dead_letters: str | None = None,
    no_tail: bool = False,
    skip_lost: bool = False,
    round_bytes: str = "256MiB",
    master: Master = NO_SPARK,
    plan: PlanOption = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Export a topic to a table, once or continuously.

    If the topic has a schema, values become typed columns; otherwise rows have payload
    and key. A partitioned topic becomes one table. Ctrl-C ends the export after the
    current round.

    Args:
        to (delta|iceberg): The format of the table.
        every (DURATION): Keep running, and look for new messages at this interval, such
            as 10s. Without it the command ends when all messages are in the table.
        raw: Export payloads as bytes, although the topic has a schema.
        zero_copy: Iceberg only: register the topic's sealed segments as files of the
            table, without copying. The topic is held, so that retention does not delete
            them.
        partition_by (FIELDS): The partitioning of a new table: columns, and for Iceberg
            also year(c), month(c), day(c), hour(c), bucket(16, c), truncate(4, c).
        on_undecodable (fail|null|dead-letter): The choice for messages that the schema
            cannot decode: fail stops with an error; null writes a row of nulls with the
            payload and the reason; dead-letter writes a row to the table
            --dead-letters. The default is dead-letter if that table is given, else
            fail.
        dead_letters (TABLE): A table for messages that cannot be decoded, in the same
            format.
        no_tail: Export only sealed segments, which gives fewer and larger files, but
            later.
        skip_lost: Continue after messages that retention has removed before they were
            exported.
        round_bytes (SIZE): The approximate size of the segments that are exported in
            one transaction.
    """
    from pydanube_spark.tables.export.exporter import Exporter, ExportOptions  # noqa: PLC0415

    every_s = optional(parse_duration, every)
    lake = table_of(to, table, catalog, storage)
    if zero_copy:
        refuse_with_zero_copy(
            to, raw, on_undecodable, dead_letters, partition_by, no_tail
        )
        registering = zero_copy_of(url, topic, lake)
        if plan:
            print_result(_registrations(registering.plan()), output_format)
            return
        _run(registering, every_s, output_format)
        return
    options = ExportOptions(
        url=url,
        topic=topic,
        is_raw=raw,
        undecodable=check_undecodable(on_undecodable, dead_letters),
        partition_by=parse_partition_by(partition_by),
        has_tail=not no_tail,
        may_skip=skip_lost,
        round_bytes_max=parse_bytes(round_bytes),
    )
    dead = (
        None if dead_letters is None else table_of(to, dead_letters, catalog, storage)
    )
    with job_runner("danube lakehouse", master) as runner:
        exporter = Exporter(options, lake, runner, dead_letters=dead)
        if plan:
            print_result(_plan(exporter.plan()), output_format)
            return
        _run(exporter, every_s, output_format)


@command(
    app,
    "danube lakehouse compact ./orders --kind delta",
    "danube lakehouse compact lake.orders --kind iceberg --catalog name=prod",
)
def compact(
    table: TableArgument,
    *,
    kind: KindOption,
    catalog: CatalogOption = None,
    storage: StorageOption = None,
    file_bytes: str = "128MiB",
    plan: PlanOption = False,
) -> Result:
    """
    Merge small files of a table; its rows do not change.

    Others may read and write the table meanwhile. The replaced files remain for readers
    of earlier versions until 'danube lakehouse clean' or the expiry of snapshots
    removes them.

    Args:
        file_bytes (SIZE): The target size of files.
    """
    lake = table_of(kind, table, catalog, storage)
    done = lake.compact(file_bytes=parse_bytes(file_bytes), plan_only=plan)
    verb = "would become" if plan else "became"
    text = (
        f"{lake.name}: {done.files_before} files of "
        f"{format_bytes(done.bytes_before)} {verb} {done.files_after} of "
        f"{format_bytes(done.bytes_after)}"
    )
    return Result(
        {"table": lake.name, "is_plan": plan, **to_json_value(done)},
        text if done.files_before else f"{lake.name} has no small files to merge.",
    )


@command(
    app,
    "danube lakehouse clean ./orders --kind delta --plan",
    "danube lakehouse clean ./orders --kind delta --older-than 30d",
)
def clean(
    table: TableArgument,
    *,
    kind: KindOption,
    catalog: CatalogOption = None,
    storage: StorageOption = None,
    older_than: str = "7d",
    plan: PlanOption = False,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Delete files that a table no longer needs.

    These are files that pydanube wrote in failed attempts, and files of a Delta table
    that were replaced longer ago than --older-than.

    Args:
        older_than (DURATION): Keep files younger than this, which may be about to be
            committed.
    """
    lake = table_of(kind, table, catalog, storage)
    paths = lake.clean(
        older_than_s=parse_duration(older_than),
        now=time.time_ns() / 1e9,
        plan_only=plan,
    )
    if output_format is OutputFormat.TABLE:
        verb = "to delete" if plan else "deleted"
        print_note(f"{len(paths)} {'file' if len(paths) == 1 else 'files'} {verb}")
    return Result({"table": lake.name, "is_plan": plan, "files": paths}, *paths)


@command(
    app,
    "danube lakehouse release /default/orders --table lake.history --catalog name=prod",
)
def release(
    topic: parameters.Topic,
    *,
    table: TableOption,
    catalog: CatalogOption = None,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Release the segments of a zero-copy table for retention and compaction.

    Drop the table first: it refers to the files that they delete.
    """
    lake = table_of(Kind.ICEBERG, table, catalog, None)
    zero_copy_of(url, topic, lake).release()
    print_note(f"{topic} is no longer held for {table}")


def _run(
    exporter: TopicExporter, every_s: float | None, output_format: OutputFormat
) -> None:
    reports: list[ExportReport] = []

    def report_round(report: ExportReport) -> None:
        if every_s is None:
            reports.append(report)
        elif output_format is OutputFormat.JSON and report.message_count:
            print_json_line(report)
        if output_format is OutputFormat.TABLE and report.message_count:
            print_note(_sentence(report))

    try:
        interruption.run(
            lambda stop: _export_rounds(stop, exporter, every_s, report_round)
        )
    finally:
        if every_s is None and reports:
            print_result(_total(reports), output_format)


async def _export_rounds(
    stop: Interruption,
    exporter: TopicExporter,
    every_s: float | None,
    report_round: Callable[[ExportReport], None],
) -> None:
    """
    Export round after round, until nothing is left or, with *every_s*, until a signal.
    """
    while not stop.is_requested:
        is_last = True
        try:
            # The first signal lets the round finish, the second cancels it.
            with stop.shielded():
                report = await asyncio.to_thread(exporter.export_round)
        except BrokerError as error:
            if every_s is None or error.remedy is Remedy.GIVE_UP:
                raise
            print_note(f"{error}; retrying in {every_s:g} s")
        else:
            report_round(report)
            is_last = report.is_last
        if is_last and every_s is None:
            return
        if is_last and every_s is not None:
            async with stop.until_requested():
                await asyncio.sleep(every_s)


def _sentence(report: ExportReport) -> str:
    """Return what one round did as a sentence."""
    dead = f", {report.dead_count} of them dead letters" if report.dead_count else ""
    return (
        f"{format_messages(report.message_count)}{dead} in {report.file_count} "
        f"{'file' if report.file_count == 1 else 'files'} of "
        f"{format_bytes(report.file_bytes)}"
    )


def _total(reports: Sequence[ExportReport]) -> Result:
    """Return the sums of all rounds."""
    totals = {
        name: sum(getattr(each, name) for each in reports)
        for name in ("message_count", "dead_count", "file_count", "file_bytes")
    }
    topics = [
        {"topic": each.topic, "exported": each.exported} for each in reports[-1].topics
    ]
    return Result(
        {"topics": topics, **totals, "round_count": len(reports)},
        Table.of(topics, {"topic": "topic", "exported up to": "exported"}),
        "",
        Fields.of(totals, TOTAL),
    )


def _plan(plan: ExportPlan) -> Result:
    """Return what the next round would do."""
    bases = {each.topic: each.base for each in plan.round.ranges}
    topics = [
        {
            "topic": each.topic,
            "exported": each.exported,
            "from": bases.get(each.topic),
            "to": each.end,
        }
        for each in plan.topics
    ]
    columns = [
        {
            "name": field.name,
            "type": str(field.type),
            "is_new": field.name in plan.new_columns,
        }
        for field in plan.columns.table_schema()
    ]
    return Result(
        {
            "table": plan.table,
            "shape": plan.columns.layout,
            "waiting_count": plan.waiting_count,
            "topics": topics,
            "columns": columns,
        },
        Fields.of(plan, PLAN),
        "",
        Table.of(topics, PLANNED_TOPIC),
        "",
        Table.of(columns, {"column": "name", "type": "type", "new": "is_new"}),
    )


def _registrations(planned: Sequence[TopicRange]) -> Result:
    """Return which segments would become files of a table."""
    rows = [
        {
            "topic": each.topic,
            "from": each.base,
            "to": each.end,
            "segments": len(each.segments),
            "messages": sum(segment.count for segment in each.segments),
        }
        for each in planned
    ]
    columns = ("topic", "from", "to", "segments", "messages")
    return Result(rows, Table.of(rows, {name: name for name in columns}))


TOTAL: Columns = {
    "messages": "message_count",
    "dead letters": "dead_count",
    "files": "file_count",
    "size": lambda total: format_bytes(total["file_bytes"]),
}

PLAN: Columns = {
    "table": "table",
    "shape": "columns.layout",
    "waiting": lambda plan: format_messages(plan.waiting_count),
    "in the first round": lambda plan: format_messages(plan.round.message_count),
}

PLANNED_TOPIC: Columns = {
    "topic": "topic",
    "in the table up to": "exported",
    "from": "from",
    "to": "to",
}
