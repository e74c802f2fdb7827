"""The demo of the whole system on real data."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from examples.demo.reporting import print_report, run
from examples.demo.scenario import run_demo
from pydanube_cli.invocation.declaration import command
from pydanube_cli.presentation.output import print_note

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "python -m examples.demo",
    "python -m examples.demo --directory demo-data --seconds 60",
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
    message was lost or duplicated. It takes a few minutes.

    Args:
        directory (DIR): A new or empty directory for the broker's data, checkpoints and
            tables. By default a temporary directory that is removed at the end.
        output (DIR): The directory for the chart and the logs; by default demo-output.
        seconds (SECONDS): How long the streaming query runs while telemetry is
            published.
        small: Publish only a part of the standard library.
    """
    with tempfile.TemporaryDirectory(prefix="danube-demo-") as temporary:
        try:
            report = run_demo(
                directory or Path(temporary),
                output or Path("demo-output"),
                seconds=seconds,
                small=small,
            )
        except KeyboardInterrupt:
            print_note("\nInterrupted; everything that was started is stopped.")
            raise
    print_report(report)


if __name__ == "__main__":
    run(app)
