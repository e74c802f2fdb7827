"""`danube recover`: make a data directory whole again that has lost a part."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.client_calls import confirm
from pydanube.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_line,
    print_table,
)
from pydanube.cli.parameters import examples
from pydanube.model.errors import NotFound
from pydanube.servers.config import load_config
from pydanube.servers.data_recovery import recover_directory
from pydanube.servers.directory import hold_directory

if TYPE_CHECKING:
    from pydanube.servers.data_recovery import Findings

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command(
    epilog=examples(
        "danube recover --data-dir /var/lib/danube --dry-run",
        "danube recover --data-dir /var/lib/danube --from-segments",
        "danube recover --data-dir /var/lib/danube --accept-loss --yes",
    )
)
def recover(
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The data directory of a broker that does not run. By default "
            "danube-data, here.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The broker's settings; the variable DANUBE_CONFIG may name them.",
        ),
    ] = None,
    from_segments: Annotated[
        bool,
        typer.Option(
            "--from-segments",
            help="Rebuild the records of topics from the object store and the journal.",
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Give up what a missing or damaged journal or object store held. "
            "Each topic goes on at an offset that was never given out; readers of the "
            "offsets in between are told that they are gone.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what was found; change nothing."),
    ] = False,
    yes: parameters.Yes = False,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Make a data directory whole again that has lost a part.

    It shows what it found and what it would do, and asks before it writes. Nothing is
    deleted: what is replaced is moved to the directory "replaced" inside of DIR. A run
    that was interrupted can be repeated.
    """
    settings = load_config(config, os.environ, {"data_dir": data_dir})
    path = settings.data_dir
    parts = ("metadata.sqlite", "journal", "objects")
    if not any((path / part).exists() for part in parts):
        raise NotFound(f"{path} is not the data directory of a broker")
    with hold_directory(path) as directory:

        def run(*, write: bool) -> Findings:
            return asyncio.run(
                recover_directory(
                    directory,
                    settings.storage,
                    from_segments=from_segments,
                    accept_loss=accept_loss,
                    write=write,
                )
            )

        findings = run(write=False)
        is_whole = not (findings.needs_from_segments or findings.needs_accept_loss)
        if not dry_run and not is_whole:
            if output_format is OutputFormat.TABLE:
                _print(findings)
            confirm(f"Change {path} as shown?", is_sure=yes)
            findings = run(write=True)
    if output_format is OutputFormat.JSON:
        print_json(findings)
    elif dry_run or is_whole:
        _print(findings)
    else:
        print_line(f"{path} is recovered; start the broker.")


def _print(findings: Findings) -> None:
    print_fields(
        [
            ("Directory", findings.directory),
            ("Cluster", findings.cluster_id),
            ("Metadata store", findings.metadata),
            ("Journal", findings.journal),
            ("Object store", findings.objects),
        ]
    )
    print_line()
    print_table(
        (
            *("Topic", "Record", "Segments", "rebuilt", "From", "To"),
            *("Salvaged", "Goes on at"),
        ),
        (
            (
                topic.topic,
                "rebuilt" if topic.is_rebuilt else "there",
                str(topic.segments),
                str(topic.rebuilt_segments),
                topic.base if topic.base is None else str(topic.base),
                str(topic.end),
                str(topic.salvaged),
                str(topic.next_offset),
            )
            for topic in findings.topics
        ),
    )
    subscriptions = [
        (topic.topic, name, str(cursor))
        for topic in findings.topics
        for name, cursor in topic.subscriptions.items()
    ]
    if subscriptions:
        print_line()
        print_table(("Topic", "Rebuilt subscription", "Cursor"), subscriptions)
    for name in findings.unreadable:
        print_line(f"left out: {name} is no segment of a topic above")
    flags = [
        flag
        for flag, is_needed in (
            ("--from-segments", findings.needs_from_segments),
            ("--accept-loss", findings.needs_accept_loss),
        )
        if is_needed
    ]
    print_line()
    print_line(
        f"'danube recover {' '.join(flags)}' makes the directory whole as shown."
        if flags
        else "The parts belong together; there is nothing to recover."
    )
