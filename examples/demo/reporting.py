"""What the demos print, and how they end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import typer

from pydanube_cli.invocation.error_report import SIGNAL_EXIT_CODE, exit_on_error
from pydanube_cli.presentation.output import Columns, Fields, Table, show

if TYPE_CHECKING:
    from examples.demo.cluster_scenario import ClusterReport
    from examples.demo.scenario import Report

CLAIMS: Columns = {
    "": lambda claim: "✓" if claim.holds else "✗",
    "subject": "subject",
    "claim": "text",
    "expected": "expected",
    "found": "found",
}


def run(app: typer.Typer) -> None:
    """Run the program *app*; if it fails, exit with a message and a code."""
    try:
        with exit_on_error():
            code = app(standalone_mode=False)
    except typer.Exit as end:
        raise SystemExit(end.exit_code) from None
    except typer.Abort:
        # Typer has made it of KeyboardInterrupt.
        raise SystemExit(SIGNAL_EXIT_CODE + signal.SIGINT) from None
    raise SystemExit(code)


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
