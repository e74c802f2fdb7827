"""`danube demo`: the main job on real data, with proof; see ``pydanube.demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pydanube import demo as demonstration
from pydanube.cli.parameters import examples

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command(
    epilog=examples("danube demo", "danube demo --directory demo-data --seconds 60")
)
def demo(
    *,
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where broker, checkpoints and tables are kept, new or empty. By "
            "default a temporary one, which is removed at the end.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the chart and the logs go; by default demo-output, here.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help="How long the live query runs on telemetry that is being published.",
        ),
    ] = 20.0,
    small: Annotated[
        bool,
        typer.Option("--small", help="Publish only a part of the standard library."),
    ] = False,
) -> None:
    """
    See the whole system work on real data.

    It starts a broker, publishes telemetry of this machine and the source of Python's
    standard library, lets Spark turn them into Delta tables, and proves that nothing
    was lost or duplicated. It needs the extra "demo" and takes a few minutes.
    """
    raise typer.Exit(
        demonstration.run(
            directory=directory, output=output, seconds=seconds, small=small
        )
    )
