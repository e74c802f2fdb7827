"""`danube demo`: the whole system on real data; see ``pydanube.demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pydanube import demo as demonstration
from pydanube.cli.declaration import command

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube demo",
    "danube demo --directory demo-data --seconds 60",
)
def demo(
    *,
    directory: Path | None = None,
    output: Path | None = None,
    seconds: Annotated[float, typer.Option(min=1)] = 20.0,
    small: bool = False,
) -> None:
    """
    Run a demonstration of the whole system on real data.

    It starts a broker, publishes telemetry of this machine and the source of Python's
    standard library, writes both to Delta tables with Spark, and verifies that no
    message was lost or duplicated. It needs the extra "demo" and takes a few minutes.

    Args:
        directory (DIR): A new or empty directory for the broker's data, checkpoints and
            tables. By default a temporary directory that is removed at the end.
        output (DIR): The directory for the chart and the logs; by default demo-output.
        seconds (SECONDS): How long the streaming query runs while telemetry is
            published.
        small: Publish only a part of the standard library.
    """
    raise typer.Exit(
        demonstration.run(
            directory=directory, output=output, seconds=seconds, small=small
        )
    )
