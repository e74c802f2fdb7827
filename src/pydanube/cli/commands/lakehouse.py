"""`danube lakehouse`: topics as tables of Delta Lake and Iceberg, kept up to date."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from pydanube.cli import interruption, parameters
from pydanube.cli.commands.lakehouse_output import (
    fields,
    print_plan,
    print_registrations,
    print_total,
    sentence,
    total,
)
from pydanube.cli.commands.lakehouse_tables import (
    NO_SPARK,
    Kind,
    OnUndecodable,
    dead_letters_of,
    exporter_of,
    refuse_with_zero_copy,
    runner_of,
    table_of,
    zero_copy_of,
)
from pydanube.cli.output import (
    OutputFormat,
    print_json,
    print_json_line,
    print_line,
    print_note,
)
from pydanube.cli.parameters import examples
from pydanube.cli.quantities import format_bytes, parse_bytes, parse_duration
from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import BrokerError, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube.cli.interruption import Interruption
    from pydanube.tables.export.exporter import ExportReport

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Keep tables of Delta Lake and Iceberg up to date with topics.\n\n"
    "Where an export stands is in the table itself: run it again, anywhere, and it "
    "goes on without a gap and without repeating anything.",
    epilog=examples(
        "danube lakehouse export /default/orders --to delta --table ./orders",
        "danube lakehouse compact ./orders --kind delta",
    ),
)

KindOption = Annotated[
    Kind, typer.Option("--kind", metavar="delta|iceberg", help="What the table is.")
]

CatalogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        metavar="NAME=VALUE",
        help="A property of the Iceberg catalog, such as uri=…; may be repeated. Those "
        "of pyiceberg's configuration file hold besides; name=… says which.",
    ),
]

StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="NAME=VALUE",
        help="What the object store of a Delta table needs, such as aws_region=…; may "
        "be repeated.",
    ),
]

PlanOption = Annotated[
    bool, typer.Option("--plan", help="Only say what would be done.")
]

TableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="The directory or URL of a Delta table; NAMESPACE.TABLE of an Iceberg "
        "one.",
        show_default=False,
    ),
]

TableOption = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="The directory or URL of a Delta table; NAMESPACE.TABLE of an Iceberg "
        "one. It is created if it does not exist.",
        show_default=False,
    ),
]


@app.command(
    epilog=examples(
        "danube lakehouse export /default/orders --to delta --table ./orders",
        "danube lakehouse export /default/orders --to delta --table ./orders "
        "--every 10s",
        "danube lakehouse export /default/orders --to iceberg --table lake.orders "
        "--catalog uri=sqlite:///catalog.db --catalog warehouse=file:///srv/lake "
        "--partition-by 'day(_publish_time)'",
        "danube lakehouse export /default/orders --to delta --table ./orders "
        "--dead-letters ./broken --plan",
        "danube lakehouse export /default/orders --to iceberg --table lake.history "
        "--zero-copy",
    )
)
def export(
    topic: parameters.Topic,
    *,
    to: Annotated[
        Kind,
        typer.Option(
            "--to",
            metavar="delta|iceberg",
            help="What the table is.",
            show_default=False,
        ),
    ],
    table: TableOption,
    catalog: CatalogOption = None,
    storage: StorageOption = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Go on: look again after so long, such as 10s. Without it the command "
            "ends when everything is in the table.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Payloads as they are, although the topic has a schema."
        ),
    ] = False,
    zero_copy: Annotated[
        bool,
        typer.Option(
            "--zero-copy",
            help="Iceberg only: make the topic's sealed segments themselves the table. "
            "Nothing is copied; the topic is held, so that nothing is deleted.",
        ),
    ] = False,
    partition_by: Annotated[
        str,
        typer.Option(
            metavar="FIELDS",
            help="What a new table is partitioned by: columns, and for Iceberg also "
            "year(c), month(c), day(c), hour(c), bucket(16, c), truncate(4, c).",
        ),
    ] = "",
    on_undecodable: Annotated[
        OnUndecodable | None,
        typer.Option(
            metavar="fail|null|dead-letter",
            help="What becomes of a message that the schema cannot read: end with an "
            "error; a row of nulls with its payload and the reason; a row of the "
            "table --dead-letters. By default fail, or dead-letter with such a table.",
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Where messages go that cannot be read; of one kind with the table.",
        ),
    ] = None,
    no_tail: Annotated[
        bool,
        typer.Option(
            "--no-tail", help="Only what is sealed: fewer and larger files, later."
        ),
    ] = False,
    skip_lost: Annotated[
        bool,
        typer.Option(
            "--skip-lost",
            help="Go on behind messages that retention has dropped.",
        ),
    ] = False,
    round_bytes: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="How much history becomes one transaction, about."
        ),
    ] = "256MiB",
    master: Annotated[
        str,
        typer.Option(
            metavar="none|MASTER",
            help="Where the tasks run: threads of this process, or a Spark such as "
            "local[*], spark://host:7077 or sc://host:15002.",
        ),
    ] = NO_SPARK,
    plan: PlanOption = False,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Bring a table up to date with a topic, once or for ever.

    Messages whose topic has a schema become rows of typed columns, others rows with
    payload and key. A topic with partitions becomes one table. Ctrl-C ends the export
    after the round that it is at.
    """
    every_s = None if every is None else parse_duration(every)
    lake = table_of(to, table, catalog, storage)
    if zero_copy:
        refuse_with_zero_copy(
            to, raw, on_undecodable, dead_letters, partition_by, no_tail
        )
        registering = zero_copy_of(url, topic, lake)
        if plan:
            print_registrations(registering.plan(), output_format)
            return
        _go(registering, every_s, output_format)
        return
    with runner_of(master) as runner:
        exporter = exporter_of(
            runner,
            lake,
            dead_letters_of(to, dead_letters, catalog, storage, on_undecodable),
            url=url,
            topic=topic,
            is_raw=raw,
            undecodable=on_undecodable,
            partition_by=partition_by,
            has_tail=not no_tail,
            may_skip=skip_lost,
            round_bytes_max=parse_bytes(round_bytes),
        )
        if plan:
            print_plan(exporter.plan(), output_format)
            return
        _go(exporter, every_s, output_format)


