"""What the demo says at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from pydanube.demo.proofs import Claim


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure worth showing."""

    text: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run of the demo found out."""

    facts: Sequence[Fact]
    claims: Sequence[Claim]
    top_files: Sequence[tuple[str, int]]
    chart: Path

    @property
    def is_proven(self) -> bool:
        """Whether every claim holds."""
        return all(claim.holds for claim in self.claims)


def show(report: Report, console: Console) -> None:
    """Print *report*."""
    console.print()
    console.print(_facts(report.facts))
    console.print(_top_files(report.top_files))
    console.print(_claims(report.claims))
    if report.is_proven:
        console.print(
            f"[bold green]All {len(report.claims)} checks hold: nothing lost, nothing "
            "duplicated, everything in order."
        )
    else:
        failed = sum(not claim.holds for claim in report.claims)
        console.print(f"[bold red]{failed} of {len(report.claims)} checks FAILED.")
    console.print(f"Chart: [bold]{report.chart}[/bold]", soft_wrap=True)


def _facts(facts: Sequence[Fact]) -> Table:
    table = Table(title="What happened", box=box.SIMPLE, title_justify="left")
    table.add_column("")
    table.add_column("", justify="right", style="cyan")
    for fact in facts:
        table.add_row(fact.text, fact.value)
    table.show_header = False
    return table


def _top_files(files: Sequence[tuple[str, int]]) -> Table:
    table = Table(
        title="The longest files, from the Delta table",
        box=box.SIMPLE,
        title_justify="left",
    )
    table.add_column("file")
    table.add_column("lines", justify="right", style="cyan")
    for name, lines in files:
        table.add_row(name, f"{lines:,}")
    return table


def _claims(claims: Sequence[Claim]) -> Table:
    table = Table(title="The proof", box=box.SIMPLE, title_justify="left")
    table.add_column("")
    table.add_column("topic")
    table.add_column("claim")
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    for claim in claims:
        mark, style = ("[green]✓", "") if claim.holds else ("[red]✗", "bold red")
        table.add_row(
            mark,
            claim.subject,
            claim.text,
            f"{claim.expected:,}",
            f"{claim.found:,}",
            style=style,
        )
    return table
