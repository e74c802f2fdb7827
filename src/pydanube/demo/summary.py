"""The report at the end of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from pydanube.demo.proofs import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of the demo."""

    facts: Mapping[str, str]
    """Figures by what they are about."""
    claims: Sequence[Claim]
    chart: Path

    @property
    def is_proven(self) -> bool:
        """Return whether every claim holds."""
        return all(claim.holds for claim in self.claims)


def show(report: Report, console: Console) -> None:
    """Print *report*."""
    console.print()
    console.print(_facts(report.facts))
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


def _facts(facts: Mapping[str, str]) -> Table:
    table = _table("What happened", show_header=False)
    table.add_column()
    table.add_column(justify="right", style="cyan", no_wrap=True)
    for pair in facts.items():
        table.add_row(*pair)
    return table


def _claims(claims: Sequence[Claim]) -> Table:
    table = _table("The proof")
    table.add_column(no_wrap=True)
    table.add_column("claim")
    table.add_column("expected", justify="right", no_wrap=True)
    table.add_column("found", justify="right", no_wrap=True)
    for subject, group in groupby(claims, key=lambda claim: claim.subject):
        table.add_row("", f"[bold]{subject}")
        for claim in group:
            table.add_row(
                "[green]✓" if claim.holds else "[red]✗",
                claim.text,
                f"{claim.expected:,}",
                f"{claim.found:,}",
                style="" if claim.holds else "bold red",
            )
    return table


def _table(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE,
        show_header=show_header,
        pad_edge=False,
    )
