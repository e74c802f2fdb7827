"""`danube demo`: the whole system on real data; see ``pydanube.demo``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli.declaration import command
from pydanube.cli.output import Columns, Fields, Table, print_note, show
from pydanube.model.extras import require

if TYPE_CHECKING:
    from pydanube.demo.cluster_scenario import ClusterReport
    from pydanube.demo.scenario import Report

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

CLAIMS: Columns = {
    "": lambda claim: "✓" if claim.holds else "✗",
    "subject": "subject",
    "claim": "text",
    "expected": "expected",
    "found": "found",
}


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
    require("demo", "the demo")
    from pydanube.demo.scenario import run_demo  # noqa: PLC0415  # Needs the extra.

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


def print_report(report: Report | ClusterReport) -> None:
    """
    Print the figures and checks of a demo.

    Raises:
        Exit: A check has failed; the exit code is 1.
    """
    count = len(report.claims)
    failed = sum(not claim.holds for claim in report.claims)
    show(
        Fields(report.facts.items()),
        "",
        Table.of(report.claims, CLAIMS),
        "",
        f"{failed} of {count} checks FAILED."
        if failed
        else f"All {count} checks hold: nothing lost, nothing duplicated, everything "
        "in order.",
        f"Chart: {report.chart}",
    )
    if failed:
        raise typer.Exit(1)