@app.command(
    epilog=examples(
        "danube lakehouse compact ./orders --kind delta",
        "danube lakehouse compact lake.orders --kind iceberg --catalog name=prod",
    )
)
def compact(
    table: TableArgument,
    *,
    kind: KindOption,
    catalog: CatalogOption = None,
    storage: StorageOption = None,
    file_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="How large files should become.")
    ] = "128MiB",
    plan: PlanOption = False,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Join small files of a table; its rows stay the same.

    It may be done while others read and write. What was replaced stays for readers of
    earlier versions, until 'danube lakehouse clean' or the expiry of snapshots.
    """
    lake = table_of(kind, table, catalog, storage)
    done = lake.compact(file_bytes=parse_bytes(file_bytes), plan_only=plan)
    if output_format is OutputFormat.JSON:
        print_json({"table": lake.name, "is_plan": plan, **fields(done)})
    elif not done.files_before:
        print_line(f"{lake.name} has no small files that could be joined.")
    else:
        verb = "would become" if plan else "became"
        print_line(
            f"{lake.name}: {done.files_before} files of "
            f"{format_bytes(done.bytes_before)} {verb} {done.files_after} of "
            f"{format_bytes(done.bytes_after)}"
        )


@app.command(
    epilog=examples(
        "danube lakehouse clean ./orders --kind delta --plan",
        "danube lakehouse clean ./orders --kind delta --older-than 30d",
    )
)
def clean(
    table: TableArgument,
    *,
    kind: KindOption,
    catalog: CatalogOption = None,
    storage: StorageOption = None,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Leave younger files: somebody may be about to commit them.",
        ),
    ] = "7d",
    plan: PlanOption = False,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Delete files that a table has no use for.

    Those are files of attempts that failed, as far as they were written by pydanube,
    and in a Delta table what was replaced so long ago.
    """
    lake = table_of(kind, table, catalog, storage)
    paths = lake.clean(
        older_than_s=parse_duration(older_than),
        now=time.time_ns() / 1e9,
        plan_only=plan,
    )
    if output_format is OutputFormat.JSON:
        print_json({"table": lake.name, "is_plan": plan, "files": paths})
        return
    for path in paths:
        print_line(path)
    verb = "to delete" if plan else "deleted"
    print_note(f"{len(paths)} {'file' if len(paths) == 1 else 'files'} {verb}")


@app.command(
    epilog=examples(
        "danube lakehouse release /default/orders --table lake.history "
        "--catalog name=prod"
    )
)
def release(
    topic: parameters.Topic,
    *,
    table: TableOption,
    catalog: CatalogOption = None,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Let retention and compaction have the segments of a zero-copy table again.

    Drop the table first: it loses the files that they take.
    """
    lake = table_of(Kind.ICEBERG, table, catalog, None)
    zero_copy_of(url, topic, lake).release()
    print_note(f"{topic} is not held for {table} any more")


class _Rounds(Protocol):
    def export_round(self) -> ExportReport: ...


def _go(one: _Rounds, every_s: float | None, output_format: OutputFormat) -> None:
    reports: list[ExportReport] = []

    def tell(report: ExportReport) -> None:
        if every_s is None:
            reports.append(report)
        elif output_format is OutputFormat.JSON and report.message_count:
            print_json_line(fields(report))
        if output_format is OutputFormat.TABLE and report.message_count:
            print_note(sentence(report))

    def finish() -> None:
        if every_s is not None or not reports:
            return
        if output_format is OutputFormat.JSON:
            print_json(total(reports))
        else:
            print_total(total(reports))

    try:
        interruption.run(lambda signals: _follow(signals, one, every_s, tell))
    finally:
        finish()


async def _follow(
    signals: Interruption,
    one: _Rounds,
    every_s: float | None,
    tell: Callable[[ExportReport], None],
) -> None:
    """Round after round, until nothing is left, or for ever."""
    while not signals.is_requested:
        is_last = True
        try:
            # What it has begun it finishes: the next signal insists.
            with signals.shielded():
                report = await asyncio.to_thread(one.export_round)
        except BrokerError as error:
            if every_s is None or error.remedy is Remedy.GIVE_UP:
                raise
            print_note(f"{error}; trying again in {every_s:g} s")
        else:
            tell(report)
            is_last = report.is_last
        if is_last and every_s is None:
            return
        if is_last and every_s is not None:
            async with signals.until_requested():
                await asyncio.sleep(every_s)
