"""`danube connect`: runs connectors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.aio.tasks import task_scope
from pydanube.cli import interruption, parameters
from pydanube.cli.declaration import command
from pydanube.cli.declared_files import exit_on_problems
from pydanube.cli.interruption import Interrupted, Interruption
from pydanube.cli.output import OutputFormat, Result, Table, print_json_line, print_line
from pydanube.cli.parameters import command_group
from pydanube.cli.quantities import parse_duration
from pydanube.connectors.connector import Source
from pydanube.connectors.kinds import KINDS, find_kind, options_of, summary_of
from pydanube.connectors.loading import DeclaredConnector, load
from pydanube.connectors.running import run_connectors
from pydanube.connectors.status import ConnectorStatus, State
from pydanube.declarations.parameters import parse_set
from pydanube.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_FAILED = 1
STOP_S = 30.0
"""How long connectors may take to finish what they have in hand."""

app = command_group(
    "Run connectors, which publish what other systems have, or write messages to "
    "them.\n\nA file declares them; 'danube connect list' shows the kinds.",
    "danube connect list",
    "danube connect validate webhooks.yaml",
    "danube connect run webhooks.yaml",
)

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE…", help="The files that declare connectors.", show_default=False
    ),
]

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter of the files; may be repeated.",
    ),
]


@command(
    app,
    "danube connect run webhooks.yaml",
    "danube connect run sensors.yaml orders.yaml --format json",
)
def run(
    files: Files,
    *,
    settings: Set = None,
    interval: str = "10s",
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Run the connectors of files, in one process, from where they stopped the last time.

    The files are validated first. A line is printed when the state of a connector
    changes, and regularly while its counts change. Ctrl-C and SIGTERM stop the
    connectors after what they have in hand; a second Ctrl-C stops them at once, which
    is safe. The exit code is 0 if all connectors have reached their end, 1 if one has
    failed for good, 2 if a file is invalid, 130 or 143 if a signal ended the run.

    Args:
        interval (DURATION): How often the counts are printed.
    """
    interval_s = parse_duration(interval)
    connectors = _load_all(files, settings, OutputFormat.TABLE)

    def report(status: ConnectorStatus) -> None:
        if output_format is OutputFormat.JSON:
            print_json_line(status)
        else:
            print_line(status.line())

    async def work(interrupted: Interruption) -> list[ConnectorStatus]:
        return await _run_until(interrupted, connectors, report, interval_s)

    found = interruption.run(work)
    if any(each.state is State.FAILED for each in found):
        raise typer.Exit(EXIT_FAILED)


async def _run_until(
    interrupted: Interruption,
    connectors: Sequence[DeclaredConnector],
    report: Callable[[ConnectorStatus], None],
    interval_s: float,
) -> list[ConnectorStatus]:
    stop = asyncio.Event()
    async with task_scope() as tasks:
        running = tasks.start(
            run_connectors(connectors, report, stop=stop, interval_s=interval_s)
        )
        async with interrupted.until_requested():
            await asyncio.wait([running])
        stop.set()
        with interrupted.shielded(STOP_S):
            found = await running
    if interrupted.number is not None:
        raise Interrupted(interrupted.number)
    return found


@command(
    app,
    "danube connect validate webhooks.yaml",
    "danube connect validate sensors.yaml --set host=mqtt.example.com",
)
def validate(
    files: Files,
    *,
    settings: Set = None,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Validate files that declare connectors, without connecting to anything.

    All problems are reported with their place in the file. The exit code is 2 if there
    are any.
    """
    connectors = _load_all(files, settings, output_format)
    rows = [
        {
            "connector": each.name,
            "kind": each.spec.kind,
            "direction": "source" if each.is_source else "sink",
            "topic": each.spec.topic,
        }
        for each in connectors
    ]
    return Result(
        {"problems": [], "connectors": rows},
        Table.of(
            rows,
            {
                "Connector": "connector",
                "Kind": "kind",
                "Direction": "direction",
                "Topic": "topic",
            },
        ),
    )


@command(app, "danube connect list", "danube connect list mqtt", name="list")
def list_kinds(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="The kind whose options to list; by default all kinds.",
            show_default=False,
        ),
    ] = None,
) -> Result:
    """List the kinds of connectors, or the options of one kind."""
    if kind is None:
        kinds = [
            {
                "kind": name,
                "direction": "source" if issubclass(found, Source) else "sink",
                "summary": summary_of(found),
            }
            for name in KINDS
            for found in [find_kind(name, Path())]
        ]
        columns = {"Kind": "kind", "Direction": "direction", "Summary": "summary"}
        return Result(kinds, Table.of(kinds, columns))
    options = options_of(find_kind(kind, Path()))
    return Result(
        options,
        Table.of(
            options,
            {
                "Option": "name",
                "Type": "type",
                "Default": lambda each: each.default or "required",
                "Meaning": lambda each: each.help.replace("`", ""),
            },
        ),
    )


def _load_all(
    files: Sequence[Path], settings: list[str] | None, output_format: OutputFormat
) -> list[DeclaredConnector]:
    given = parse_set(settings or ())
    found: dict[str, DeclaredConnector] = {}
    with exit_on_problems(output_format):
        for file in files:
            for each in load(file, parameters=given, environment=os.environ):
                if each.name in found:
                    raise InvalidRequest(
                        f"the connector {each.name} is declared in {each.file} and in "
                        f"{found[each.name].file}: the names of connectors differ"
                    )
                found[each.name] = each
    return list(found.values())
